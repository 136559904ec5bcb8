package reconcile

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

// maxNamed bounds the agents that a census names of those that do not run a version for one reason:
// a condition has room for a few.
const maxNamed = 5

// maxBehind bounds the agents that one rollout brings to a version afterwards, because its plan
// names them. The others follow in later ones.
const maxBehind = 10_000

// Members is what a census of the agents found of one object.
type Members struct {
	// Generation is the object's when they were counted.
	Generation int64
	Agents     int
	Versions   map[string]map[string]int
	// Parts are in the order of the object's parts.
	Parts []PartMembers
}

// PartMembers is what a census found of one part of an object.
type PartMembers struct {
	spec.Part
	// Version is the version to reach; Problem is why it is not known, such as an upgrade
	// upgrade manifest that is gone.
	Version, Problem string
	// Behind are agents that can be brought to the version now. Down means that some of them run a
	// higher version, which needs force.
	Behind []string
	Down   bool
	// Lacking counts the agents that do not run it, by why.
	Lacking [lacks]int
	// Named has at most maxNamed of them for each reason.
	Named [lacks][]Lacking
	// LeftOut are those of which their owner has said that they need not run it: their policy calls
	// them inactive by now, or they are leaving.
	LeftOut int
	// Taken are agents that belong to an older object, whose name is Owner.
	Taken int
	Owner string
}

// Lack is why an agent does not run a version, from what needs a person most to what needs none.
type Lack int

// Values of Lack.
const (
	LackFailed     Lack = iota // it failed to reach the version
	LackRefused                // it cannot be upgraded
	LackBehind                 // it can be, and a rollout follows
	LackUnreported             // its policy lists the component, and it does not report it
	LackBusy                   // it is being upgraded
	LackAway                   // it is not connected
	lacks
)

// Lacking is an agent that does not run a version. Why continues a sentence that begins with its
// name.
type Lacking struct{ Host, Why string }

// Wish is what an object desires of a part, with what it takes to judge agents.
type Wish struct {
	spec.Part
	Version, Problem string
	// SourceURI is where the packages are, if not on the server.
	SourceURI string
	Catalog   fleet.Catalog
	// Listed are the policies that list the component. The agents of the others are left out.
	Listed map[string]bool
}

// Census counts the members of objects. Each agent is given to Add once.
type Census struct {
	counts []*count
	// byPolicy are the objects that select by policy, by policy; others are all the rest. Both
	// are the oldest first.
	byPolicy map[string][]*count
	others   []*count
	timeouts map[string]time.Duration
	now      time.Time
	owners   map[string]*count // of the parts of one agent; kept to save allocations
}

type count struct {
	name    string
	chosen  plan.Selector
	wishes  []Wish
	members *Members
	age     int
}

// NewCensus returns a census of objects, of which the oldest come first. wishes has those of each
// object, at its index.
func NewCensus(objects []*spec.Fleet, wishes [][]Wish, timeouts map[string]time.Duration, now time.Time) (*Census, error) {
	c := &Census{byPolicy: map[string][]*count{}, timeouts: timeouts, now: now, owners: map[string]*count{}}
	for i, f := range objects {
		chosen, err := plan.NewSelector(&f.Spec.Selector, plan.QueryTime{Now: now, Timeouts: timeouts})
		if err != nil {
			return nil, err
		}
		n := &count{name: f.Metadata.Name, chosen: chosen, wishes: wishes[i], age: i, members: &Members{
			Generation: f.Metadata.Generation, Versions: map[string]map[string]int{}, Parts: make([]PartMembers, len(wishes[i])),
		}}
		for p, w := range wishes[i] {
			n.members.Parts[p] = PartMembers{Part: w.Part, Version: w.Version, Problem: w.Problem}
			n.members.Versions[w.Name()] = map[string]int{}
		}
		c.counts = append(c.counts, n)
		if len(f.Spec.Selector.Policies) == 0 {
			c.others = append(c.others, n)
		}
		for _, policy := range f.Spec.Selector.Policies {
			if list := c.byPolicy[policy]; len(list) == 0 || list[len(list)-1] != n {
				c.byPolicy[policy] = append(list, n)
			}
		}
	}
	return c, nil
}

// Of returns the members of the object at an index.
func (c *Census) Of(i int) *Members { return c.counts[i].members }

// Add counts an agent.
func (c *Census) Add(a *fleet.Agent) {
	candidate := plan.Candidate{Agent: a}
	clear(c.owners)
	some, rest := c.byPolicy[a.PolicyID], c.others
	for len(some)+len(rest) > 0 {
		var n *count
		if len(rest) == 0 || len(some) > 0 && some[0].age < rest[0].age {
			n, some = some[0], some[1:]
		} else {
			n, rest = rest[0], rest[1:]
		}
		if n.chosen.Matches(&candidate) {
			c.add(n, a)
		}
	}
}

