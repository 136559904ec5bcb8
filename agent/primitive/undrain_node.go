package primitive

import (
	"context"

	"github.com/muster-fleet/muster/agent/steps"
)

// undrainNode has the new version take what the one before no longer took, by the hook of its
// package. Nothing is undone: start_node stops it, and drain_node undrains the version before.
func (c *Change) undrainNode() steps.Step {
	return steps.Step{
		Name: UndrainNode, Timeout: undrainTimeout, Input: c.input, When: func() bool { return c.Journal.Extras.Undrain && c.Journal.Extras.Drained },
		Do: func(ctx context.Context) error {
			to, err := c.to()
			if err != nil {
				return err
			}
			return c.Undrain(ctx, to)
		},
	}
}
