package elastic

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// pagedAgents is the size of the fleet: some pages more than maxResultWindow. All deeper pages
// are reached in the same way.
const pagedAgents = maxResultWindow + 500

// touchedAgents is how many of them are touched.
const touchedAgents = 3_000

// fleetVariable is the environment variable that enlarges the fleet, for measurements.
const fleetVariable = "MUSTER_TEST_ELASTICSEARCH_AGENTS"

func TestPagesBeyondTheResultWindow(t *testing.T) {
	require.Time(t, "stores ten thousand documents")
	n := pagedAgents
	if v := os.Getenv(fleetVariable); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatalf("%s: %v", fleetVariable, err)
		}
	}
	p := esnode.Shared(t)
	s, err := Open(t.Context(), Options{
		URLs: p.URLs, Prefix: p.Prefix, Username: p.Username, Password: p.Password, APIKey: p.APIKey, ServiceToken: p.ServiceToken, CACert: p.CA,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	took := func(what string, f func() error) {
		t.Helper()
		began := time.Now()
		if err := f(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		t.Logf("%s: %s", what, time.Since(began).Round(time.Millisecond))
	}
	ctx := t.Context()
	ids := make([]string, n)
	took(fmt.Sprintf("create %d agents", n), func() error { return s.populate(ctx, ids) })

	for _, offset := range []int{0, maxResultWindow - 5, maxResultWindow, n - 7, n} {
		for _, desc := range []bool{false, true} {
			took(fmt.Sprintf("page of 10 at %d, descending %v", offset, desc), func() error {
				page, total, err := s.Agents().List(ctx, store.AgentQuery{Sort: store.ByHostname, Desc: desc, Offset: offset, Limit: 10})
				if err != nil || total != n || len(page) != min(10, n-offset) {
					return fmt.Errorf("%d of %d agents: %w", len(page), total, err)
				}
				for i, a := range page {
					want := ids[offset+i]
					if desc {
						want = ids[n-1-offset-i]
					}
					if a.ID != want {
						return fmt.Errorf("agent %d is %s, want %s", offset+i, a.ID, want)
					}
				}
				return nil
			})
		}
	}
	touched := n
	if os.Getenv(fleetVariable) == "" {
		touched = min(n, touchedAgents)
	}
	touches := make([]fleet.Touch, touched)
	for round, what := range []string{"touch", "touch again"} {
		at := time.Date(2026, time.March, 4, 0, 0, round, 0, time.UTC)
		for i, id := range ids[:touched] {
			touches[i] = fleet.Touch{AgentID: id, At: at, Status: "online"}
		}
		took(what, func() error { return s.Agents().Touch(ctx, touches) })
		took("facts of all", func() error {
			count := 0
			err := s.Agents().Facts(ctx, store.AgentFilter{}, func(_ string, f fleet.StatusFacts) {
				if f.LastCheckin != nil && f.LastCheckin.Equal(at) {
					count++
				}
			})
			if count != touched {
				err = fmt.Errorf("%d of %d agents: %w", count, touched, err)
			}
			return err
		})
		took("statuses of all", func() error {
			counts, err := store.CountStatuses(ctx, s.Agents(), store.AgentFilter{}, map[string]time.Duration{"policy-3": time.Hour}, at)
			all := 0
			for _, c := range counts {
				all += c
			}
			if all != n || counts[fleet.StatusOnline] != touched || counts[fleet.StatusEnrolling] != n-touched {
				err = fmt.Errorf("%d of %d agents, %v: %w", all, n, counts, err)
			}
			return err
		})
	}
	counted := func(count *int, want int, err error) error {
		if *count != want {
			err = fmt.Errorf("%d of %d agents: %w", *count, want, err)
		}
		return err
	}
	took("census", func() error {
		count := 0
		err := s.Agents().Census(ctx, func(fleet.Census) { count++ })
		return counted(&count, n, err)
	})
	took("each of a policy", func() error {
		count := 0
		err := s.Agents().Each(ctx, store.AgentFilter{PolicyID: "policy-3"}, func(fleet.Agent) { count++ })
		return counted(&count, n/10, err)
	})
	took("action for all", func() error {
		_, err := s.Actions().Create(ctx, fleet.Action{ID: "all", Agents: ids})
		return err
	})
	took("pending of one", func() error {
		list, err := s.Actions().Pending(ctx, ids[n-1], 0, time.Now(), 10)
		if len(list) != 1 {
			err = fmt.Errorf("%d actions: %w", len(list), err)
		}
		return err
	})
}

// populate writes agents without claiming their access keys, and sets ids to their ids in the
// order of their host names.
func (s *Store) populate(ctx context.Context, ids []string) error {
	writes := make([]write, len(ids))
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%06d", i)
		a := fleet.Agent{
			ID: ids[i], Type: "PERMANENT", Active: true, PolicyRev: 1, PolicyID: fmt.Sprintf("policy-%d", i%10), AccessKeyID: "key-" + ids[i], EnrolledAt: time.Now(),
			Version: "1.0.0", Tags: []string{"site=berlin", "prod"},
			LocalMetadata: fmt.Appendf(nil, `{"host":{"hostname":"host-%06d","architecture":"x86_64"},"os":{"type":"linux"}}`, i/2),
		}
		source, err := agentSource(&a, newRevision(), a.Last)
		if err != nil {
			return err
		}
		writes[i] = write{verb: create, key: key{indexAgents, a.ID}, body: source}
	}
	_, err := s.c.write(ctx, "populate", writes...)
	return err
}
