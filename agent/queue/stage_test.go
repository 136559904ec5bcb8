package queue

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/server/agentapi"
)

func TestStageWaitsAcrossRestartsUntilItEndsOrIsCancelled(t *testing.T) {
	path, now := Path(t.TempDir()), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	open := func() *Queue {
		t.Helper()
		q, err := Open(disk.OS{}, path, "a")
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	order := func(id string) agentapi.Action {
		return agentapi.Action{ID: id, Type: agentapi.ActionStage, CreatedAt: now, Data: []byte(`{"version":"1.1.0"}`)}
	}
	var stopped []string
	accept := func(q *Queue, actions ...agentapi.Action) {
		t.Helper()
		err := q.Accept(actions, "token", now, func(id, why string) bool {
			stopped = append(stopped, id+" "+why)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	q := open()
	accept(q, order("first"), order("second"), order("first"))
	q = open()
	if a := q.Stage(); a == nil || a.ID != "first" {
		t.Fatalf("after a restart %+v waits", a)
	}
	if item := q.Waiting(""); item != nil {
		t.Errorf("an upgrade waits: %+v", item)
	}
	if err := q.Finish("first", Result{Message: "1.1.0 is staged"}, now); err != nil {
		t.Fatal(err)
	}
	accept(q, order("first"))
	if a := q.Stage(); a == nil || a.ID != "second" {
		t.Errorf("then %+v waits", a)
	}
	accept(q, agentapi.Action{ID: "c", Type: agentapi.ActionCancel, CreatedAt: now, Data: []byte(`{"target_id":"second"}`)})
	if acks := q.Acks(10); q.Stage() != nil || len(acks) != 3 || acks[1].Error != agentapi.Cancelled || acks[2].Error != "" || len(stopped) != 1 || stopped[0] != "second cancelled" {
		t.Errorf("the CANCEL gives %+v, and stopped is %q", acks, stopped)
	}

	for i := range MaxStages + 1 {
		accept(q, order(fmt.Sprint("more-", i)))
	}
	if acks := q.Acks(10); len(acks) != 4 || !strings.Contains(acks[3].Error, "wait to be staged already") {
		t.Errorf("one too many gives %+v", acks)
	}
	accept(q, agentapi.Action{ID: "u", Type: agentapi.ActionUnenroll, CreatedAt: now})
	if acks := q.Acks(100); q.Stage() != nil || len(acks) != 4+MaxStages+1 || acks[4].Error != "the agent was unenrolled" {
		t.Errorf("the unenrolment gives %+v", acks)
	}
}
