package rollout

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// subject is an agent with what its document keeps as JSON, read once.
type subject struct {
	*fleet.Agent
	host   *fleet.HostMetadata
	labels map[string]string
}

func (s *subject) hostMetadata() *fleet.HostMetadata {
	if s.host == nil {
		host := s.Host()
		s.host = &host
	}
	return s.host
}

// hostname is Agent.Hostname.
func (s *subject) hostname() string {
	return s.HostnameOn(*s.hostMetadata())
}

func (s *subject) label(name string) string {
	if strings.HasPrefix(name, "tag:") {
		return s.Label(name)
	}
	if s.labels == nil {
		s.labels = s.LabelsOn(*s.hostMetadata())
	}
	return s.labels[name]
}

// askedAt is when a selector's query is asked: what now and a status mean.
type askedAt struct {
	now      time.Time
	timeouts map[string]time.Duration // inactivity timeouts by policy
}

// chooser is a selector at a moment.
type chooser struct {
	*fleet.Selector
	named, excluded map[string]bool
	query           kql.Filter // nil: none
}

// newChooser refuses a selector whose query has no meaning.
func newChooser(s *fleet.Selector, at askedAt) (chooser, error) {
	c := chooser{s, setOf(s.Agents), setOf(s.ExcludeAgents), nil}
	if !asks(s) {
		return c, nil
	}
	var err error
	if c.query, err = kql.Compile(s.Kuery, fleet.AgentSchema(at.timeouts), at.now); err != nil {
		return c, fleet.FieldError(field("select.kuery"), "%w", err)
	}
	return c, nil
}

// chooses says whether the selector chooses the agent.
func (c chooser) chooses(a *fleet.Agent) bool { return c.has(&subject{Agent: a}) }

func (c chooser) has(a *subject) bool {
	switch {
	case selectsNothing(c.Selector), c.excluded[a.ID]:
		return false
	case len(c.Agents) > 0 && !c.named[a.ID]:
		return false
	case len(c.Policies) > 0 && !slices.Contains(c.Policies, a.PolicyID):
		return false
	}
	for name, values := range c.Labels {
		if !slices.Contains(values, a.label(name)) {
			return false
		}
	}
	for name, values := range c.Exclude {
		if slices.Contains(values, a.label(name)) {
			return false
		}
	}
	return c.query == nil || kql.Match(c.query, a.Values)
}

// asks says whether a query is part of the selector.
func asks(s *fleet.Selector) bool { return strings.TrimSpace(s.Kuery) != "" }

// driftsByItself says whether the query means other agents as time goes by,
// though nothing about them changes.
func (c chooser) driftsByItself(at askedAt) bool {
	if c.query == nil {
		return false
	}
	at.now = at.now.AddDate(1, 1, 1) // whatever now is rounded to
	later, err := newChooser(c.Selector, at)
	return err != nil || !reflect.DeepEqual(c.query, later.query)
}

// selectsNothing says whether no part chooses anything. What only leaves out
// chooses nothing either.
func selectsNothing(s *fleet.Selector) bool {
	return !s.All && !asks(s) && len(s.Agents) == 0 && len(s.Policies) == 0 && len(s.Labels) == 0
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
