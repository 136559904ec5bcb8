package fleet

import (
	"fmt"
	"slices"
	"strings"
)

// VerbHostsMoved is the verb of the audit entries about agents of a policy that are sent to other
// servers. The subject is the policy. The removal limit counts them.
const VerbHostsMoved = "fleet_server_host.move"

// HostsChange is a change of the servers that the agents of a policy follow.
type HostsChange struct {
	PolicyID, PolicyName string
	From, To             []string
}

// Moves reports whether agents of the policy leave their server. An agent stays where it is while
// the list has its server, and if the list is empty. Which of several it has is not known here, so
// each that the list loses counts. Where there was no list, agents may be at any server.
func (c HostsChange) Moves() bool {
	from, to := plainHosts(c.From), plainHosts(c.To)
	switch {
	case len(to) == 0:
		return false
	case len(from) == 0:
		return true
	}
	return slices.ContainsFunc(from, func(host string) bool { return !slices.Contains(to, host) })
}

// Text says where how many agents of the policy are sent.
func (c HostsChange) Text(agents int) string {
	noun := "agents"
	if agents == 1 {
		noun = "agent"
	}
	return fmt.Sprintf("%d %s of the policy %s to %s", agents, noun, c.PolicyName, strings.Join(c.To, ", "))
}

// plainHosts returns hosts as agents compare them.
func plainHosts(hosts []string) (out []string) {
	for _, h := range hosts {
		out = append(out, strings.TrimRight(h, "/"))
	}
	return out
}
