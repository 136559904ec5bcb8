package primitive

import (
	"context"

	"github.com/muster-fleet/muster/agent/steps"
)

// reloadDaemon has the service manager read its definitions again. Undoing does the same, and
// the undoing of stop_node once more, after the definitions are restored.
func (c *Change) reloadDaemon() steps.Step {
	return steps.Step{Name: ReloadDaemon, Timeout: reloadTimeout, Input: c.input, Do: c.doReload, Undo: func(ctx context.Context) error {
		if c.undone() {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
		defer cancel()
		return c.doReload(ctx)
	}}
}

func (c *Change) doReload(ctx context.Context) error {
	to, err := c.to()
	if err != nil {
		return err
	}
	return c.Adapter.ReloadDaemon(ctx, to)
}
