package cluster

import (
	"fmt"
	"net/http"
	"slices"
)

// Rule is one thing that is promised.
type Rule string

// The rules. Calls are in the order of real time: one is before another if it was
// answered before the other was made.
const (
	// Lost: what was answered as done is there, for everybody it was asked for, and
	// each agent it is for got it. What may have been done is done as a whole or not
	// at all.
	Lost Rule = "lost"
	// Doubled: no agent is given an action in two complete answers, or twice in one,
	// or one that lies behind the token it showed; no call makes two actions.
	Doubled Rule = "doubled"
	// Disordered: actions are numbered, and reach each agent, in the order of the
	// calls that made them.
	Disordered Rule = "disordered"
	// Invented: nobody is given what nobody asked for, or what is not for him.
	Invented Rule = "invented"
	// Miscounted: each acknowledgement that was answered with 200 counts once.
	Miscounted Rule = "miscounted"
	// TurnedAway: no agent is told that it is not known, or that its action is not.
	TurnedAway Rule = "turned away"
)

// Violation is one case in which a rule did not hold.
type Violation struct {
	Rule Rule
	Text string
}

func (v Violation) String() string { return string(v.Rule) + ": " + v.Text }

// Check judges a history in which every agent has got what is for it.
func Check(h History) []Violation {
	c := newJudgement(h)
	c.calls()
	c.numbers()
	c.answers()
	c.delivery()
	c.acks()
	c.refusals()
	return c.found
}

// judgement is a check under way.
type judgement struct {
	History
	found []Violation

	actions map[string]*Action        // by id
	made    map[string]*Op            // by the action's id: the call that made it
	given   map[string]map[string]int // by agent and action: how often
}

func newJudgement(h History) *judgement {
	c := &judgement{History: h, actions: map[string]*Action{}, made: map[string]*Op{}, given: map[string]map[string]int{}}
	for i := range c.Actions {
		c.actions[c.Actions[i].ID] = &c.Actions[i]
	}
	return c
}

func (c *judgement) violated(r Rule, format string, args ...any) {
	c.found = append(c.found, Violation{r, fmt.Sprintf(format, args...)})
}

