package storetest

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func rollout(id string, state fleet.RolloutState) fleet.Rollout {
	percent := 2.5
	return fleet.Rollout{
		ID: id, State: state,
		Plan: fleet.Plan{
			Name: "Tuesday <1>", Version: "1.1.0", Select: fleet.Selector{Labels: map[string][]string{"site": {"berlin", "kyoto"}}},
			Strategy: fleet.Strategy{Kind: fleet.Canary, BatchPercent: 12.5, Canary: &fleet.CanaryRule{Size: 5, Pick: fleet.PickStratified}},
			Failure:  fleet.FailureRule{Percent: &percent}, Health: fleet.HealthRule{Wait: fleet.Duration(10 * time.Minute)},
		},
		Pin: &fleet.Pin{Hash: "sha256:aa", Targets: 111, At: base}, Policies: []string{"default"},
		Orders:  []fleet.Order{{ID: "o", Kind: fleet.OrderRetry, Agents: []string{"a"}, Decision: fleet.Decision{By: "admin", At: base, Why: "again"}}},
		Batches: []fleet.Batch{{Index: 0, Kind: fleet.BatchCanary, StartedAt: atPtr(time.Minute)}, {Index: 1, Kind: fleet.BatchRegular}},
		Waiting: []fleet.Wait{{Code: fleet.WhySoak, Text: "soaks", Since: base, Until: atPtr(time.Hour)}}, CreatedAt: base, CreatedBy: "admin", Automatic: true,
	}
}

func testRollouts(t *testing.T, cfg Config) {
	ctx := t.Context()
	collected{store.KindRollouts.Info}.test(t, cfg)

	t.Run("Active returns running, paused and cancelling rollouts, oldest first", func(t *testing.T) {
		rollouts := cfg.open(t).Rollouts()
		active := func(want ...string) {
			t.Helper()
			heads := []store.RolloutHead{}
			for _, id := range want {
				heads = append(heads, store.RolloutHead{ID: id, Revision: value(rollouts.Get(ctx, id))(t).Revision})
			}
			cfg.eventually(t, func() error {
				got, err := rollouts.Active(ctx)
				return errors.Join(err, differs(got, heads))
			})
		}
		active()
		for i, state := range []fleet.RolloutState{
			fleet.RolloutRunning, fleet.RolloutDraft, fleet.RolloutPaused, fleet.RolloutCancelling,
			fleet.RolloutCompleted, fleet.RolloutFailed, fleet.RolloutCancelled, fleet.RolloutRolledBack,
		} {
			r := rollout(string(state), state)
			r.CreatedAt = at(time.Duration(i) * time.Minute)
			must(t, rollouts.Create(ctx, r))
		}
		active("running", "paused", "cancelling")
		move := func(id string, to fleet.RolloutState) {
			t.Helper()
			r := value(rollouts.Get(ctx, id))(t)
			r.State = to
			value(rollouts.Update(ctx, r))(t)
		}
		move("paused", fleet.RolloutCompleted)
		move("draft", fleet.RolloutRunning)
		move("running", fleet.RolloutRunning) // changes only the revision
		active("running", "draft", "cancelling")
		must(t, rollouts.Delete(ctx, "cancelling"))
		active("running", "draft")
	})

	t.Run("deleting a rollout deletes only its targets", func(t *testing.T) {
		s := cfg.open(t)
		for _, id := range []string{"r", "other"} {
			must(t, s.Rollouts().Create(ctx, rollout(id, fleet.RolloutDraft)))
			must(t, s.Targets().Create(ctx, []fleet.Target{target(id, "a", 0)}))
		}
		old := value(s.Targets().Get(ctx, "r", "a"))(t)
		must(t, s.Rollouts().Delete(ctx, "r"))
		_, err := s.Targets().Get(ctx, "r", "a")
		wantKind(t, err, fleet.NotFound)
		value(s.Targets().Get(ctx, "other", "a"))(t)
		must(t, s.Targets().Create(ctx, []fleet.Target{target("r", "a", 0)}))
		_, errs, err := s.Targets().UpdateMany(ctx, []fleet.Target{old})
		must(t, err)
		wantKind(t, errs[0], fleet.Conflict) // the revision is that of the deleted one
	})
}

