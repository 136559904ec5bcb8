package storetest

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func result(action, agent, errText string, after time.Duration) fleet.Result {
	return fleet.Result{ActionID: action, AgentID: agent, Hostname: "host-" + agent, Message: "did it", Error: errText, Timestamp: at(after)}
}

func testResults(t *testing.T, cfg Config) {
	ctx := t.Context()
	put := func(t *testing.T, s store.Store, results []fleet.Result, want ...bool) {
		t.Helper()
		equal(t, value(s.Results().Put(ctx, results))(t), want)
	}
	counts := func(t *testing.T, s store.Store, action string, want fleet.ResultCounts) {
		t.Helper()
		cfg.eventually(t, func() error {
			got, err := s.Results().Counts(ctx, []string{action})
			if err != nil {
				return err
			}
			return differs(got, map[string]fleet.ResultCounts{action: want})
		})
	}

	t.Run("Get returns the stored result", func(t *testing.T) {
		s := cfg.open(t)
		good, bad := result("act", "a", "", time.Second), result("act", "b", "no space <left>", 2*time.Second)
		put(t, s, []fleet.Result{good, bad}, true, true)
		equal(t, value(s.Results().Get(ctx, "act", "a"))(t), good)
		equal(t, value(s.Results().Get(ctx, "act", "b"))(t), bad)
		_, err := s.Results().Get(ctx, "act", "c")
		wantKind(t, err, fleet.NotFound)
		_, err = s.Results().Get(ctx, "other", "a")
		wantKind(t, err, fleet.NotFound)
		equal(t, value(s.Results().Answered(ctx, "act", []string{"c", "b", "a", "b", "", `a"`}))(t), map[string]bool{"a": true, "b": true})
		equal(t, value(s.Results().Answered(ctx, "other", []string{"a"}))(t), map[string]bool{})
		equal(t, value(s.Results().Answered(ctx, "act", nil))(t), map[string]bool{})
		if changed := value(s.Results().Put(ctx, nil))(t); len(changed) != 0 {
			t.Fatalf("Put without results returned %v", changed)
		}
	})

	for _, tc := range []struct {
		name          string
		first, second string // errors
		changed       bool
	}{
		{"a repeated success changes nothing", "", "", false},
		{"a repeated failure changes nothing", "first", "second", false},
		{"a success after a failure changes nothing", "failed", "", false},
		{"a failure after a success replaces it", "", "rolled back", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, together := range []bool{false, true} {
				s := cfg.open(t)
				first, second := result("act", "a", tc.first, time.Second), result("act", "a", tc.second, time.Minute)
				if together {
					put(t, s, []fleet.Result{first, second}, true, tc.changed)
				} else {
					put(t, s, []fleet.Result{first}, true)
					put(t, s, []fleet.Result{second}, tc.changed)
				}
				want := first
				if tc.changed {
					want = second
				}
				equal(t, value(s.Results().Get(ctx, "act", "a"))(t), want)
				n := fleet.ResultCounts{Acked: 1, Last: want.Timestamp}
				if want.Error != "" {
					n.Acked, n.Failed = 0, 1
				}
				counts(t, s, "act", n)
			}
		})
	}

	t.Run("Counts returns counts by action without actions that have no results", func(t *testing.T) {
		s := cfg.open(t)
		var list []fleet.Result
		for i := range 30 {
			errText := ""
			if i%3 == 0 {
				errText = "failed"
			}
			list = append(list, result("act", fmt.Sprint("agent-", i), errText, time.Duration(i)*time.Second))
		}
		list = append(list, result("other", "agent-1", "", time.Hour))
		value(s.Results().Put(ctx, list))(t)
		want := map[string]fleet.ResultCounts{"act": {Acked: 20, Failed: 10, Last: at(29 * time.Second)}, "other": {Acked: 1, Last: at(time.Hour)}}
		cfg.eventually(t, func() error {
			got, err := s.Results().Counts(ctx, []string{"act", "other", "none"})
			if err != nil {
				return err
			}
			return differs(got, want)
		})
		if got := value(s.Results().Counts(ctx, nil))(t); len(got) != 0 {
			t.Fatalf("Counts without actions returned %v", got)
		}
	})

	t.Run("Errors returns failed results of the action, newest first", func(t *testing.T) {
		s := cfg.open(t)
		value(s.Results().Put(ctx, []fleet.Result{
			result("act", "a", "old", time.Second), result("act", "b", "", 2*time.Second), result("act", "c", "new", 3*time.Second),
			result("act", "d", "middle", 2*time.Second), result("other", "a", "another's", time.Hour),
		}))(t)
		for limit, want := range map[int][]string{10: {"new", "middle", "old"}, 2: {"new", "middle"}} {
			cfg.eventually(t, func() error {
				list, err := s.Results().Errors(ctx, "act", limit)
				if err != nil {
					return err
				}
				got := []string{}
				for _, r := range list {
					got = append(got, r.Error)
				}
				return differs(got, want)
			})
		}
	})

	t.Run("OfAction returns the results of an action, or those of some agents", func(t *testing.T) {
		s := cfg.open(t)
		value(s.Results().Put(ctx, []fleet.Result{
			result("act", "a", "", time.Second), result("act", "b", "failed", 2*time.Second), result("act", "c", "", 3*time.Second), result("other", "a", "another's", time.Hour),
		}))(t)
		for _, tc := range []struct {
			action string
			agents []string
			want   map[string]string
		}{
			{"act", nil, map[string]string{"a": "", "b": "failed", "c": ""}},
			{"act", []string{"b", "x", "a"}, map[string]string{"a": "", "b": "failed"}},
			{"act", []string{}, map[string]string{}},
			{"other", nil, map[string]string{"a": "another's"}},
			{"none", nil, map[string]string{}},
		} {
			cfg.eventually(t, func() error {
				got := map[string]string{}
				if err := s.Results().OfAction(ctx, tc.action, tc.agents, func(r fleet.Result) { got[r.AgentID] = r.Error }); err != nil {
					return err
				}
				return differs(got, tc.want)
			})
		}
	})

	t.Run("a result sent to two processes concurrently counts once", func(t *testing.T) {
		stores := cfg.openTwice(t)
		const agents, senders = 20, 6
		var all sync.WaitGroup
		var mu sync.Mutex
		changes := map[string]int{}
		for w := range senders {
			all.Go(func() {
				for i := range agents {
					r := result("act", fmt.Sprint("agent-", i), "", time.Second)
					changed, err := stores[w%2].Results().Put(ctx, []fleet.Result{r})
					if err != nil {
						t.Error(err)
						return
					}
					if changed[0] {
						mu.Lock()
						changes[r.AgentID]++
						mu.Unlock()
					}
				}
			})
		}
		all.Wait()
		for id, n := range changes {
			if n != 1 {
				t.Errorf("Put reported the result of %s as a change %d times", id, n)
			}
		}
		counts(t, stores[0], "act", fleet.ResultCounts{Acked: agents, Last: at(time.Second)})
	})
}