// calls compares what operators were answered with what there is.
func (c *judgement) calls() {
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
				c.violated(Invented, "action %s is of the call %s, which nobody made", a.ID, a.Op)
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

func (c *judgement) upgrade(o *Op, made []*Action) {
	switch {
	case len(made) > 1:
		c.violated(Doubled, "the upgrade %s made %d actions", o.Name, len(made))
		return
	case o.Outcome == Refused && len(made) == 1 && len(made[0].Agents) > 0:
		// An action for nobody only keeps the reasons.
		c.violated(Invented, "the upgrade %s was refused, and made %s", o.Name, made[0].ID)
		return
	case o.Outcome == Done && len(made) == 0:
		c.violated(Lost, "the upgrade %s was answered with action %s, which is not there", o.Name, o.ActionID)
		return
	case len(made) == 0, o.Outcome == Refused:
		return
	}
	a := made[0]
	if o.Outcome == Done && a.ID != o.ActionID {
		c.violated(Lost, "the upgrade %s was answered with action %s, and made %s", o.Name, o.ActionID, a.ID)
	}
	asked, got := slices.Sorted(slices.Values(o.Agents)), slices.Sorted(slices.Values(slices.Concat(a.Agents, a.Refused)))
	if !slices.Equal(asked, got) {
		c.violated(Lost, "the upgrade %s was asked for %v; its action is for %v, and refused %v", o.Name, asked, a.Agents, a.Refused)
	}
}

func (c *judgement) cancel(o *Op, made []*Action) {
	switch target := c.actions[o.Cancels]; {
	case target == nil:
		if o.Outcome == Done {
			c.violated(Lost, "%s was cancelled, and is not there", o.Cancels)
		}
	case len(made) > 1:
		c.violated(Doubled, "%s has %d CANCELs", o.Cancels, len(made))
	case target.Cancelled != (len(made) == 1), o.Outcome == Done && len(made) == 0:
		c.violated(Lost, "the cancel of %s (%s) was done by half: it is cancelled: %v, with %d CANCELs", o.Cancels, o.Outcome, target.Cancelled, len(made))
	case len(made) == 0: // not at all
	case !slices.Equal(slices.Sorted(slices.Values(target.Agents)), slices.Sorted(slices.Values(made[0].Agents))):
		c.violated(Lost, "%s is for %v, its CANCEL for %v", o.Cancels, target.Agents, made[0].Agents)
	}
}

// numbers compares the order of the actions with that of the calls. A CANCEL can
// be asked for again and again: it is only known to be behind what it cancels.
func (c *judgement) numbers() {
	sorted := slices.Clone(c.Actions)
	slices.SortFunc(sorted, func(a, b Action) int { return int(a.Seq - b.Seq) })
	var last *Op // of those so far, the one that was made last
	for i, a := range sorted {
		if i > 0 && a.Seq == sorted[i-1].Seq {
			c.violated(Doubled, "%s and %s have the number %d", sorted[i-1].ID, a.ID, a.Seq)
		}
		if target := c.actions[a.Cancels]; target != nil && target.Seq > a.Seq {
			c.violated(Disordered, "the CANCEL of %s has the number %d, it has %d", target.ID, a.Seq, target.Seq)
		}
		o := c.made[a.ID]
		if o == nil {
			continue
		}
		if last != nil && o.Outcome == Done && o.Returned.Before(last.Invoked) {
			c.violated(Disordered, "%s was answered before %s was asked for, and comes behind it", o.Name, last.Name)
		}
		if last == nil || o.Invoked.After(last.Invoked) {
			last = o
		}
	}
}

// answers goes through what each agent was given, in order.
func (c *judgement) answers() {
	type place struct {
		seq int64
		id  string
	}
	last := map[string]place{}
	for _, answer := range c.Answers {
		agent := answer.Agent
		if c.given[agent] == nil {
			c.given[agent] = map[string]int{}
		}
		if len(answer.Actions) > 0 && answer.Token <= answer.Shown {
			c.violated(Doubled, "agent %s showed token %d and was given %v with token %d", agent, answer.Shown, answer.Actions, answer.Token)
		}
		for _, id := range answer.Actions {
			if c.given[agent][id]++; c.given[agent][id] == 2 {
				c.violated(Doubled, "agent %s was given %s twice", agent, id)
			}
			a := c.actions[id]
			if a == nil || !slices.Contains(a.Agents, agent) {
				c.violated(Invented, "agent %s was given %s, which is not for it or not there", agent, id)
				continue
			}
			if a.Seq <= answer.Shown || a.Seq > answer.Token {
				c.violated(Doubled, "agent %s showed token %d and was given %s of number %d with token %d", agent, answer.Shown, id, a.Seq, answer.Token)
			}
			if before := last[agent]; a.Seq < before.seq {
				c.violated(Disordered, "agent %s was given %s (%d) behind %s (%d)", agent, id, a.Seq, before.id, before.seq)
			}
			last[agent] = place{a.Seq, id}
		}
	}
}

// delivery looks for actions that somebody did not get. One that was cancelled may
// have reached nobody, its CANCEL reaches all.
func (c *judgement) delivery() {
	for _, a := range c.Actions {
		if a.Cancelled {
			continue
		}
		for _, agent := range a.Agents {
			if c.given[agent][a.ID] == 0 {
				c.violated(Lost, "agent %s never got %s (%d)", agent, a.ID, a.Seq)
			}
		}
	}
}

func (c *judgement) acks() {
	type ack struct{ agent, action string }
	seen := map[ack]bool{}
	acked, failed := map[string]int{}, map[string]int{}
	for _, a := range c.Acks {
		if seen[ack{a.Agent, a.Action}] {
			continue // an answer was lost, and it was sent again
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
			c.violated(Miscounted, "%s has %d results without an error and %d with one; %d agents were told that it was taken, and %d that it was not, %d were refused",
				a.ID, a.Acked, a.Failed, acked[a.ID], failed[a.ID], len(a.Refused))
		}
	}
	for agent, ids := range c.given {
		for id := range ids {
			if !seen[ack{agent, id}] {
				c.violated(Miscounted, "agent %s got %s, and could not acknowledge it", agent, id)
			}
		}
	}
}

// turnsAway are the statuses that end an agent's trust in its key, or make it drop
// a result.
var turnsAway = []int{http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusGone}

func (c *judgement) refusals() {
	for _, r := range c.Refusals {
		if slices.Contains(turnsAway, r.Status) {
			c.violated(TurnedAway, "agent %s: %s was answered %d: %s", r.Agent, r.Call, r.Status, r.Text)
		}
	}
}