func target(rolloutID, agentID string, place int) fleet.Target {
	return fleet.Target{
		RolloutID: rolloutID, AgentID: agentID, Hostname: "host-" + agentID, Batch: place / 10, Place: place, State: fleet.TargetPending,
		From: "1.0.0", To: "1.1.0",
	}
}

// fullTarget has a value in every field.
func fullTarget(rolloutID, agentID string) fleet.Target {
	v := target(rolloutID, agentID, 12)
	v.Ring, v.State, v.Rollback = 2, fleet.TargetUpgrading, true
	v.Values, v.Site, v.Policy, v.HostPhase = []string{"berlin", ""}, "berlin", "default", "preparing"
	v.ActionID, v.ActionIDs, v.Phase, v.Attempts = "act-2", []string{"act-1"}, "UPG_DOWNLOADING", 2
	v.Code, v.Error = fleet.WhyStale, "half of it <&> äöü"
	v.OfferedAt, v.ReachedAt, v.SignAt, v.ExpiresAt, v.EndedAt = atPtr(1), atPtr(2), atPtr(3), atPtr(4), atPtr(5)
	v.History = []fleet.TargetChange{{At: base, State: fleet.TargetOffered, Phase: "p", Code: fleet.WhyNext, Error: "e"}}
	return v
}

func agentsOf(list []fleet.Target) []string {
	out := []string{}
	for _, v := range list {
		out = append(out, v.AgentID)
	}
	return out
}

