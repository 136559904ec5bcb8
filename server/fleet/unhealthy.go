package fleet

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The values of Agent.UnhealthyReason, which are Fleet's.
const (
	unhealthyInput  = "input"
	unhealthyOutput = "output"
	unhealthyOther  = "other"
)

// ObserveUnhealthy sets UnhealthyReason by an agent's status and its components, and reports
// whether it has changed. As in Fleet Server the unhealthy units of unhealthy components
// count by their type, and what has no such unit counts as other; unlike there, an agent that
// is healthy again has no reason.
func (a *Agent) ObserveUnhealthy(status string) (changed bool) {
	var (
		components    []agentapi.Component
		reasons       []string
		input, output bool
	)
	_ = json.Unmarshal(a.Components, &components) // agents of other makers may send another type
	other := isUnhealthy(status)
	for _, c := range components {
		if !isUnhealthy(c.Status) {
			continue
		}
		other = true
		var units []struct{ Type, Status string }
		_ = json.Unmarshal(c.Units, &units)
		for _, u := range units {
			input = input || u.Type == "input" && isUnhealthy(u.Status)
			output = output || u.Type == "output" && isUnhealthy(u.Status)
		}
	}
	if input {
		reasons = append(reasons, unhealthyInput)
	}
	if output {
		reasons = append(reasons, unhealthyOutput)
	}
	if other && reasons == nil {
		reasons = append(reasons, unhealthyOther)
	}
	if slices.Equal(a.UnhealthyReason, reasons) {
		return false
	}
	a.UnhealthyReason = reasons
	return true
}

// isUnhealthy reports whether an agent, a component or a unit says that it is unhealthy.
// Elastic's agents send states in capitals.
func isUnhealthy(status string) bool {
	switch strings.ToLower(status) {
	case "error", "failed", "degraded":
		return true
	}
	return false
}
