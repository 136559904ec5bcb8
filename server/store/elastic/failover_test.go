package elastic_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

const (
	failoverWriters = 4
	// failoverBefore and failoverAfter are the least numbers of actions when the node is
	// killed and when the writers stop.
	failoverBefore = 60
	failoverAfter  = 160
	// failoverTimeout bounds the test, in which three nodes on a busy machine elect a new
	// primary.
	failoverTimeout = 3 * time.Minute
)

// The node with the primary shard of the actions is killed during writes. Readers see every
// action whose Create returned nil once, in one order, and no action disappears.
func TestKillingThePrimaryLosesNoAction(t *testing.T) {
	cluster := esnode.Start(t, esnode.Options{Nodes: 3})
	ctx, cancel := context.WithTimeout(t.Context(), failoverTimeout)
	defer cancel()
	must(t, cluster.Wait(ctx, "green", func(h esnode.Health) bool { return h.Status == "green" }))
	var stores []*elastic.Store // of two servers
	for range 2 {
		s, err := elastic.Open(ctx, elastic.Options{URLs: cluster.URLs()})
		must(t, err)
		defer s.Close()
		stores = append(stores, s)
	}
	must(t, cluster.Wait(ctx, "a second copy of each index", func(h esnode.Health) bool { return h.Status == "green" }))

	var mu sync.Mutex
	created := map[string]int64{} // Seq by id
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(created) }
	stop := make(chan struct{})
	var writers, readers sync.WaitGroup
	for w := range failoverWriters {
		actions := stores[w%2].Actions()
		writers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-ctx.Done():
					return
				default:
				}
				id := fmt.Sprintf("w%d-%d", w, i)
				seq, err := actions.Create(ctx, action(id, "a"))
				switch {
				case err == nil:
					mu.Lock()
					created[id] = seq
					mu.Unlock()
				case fleet.KindOf(err) != fleet.Unavailable && ctx.Err() == nil:
					t.Errorf("create %s: %v", id, err)
				}
			}
		})
	}
	type entry struct {
		seq int64
		id  string
	}
	histories := make([][]entry, 3)
	finished := make(chan struct{})
	for r := range histories {
		actions := stores[r%2].Actions()
		readers.Go(func() {
			var after int64
			for {
				last := false
				select {
				case <-finished:
					last = true
				case <-ctx.Done():
					return
				default:
				}
				list, err := actions.After(ctx, after, 50)
				if err != nil {
					if fleet.KindOf(err) != fleet.Unavailable {
						t.Errorf("reader %d: %v", r, err)
						return
					}
					continue
				}
				for _, a := range list {
					histories[r] = append(histories[r], entry{a.Seq, a.ID})
					after = a.Seq
				}
				if last && len(list) == 0 {
					return
				}
			}
		})
	}
	until := func(n int) {
		for count() < n && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
	until(failoverBefore)
	primary := primaryOf(t, cluster, "muster-actions")
	before := count()
	must(t, cluster.Node(primary).Kill())
	killed := time.Now()
	until(before + 1 + failoverWriters) // running writes may have succeeded before the kill
	t.Logf("node %d was killed after %d actions; writes succeeded again %s later", primary, before, time.Since(killed).Round(time.Millisecond))
	until(failoverAfter)
	close(stop)
	writers.Wait()
	must(t, cluster.Node(primary).Start(ctx))
	must(t, cluster.Wait(ctx, "green", func(h esnode.Health) bool { return h.Status == "green" }))
	close(finished)
	readers.Wait()
	if ctx.Err() != nil {
		t.Fatalf("after %s: %d actions of %d", failoverTimeout, count(), failoverAfter)
	}

	for r, history := range histories {
		at := map[string]int64{}
		for i, s := range history {
			if i > 0 && s.seq <= history[i-1].seq {
				t.Errorf("reader %d read %v after %v", r, s, history[i-1])
			}
			if other, twice := at[s.id]; twice {
				t.Errorf("reader %d read %s twice, with Seq %d and %d", r, s.id, other, s.seq)
			}
			at[s.id] = s.seq
		}
		for id, seq := range created {
			if at[id] != seq {
				t.Errorf("reader %d read %s with Seq %d, its writer got %d", r, id, at[id], seq)
			}
		}
		if !slices.Equal(history, histories[0]) {
			t.Errorf("readers %d and 0 read different histories, of %d and %d", r, len(history), len(histories[0]))
		}
	}
	t.Logf("%d actions were created, %d read", len(created), len(histories[0]))
}

// primaryOf returns the node with the primary shard of an index.
func primaryOf(t *testing.T, c *esnode.Cluster, index string) int {
	t.Helper()
	status, answer, err := c.Access().Do(t.Context(), http.MethodGet, "/_cat/shards/"+index+"?format=json&h=prirep,node", nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %s: %v", status, answer, err)
	}
	var shards []struct{ Prirep, Node string }
	must(t, json.Unmarshal(answer, &shards))
	for _, s := range shards {
		if s.Prirep != "p" {
			continue
		}
		for i, n := range c.Nodes() {
			if n.Name == s.Node {
				return i
			}
		}
	}
	t.Fatalf("no node has the primary: %s", answer)
	return 0
}
