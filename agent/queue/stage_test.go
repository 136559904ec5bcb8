package queue

import (
	"fmt"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestStageWaitsAcrossRestartsUntilItEndsOrIsCancelled(t *testing.T) {
	order := func(id string) agentapi.Action {
		return agentapi.Action{ID: id, Type: agentapi.ActionStage, CreatedAt: noon, Data: []byte(`{"version":"1.1.0"}`)}
	}
	s := newTestQueue(t, t.TempDir())
	waits := func(want string) {
		t.Helper()
		got := ""
		if a := s.Stage(); a != nil {
			got = a.Action.ID
		}
		if got != want || len(s.pending()) > 0 {
			t.Errorf("stage %q waits, and upgrades %v; want stage %q", got, s.pending(), want)
		}
	}
	answered := func(want ...string) {
		t.Helper()
		if got := s.results(); !slices.Equal(got, want) {
			t.Errorf("the results are %q, want %q", got, want)
		}
	}
	s.accept(order("first"), order("second"), order("first"))
	s.reopen("agent-1")
	waits("first")
	if err := s.Finish("first", Result{Message: "1.1.0 is staged"}, noon); err != nil {
		t.Fatal(err)
	}
	s.accept(order("first"))
	waits("second")
	var stopped []string
	err := s.Accept([]agentapi.Action{cancelOf("c", "second")}, "", noon, func(id, why string) bool {
		stopped = append(stopped, id+" "+why)
		return true
	})
	if err != nil || !slices.Equal(stopped, []string{"second cancelled"}) {
		t.Errorf("stopped is %q, %v", stopped, err)
	}
	waits("")
	answered("first", "second: cancelled", "c")

	for i := range MaxStages + 1 {
		s.accept(order(fmt.Sprint("more-", i)))
	}
	want := []string{"first", "second: cancelled", "c", "more-20: 20 versions wait to be staged already"}
	answered(want...)
	s.accept(agentapi.Action{ID: "u", Type: agentapi.ActionUnenroll, CreatedAt: noon})
	waits("")
	for i := range MaxStages {
		want = append(want, fmt.Sprintf("more-%d: the agent was unenrolled", i))
	}
	answered(append(want, "u")...)
}