func (c *Census) add(n *count, a *fleet.Agent) {
	counted := false
	for i := range n.wishes {
		w, p := &n.wishes[i], &n.members.Parts[i]
		subject := a.Of(w.Component)
		if w.Component != "" && !w.Listed[a.PolicyID] {
			continue
		}
		if owner := c.owners[w.Component]; owner != nil {
			p.Taken++
			p.Owner = owner.name
			continue
		}
		c.owners[w.Component] = n
		counted = true
		if subject.Reported {
			n.members.Versions[w.Name()][subject.Version]++
		}
		c.judge(w, p, &subject)
	}
	if counted {
		n.members.Agents++
	}
}

// judge counts an agent that belongs to the object and does not run the version.
func (c *Census) judge(w *Wish, p *PartMembers, s *fleet.Subject) {
	stuck := s.Stuck() && s.UpgradeTo == w.Version // it may even run what does not work
	if w.Problem != "" || s.Reported && s.Version == w.Version && !s.Busy() && !stuck {
		return
	}
	status := s.Agent.Facts().StatusAt(c.now, c.timeouts[s.Agent.PolicyID])
	_, failedBefore := s.FailedBefore(w.Version)
	up := fleet.UpgradeRequest{Version: w.Version, SourceURI: w.SourceURI}
	down := up
	down.Force = true
	switch {
	case status == fleet.StatusInactive, status == fleet.StatusUnenrolled, status == fleet.StatusUninstalled, status == fleet.StatusUnenrolling:
		p.LeftOut++
	case stuck || failedBefore && !s.Upgrading() || s.UpgradeStatus != fleet.UpgradeNone && s.UpgradeStatus != fleet.UpgradeStarted && s.UpgradeTo == w.Version:
		p.lacks(LackFailed, s, func() string { return "failed to reach " + p.what() + reasonOf(s, w.Version) })
	case s.Agent.Last.At == nil: // no rollout takes it
		p.lacks(LackAway, s, func() string { return "has never checked in since it was enrolled" })
	case status == fleet.StatusOffline, status == fleet.StatusOrphaned:
		p.lacks(LackAway, s, func() string { return "is away" })
	case !s.Reported:
		p.lacks(LackUnreported, s, func() string { return "does not report " + w.Component + ", which its policy lists" })
	case s.Busy():
		p.lacks(LackBusy, s, func() string { return "has an upgrade under way" })
	case s.CheckUpgrade(up, w.Catalog) == nil:
		p.behind(s, false)
	case isDown(w.Version, s.Version) && s.CheckUpgrade(down, w.Catalog) == nil:
		p.behind(s, true)
	default:
		p.lacks(LackRefused, s, func() string { return "cannot be upgraded: " + s.CheckUpgrade(up, w.Catalog).Error() })
	}
}

// maxReason bounds what a condition quotes of a host, in bytes: some hosts quote their log.
const maxReason = 200

// reasonOf returns why a version failed on the host, in parentheses; empty if that is not known.
func reasonOf(s *fleet.Subject, version string) string {
	why := ""
	if f, ok := s.FailedBefore(version); ok {
		why = f.Reason
	}
	if d := s.UpgradeDetails; why == "" && d != nil {
		why = cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason)
	}
	if why == "" {
		return ""
	}
	return " (" + strings.TrimSuffix(fleet.Shorten(why, maxReason), ".") + ")"
}

// what names the version of the part.
func (p *PartMembers) what() string { return fleet.What(p.Component, p.Version) }

// lacks counts an agent. Only those that are named are worth a sentence.
func (p *PartMembers) lacks(l Lack, s *fleet.Subject, why func() string) {
	p.Lacking[l]++
	if len(p.Named[l]) < maxNamed {
		p.Named[l] = append(p.Named[l], Lacking{Host: cmp.Or(s.Agent.Hostname(), s.Agent.ID), Why: why()})
	}
}

// notRunning returns how many agents do not run the version.
func (p *PartMembers) notRunning() (n int) {
	for _, of := range p.Lacking {
		n += of
	}
	return n
}

// reached reports whether all agents run the version. Where an upgrade manifest may render
// configuration files, only a preview finds out.
func (p *PartMembers) reached() bool {
	return p.UpgradeManifest == nil && len(p.Behind)+p.notRunning()+p.LeftOut == 0
}

func (p *PartMembers) behind(s *fleet.Subject, down bool) {
	p.lacks(LackBehind, s, func() string { return "runs " + plan.VersionText(s.Version) })
	if len(p.Behind) < maxBehind {
		p.Behind = append(p.Behind, s.Agent.ID)
	}
	p.Down = p.Down || down
}

// isDown reports whether a version is lower than the one that is installed.
func isDown(version, installed string) bool {
	return installed != "" && fleet.VersionKey(version) < fleet.VersionKey(installed)
}

// part returns the members of a part, nil if the object has no such part.
func (m *Members) part(component string) *PartMembers {
	i := slices.IndexFunc(m.Parts, func(p PartMembers) bool { return p.Component == component })
	if i < 0 {
		return nil
	}
	return &m.Parts[i]
}
