package rollout

import (
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
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

// Matches says whether the selector chooses the agent.
func Matches(s *fleet.Selector, a *fleet.Agent) bool {
	return chooses(s, &subject{Agent: a},
		func(id string) bool { return slices.Contains(s.Agents, id) },
		func(id string) bool { return slices.Contains(s.ExcludeAgents, id) })
}

// chooser is a selector that is asked about a whole fleet.
type chooser struct {
	*fleet.Selector
	named, excluded map[string]bool
}

func newChooser(s *fleet.Selector) chooser {
	return chooser{s, setOf(s.Agents), setOf(s.ExcludeAgents)}
}

func (c chooser) has(a *subject) bool {
	return chooses(c.Selector, a, func(id string) bool { return c.named[id] }, func(id string) bool { return c.excluded[id] })
}

func chooses(s *fleet.Selector, a *subject, named, excluded func(id string) bool) bool {
	switch {
	case selectsNothing(s), excluded(a.ID):
		return false
	case len(s.Agents) > 0 && !named(a.ID):
		return false
	case len(s.Policies) > 0 && !slices.Contains(s.Policies, a.PolicyID):
		return false
	}
	for name, values := range s.Labels {
		if !slices.Contains(values, a.label(name)) {
			return false
		}
	}
	for name, values := range s.Exclude {
		if slices.Contains(values, a.label(name)) {
			return false
		}
	}
	return true
}

// selectsNothing says whether no part chooses anything. What only leaves out
// chooses nothing either.
func selectsNothing(s *fleet.Selector) bool {
	return !s.All && len(s.Agents) == 0 && len(s.Policies) == 0 && len(s.Labels) == 0
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, n := range names {
		set[n] = true
	}
	return set
}
