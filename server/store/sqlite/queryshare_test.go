package sqlite

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// More queries run than there are readers, each of which takes longer than the test. The store
// answers everything else, and pings, meanwhile.
func TestSlowQueriesLeaveReadersToOthers(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	var tags []string
	for i := range 20 {
		tags = append(tags, fmt.Sprintf("%s%d", strings.Repeat("ab1", 80), i))
	}
	for i := range 2_000 {
		if err := s.Agents().Create(t.Context(), fleet.Agent{ID: fmt.Sprintf("a%04d", i), Active: true, Tags: tags}); err != nil {
			t.Fatal(err)
		}
	}
	var slow kql.AnyOf // beyond what Compile allows
	for i := range 3_000 {
		slow = append(slow, kql.Like{Field: fleet.AgentSchema(nil).Field("tags"), Pattern: kql.Wildcard{"", "a", "1", "b", fmt.Sprintf("x%d", i)}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var queries sync.WaitGroup
	for i := range 3 * DefaultReaders {
		queries.Go(func() {
			filter := store.AgentFilter{Query: slow}
			var err error
			switch i % 3 {
			case 0:
				_, _, err = s.Agents().List(ctx, store.AgentQuery{AgentFilter: filter, Limit: 10})
			case 1:
				err = s.Agents().Facts(ctx, filter, func(string, fleet.StatusFacts) {})
			case 2:
				_, err = store.CountFirst(ctx, s.Agents(), filter, nil)
			}
			if err == nil {
				t.Error("a query was not slow: the test shows nothing")
			}
		})
	}
	time.Sleep(100 * time.Millisecond) // they have begun
	for range 5 {
		begun := time.Now()
		inTime, stop := context.WithTimeout(t.Context(), 5*time.Second)
		_, err := s.Agents().Get(inTime, "a0007")
		if perr := s.Ping(inTime); err != nil || perr != nil {
			t.Errorf("after %s an agent is read with %v, and a ping answered with %v", time.Since(begun), err, perr)
		}
		stop()
	}
	cancel()
	queries.Wait()
}
