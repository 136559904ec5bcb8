package cluster

import (
	"fmt"
	"net/http"
	"slices"
)

// Rule is one guarantee.
type Rule string

// The rules. A call is before another one if it was answered before the other was made.
const (
	// Lost: the effect of a successful call is in the store, for all agents it named, and
	// each of them received the action. A call of unknown outcome took effect completely
	// or not at all.
	Lost Rule = "lost"
	// Duplicated: no agent receives an action twice, or one that its token covers; no
	// call creates two actions.
	Duplicated Rule = "duplicated"
	// Reordered: actions are numbered, and delivered to each agent, in the order of the
	// calls that created them.
	Reordered Rule = "reordered"
	// Unordered: no agent receives an action that no call ordered for it.
	Unordered Rule = "unordered"
	// Miscounted: each acknowledgement that was answered with 200 counts once.
	Miscounted Rule = "miscounted"
	// Rejected: no agent is answered that it, or its action, is unknown.
	Rejected Rule = "rejected"
)

// Violation is one violation of a rule.
type Violation struct {
	Rule Rule
	Text string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Check returns the violations of a history in which all deliveries are complete.
func Check(h History) []Violation {
	c := newChecker(h)
	c.calls()
	c.numbers()
	c.answers()
	c.delivery()
	c.acks()
	c.refusals()
	return c.found
}

// checker is the state of Check.
type checker struct {
	History
	found []Violation

	actions map[string]*Action        // by id
	made    map[string]*Op            // by action id: the call that created it
	given   map[string]map[string]int // deliveries by agent and action
}

func newChecker(h History) *checker {
	c := &checker{History: h, actions: map[string]*Action{}, made: map[string]*Op{}, given: map[string]map[string]int{}}
	for i := range c.Actions {
		c.actions[c.Actions[i].ID] = &c.Actions[i]
	}
	return c
}

func (c *checker) violated(r Rule, format string, args ...any) {
	c.found = append(c.found, Violation{r, fmt.Sprintf(format, args...)})
}

// calls compares the answers to operators with the actions in the store.
func (c *checker) calls() {
	ops := map[string]*Op{}
	for i := range c.Ops {
		if o := &c.Ops[i]; o.Kind == Upgrade {
			ops[o.Name] = o
		}
	}
	by := map[string][]*Action{} // by the name of the upgrade, or the action cancelled
	for i := range c.Actions {
		a := &c.Actions[i]
		if a.Op != "" {
			by[a.Op] = append(by[a.Op], a)
			if o := ops[a.Op]; o == nil {
				c.violated(Unordered, "action %s is of the call %s, which nobody made", a.ID, a.Op)
			} else {
				c.made[a.ID] = o
			}
			continue
		}
		by[a.Cancels] = append(by[a.Cancels], a)
	}
	for i := range c.Ops {
		switch o := &c.Ops[i]; o.Kind {
		case Upgrade:
			c.upgrade(o, by[o.Name])
		case Cancel:
			c.cancel(o, by[o.Cancels])
		}
	}
}

func (c *checker) upgrade(o *Op, made []*Action) {
	switch {
	case len(made) > 1:
		c.violated(Duplicated, "the upgrade %s created %d actions", o.Name, len(made))
		return
	case o.Outcome == Refused && len(made) == 1 && len(made[0].Agents) > 0:
		// An action without agents only has the reasons of the refusals.
		c.violated(Unordered, "the upgrade %s was refused, and created %s", o.Name, made[0].ID)
		return
	case o.Outcome == Done && len(made) == 0:
		c.violated(Lost, "the upgrade %s was answered with action %s, which does not exist", o.Name, o.ActionID)
		return
	case len(made) == 0, o.Outcome == Refused:
		return
	}
	a := made[0]
	if o.Outcome == Done && a.ID != o.ActionID {
		c.violated(Lost, "the upgrade %s was answered with action %s, and created %s", o.Name, o.ActionID, a.ID)
	}
	asked, got := slices.Sorted(slices.Values(o.Agents)), slices.Sorted(slices.Values(slices.Concat(a.Agents, a.Refused)))
	if !slices.Equal(asked, got) {
		c.violated(Lost, "the upgrade %s named %v; its action is for %v and refused %v", o.Name, asked, a.Agents, a.Refused)
	}
}

func (c *checker) cancel(o *Op, made []*Action) {
	switch target := c.actions[o.Cancels]; {
	case target == nil:
		if o.Outcome == Done {
			c.violated(Lost, "%s was cancelled and does not exist", o.Cancels)
		}
	case len(made) > 1:
		c.violated(Duplicated, "%s has %d CANCELs", o.Cancels, len(made))
	case target.Cancelled != (len(made) == 1), o.Outcome == Done && len(made) == 0:
		c.violated(Lost, "the cancel of %s (%s) took effect partly: cancelled is %v, with %d CANCELs", o.Cancels, o.Outcome, target.Cancelled, len(made))
	case len(made) == 0: // no effect
	case !slices.Equal(slices.Sorted(slices.Values(target.Agents)), slices.Sorted(slices.Values(made[0].Agents))):
		c.violated(Lost, "%s is for %v, its CANCEL for %v", o.Cancels, target.Agents, made[0].Agents)
	}
}

// numbers compares the order of the actions with that of the calls. A cancel may be
// repeated, so a CANCEL is only known to follow what it cancels.
func (c *checker) numbers() {
	sorted := slices.Clone(c.Actions)
	slices.SortFunc(sorted, func(a, b Action) int { return int(a.Seq - b.Seq) })
	var last *Op // the call so far that was made last
	for i, a := range sorted {
		if i > 0 && a.Seq == sorted[i-1].Seq {
			c.violated(Duplicated, "%s and %s have the number %d", sorted[i-1].ID, a.ID, a.Seq)
		}
		if target := c.actions[a.Cancels]; target != nil && target.Seq > a.Seq {
			c.violated(Reordered, "the CANCEL of %s has the number %d, it has %d", target.ID, a.Seq, target.Seq)
		}
		o := c.made[a.ID]
		if o == nil {
			continue
		}
		if last != nil && o.Outcome == Done && o.Returned.Before(last.Invoked) {
			c.violated(Reordered, "%s was answered before %s was called, and has a higher number", o.Name, last.Name)
		}
		if last == nil || o.Invoked.After(last.Invoked) {
			last = o
		}
	}
}

// answers checks the deliveries to each agent in order.
func (c *checker) answers() {
	type position struct {
		seq int64
		id  string
	}
	last := map[string]position{}
	for _, answer := range c.Answers {
		agent := answer.Agent
		if c.given[agent] == nil {
			c.given[agent] = map[string]int{}
		}
		if len(answer.Actions) > 0 && answer.Token <= answer.Shown {
			c.violated(Duplicated, "agent %s showed token %d and received %v with token %d", agent, answer.Shown, answer.Actions, answer.Token)
		}
		for _, id := range answer.Actions {
			if c.given[agent][id]++; c.given[agent][id] == 2 {
				c.violated(Duplicated, "agent %s received %s twice", agent, id)
			}
			a := c.actions[id]
			if a == nil || !slices.Contains(a.Agents, agent) {
				c.violated(Unordered, "agent %s received %s, which is not for it or does not exist", agent, id)
				continue
			}
			if a.Seq <= answer.Shown || a.Seq > answer.Token {
				c.violated(Duplicated, "agent %s showed token %d and received %s of number %d with token %d", agent, answer.Shown, id, a.Seq, answer.Token)
			}
			if before := last[agent]; a.Seq < before.seq {
				c.violated(Reordered, "agent %s received %s (%d) after %s (%d)", agent, id, a.Seq, before.id, before.seq)
			}
			last[agent] = position{a.Seq, id}
		}
	}
}

// delivery finds actions that an agent did not receive. A cancelled action may have
// reached nobody; its CANCEL must reach all.
func (c *checker) delivery() {
	for _, a := range c.Actions {
		if a.Cancelled {
			continue
		}
		for _, agent := range a.Agents {
			if c.given[agent][a.ID] == 0 {
				c.violated(Lost, "agent %s never received %s (%d)", agent, a.ID, a.Seq)
			}
		}
	}
}

func (c *checker) acks() {
	type ack struct{ agent, action string }
	seen := map[ack]bool{}
	acked, failed := map[string]int{}, map[string]int{}
	for _, a := range c.Acks {
		if seen[ack{a.Agent, a.Action}] {
			continue // repeated because the answer was lost
		}
		seen[ack{a.Agent, a.Action}] = true
		if a.Failed {
			failed[a.Action]++
		} else {
			acked[a.Action]++
		}
	}
	for _, a := range c.Actions {
		if wantFailed := failed[a.ID] + len(a.Refused); a.Acked != acked[a.ID] || a.Failed != wantFailed {
			c.violated(Miscounted, "%s has %d results without an error and %d with one; %d acknowledgements without an error and %d with one were accepted, and %d agents were refused",
				a.ID, a.Acked, a.Failed, acked[a.ID], failed[a.ID], len(a.Refused))
		}
	}
	for agent, ids := range c.given {
		for id := range ids {
			if !seen[ack{agent, id}] {
				c.violated(Miscounted, "agent %s received %s, and no acknowledgement was accepted", agent, id)
			}
		}
	}
}

// rejections are the statuses after which an agent considers itself unenrolled, or drops
// a result.
var rejections = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone}

func (c *checker) refusals() {
	for _, r := range c.Refusals {
		if slices.Contains(rejections, r.Status) {
			c.violated(Rejected, "agent %s: %s was answered %d: %s", r.Agent, r.Call, r.Status, r.Text)
		}
	}
}
