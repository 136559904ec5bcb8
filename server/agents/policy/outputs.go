package policy

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
)

// OutputsOf returns the outputs that a policy's agents send to, nil if there is none.
func (s *Service) OutputsOf(ctx context.Context, p fleet.Policy) (data, monitoring *fleet.Output, err error) {
	outputs, err := s.Objects.Outputs().List(ctx)
	if err != nil {
		return nil, nil, err
	}
	data = chooseOutput(outputs, p.DataOutputID, func(o *fleet.Output) bool { return o.Default })
	monitoring = chooseOutput(outputs, p.MonitoringOutputID, func(o *fleet.Output) bool { return o.DefaultMonitoring })
	return data, monitoring, nil
}

// chooseOutput returns the output with the id, else the default one, else any that is the
// default for data, else nil.
func chooseOutput(outputs []fleet.Output, id string, isDefault func(*fleet.Output) bool) *fleet.Output {
	for _, matches := range []func(*fleet.Output) bool{
		func(o *fleet.Output) bool { return o.ID == id }, isDefault, func(o *fleet.Output) bool { return o.Default },
	} {
		for i := range outputs {
			if matches(&outputs[i]) {
				return &outputs[i]
			}
		}
	}
	return nil
}
