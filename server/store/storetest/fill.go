package storetest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Fill writes documents of every kind to an empty store, among them the given number of
// agents with results.
func Fill(ctx context.Context, s store.Store, agents int) error {
	if _, err := s.Settings().GetOrPut(ctx, "key", []byte{0, 1, 255}); err != nil {
		return err
	}
	var errs []error
	eachCollection(func(k collected) {
		if err := k.fill(ctx, s, 4); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.Plural, err))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	ids := make([]string, agents)
	var all errgroup.Group
	all.SetLimit(32) // concurrent writes share a commit
	for i := range ids {
		ids[i] = fmt.Sprintf("agent-%06d", i)
		a := agent(ids[i])
		if i%7 == 0 {
			a = fullAgent(ids[i])
			a.Last.ActionSeq = 1
		}
		all.Go(func() error { return s.Agents().Create(ctx, a) })
	}
	if err := all.Wait(); err != nil {
		return err
	}
	if err := createActions(ctx, s, "first", ids); err != nil {
		return err
	}
	// The rollout that is created first gets its targets last.
	for i, id := range []string{"late", "early", "idle"} {
		if err := s.Rollouts().Create(ctx, rollout(id, fleet.RolloutRunning)); err != nil {
			return err
		}
		if err := s.Audit().Append(ctx, []fleet.AuditEntry{auditEntry(fmt.Sprint("created-", i), id, time.Second)}); err != nil {
			return err
		}
	}
	if err := s.History().Put(ctx, []fleet.HistoryRecord{historyRecord("h1", "x", "", fleet.ProgressCommitted, 0), historyRecord("h2", "x", "web", fleet.ProgressFailed, time.Minute)}); err != nil {
		return err
	}
	for _, id := range []string{"early", "late"} {
		if err := createTargets(ctx, s, id, ids[:min(len(ids), 300)]); err != nil {
			return err
		}
	}
	var events []fleet.Event
	for i := range 30 {
		events = append(events, event(i))
	}
	if err := s.Events().Append(ctx, events); err != nil {
		return err
	}
	return s.Events().Trim(ctx, 20)
}

// createActions creates actions for agents, and results of the first one.
func createActions(ctx context.Context, s store.Store, name string, ids []string) error {
	for i := range 10 {
		id := fmt.Sprintf("%s-%d", name, i)
		if _, err := s.Actions().Create(ctx, upgradeAction(id, ids...)); err != nil {
			return err
		}
		if i%4 == 0 {
			if err := s.Actions().Cancel(ctx, id, at(time.Hour+time.Microsecond)); err != nil {
				return err
			}
		}
	}
	var results []fleet.Result
	for i, id := range ids {
		text := ""
		if i%5 == 0 {
			text = "no space <left>"
		}
		results = append(results, result(name+"-0", id, text, time.Duration(i)*time.Second))
	}
	_, err := s.Results().Put(ctx, results)
	return err
}

func createTargets(ctx context.Context, s store.Store, rolloutID string, ids []string) error {
	list := []fleet.Target{fullTarget(rolloutID, "somebody")}
	for i, id := range ids {
		list = append(list, target(rolloutID, id, i+100))
	}
	return s.Targets().Create(ctx, list)
}

// Change changes, creates and removes documents of every kind in a store that was filled by
// Fill, where the store's interface allows it.
func Change(ctx context.Context, s store.Store) error {
	var errs []error
	eachCollection(func(k collected) {
		if err := k.modify(ctx, s); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", k.Plural, err))
		}
	})
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := s.Agents().Delete(ctx, "agent-000001"); err != nil {
		return err
	}
	_, err := store.UpdateAgent(ctx, s.Agents(), "agent-000002", func(a *fleet.Agent) bool {
		a.Version, a.AccessKeyID = "2.0.0", "another-key"
		return true
	})
	if err != nil {
		return err
	}
	if err := s.Agents().Create(ctx, agent("late")); err != nil {
		return err
	}
	if err := s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "agent-000003", At: at(5 * time.Hour), Status: "online", Message: "m", ActionSeq: 2}}); err != nil {
		return err
	}
	if err := s.Actions().Cancel(ctx, "first-1", at(2*time.Hour)); err != nil {
		return err
	}
	if err := createActions(ctx, s, "second", []string{"agent-000002", "late"}); err != nil {
		return err
	}
	// A failure supersedes an earlier success.
	if _, err := s.Results().Put(ctx, []fleet.Result{result("first-0", "agent-000003", "rolled back", time.Hour)}); err != nil {
		return err
	}
	if err := s.Rollouts().Delete(ctx, "early"); err != nil {
		return err
	}
	if err := s.Rollouts().Create(ctx, rollout("last", fleet.RolloutDraft)); err != nil {
		return err
	}
	if err := createTargets(ctx, s, "last", []string{"late"}); err != nil {
		return err
	}
	t, err := s.Targets().Get(ctx, "late", "somebody")
	if err != nil {
		return err
	}
	t.State = fleet.TargetFailed
	if _, changed, err := s.Targets().UpdateMany(ctx, []fleet.Target{t}); err != nil || changed[0] != nil {
		return errors.Join(append(changed, err)...)
	}
	if err := s.Audit().Append(ctx, []fleet.AuditEntry{auditEntry("later", "late", 3*time.Hour)}); err != nil {
		return err
	}
	if err := s.Events().Append(ctx, []fleet.Event{event(40), event(41)}); err != nil {
		return err
	}
	return s.Events().Trim(ctx, 15)
}

func (k collected) fill(ctx context.Context, s store.Store, count int) error {
	for i := range count {
		if err := k.create(ctx, s, k.make(i)); err != nil {
			return err
		}
	}
	return nil
}

func (k collected) create(ctx context.Context, s store.Store, v any) error {
	return s.Documents(k.Info).Create(ctx, k.id(v), v)
}

// modify updates one document, deletes one, creates one, and deletes and recreates one.
func (k collected) modify(ctx context.Context, s store.Store) error {
	c := s.Documents(k.Info)
	v, err := k.get(ctx, c, k.id(k.make(2)))
	if err != nil {
		return err
	}
	k.change(v, 11)
	recreated := k.make(1)
	k.change(recreated, 12)
	_, err = k.update(ctx, c, v)
	return errors.Join(err, c.Delete(ctx, k.id(k.make(0))), c.Delete(ctx, k.id(recreated)), k.create(ctx, s, k.make(9)), k.create(ctx, s, recreated))
}
