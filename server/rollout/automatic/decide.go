package automatic

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// Member is what a decision depends on of one agent of a policy.
type Member struct {
	ID      string
	Version string
	Key     string // fleet.VersionKey of Version
	// Going is the version that it is being upgraded to; empty: none.
	Going string
	// Failed is the version to which its last upgrade failed or was rolled back; empty:
	// none. Attempts are the upgrades to it that ended so, the last one at LastAttempt.
	Failed      string
	Attempts    int
	LastAttempt time.Time
	// Accepts reports, for each required version of the policy, whether the agent could be
	// upgraded to it now.
	Accepts []bool
}

// Upgrade is a decision to upgrade agents to a version.
type Upgrade struct {
	Version string
	Agents  []string
	// Short is how many more agents the version needs than there are to choose from.
	Short int
}

// retryAfter is how long after its last attempt an agent is tried again, as in Kibana. An
// agent that has failed more often is left to an operator.
var retryAfter = []time.Duration{30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 16 * time.Hour, 24 * time.Hour}

// maxAgents bounds an upgrade, because a plan names its agents. The others follow in later
// ones.
const maxAgents = 10_000

// Decide returns what would bring the members of a policy to its required versions, one
// upgrade for each version that lacks agents.
//
// The agents with the lowest versions are upgraded first. An agent whose upgrade to a
// version failed keeps its place in that version's share until it is tried again, so that a
// bad version does not spread to others instead.
func Decide(required []fleet.RequiredVersion, members []Member, now time.Time) []Upgrade {
	members = slices.Clone(members)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Or(strings.Compare(a.Key, b.Key), strings.Compare(a.ID, b.ID)) })
	on := make([]int, len(required))
	failed := make([]int, len(required))
	place := make([]int, len(members)) // the required version that a member runs or goes to, or -1
	for m := range members {
		place[m] = slices.IndexFunc(required, func(v fleet.RequiredVersion) bool { return v.Version == destination(&members[m]) })
		if i := place[m]; i >= 0 {
			on[i]++
		}
		if i := failedAt(required, &members[m]); i >= 0 {
			failed[i]++
		}
	}
	wanted := Wanted(required, on, len(members))
	spare := make([]int, len(required)) // members that a version has beyond its share
	for i := range required {
		spare[i] = max(0, -wanted[i])
	}
	chosen := make([]bool, len(members))
	var out []Upgrade
	for i, v := range required {
		if wanted[i] <= 0 {
			continue
		}
		u := Upgrade{Version: v.Version}
		for m := range members {
			if failedAt(required, &members[m]) == i && members[m].Accepts[i] && due(&members[m], now) && len(u.Agents) < min(wanted[i], maxAgents) {
				chosen[m], u.Agents = true, append(u.Agents, members[m].ID)
			}
		}
		room := wanted[i] - failed[i]
		for m := range members {
			if room <= 0 || len(u.Agents) == maxAgents {
				break
			}
			a := &members[m]
			at := place[m]
			if chosen[m] || !a.Accepts[i] || a.Going != "" || failedAt(required, a) >= 0 || at >= 0 && spare[at] == 0 {
				continue
			}
			if at >= 0 {
				spare[at]--
			}
			chosen[m], u.Agents = true, append(u.Agents, a.ID)
			room--
		}
		u.Short = max(0, room)
		out = append(out, u)
	}
	return out
}

// destination returns the version that an agent runs, or is being upgraded to.
func destination(a *Member) string { return cmp.Or(a.Going, a.Version) }

// failedAt returns which required version the agent failed to reach, or -1.
func failedAt(required []fleet.RequiredVersion, a *Member) int {
	if a.Failed == "" || a.Going != "" || a.Version == a.Failed {
		return -1
	}
	return slices.IndexFunc(required, func(v fleet.RequiredVersion) bool { return v.Version == a.Failed })
}

// due reports whether an agent that failed is tried again now.
func due(a *Member, now time.Time) bool {
	n := max(a.Attempts, 1)
	return n <= len(retryAfter) && now.Sub(a.LastAttempt) >= retryAfter[n-1]
}

// Wanted returns how many agents each required version lacks; below 0, how many it has too
// many. on is how many agents run it or are being upgraded to it. The shares are rounded as
// in Kibana's automatic_agent_upgrade_task.ts: the sum of the rounded shares is corrected by
// one agent for each version, in their order.
func Wanted(required []fleet.RequiredVersion, on []int, total int) []int {
	wanted := make([]int, len(required))
	shares, percent := 0, 0.0
	for i, v := range required {
		share := int(math.Round(float64(total) * v.Percentage / 100))
		wanted[i] = share - on[i]
		shares += share
		percent += v.Percentage
	}
	over := shares - int(math.Round(float64(total)*percent/100))
	for i := range wanted {
		switch {
		case over > 0:
			wanted[i]--
			over--
		case over < 0 && wanted[i] > 0:
			wanted[i]++
			over++
		}
	}
	return wanted
}
