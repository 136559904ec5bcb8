package primitive

import (
	"context"

	"github.com/muster-fleet/muster/agent/steps"
)

// stopNode stops the version that runs. If only configuration changes, and the component can
// read it while it runs, it is not stopped. Undoing starts the version that was stopped.
func (c *Change) stopNode() steps.Step {
	return steps.Step{Name: StopNode, Timeout: stopTimeout, Input: c.input, Done: c.stopped, Do: c.doStop, Undo: c.undoStop}
}

func (c *Change) stopped(ctx context.Context) (bool, error) {
	if c.Journal.From == nil || c.Journal.Reload {
		return true, nil
	}
	from, err := c.from()
	if err != nil {
		return false, err
	}
	status, err := c.Adapter.Status(ctx, from)
	return !status.Running && !status.Waits, err
}

func (c *Change) doStop(ctx context.Context) error {
	from, err := c.from()
	if err != nil {
		return err
	}
	c.Journal.Ran = true
	if err := c.Save(); err != nil {
		return err
	}
	return c.Adapter.Stop(ctx, from)
}

func (c *Change) undoStop(ctx context.Context) error {
	from, err := c.from()
	if err != nil || from == nil {
		return err
	}
	switch {
	case c.Journal.Reload && c.Journal.HasBegun(WriteConfigs):
		return c.Adapter.Reload(ctx, from)
	case !c.Journal.Ran:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout+startTimeout)
	defer cancel()
	// reload_daemon was undone before the definitions were restored.
	if err := c.Adapter.ReloadDaemon(ctx, from); err != nil {
		return err
	}
	return c.Adapter.Start(ctx, from)
}
