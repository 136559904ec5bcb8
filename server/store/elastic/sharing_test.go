package elastic_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// concurrentAgents is how many agents report concurrently.
const concurrentAgents = 200

// Agents that report concurrently share requests, and each gets its own result.
func TestConcurrentReportsShareRequests(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	ctx := t.Context()
	together := func(f func(i int)) time.Duration {
		began := time.Now()
		var all sync.WaitGroup
		for i := range concurrentAgents {
			all.Go(func() { f(i) })
		}
		all.Wait()
		return time.Since(began)
	}
	id := func(i int) string { return fmt.Sprint("agent-", i) }
	count := func(end string) (n int) {
		for kind, c := range proxy.Counts() {
			if strings.HasSuffix(kind, end) {
				n += c
			}
		}
		return n
	}
	together(func(i int) {
		if err := s.Agents().Create(ctx, agent(id(i))); err != nil {
			t.Error(err)
		}
	})
	read := make([]fleet.Agent, concurrentAgents)
	reads := count("_mget")
	took := together(func(i int) {
		var err error
		if read[i], err = s.Agents().ByAccessKey(ctx, "key-"+id(i)); err != nil {
			t.Error(err)
		}
	})
	t.Logf("%d reads of an access key and its agent: %d requests, %s", concurrentAgents, count("_mget")-reads, took.Round(time.Millisecond))
	if n := count("_mget") - reads; n > concurrentAgents {
		t.Errorf("%d agents were read with %d requests", concurrentAgents, n)
	}
	stale := map[int]bool{3: true, 77: true, 150: true} // these have an outdated revision
	for i := range stale {
		if _, err := s.Agents().Update(ctx, read[i]); err != nil {
			t.Fatal(err)
		}
	}
	writes := count("_bulk")
	errs := make([]error, concurrentAgents)
	took = together(func(i int) {
		a := read[i]
		a.PolicyRev = int64(i + 1)
		_, errs[i] = s.Agents().Report(ctx, store.Report{
			Agent: &a, Seen: &fleet.Touch{AgentID: a.ID, At: now.Add(time.Second), Status: "online"},
			Results: []fleet.Result{{ActionID: "act", AgentID: a.ID, Timestamp: now}},
			Events:  []fleet.Event{{At: now, Type: "reported", Subject: a.ID}},
		})
	})
	t.Logf("%d reports of a result, an agent and events: %d requests, %s", concurrentAgents, count("_bulk")-writes, took.Round(time.Millisecond))
	if n := count("_bulk") - writes; n > 3*concurrentAgents/2 { // unshared, each would take three
		t.Errorf("%d reports took %d requests", concurrentAgents, n)
	}
	for i, err := range errs {
		want := fleet.Kind("")
		if stale[i] {
			want = fleet.Conflict
		}
		if err != nil && fleet.KindOf(err) != want || err == nil && stale[i] {
			t.Errorf("report %d: %v", i, err)
		}
	}
	for i := range concurrentAgents {
		a, err := s.Agents().Get(ctx, id(i))
		must(t, err)
		if want := int64(i + 1); !stale[i] && a.PolicyRev != want || stale[i] && a.PolicyRev != 0 {
			t.Errorf("agent %d has policy revision %d", i, a.PolicyRev)
		}
		if _, err := s.Results().Get(ctx, "act", a.ID); err != nil {
			t.Error(err)
		}
	}
	list, err := s.Events().After(ctx, 0, 10*concurrentAgents)
	must(t, err)
	events := map[string]int{}
	for _, e := range list {
		events[e.Type+" "+e.Subject]++
	}
	for i := range concurrentAgents {
		if n := events["reported "+id(i)]; n != 1 && !stale[i] {
			t.Errorf("agent %d has %d events, want 1", i, n)
		}
	}
}

// One index refuses writes. Writes to another index succeed, even in the same request.
func TestRefusedWriteDoesNotFailOthersInItsRequest(t *testing.T) {
	p := place(t)
	s := open(t, p)
	ctx := t.Context()
	put(t, p, http.MethodPut, "policies/_settings", `{"index.blocks.write":true}`)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			if i%3 == 0 {
				wantUnavailable(t, s.Policies().Create(ctx, fleet.Policy{ID: fmt.Sprint("p", i)}), "takes no writes")
				return
			}
			if err := s.Webhooks().Create(ctx, fleet.Webhook{ID: fmt.Sprint("w", i)}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	put(t, p, http.MethodPut, "policies/_settings", `{"index.blocks.write":null}`)
	_, total, err := s.Webhooks().List(ctx, 0, 0)
	must(t, err)
	if total != 40 {
		t.Errorf("%d of 40 were written", total)
	}
}
