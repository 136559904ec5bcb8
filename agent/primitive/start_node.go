package primitive

import (
	"context"

	"github.com/muster-fleet/muster/agent/steps"
)

// startNode starts the version, or has the running one read its configuration. Undoing stops
// it.
func (c *Change) startNode() steps.Step {
	return steps.Step{Name: StartNode, Timeout: startTimeout, Input: c.input, Done: c.started, Do: c.doStart, Undo: c.undoStart}
}

func (c *Change) started(ctx context.Context) (bool, error) {
	if c.Journal.Reload {
		return false, nil
	}
	to, err := c.to()
	if err != nil {
		return false, err
	}
	status, err := c.Adapter.Status(ctx, to)
	return status.Running && (status.Home == "" || status.Home == to.Home), err
}

func (c *Change) doStart(ctx context.Context) error {
	to, err := c.to()
	if err != nil {
		return err
	}
	if c.Journal.Reload {
		return c.Adapter.Reload(ctx, to)
	}
	return c.Adapter.Start(ctx, to)
}

func (c *Change) undoStart(ctx context.Context) error {
	if c.Journal.Reload || c.undone() {
		return nil // a reloaded one goes on running, and stop_node has it read the old configuration
	}
	to, err := c.to()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, StopTimeout)
	defer cancel()
	return c.Adapter.Stop(ctx, to)
}
