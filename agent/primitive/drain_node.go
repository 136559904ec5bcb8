package primitive

import (
	"context"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// drainPoll is how often a component is asked whether it is drained.
const drainPoll = 2 * time.Second

// drainNode has the running version finish what it does and take nothing new, by the hook of its
// package, unless there is nothing to stop. Undoing runs its hook undrain, once it runs again.
func (c *Change) drainNode() steps.Step {
	return steps.Step{
		Name: DrainNode, Timeout: drainTimeout, Input: c.input, When: func() bool { return c.Journal.Extras.Drain },
		Done: c.stopped, Do: c.doDrain, Undo: c.undoDrain, OwnTime: true,
	}
}

func (c *Change) doDrain(ctx context.Context) error {
	from, err := c.from()
	if err != nil {
		return err
	}
	c.Journal.Extras.Drained = true
	if err := c.Save(); err != nil {
		return err
	}
	h := *from.Component.Hooks.Drain
	ctx, cancel := context.WithTimeoutCause(ctx, h.Bound(), fmt.Errorf("hook drain: it is not drained after %s", h.Bound()))
	defer cancel()
	h.Timeout = drainTimeout // of all tries together, which ctx has
	tick := time.NewTicker(drainPoll)
	defer tick.Stop()
	for {
		status, err := c.hook(ctx, from, h)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil:
			return nil
		case status != manifest.HookNotYet:
			return fmt.Errorf("hook drain: %w", err)
		}
		c.Report(agentapi.UpgradeMetadata{Reason: "waits until it is drained"})
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Change) undoDrain(ctx context.Context) error {
	from, err := c.from()
	if err != nil || from == nil || !c.Journal.Extras.Drained {
		return err
	}
	return c.Undrain(ctx, from)
}

// Undrain runs the hook undrain of a version that runs, if it has one.
func (c *Change) Undrain(ctx context.Context, r *runtime.Release) error {
	h := r.Component.Hooks
	if h == nil || h.Undrain == nil {
		return nil
	}
	if _, err := c.hook(ctx, r, *h.Undrain); err != nil {
		return fmt.Errorf("hook undrain: %w", err)
	}
	return nil
}
