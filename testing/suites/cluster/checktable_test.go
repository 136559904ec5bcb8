package cluster

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// at returns a time in a made-up history.
func at(second int) time.Time { return time.Unix(int64(second), 0) }

// consistent returns a history without violations: two upgrades of the agents a and b, the
// second of which was cancelled before b received it; a third that b could not follow; one
// whose answer was lost and that took effect; one whose answer was lost and that did not;
// and one that was refused.
func consistent() History {
	return History{
		Ops: []Op{
			{Name: "one", Kind: Upgrade, Agents: []string{"a", "b"}, Invoked: at(1), Returned: at(2), Outcome: Done, ActionID: "1"},
			{Name: "two", Kind: Upgrade, Agents: []string{"a", "b"}, Invoked: at(3), Returned: at(4), Outcome: Done, ActionID: "2"},
			{Name: "cancel 2", Kind: Cancel, Cancels: "2", Invoked: at(5)},
			{Name: "cancel 2", Kind: Cancel, Cancels: "2", Invoked: at(6), Returned: at(7), Outcome: Done, ActionID: "c2"},
			{Name: "three", Kind: Upgrade, Agents: []string{"b", "a"}, Invoked: at(6), Returned: at(8), Outcome: Done, ActionID: "3"},
			{Name: "four", Kind: Upgrade, Agents: []string{"a"}, Invoked: at(9)},
			{Name: "five", Kind: Upgrade, Agents: []string{"a"}, Invoked: at(9)},
			{Name: "six", Kind: Upgrade, Agents: []string{"a"}, Invoked: at(9), Returned: at(10), Outcome: Refused},
		},
		Actions: []Action{
			{ID: "1", Op: "one", Seq: 10, Agents: []string{"a", "b"}, Acked: 1, Failed: 1},
			{ID: "2", Op: "two", Seq: 12, Agents: []string{"a", "b"}, Cancelled: true, Acked: 1},
			{ID: "c2", Cancels: "2", Seq: 13, Agents: []string{"a", "b"}, Acked: 2},
			{ID: "3", Op: "three", Seq: 14, Agents: []string{"a"}, Refused: []string{"b"}, Failed: 2},
			{ID: "4", Op: "four", Seq: 15, Agents: []string{"a"}, Acked: 1},
		},
		Answers: []Answer{
			{Agent: "a", Token: 12, Actions: []string{"1", "2"}},
			{Agent: "b", Token: 10, Actions: []string{"1"}},
			{Agent: "a", Shown: 12, Token: 14, Actions: []string{"c2", "3"}},
			{Agent: "b", Shown: 10, Token: 13, Actions: []string{"c2"}},
			{Agent: "a", Shown: 14}, // the server ended, and answered all it had parked
			{Agent: "a", Shown: 14, Token: 15, Actions: []string{"4"}},
		},
		Acks: []Ack{
			{"a", "1", false},
			{"a", "1", false}, // repeated because its answer was lost
			{"a", "2", false},
			{"b", "1", true},
			{"a", "c2", false},
			{"b", "c2", false},
			{"a", "3", true},
			{"a", "4", false},
		},
		Refusals: []simagent.Refusal{{Agent: "b", Call: "checkin", Status: http.StatusServiceUnavailable}},
	}
}

func TestConsistentHistoryHasNoViolations(t *testing.T) {
	for _, h := range []History{{}, consistent()} {
		if found := Check(h); len(found) > 0 {
			t.Errorf("found %v", found)
		}
	}
}

