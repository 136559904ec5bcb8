package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

// matches evaluates a selector at rollouttest.Noon.
func matches(t testing.TB, s *fleet.Selector, a *fleet.Agent) bool {
	t.Helper()
	c, err := NewSelector(s, QueryTime{Now: rollouttest.Noon, Timeouts: map[string]time.Duration{"short": time.Minute}})
	if err != nil {
		t.Fatal(err)
	}
	return c.MatchesAgent(a)
}

func TestSelectorMatches(t *testing.T) {
	a := rollouttest.Host{ID: "a", Site: "berlin", Tags: []string{"prod"}, Arch: "aarch64"}.Agent()
	a.UserMetadata = []byte(`{"team":"db","cores":8}`)
	for _, row := range []struct {
		name string
		s    fleet.Selector
		want bool
	}{
		{"nothing", fleet.Selector{}, false},
		{"only an exclusion", fleet.Selector{Exclude: map[string][]string{"site": {"rome"}}}, false},
		{"all", fleet.Selector{All: true}, true},
		{"its id", fleet.Selector{Agents: []string{"b", "a"}}, true},
		{"another id", fleet.Selector{Agents: []string{"b"}}, false},
		{"its policy", fleet.Selector{Policies: []string{"default"}}, true},
		{"its policy, not its id", fleet.Selector{Policies: []string{"default"}, Agents: []string{"b"}}, false},
		{"a label", fleet.Selector{Labels: map[string][]string{"site": {"rome", "berlin"}}}, true},
		{"a label of the host", fleet.Selector{Labels: map[string][]string{"arch": {"arm64"}, "os": {"linux"}}}, true},
		{"a label of the user", fleet.Selector{Labels: map[string][]string{"team": {"db"}, "cores": {"8"}}}, true},
		{"two labels, one wrong", fleet.Selector{Labels: map[string][]string{"site": {"berlin"}, "os": {"windows"}}}, false},
		{"a label it has not", fleet.Selector{Labels: map[string][]string{"rack": {"1"}}}, false},
		{"a tag", fleet.Selector{Labels: map[string][]string{"tag:prod": {"true"}}}, true},
		{"a tag it has not", fleet.Selector{Labels: map[string][]string{"tag:test": {"true"}}}, false},
		{"all but its site", fleet.Selector{All: true, Exclude: map[string][]string{"site": {"berlin"}}}, false},
		{"all but its tag", fleet.Selector{All: true, Exclude: map[string][]string{"tag:prod": {"true"}}}, false},
		{"all but another site", fleet.Selector{All: true, Exclude: map[string][]string{"site": {"rome"}}}, true},
		{"all but itself", fleet.Selector{All: true, ExcludeAgents: []string{"a"}}, false},
		{"a query", fleet.Selector{Kuery: "tags: prod and agent.version < 1.10"}, true},
		{"a query it does not match", fleet.Selector{Kuery: "tags: Prod"}, false},
		{"a query of its status", fleet.Selector{Kuery: "status: online"}, true},
		{"a query of what it is not", fleet.Selector{Kuery: "not tags: test"}, true},
		{"a query of when it was seen", fleet.Selector{Kuery: "last_checkin > now-1m"}, true},
		{"a query of what was long ago", fleet.Selector{Kuery: "last_checkin < now-1m"}, false},
		{"any", fleet.Selector{Kuery: "*"}, true},
		{"a blank query", fleet.Selector{Kuery: " \n"}, false},
		{"a query and another policy", fleet.Selector{Kuery: "*", Policies: []string{"other"}}, false},
		{"a query and its label", fleet.Selector{Kuery: "tags: prod", Labels: map[string][]string{"site": {"berlin"}}}, true},
		{"a query, but not its site", fleet.Selector{Kuery: "*", Exclude: map[string][]string{"site": {"berlin"}}}, false},
		{"a query, but not itself", fleet.Selector{Kuery: "*", ExcludeAgents: []string{"a"}}, false},
	} {
		if got := matches(t, &row.s, &a); got != row.want {
			t.Errorf("%s: %v", row.name, got)
		}
	}
}

// A query includes inactive agents, as the other parts of a selector do; a listing does
// not.
func TestQuerySelectsInactiveAgents(t *testing.T) {
	a := rollouttest.Host{ID: "a", Policy: "short", Away: true, Tags: []string{"prod"}}.Agent()
	for query, want := range map[string]bool{"tags: prod": true, "status: inactive": true, "status: online": false, "not status: inactive": false, "*": true} {
		if got := matches(t, &fleet.Selector{Kuery: query}, &a); got != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}

func TestQueryErrorPointsAtItsPlace(t *testing.T) {
	for query, says := range map[string]string{
		"tags: (prod":          "the query cannot be parsed: ",
		"tagss: prod":          `did you mean "tags"?`,
		"status: gone":         "it is one of",
		"last_checkin > never": "is a date",
	} {
		p := fleet.Plan{Name: "n", Select: fleet.Selector{Kuery: query}}
		err := checkSelector(&p)
		lines := strings.Split(fmt.Sprint(err), "\n")
		if fleet.KindOf(err) != fleet.Invalid || len(lines) != 3 || !strings.HasPrefix(lines[0], "[request body.plan.select.kuery]: ") || !strings.Contains(lines[0], says) ||
			lines[1] != query || strings.Trim(lines[2], " ") != "^" {
			t.Errorf("%s: %v", query, err)
		}
	}
	for _, query := range []string{" ", "\t\n"} {
		if err := checkSelector(&fleet.Plan{Select: fleet.Selector{All: true, Kuery: query}}); err == nil || !strings.Contains(err.Error(), "select.kuery]: is the empty query") {
			t.Errorf("%q: %v", query, err)
		}
	}
}
