package plan

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// Candidate is an agent whose metadata is decoded at most once.
type Candidate struct {
	*fleet.Agent
	host   *fleet.HostMetadata
	labels map[string]string
}

// HostMetadata returns what the agent reported of its host.
func (s *Candidate) HostMetadata() *fleet.HostMetadata {
	if s.host == nil {
		host := s.Host()
		s.host = &host
	}
	return s.host
}

// Hostname is Agent.Hostname.
func (s *Candidate) Hostname() string {
	return s.HostnameOn(*s.HostMetadata())
}

// Label is Agent.Label.
func (s *Candidate) Label(name string) string {
	if strings.HasPrefix(name, "tag:") {
		return s.Agent.Label(name)
	}
	if s.labels == nil {
		s.labels = s.LabelsOn(*s.HostMetadata())
	}
	return s.labels[name]
}

// QueryTime has what the meaning of a query depends on: now, and the timeouts that a
// status is derived from.
type QueryTime struct {
	Now      time.Time
	Timeouts map[string]time.Duration // inactivity timeouts by policy
}

// Selector is a plan's selector, compiled for a time.
type Selector struct {
	*fleet.Selector
	named, excluded map[string]bool
	query           kql.Filter // nil: none
}

// NewSelector compiles a selector. Its error names the field of a malformed query.
func NewSelector(s *fleet.Selector, at QueryTime) (Selector, error) {
	c := Selector{s, setOf(s.Agents), setOf(s.ExcludeAgents), nil}
	if !hasQuery(s) {
		return c, nil
	}
	var err error
	if c.query, err = kql.Compile(s.Kuery, fleet.AgentSchema(at.Timeouts), at.Now); err != nil {
		return c, fleet.FieldError(field("select.kuery"), "%w", err)
	}
	return c, nil
}

// MatchesAgent reports whether the selector selects the agent.
func (c Selector) MatchesAgent(a *fleet.Agent) bool { return c.Matches(&Candidate{Agent: a}) }

func (c Selector) Matches(a *Candidate) bool {
	switch {
	case selectsNothing(c.Selector), c.excluded[a.ID]:
		return false
	case len(c.Agents) > 0 && !c.named[a.ID]:
		return false
	case len(c.Policies) > 0 && !slices.Contains(c.Policies, a.PolicyID):
		return false
	}
	for name, values := range c.Labels {
		if !slices.Contains(values, a.Label(name)) {
			return false
		}
	}
	for name, values := range c.Exclude {
		if slices.Contains(values, a.Label(name)) {
			return false
		}
	}
	return c.query == nil || kql.Match(c.query, a.Values)
}

// hasQuery reports whether the selector has a query.
func hasQuery(s *fleet.Selector) bool { return strings.TrimSpace(s.Kuery) != "" }

// ChangesByItself reports whether the query matches other agents as time passes,
// although the agents do not change.
func (c Selector) ChangesByItself(at QueryTime) bool {
	if c.query == nil {
		return false
	}
	at.Now = at.Now.AddDate(1, 1, 1) // a difference that no rounding of now hides
	later, err := NewSelector(c.Selector, at)
	return err != nil || !reflect.DeepEqual(c.query, later.query)
}

// selectsNothing reports whether no part selects agents. A selector that only excludes
// selects none either.
func selectsNothing(s *fleet.Selector) bool {
	return !s.All && !hasQuery(s) && len(s.Agents) == 0 && len(s.Policies) == 0 && len(s.Labels) == 0
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
