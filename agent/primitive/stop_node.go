package primitive

import (
	"context"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
)

// stopNode stops the version that runs. If only configuration changes, and the component can
// read it while it runs, it is not stopped; nor is the new version, if an interrupted upgrade
// had started it. Undoing starts the version that was stopped.
func (c *Change) stopNode() steps.Step {
	return steps.Step{Name: StopNode, Timeout: StopTimeout, Input: c.input, Done: c.stopped, Do: c.doStop, Undo: c.undoStop}
}

// running returns the version by which the component is stopped: after a crash in a first
// installation the host may have started the new one.
func (c *Change) running() (*runtime.Release, error) {
	if c.Journal.From == nil {
		return c.to()
	}
	return c.from()
}

func (c *Change) stopped(ctx context.Context) (bool, error) {
	if c.Journal.Reload {
		return true, nil
	}
	r, err := c.running()
	if err != nil {
		return false, err
	}
	status, err := c.Adapter.Status(ctx, r)
	if err != nil || !status.Running && !status.Waits {
		return err == nil, err
	}
	if done, err := c.installed(ctx); err != nil || !done {
		return false, err
	}
	return c.configsWritten(ctx)
}

func (c *Change) doStop(ctx context.Context) error {
	r, err := c.running()
	if err != nil {
		return err
	}
	c.Journal.Ran = c.Journal.From != nil
	if err := c.Save(); err != nil {
		return err
	}
	return c.Adapter.Stop(ctx, r)
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