func testTargets(t *testing.T, cfg Config) {
	ctx := t.Context()
	eachOf := func(targets store.Targets, rolloutID string) (list []fleet.Target, err error) {
		err = targets.Each(ctx, rolloutID, func(v fleet.Target) { list = append(list, v) })
		return list, err
	}

	t.Run("every read returns the stored target", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		mine, want := fullTarget("r", "a"), fullTarget("r", "a")
		must(t, targets.Create(ctx, []fleet.Target{mine, target("r", "b", 13)}))
		modify := func(v fleet.Target) {
			v.Values[0], v.ActionIDs[0], v.History[0].Error = "modified", "modified", "modified"
			*v.OfferedAt = base.Add(-time.Hour)
		}
		modify(mine)
		got := value(targets.Get(ctx, "r", "a"))(t)
		equal(t, got, want)
		modify(got)
		equal(t, value(targets.Get(ctx, "r", "a"))(t), want)
		for name, read := range map[string]func() ([]fleet.Target, error){
			"many": func() ([]fleet.Target, error) { return targets.GetMany(ctx, "r", []string{"a"}) },
			"each": func() ([]fleet.Target, error) { return eachOf(targets, "r") },
			"list": func() ([]fleet.Target, error) {
				list, _, err := targets.List(ctx, store.TargetQuery{RolloutID: "r", Limit: 1})
				return list, err
			},
			"by agent": func() ([]fleet.Target, error) { return targets.ByAgent(ctx, "a", 1) },
		} {
			cfg.eventually(t, func() error {
				list, err := read()
				if err != nil || len(list) == 0 || list[0].Revision != got.Revision {
					return fmt.Errorf("%s: %d targets, want the one with revision %d: %w", name, len(list), got.Revision, err)
				}
				return differs(list[0], want)
			})
		}
	})

	t.Run("Create leaves an existing target unchanged", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		must(t, targets.Create(ctx, nil))
		must(t, targets.Create(ctx, []fleet.Target{target("r", "a", 0), target("r", "b", 1)}))
		a := value(targets.Get(ctx, "r", "a"))(t)
		a.State = fleet.TargetOffered
		revs, errs, err := targets.UpdateMany(ctx, []fleet.Target{a})
		must(t, errors.Join(err, errs[0]))
		// As a server does that repeats an interrupted Create, now with one more target.
		must(t, targets.Create(ctx, []fleet.Target{target("r", "a", 0), target("r", "b", 1), target("r", "c", 2), target("other", "a", 0)}))
		again := value(targets.Get(ctx, "r", "a"))(t)
		equal(t, again, a)
		if again.Revision != revs[0] {
			t.Fatalf("revision is %d, want %d", again.Revision, revs[0])
		}
		cfg.eventually(t, func() error {
			list, err := eachOf(targets, "r")
			return errors.Join(err, differs(agentsOf(list), []string{"a", "b", "c"}))
		})
	})

	t.Run("an agent that is no target is NotFound", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		must(t, targets.Create(ctx, []fleet.Target{target("r", "a", 0)}))
		for _, id := range [][2]string{{"r", "b"}, {"other", "a"}, {"", ""}} {
			_, err := targets.Get(ctx, id[0], id[1])
			wantKind(t, err, fleet.NotFound)
			list, total, err := targets.List(ctx, store.TargetQuery{RolloutID: "other", Limit: 5})
			must(t, err)
			if len(list) != 0 || total != 0 {
				t.Fatalf("a rollout without targets lists %d of %d", len(list), total)
			}
		}
		equal(t, agentsOf(value(targets.ByAgent(ctx, "nobody", 5))(t)), []string{})
	})

	t.Run("GetMany returns targets in the requested order without missing ones", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		must(t, targets.Create(ctx, []fleet.Target{target("r", "a", 0), target("r", "b", 1), target("r", "c", 2), target("other", "d", 0)}))
		for _, tc := range [][2][]string{
			{{"c", "nobody", "a", "d"}, {"c", "a"}},
			{{"nobody"}, {}},
			{nil, {}},
		} {
			equal(t, agentsOf(value(targets.GetMany(ctx, "r", tc[0]))(t)), tc[1])
		}
	})

	t.Run("UpdateMany returns a revision and an error for each target", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		must(t, targets.Create(ctx, []fleet.Target{target("r", "a", 0), target("r", "b", 1), target("r", "c", 2)}))
		list := value(targets.GetMany(ctx, "r", []string{"a", "b", "c"}))(t)
		_, errs, err := targets.UpdateMany(ctx, list[1:2]) // makes the revision of b outdated
		must(t, errors.Join(err, errs[0]))
		for i := range list {
			list[i].State = fleet.TargetOffered
		}
		stranger := list[2] // has the revision of another target
		stranger.AgentID = "nobody"
		elsewhere := list[2]
		elsewhere.RolloutID = "other"
		revs, errs, err := targets.UpdateMany(ctx, []fleet.Target{list[0], list[1], stranger, elsewhere, list[2]})
		must(t, err)
		if len(revs) != 5 || len(errs) != 5 || errs[0] != nil || errs[4] != nil {
			t.Fatalf("revisions are %v, errors %v", revs, errs)
		}
		wantKind(t, errs[1], fleet.Conflict)
		wantKind(t, errs[2], fleet.NotFound)
		wantKind(t, errs[3], fleet.NotFound)
		now := value(targets.GetMany(ctx, "r", []string{"a", "b", "c"}))(t)
		states := []fleet.TargetState{}
		for _, v := range now {
			states = append(states, v.State)
		}
		equal(t, states, []fleet.TargetState{fleet.TargetOffered, fleet.TargetPending, fleet.TargetOffered})
		if now[0].Revision != revs[0] || now[2].Revision != revs[4] {
			t.Fatalf("revisions are %d and %d, UpdateMany returned %v", now[0].Revision, now[2].Revision, revs)
		}
		// The returned revision can be used for the next update.
		list[0].Revision, list[0].State = revs[0], fleet.TargetUpgrading
		_, errs, err = targets.UpdateMany(ctx, list[:1])
		must(t, errors.Join(err, errs[0]))
		revs, errs, err = targets.UpdateMany(ctx, nil)
		must(t, err)
		if len(revs)+len(errs) != 0 {
			t.Fatalf("UpdateMany without targets returned revisions %v and errors %v", revs, errs)
		}
	})

	t.Run("concurrent updates from two processes are stored once or refused", func(t *testing.T) {
		stores := cfg.openTwice(t)
		const agents, rounds = 20, 10
		list := []fleet.Target{}
		for i := range agents {
			list = append(list, target("r", fmt.Sprintf("agent-%02d", i), i))
		}
		must(t, stores[0].Targets().Create(ctx, list))
		ids := agentsOf(list)
		made := make([]int, 4)
		var all sync.WaitGroup
		for w := range made {
			targets := stores[w%2].Targets()
			all.Go(func() {
				for range rounds {
					mine, err := targets.GetMany(ctx, "r", ids)
					if err != nil {
						t.Error(err)
						return
					}
					for i := range mine {
						mine[i].Attempts++
					}
					_, errs, err := targets.UpdateMany(ctx, mine)
					if err != nil {
						t.Error(err)
						return
					}
					for _, err := range errs {
						switch {
						case err == nil:
							made[w]++
						case fleet.KindOf(err) != fleet.Conflict:
							t.Error(err)
						}
					}
				}
			})
		}
		all.Wait()
		want, got := 0, 0
		for _, n := range made {
			want += n
		}
		for _, v := range value(stores[1].Targets().GetMany(ctx, "r", ids))(t) {
			got += v.Attempts
		}
		if got != want || want < agents*rounds {
			t.Fatalf("%d changes are stored, %d succeeded, want at least %d", got, want, agents*rounds)
		}
	})

	t.Run("Each and List are sorted by Place, whatever the order of creation", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		var list []fleet.Target
		for _, i := range []int{4, 0, 33, 12, 11, 25, 10, 3, 39, 20} {
			list = append(list, target("r", fmt.Sprintf("agent-%d", i*7%40), i))
		}
		must(t, targets.Create(ctx, list[:6]))
		must(t, targets.Create(ctx, append(list[6:], target("other", "agent-0", 5))))
		slices.SortFunc(list, func(a, b fleet.Target) int { return a.Place - b.Place })
		want := agentsOf(list)
		cfg.eventually(t, func() error {
			got, err := eachOf(targets, "r")
			return errors.Join(err, differs(agentsOf(got), want))
		})
		for _, page := range []struct{ offset, limit, from, to int }{{0, 3, 0, 3}, {3, 3, 3, 6}, {9, 3, 9, 10}, {10, 3, 10, 10}, {0, 0, 0, 0}, {0, 99, 0, 10}, {50, 1, 10, 10}} {
			cfg.eventually(t, func() error {
				got, total, err := targets.List(ctx, store.TargetQuery{RolloutID: "r", Offset: page.offset, Limit: page.limit})
				if err != nil || total != len(list) {
					return fmt.Errorf("total is %d, want %d: %w", total, len(list), err)
				}
				return differs(agentsOf(got), want[page.from:page.to])
			})
		}
	})

	t.Run("List selects by batch and by current state", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		list := []fleet.Target{}
		states := []fleet.TargetState{fleet.TargetPending, fleet.TargetOffered, fleet.TargetFailed}
		for i := range 40 {
			v := target("r", fmt.Sprintf("agent-%02d", i), i)
			v.State = states[i%3]
			list = append(list, v)
		}
		must(t, targets.Create(ctx, list))
		check := func() {
			t.Helper()
			for _, q := range []store.TargetQuery{
				{},
				{Batch: new(int)},
				{States: []fleet.TargetState{fleet.TargetFailed}},
				{States: []fleet.TargetState{fleet.TargetOffered, fleet.TargetFailed}},
				{States: []fleet.TargetState{fleet.TargetPending, fleet.TargetHeld}, Batch: &[]int{2}[0]},
				{States: []fleet.TargetState{fleet.TargetHeld}},
				{Batch: &[]int{9}[0]},
				{States: []fleet.TargetState{fleet.TargetFailed}, Offset: 2},
			} {
				var want []fleet.Target
				for _, v := range list {
					if (q.Batch == nil || v.Batch == *q.Batch) && (len(q.States) == 0 || slices.Contains(q.States, v.State)) {
						want = append(want, v)
					}
				}
				q.RolloutID, q.Limit = "r", 4
				cfg.eventually(t, func() error {
					got, total, err := targets.List(ctx, q)
					if err != nil || total != len(want) {
						return fmt.Errorf("of %+v: total is %d, want %d: %w", q, total, len(want), err)
					}
					rest := want[min(q.Offset, len(want)):]
					return differs(agentsOf(got), agentsOf(rest[:min(q.Limit, len(rest))]))
				})
			}
		}
		check()
		changed := value(targets.GetMany(ctx, "r", agentsOf(list[5:25])))(t)
		for i := range changed {
			changed[i].State, changed[i].Batch = states[i%2+1], 3
			list[5+i].State, list[5+i].Batch = changed[i].State, 3
		}
		_, errs, err := targets.UpdateMany(ctx, changed)
		must(t, errors.Join(append(errs, err)...))
		check()
	})

	t.Run("ByAgent returns the targets of the latest rollout first", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		for i, id := range []string{"z", "m", "a", "k"} {
			must(t, targets.Create(ctx, []fleet.Target{target(id, "x", i), target(id, "y", i+1)}))
		}
		must(t, targets.Create(ctx, []fleet.Target{target("m", "late", 9)}))
		for _, tc := range []struct {
			agent string
			limit int
			want  []string
		}{{"x", 9, []string{"k", "a", "m", "z"}}, {"y", 2, []string{"k", "a"}}, {"late", 9, []string{"m"}}, {"x", 0, []string{}}} {
			cfg.eventually(t, func() error {
				list, err := targets.ByAgent(ctx, tc.agent, tc.limit)
				got := []string{}
				for _, v := range list {
					got = append(got, v.RolloutID)
				}
				return errors.Join(err, differs(got, tc.want))
			})
		}
	})

	t.Run("20,000 targets are created in one write", func(t *testing.T) {
		targets := cfg.open(t).Targets()
		const n = 20_000
		list := make([]fleet.Target, n)
		for i := range list {
			list[i] = target("r", fmt.Sprintf("%016x", i*7919%n), i)
		}
		must(t, targets.Create(ctx, list))
		cfg.eventually(t, func() error {
			next := 0
			wrong := error(nil)
			err := targets.Each(ctx, "r", func(v fleet.Target) {
				if wrong == nil && (v.Place != next || v.AgentID != list[next].AgentID) {
					wrong = fmt.Errorf("target %d is %s at place %d, want %s", next, v.AgentID, v.Place, list[next].AgentID)
				}
				next++
			})
			if err != nil || wrong != nil || next != n {
				return fmt.Errorf("%d targets: %w", next, errors.Join(err, wrong))
			}
			_, total, err := targets.List(ctx, store.TargetQuery{RolloutID: "r"})
			if total != n {
				err = fmt.Errorf("total is %d: %w", total, err)
			}
			return err
		})
		some := value(targets.GetMany(ctx, "r", agentsOf(list[5000:6000])))(t)
		_, errs, err := targets.UpdateMany(ctx, some)
		must(t, errors.Join(append(errs, err)...))
	})
}

