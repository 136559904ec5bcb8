package queue

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestRequestForDiagnosticsWaitsAcrossRestartsAndIsAnsweredOnce(t *testing.T) {
	path, now := Path(t.TempDir()), time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	open := func() *Queue {
		t.Helper()
		q, err := Open(disk.OS{}, path, "a")
		if err != nil {
			t.Fatal(err)
		}
		return q
	}
	request := func(id string) agentapi.Action {
		return agentapi.Action{ID: id, Type: agentapi.ActionRequestDiagnostics, CreatedAt: now}
	}
	accept := func(q *Queue, actions ...agentapi.Action) {
		t.Helper()
		if err := q.Accept(actions, "token", now, nil); err != nil {
			t.Fatal(err)
		}
	}
	q := open()
	accept(q, request("first"), request("first"))
	q = open()
	if a := q.Diagnostics(); a == nil || a.ID != "first" {
		t.Fatalf("after a restart %+v waits", a)
	}
	if err := q.Finish("first", Result{Message: "sent", Data: json.RawMessage(`{"upload_id":"up"}`)}, now); err != nil {
		t.Fatal(err)
	}
	accept(q, request("first"))
	if acks := q.Acks(10); q.Diagnostics() != nil || len(acks) != 1 || string(acks[0].Data) != `{"upload_id":"up"}` {
		t.Errorf("the results are %+v", acks)
	}

	for i := range MaxDiagnostics + 1 {
		accept(q, request(fmt.Sprint("more-", i)))
	}
	if acks := q.Acks(10); len(acks) != 2 || !strings.Contains(acks[1].Error, "wait already") {
		t.Errorf("one request too many gives %+v", acks)
	}
	accept(q, agentapi.Action{ID: "u", Type: agentapi.ActionUnenroll, CreatedAt: now})
	if acks := q.Acks(10); q.Diagnostics() != nil || len(acks) != 2+MaxDiagnostics+1 || acks[2].Error != "the agent was unenrolled" {
		t.Errorf("the unenrolment gives %+v", acks)
	}
}