// Each case is one change of the consistent history.
func TestCheckFindsEachViolation(t *testing.T) {
	drop := func(list *[]Action, id string) {
		*list = slices.DeleteFunc(*list, func(a Action) bool { return a.ID == id })
	}
	for name, c := range map[string]struct {
		rule   Rule
		change func(*History)
	}{
		"an upgrade that was answered is not there":        {Lost, func(h *History) { drop(&h.Actions, "1") }},
		"it is there under another id":                     {Lost, func(h *History) { h.Ops[0].ActionID = "other" }},
		"it forgets an agent":                              {Lost, func(h *History) { h.Actions[0].Agents = []string{"a"} }},
		"an agent did not get it":                          {Lost, func(h *History) { h.Answers[1].Actions = nil }},
		"an agent did not get it, for its token was ahead": {Lost, func(h *History) { h.Answers[1].Actions, h.Answers[1].Token = nil, 12 }},
		"one that may have been made reached nobody":       {Lost, func(h *History) { h.Answers[5].Actions = nil }},
		"a CANCEL reached one of two":                      {Lost, func(h *History) { h.Answers[3].Actions = nil }},
		"a cancel that was answered did nothing":           {Lost, func(h *History) { drop(&h.Actions, "c2"); h.Actions[1].Cancelled = false }},
		"a cancel was done by half":                        {Lost, func(h *History) { h.Ops[3].Outcome = Unknown; drop(&h.Actions, "c2") }},
		"a cancel was done by the other half":              {Lost, func(h *History) { h.Ops[3].Outcome = Unknown; h.Actions[1].Cancelled = false }},
		"a CANCEL forgets an agent":                        {Lost, func(h *History) { h.Actions[2].Agents = []string{"a"} }},
		"what was cancelled is not there":                  {Lost, func(h *History) { drop(&h.Actions, "2") }},

		"an action in two answers":           {Duplicated, func(h *History) { h.Answers[2].Actions = []string{"2", "c2", "3"} }},
		"an action twice in one answer":      {Duplicated, func(h *History) { h.Answers[1].Actions = []string{"1", "1"} }},
		"an action behind the token":         {Duplicated, func(h *History) { h.Answers[1].Shown = 10; h.Answers[1].Token = 11 }},
		"a token that moves back":            {Duplicated, func(h *History) { h.Answers[5].Token = 14 }},
		"a token that does not cover it all": {Duplicated, func(h *History) { h.Answers[0].Token = 11 }},
		"one call made two actions": {Duplicated, func(h *History) {
			h.Actions = append(h.Actions, Action{ID: "1b", Op: "one", Seq: 11, Agents: []string{"a", "b"}})
		}},
		"two actions of one number": {Duplicated, func(h *History) { h.Actions[1].Seq = 10 }},
		"two CANCELs of one action": {Duplicated, func(h *History) {
			h.Actions = append(h.Actions, Action{ID: "c2b", Cancels: "2", Seq: 20, Agents: []string{"a", "b"}})
		}},

		"numbers against the order of the calls": {Reordered, func(h *History) { h.Actions[0].Seq, h.Actions[1].Seq = 12, 10 }},
		"an agent sees them the other way round": {Reordered, func(h *History) { h.Answers[0].Actions = []string{"2", "1"} }},
		"a CANCEL before what it cancels":        {Reordered, func(h *History) { h.Actions[1].Seq, h.Actions[2].Seq = 13, 12 }},

		"an action of nobody's call":        {Unordered, func(h *History) { h.Actions = append(h.Actions, Action{ID: "x", Op: "none", Seq: 20}) }},
		"an action of a refused call":       {Unordered, func(h *History) { h.Actions[4].Op = "six" }},
		"given what is not there":           {Unordered, func(h *History) { h.Answers[1].Actions = []string{"1", "x"} }},
		"given what is for others":          {Unordered, func(h *History) { h.Answers[3].Actions = []string{"c2", "4"}; h.Answers[3].Token = 15 }},
		"a call that did not happen, given": {Unordered, func(h *History) { h.Answers[5].Actions = []string{"5"} }},

		"an acknowledgement that does not count": {Miscounted, func(h *History) { h.Actions[0].Acked = 0 }},
		"one that counts twice":                  {Miscounted, func(h *History) { h.Actions[0].Acked = 2 }},
		"one that counts as the other kind":      {Miscounted, func(h *History) { h.Actions[0].Acked, h.Actions[0].Failed = 2, 0 }},
		"a refusal that counts twice":            {Miscounted, func(h *History) { h.Actions[3].Failed = 3 }},
		"an agent that could not acknowledge":    {Miscounted, func(h *History) { h.Acks = h.Acks[:len(h.Acks)-1]; h.Actions[4].Acked = 0 }},

		"a key that is not known any more":   {Rejected, func(h *History) { h.Refusals[0].Status = http.StatusUnauthorized }},
		"an agent that is forbidden":         {Rejected, func(h *History) { h.Refusals[0].Status = http.StatusForbidden }},
		"an action that nobody has heard of": {Rejected, func(h *History) { h.Refusals[0].Status = http.StatusNotFound }},
	} {
		t.Run(name, func(t *testing.T) {
			h := consistent()
			c.change(&h)
			found := Check(h)
			if !slices.ContainsFunc(found, func(v Violation) bool { return v.Rule == c.rule }) {
				t.Errorf("found %v, want one that is %s", found, c.rule)
			}
		})
	}
}

// Concurrent calls may be numbered in any order.
func TestCheckComparesNumbersWithTheOrderOfCalls(t *testing.T) {
	for _, c := range []struct {
		first, second [2]int // invoked and returned; returned 0 means unknown
		consistent    bool
	}{
		{[2]int{1, 2}, [2]int{3, 4}, true},
		{[2]int{1, 3}, [2]int{2, 4}, true},
		{[2]int{2, 4}, [2]int{1, 3}, true},
		{[2]int{3, 4}, [2]int{1, 2}, false},
		{[2]int{3, 4}, [2]int{1, 0}, true},
		{[2]int{3, 0}, [2]int{1, 2}, false},
	} {
		op := func(name string, times [2]int) Op {
			o := Op{Name: name, Kind: Upgrade, Invoked: at(times[0])}
			if times[1] > 0 {
				o.Outcome, o.Returned, o.ActionID = Done, at(times[1]), name
			}
			return o
		}
		h := History{
			Ops:     []Op{op("first", c.first), op("second", c.second)},
			Actions: []Action{{ID: "first", Op: "first", Seq: 1}, {ID: "second", Op: "second", Seq: 2}},
		}
		if found := Check(h); (len(found) == 0) != c.consistent {
			t.Errorf("numbered in this order, %v and %v: found %v", c.first, c.second, found)
		}
	}
}

func TestRecordedHistoryDoesNotChange(t *testing.T) {
	var r Recorder
	r.Ack(Ack{Agent: "a", Action: "1"})
	before := r.History()
	for i := range 10 {
		r.Ack(Ack{Agent: fmt.Sprint(i), Action: "2"})
		r.Op(Op{Outcome: Done})
	}
	if len(before.Acks) != 1 || before.Acks[0].Agent != "a" || len(r.History().Acks) != 11 {
		t.Errorf("before: %v, now: %v", before.Acks, r.History().Acks)
	}
	if n := r.Count(func(o Op) bool { return o.Outcome == Done }); n != 10 {
		t.Errorf("%d are done, want 10", n)
	}
}
