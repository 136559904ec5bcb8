package incident

import (
	"fmt"

	"github.com/muster-fleet/muster/server/fleet"
)

// The commands that operators give to incidents, as the API names them.
const (
	commandAck     = "ack"
	commandResolve = "resolve"
)

// Commands returns which commands are possible, and why the others are not. The primary command,
// if there is one, comes first.
func Commands(i *fleet.Incident) []fleet.Command {
	list := []fleet.Command{checkCommand(commandAck, i).Command(commandAck), checkCommand(commandResolve, i).Command(commandResolve)}
	list[0].Primary = list[0].Allowed
	return list
}

// checkCommand returns why a command would not change an incident; nil: it would.
func checkCommand(name string, i *fleet.Incident) *fleet.Refusal {
	switch {
	case name == commandAck && i.State == fleet.IncidentAcked:
		return &fleet.Refusal{Text: "is acknowledged already" + by(i.Acked), Done: true}
	case name == commandAck && i.State == fleet.IncidentResolved:
		return &fleet.Refusal{Text: "was resolved" + by(i.Resolved) + ": there is nothing left to acknowledge"}
	case i.State == fleet.IncidentResolved:
		return &fleet.Refusal{Text: "is resolved already" + by(i.Resolved), Done: true}
	}
	return nil
}

// NextOf returns where to look next; nil: at the incident's text.
func NextOf(i *fleet.Incident) *fleet.IncidentNext {
	switch {
	case i.AgentID != "" && i.Component != "":
		return &fleet.IncidentNext{Command: fmt.Sprintf("muster agents why %s --component %s", i.AgentID, i.Component)}
	case i.AgentID != "":
		return &fleet.IncidentNext{Command: "muster agents why " + i.AgentID}
	case i.RolloutID != "":
		return &fleet.IncidentNext{Command: "muster rollouts status " + i.RolloutID}
	case i.Version != "" && i.Component == "":
		kuery := fmt.Sprintf("progress: rolled_back and upgrade_details.target_version: %q", i.Version)
		return &fleet.IncidentNext{Command: fmt.Sprintf("muster agents list --kuery '%s'", kuery), Kuery: kuery}
	}
	return nil
}
