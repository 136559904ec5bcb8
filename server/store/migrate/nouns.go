package migrate

import (
	"context"
	"math"
	"strconv"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Batches. An agent has some KB, a result or an event some hundred bytes; an
// action for 100,000 agents has 4 MB, so few of these are held at once.
const (
	agentBatch  = 1_000
	actionBatch = 8
	smallBatch  = 5_000
)

// noun is how one is copied and compared.
type noun struct {
	name  string
	total func(ctx context.Context, from store.Store) (int, error)
	copy  func(ctx context.Context, m *mover) error
	// each calls f with every document. place says where it stands, where that
	// counts; else it is 0.
	each func(ctx context.Context, s store.Store, since int64, f func(id string, place int, v any)) error
	// since returns what each is given for both stores; nil: 0. See firstEvent.
	since func(ctx context.Context, from store.Store) (int64, error)
}

// nouns in the order they are copied: what others point to comes first.
var nouns = []noun{
	{name: "settings", total: unknown, copy: copySettings, each: eachSetting},
	of("policies", store.Store.Policies, func(v *fleet.Policy) (string, *int64) { return v.ID, &v.Revision }),
	of("enrollment keys", store.Store.EnrollmentKeys, func(v *fleet.EnrollmentKey) (string, *int64) { return v.ID, &v.Revision }),
	of("admin keys", store.Store.AdminKeys, func(v *fleet.AdminKey) (string, *int64) { return v.ID, &v.Revision }),
	of("publisher keys", store.Store.PublisherKeys, func(v *fleet.PublisherKey) (string, *int64) { return v.ID, &v.Revision }),
	of("trust files", store.Store.TrustFiles, func(v *fleet.TrustFile) (string, *int64) { return v.ID, &v.Revision }),
	of("packages", store.Store.Packages, func(v *fleet.Package) (string, *int64) { return v.File, &v.Revision }),
	{name: "actions", total: countActions, copy: copyActions, each: eachAction},
	{name: "agents", total: countAgents, copy: copyAgents, each: eachAgent},
	{name: "results", total: unknown, copy: copyResults, each: eachResult},
	of("rollouts", func(s store.Store) store.Collection[fleet.Rollout] { return s.Rollouts() }, func(v *fleet.Rollout) (string, *int64) { return v.ID, &v.Revision }),
	{name: "targets", total: unknown, copy: copyTargets, each: eachTarget},
	of("previews", store.Store.Previews, func(v *fleet.Preview) (string, *int64) { return v.Hash, &v.Revision }),
	of("policy locks", store.Store.PolicyLocks, func(v *fleet.PolicyLock) (string, *int64) { return v.PolicyID, &v.Revision }),
	of("exposure rules", store.Store.ExposureRules, func(v *fleet.ExposureRule) (string, *int64) { return v.ID, &v.Revision }),
	of("freezes", store.Store.Freezes, func(v *fleet.Freeze) (string, *int64) { return v.ID, &v.Revision }),
	of("incidents", store.Store.Incidents, func(v *fleet.Incident) (string, *int64) { return v.ID, &v.Revision }),
	of("webhooks", store.Store.Webhooks, func(v *fleet.Webhook) (string, *int64) { return v.ID, &v.Revision }),
	of("dead letters", store.Store.DeadLetters, func(v *fleet.DeadLetter) (string, *int64) { return v.ID, &v.Revision }),
	{name: "audit entries", total: countAudit, copy: copyAudit, each: eachEntry},
	{name: "events", total: countEvents, copy: copyEvents, each: eachEvent, since: firstEvent},
}

func unknown(context.Context, store.Store) (int, error) { return 0, nil }

// Settings.

func copySettings(ctx context.Context, m *mover) error {
	values := map[string][]byte{}
	if err := m.from.Settings().Each(ctx, func(name string, v []byte) { values[name] = v }); err != nil {
		return err
	}
	for name, v := range values {
		err := m.load(ctx, 1, func() (int, error) {
			written, err := m.to.LoadSetting(ctx, name, v)
			if written {
				return 1, err
			}
			return 0, err
		})
		if err != nil {
			return err
		}
	}
	var gone []string
	err := m.to.Settings().Each(ctx, func(name string, _ []byte) {
		if _, ok := values[name]; !ok {
			gone = append(gone, name)
		}
	})
	if err != nil {
		return err
	}
	for _, name := range gone {
		if err := again(ctx, func() error { return m.to.RemoveSetting(ctx, name) }); err != nil {
			return err
		}
		m.did(0, 0, 1)
	}
	return nil
}

func eachSetting(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Settings().Each(ctx, func(name string, v []byte) { f(name, 0, v) })
}

// Agents.

func countAgents(ctx context.Context, s store.Store) (int, error) {
	_, n, err := s.Agents().List(ctx, store.AgentQuery{})
	return n, err
}

func copyAgents(ctx context.Context, m *mover) error {
	seen := map[string]struct{}{} // some 100 bytes an agent
	err := inBatches(ctx, agentBatch, func(ctx context.Context, f func(fleet.Agent)) error {
		return m.from.Agents().Each(ctx, store.AgentFilter{}, f)
	}, func(ctx context.Context, list []fleet.Agent) error {
		for i := range list {
			seen[list[i].ID] = struct{}{}
		}
		return m.load(ctx, len(list), func() (int, error) { return m.to.LoadAgents(ctx, list) })
	})
	if err != nil {
		return err
	}
	there, err := countAgents(ctx, m.to)
	if err != nil || there <= len(seen) {
		return err
	}
	var gone []string
	err = m.to.Agents().Facts(ctx, store.AgentFilter{}, func(id string, _ fleet.StatusFacts) {
		if _, ok := seen[id]; !ok {
			gone = append(gone, id)
		}
	})
	if err != nil {
		return err
	}
	for _, id := range gone {
		if err := again(ctx, func() error { return m.to.Agents().Delete(ctx, id) }); err != nil {
			return err
		}
		m.did(0, 0, 1)
	}
	return nil
}

// seenAgent is an agent with what its JSON leaves out.
type seenAgent struct {
	fleet.Agent
	Last fleet.LastSeen
}

func eachAgent(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Agents().Each(ctx, store.AgentFilter{}, func(a fleet.Agent) { f(a.ID, 0, seenAgent{a, a.Last}) })
}

// Actions.

func countActions(ctx context.Context, s store.Store) (int, error) {
	n, err := s.Actions().LastSeq(ctx)
	return int(n), err
}

func allActions(ctx context.Context, s store.Store, f func([]fleet.Action) error) error {
	for after := int64(0); ; {
		list, err := s.Actions().After(ctx, after, actionBatch)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := f(list); err != nil {
			return err
		}
		after = list[len(list)-1].Seq
	}
}

func copyActions(ctx context.Context, m *mover) error {
	return m.numbered(ctx, func(ctx context.Context) error {
		return allActions(ctx, m.from, func(list []fleet.Action) error {
			return m.load(ctx, len(list), func() (int, error) { return m.to.LoadActions(ctx, list) })
		})
	}, m.to.DropActions)
}

// numberedAction is an action with what its JSON leaves out.
type numberedAction struct {
	fleet.Action
	Seq int64
}

func eachAction(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return allActions(ctx, s, func(list []fleet.Action) error {
		for _, a := range list {
			f(a.ID, 0, numberedAction{a, a.Seq})
		}
		return nil
	})
}

// Results.

func copyResults(ctx context.Context, m *mover) error {
	return inBatches(ctx, smallBatch, m.from.Results().Each, func(ctx context.Context, list []fleet.Result) error {
		return m.load(ctx, len(list), func() (int, error) { return m.to.LoadResults(ctx, list) })
	})
}

func eachResult(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Results().Each(ctx, func(r fleet.Result) { f(fleet.ResultID(r.ActionID, r.AgentID), 0, r) })
}

// Targets.

func copyTargets(ctx context.Context, m *mover) error {
	lists, err := m.from.Targets().Rollouts(ctx)
	if err != nil {
		return err
	}
	kept := map[string]bool{}
	for _, id := range lists {
		kept[id] = true
		err := inBatches(ctx, smallBatch, func(ctx context.Context, f func(fleet.Target)) error {
			return m.from.Targets().Each(ctx, id, f)
		}, func(ctx context.Context, list []fleet.Target) error {
			return m.load(ctx, len(list), func() (int, error) { return m.to.LoadTargets(ctx, id, list) })
		})
		if err != nil {
			return err
		}
	}
	there, err := m.to.Targets().Rollouts(ctx)
	if err != nil {
		return err
	}
	for _, id := range there {
		if kept[id] {
			continue
		}
		// Their rollout is gone as well: targets go with it alone.
		if err := again(ctx, func() error { return m.to.Rollouts().Delete(ctx, id) }); err != nil {
			return err
		}
		m.did(0, 0, 1)
	}
	return nil
}

func eachTarget(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	lists, err := s.Targets().Rollouts(ctx)
	if err != nil {
		return err
	}
	for i, id := range lists {
		// Where the rollout stands says which targets of an agent are its latest.
		if err := s.Targets().Each(ctx, id, func(t fleet.Target) { f(id+":"+t.AgentID, i, t) }); err != nil {
			return err
		}
	}
	return nil
}

// Audit entries.

func countAudit(ctx context.Context, s store.Store) (int, error) {
	_, n, err := s.Audit().List(ctx, store.AuditQuery{})
	return n, err
}

func copyAudit(ctx context.Context, m *mover) error {
	before, err := countAudit(ctx, m.to)
	if err != nil {
		return err
	}
	// One after the other, oldest first: of one moment the one written later is the
	// newer.
	return inBatches(ctx, smallBatch, m.from.Audit().Each, func(ctx context.Context, list []fleet.AuditEntry) error {
		return m.load(ctx, len(list), func() (int, error) {
			fresh := m.out.Read + len(list) - before // those that are there are passed over
			return min(max(fresh, 0), len(list)), m.to.Audit().Append(ctx, list)
		})
	})
}

func eachEntry(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Audit().Each(ctx, func(e fleet.AuditEntry) { f(e.ID, 0, e) })
}

// Events.

func countEvents(ctx context.Context, s store.Store) (int, error) {
	first, last, err := s.Events().Bounds(ctx)
	return int(last - first + 1), err
}

func allEvents(ctx context.Context, s store.Store, after int64, f func([]fleet.Event) error) error {
	for {
		list, err := s.Events().After(ctx, after, smallBatch)
		if err != nil || len(list) == 0 {
			return err
		}
		if err := f(list); err != nil {
			return err
		}
		after = list[len(list)-1].Seq
	}
}

// skipStep is how many numbers are skipped before that is told: a fifth of a second.
const skipStep = 10_000

// skipEvents makes numbers go on from those of events that are long gone.
func skipEvents(ctx context.Context, m *mover) error {
	first, _, err := m.from.Events().Bounds(ctx)
	for next := int64(skipStep); err == nil && next < first; next += skipStep {
		err = again(ctx, func() error { return m.to.SkipEvents(ctx, next) })
		m.say(Step{Noun: "numbers of events", Done: int(next), Total: int(first)})
	}
	return err
}

func copyEvents(ctx context.Context, m *mover) error {
	err := m.numbered(ctx, func(ctx context.Context) error {
		if err := skipEvents(ctx, m); err != nil {
			return err
		}
		return allEvents(ctx, m.from, 0, func(list []fleet.Event) error {
			return m.load(ctx, len(list), func() (int, error) { return m.to.LoadEvents(ctx, list) })
		})
	}, m.to.DropEvents)
	if err != nil {
		return err
	}
	// Without any events the places of webhooks still say how far numbers have come.
	hooks, _, err := m.from.Webhooks().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	last := int64(0)
	for _, w := range hooks {
		last = max(last, w.After)
	}
	return again(ctx, func() error { return m.to.SkipEvents(ctx, last) })
}

// firstEvent is the number of the oldest event that is kept. What was removed since
// it was copied the other store removes when its time comes: removing it now would
// use up numbers.
func firstEvent(ctx context.Context, from store.Store) (int64, error) {
	first, last, err := from.Events().Bounds(ctx)
	if last == 0 {
		first = math.MaxInt64
	}
	return first, err
}

func eachEvent(ctx context.Context, s store.Store, since int64, f func(string, int, any)) error {
	return allEvents(ctx, s, max(since-1, 0), func(list []fleet.Event) error {
		for _, e := range list {
			f(strconv.FormatInt(e.Seq, 10), 0, e)
		}
		return nil
	})
}
