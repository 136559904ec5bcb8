package policy

import (
	"context"
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
)

// Output names an output.
type Output struct{ ID, Name string }

// Outputs finds outputs.
type Outputs interface {
	// Output returns an output. An empty id is the default one for data or, if monitoring is
	// set, for what agents report of themselves. An output that does not exist is empty.
	Output(ctx context.Context, id string, monitoring bool) (Output, error)
}

// OutputsOf returns the outputs that a policy's agents send to.
func (s *Service) OutputsOf(ctx context.Context, p fleet.Policy) (data, monitoring Output, err error) {
	if s.Outputs == nil {
		return data, monitoring, nil
	}
	if data, err = s.Outputs.Output(ctx, p.DataOutputID, false); err != nil {
		return data, monitoring, fmt.Errorf("the output of policy %s: %w", p.ID, err)
	}
	if monitoring, err = s.Outputs.Output(ctx, p.MonitoringOutputID, true); err != nil {
		return data, monitoring, fmt.Errorf("the monitoring output of policy %s: %w", p.ID, err)
	}
	return data, monitoring, nil
}
