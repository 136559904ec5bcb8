package elastic_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// Several servers of a new installation are started at the same time.
func TestConcurrentOpensCreateTheIndices(t *testing.T) {
	opts, err := options(esnode.Shared(t))
	must(t, err)
	stores := make([]*elastic.Store, 3)
	errs := make([]error, len(stores))
	var all sync.WaitGroup
	for i := range stores {
		all.Go(func() { stores[i], errs[i] = elastic.Open(t.Context(), opts) })
	}
	all.Wait()
	for i, s := range stores {
		if errs[i] != nil {
			t.Fatalf("server %d: %v", i, errs[i])
		}
		t.Cleanup(func() { must(t, s.Close()) })
	}
	for i, s := range stores {
		must(t, s.Agents().Create(t.Context(), agent(fmt.Sprint("agent-", i))))
		_, err := s.Actions().Create(t.Context(), action(fmt.Sprint("act-", i), "a"))
		must(t, err)
	}
	list, err := stores[0].Actions().After(t.Context(), 0, 9)
	must(t, err)
	if len(list) != len(stores) || list[0].Seq != 1 {
		t.Errorf("the actions are %+v", list)
	}
}