func auditEntry(id, subject string, when time.Duration) fleet.AuditEntry {
	return fleet.AuditEntry{
		ID: id, At: at(when), Actor: "admin", Verb: "rollout.pause", Subject: subject, Why: "<lunch>", Text: "admin paused it", Data: json.RawMessage(`{"batch": 3}`),
	}
}

func testAudit(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run("Trim removes the oldest entries by age and number, except those of given subjects", func(t *testing.T) {
		audit := cfg.open(t).Audit()
		var list []fleet.AuditEntry
		for i := range 8 {
			subject := "r"
			if i%2 == 1 {
				subject = "open"
			}
			list = append(list, auditEntry(fmt.Sprint(i), subject, time.Duration(i)*time.Minute))
		}
		must(t, audit.Append(ctx, list))
		trim := func(q store.AuditTrim, want ...string) {
			t.Helper()
			before := 0
			cfg.eventually(t, func() error { // a search finds what was appended
				_, n, err := audit.List(ctx, store.AuditQuery{})
				if before = n; err == nil && n < len(want) {
					err = fmt.Errorf("%d entries are found", n)
				}
				return err
			})
			removed, err := audit.Trim(ctx, q)
			must(t, err)
			cfg.eventually(t, func() error {
				left, _, err := audit.List(ctx, store.AuditQuery{Limit: 99})
				if err != nil {
					return err
				}
				ids := []string{}
				for _, e := range slices.Backward(left) {
					ids = append(ids, e.ID)
				}
				return differs(ids, want)
			})
			if removed != before-len(want) {
				t.Fatalf("Trim returned %d, want %d", removed, before-len(want))
			}
		}
		trim(store.AuditTrim{Before: base, Keep: 8, Limit: 9}, "0", "1", "2", "3", "4", "5", "6", "7")
		trim(store.AuditTrim{Before: at(time.Hour), Keep: 8, Limit: 1}, "1", "2", "3", "4", "5", "6", "7")
		trim(store.AuditTrim{Before: at(4 * time.Minute), Keep: 8, Except: []string{"open"}, Limit: 9}, "1", "3", "4", "5", "6", "7")
		trim(store.AuditTrim{Before: base, Keep: 4, Except: []string{"open"}, Limit: 9}, "1", "3", "5", "7")
		trim(store.AuditTrim{Before: base, Keep: 1, Limit: 2}, "5", "7")
	})

	t.Run("List returns entries newest first, by subject and until a time", func(t *testing.T) {
		audit := cfg.open(t).Audit()
		list, total, err := audit.List(ctx, store.AuditQuery{Limit: 5})
		must(t, err)
		if len(list) != 0 || total != 0 {
			t.Fatalf("an empty trail lists %d of %d", len(list), total)
		}
		must(t, audit.Append(ctx, nil))
		must(t, audit.Append(ctx, []fleet.AuditEntry{auditEntry("2", "r", 2*time.Minute), auditEntry("3", "s", 3*time.Minute)}))
		// An entry of a process whose clock is behind, and two with equal times.
		must(t, audit.Append(ctx, []fleet.AuditEntry{auditEntry("1", "r", time.Minute), auditEntry("4", "r", 4*time.Minute), auditEntry("5", "r", 4*time.Minute)}))
		step := auditEntry("0", "z", -time.Minute)
		step.Actor = fleet.System
		must(t, audit.Append(ctx, []fleet.AuditEntry{step}))
		for _, tc := range []struct {
			q     store.AuditQuery
			want  []string
			total int
		}{
			{store.AuditQuery{Limit: 9}, []string{"5", "4", "3", "2", "1", "0"}, 6},
			{store.AuditQuery{People: true, Limit: 9}, []string{"5", "4", "3", "2", "1"}, 5},
			{store.AuditQuery{Actor: fleet.System, Limit: 9}, []string{"0"}, 1},
			{store.AuditQuery{Actor: fleet.System, People: true, Limit: 9}, []string{}, 0},
			{store.AuditQuery{Subject: "r", Limit: 9}, []string{"5", "4", "2", "1"}, 4},
			{store.AuditQuery{Subject: "r", Offset: 1, Limit: 2}, []string{"4", "2"}, 4},
			{store.AuditQuery{Offset: 4, Limit: 2}, []string{"1", "0"}, 6},
			{store.AuditQuery{Offset: 6, Limit: 2}, []string{}, 6},
			{store.AuditQuery{Subject: "r"}, []string{}, 4},
			{store.AuditQuery{Subject: "nothing", Limit: 2}, []string{}, 0},
			{store.AuditQuery{Until: atPtr(3 * time.Minute), Limit: 9}, []string{"3", "2", "1", "0"}, 4},
			{store.AuditQuery{Until: atPtr(3*time.Minute - 1), Subject: "r", Limit: 9}, []string{"2", "1"}, 2},
			{store.AuditQuery{Until: atPtr(-2 * time.Minute), Limit: 9}, []string{}, 0},
			{store.AuditQuery{Since: atPtr(3 * time.Minute), Limit: 9}, []string{"5", "4", "3"}, 3},
			{store.AuditQuery{Since: atPtr(2 * time.Minute), Until: atPtr(3 * time.Minute), Limit: 9}, []string{"3", "2"}, 2},
		} {
			cfg.eventually(t, func() error {
				list, total, err := audit.List(ctx, tc.q)
				if err != nil || total != tc.total {
					return fmt.Errorf("of %+v: total is %d, want %d: %w", tc.q, total, tc.total, err)
				}
				got := []string{}
				for _, e := range list {
					got = append(got, e.ID)
				}
				return differs(got, tc.want)
			})
		}
	})

	t.Run("List filters by who, what and words", func(t *testing.T) {
		audit := cfg.open(t).Audit()
		entry := func(id, actor, verb, why, text string) fleet.AuditEntry {
			e := auditEntry(id, "web-"+id, 0)
			e.Actor, e.Verb, e.Why, e.Text = actor, verb, why, actor+" "+text
			return e
		}
		must(t, audit.Append(ctx, []fleet.AuditEntry{
			entry("1", "ann", "rollout.pause", "OPS-7: 5 % fail", "paused the rollout"),
			entry("2", "ann", "rollout_group.start", "", "started a group"),
			entry("3", "Bob Ü.", "rollout.resume", "", "resumed the rollout"),
			entry("4", "muster", "rollout", "", "a step"),
		}))
		for _, tc := range []struct {
			q    store.AuditQuery
			want []string
		}{
			{store.AuditQuery{Actor: "ann"}, []string{"2", "1"}},
			{store.AuditQuery{Actor: "Ann"}, []string{}},
			{store.AuditQuery{Verb: "rollout"}, []string{"4", "3", "1"}},
			{store.AuditQuery{Verb: "rollout.pause"}, []string{"1"}},
			{store.AuditQuery{Verb: "rollout.p"}, []string{}},
			{store.AuditQuery{Verb: "roll*"}, []string{}},
			{store.AuditQuery{Words: []string{"rollout"}}, []string{"4", "3", "2", "1"}},
			{store.AuditQuery{Words: []string{"paused", "ops-7"}}, []string{"1"}},
			{store.AuditQuery{Words: []string{"ü."}}, []string{"3"}},
			{store.AuditQuery{Words: []string{"5 %"}}, []string{"1"}},
			{store.AuditQuery{Words: []string{"web-2"}}, []string{"2"}},
			{store.AuditQuery{Words: []string{"p*d"}}, []string{}},
			{store.AuditQuery{Words: []string{"step"}, Actor: "ann"}, []string{}},
		} {
			tc.q.Limit = 9
			cfg.eventually(t, func() error {
				list, total, err := audit.List(ctx, tc.q)
				got := []string{}
				for _, e := range list {
					got = append(got, e.ID)
				}
				if total != len(tc.want) {
					err = fmt.Errorf("total is %d: %w", total, err)
				}
				if err = errors.Join(err, differs(got, tc.want)); err != nil {
					err = fmt.Errorf("of %+v: %w", tc.q, err)
				}
				return err
			})
		}
	})

	t.Run("Append ignores an existing entry", func(t *testing.T) {
		audit := cfg.open(t).Audit()
		mine := auditEntry("e", "r", time.Second)
		must(t, audit.Append(ctx, []fleet.AuditEntry{mine}))
		mine.Data[2] = 'X'
		other := auditEntry("e", "other", time.Hour)
		must(t, audit.Append(ctx, []fleet.AuditEntry{other, auditEntry("f", "r", 0), other}))
		cfg.eventually(t, func() error {
			list, _, err := audit.List(ctx, store.AuditQuery{Limit: 9})
			return errors.Join(err, differs(list, []fleet.AuditEntry{auditEntry("e", "r", time.Second), auditEntry("f", "r", 0)}))
		})
	})

	t.Run("an entry appended by two processes is stored once", func(t *testing.T) {
		stores := cfg.openTwice(t)
		var all sync.WaitGroup
		for _, s := range stores {
			all.Go(func() {
				for i := range 20 {
					if err := s.Audit().Append(ctx, []fleet.AuditEntry{auditEntry(fmt.Sprint(i), "r", time.Duration(i)*time.Second)}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		cfg.eventually(t, func() error {
			_, total, err := stores[0].Audit().List(ctx, store.AuditQuery{Subject: "r"})
			if total != 20 {
				err = fmt.Errorf("%d entries, want 20: %w", total, err)
			}
			return err
		})
	})
}

func testCensus(t *testing.T, cfg Config) {
	ctx := t.Context()
	census := func(t *testing.T, s store.Store, want map[string]fleet.Census) {
		t.Helper()
		cfg.eventually(t, func() error {
			got := map[string]fleet.Census{}
			err := s.Agents().Census(ctx, func(c fleet.Census) { got[c.ID] = c })
			return errors.Join(err, differs(got, want))
		})
	}
	of := func(a fleet.Agent) fleet.Census {
		c := fleet.Census{ID: a.ID, PolicyID: a.PolicyID, Active: true, Version: a.Version, LastCheckin: a.Last.At, Labels: fleet.EncodeLabels(a.Labels())}
		if a.VersionSince != nil {
			c.VersionSince = *a.VersionSince
		}
		if a.HealthySince != nil {
			c.HealthySince = *a.HealthySince
		}
		return c
	}

	t.Run("the census reflects updates, touches and deletions", func(t *testing.T) {
		s := cfg.open(t)
		census(t, s, map[string]fleet.Census{})
		full, plain, gone := fullAgent("full"), agent("plain"), agent("gone")
		full.Tags = []string{"site=München & co", "prod"}
		full.AuditUnenrolledReason = ""
		gone.Active = false
		for _, a := range []fleet.Agent{full, plain, gone} {
			must(t, s.Agents().Create(ctx, a))
		}
		want := map[string]fleet.Census{"full": of(full), "plain": of(plain)}
		census(t, s, want)
		if site := fleet.DecodeLabel(want["full"].Labels, "site"); site != "München & co" {
			t.Fatalf("the site is %q", site)
		}

		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "plain", At: at(time.Hour), Status: "online"}}))
		seen := want["plain"]
		seen.LastCheckin = atPtr(time.Hour)
		want["plain"] = seen
		census(t, s, want)

		plain = value(s.Agents().Get(ctx, "plain"))(t)
		plain.Version, plain.VersionSince, plain.HealthySince = "1.1.0", atPtr(time.Minute), atPtr(2*time.Minute)
		plain.Tags, plain.PolicyID = []string{"ring=2"}, "edge"
		plain.Revision = value(s.Agents().Update(ctx, plain))(t)
		want["plain"] = of(plain)
		census(t, s, want)

		full = value(s.Agents().Get(ctx, "full"))(t)
		full.HealthySince, full.UserMetadata = nil, json.RawMessage(`{"rack":"5"}`)
		errs := value(s.Agents().UpdateMany(ctx, []fleet.Agent{full}))(t)
		must(t, errs[0])
		want["full"] = of(full)
		census(t, s, want)

		plain.Active = false
		value(s.Agents().Update(ctx, plain))(t)
		delete(want, "plain")
		census(t, s, want)
		must(t, s.Agents().Delete(ctx, "full"))
		census(t, s, map[string]fleet.Census{})
	})

	t.Run("the census has every agent once", func(t *testing.T) {
		s := cfg.open(t)
		want := map[string]int{}
		for i := range 300 {
			a := agent(fmt.Sprintf("agent-%03d", i))
			must(t, s.Agents().Create(ctx, a))
			want[a.ID] = 1
		}
		cfg.eventually(t, func() error {
			got := map[string]int{}
			err := s.Agents().Census(ctx, func(c fleet.Census) { got[c.ID]++ })
			return errors.Join(err, differs(got, want))
		})
	})
}
