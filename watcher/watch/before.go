package watch

import (
	"slices"

	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// agentFailed reports whether the new version says that it has failed, and is at fault for a check that did not
// fail before the switch. A version that names no checks is taken at its word.
func agentFailed(b handoff.Before, h probe.Health) bool {
	if h.State != probe.Failed {
		return false
	}
	return len(h.Checks) == 0 || slices.ContainsFunc(h.Checks, func(c probe.Check) bool {
		return c.AtFault && !slices.Contains(b.Failing, c.Name)
	})
}

// failedComponents returns the components that have failed, and were healthy in the same version before the
// switch. What a component of another version does is judged by its own upgrade.
func failedComponents(b handoff.Before, h probe.Health) []probe.Workload {
	var failed []probe.Workload
	for _, w := range h.Workloads {
		if version, healthy := b.Healthy[w.Name]; healthy && version == w.Version && !w.FailedSince.IsZero() {
			failed = append(failed, w)
		}
	}
	return failed
}
