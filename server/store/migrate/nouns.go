package migrate

import (
	"context"
	"math"
	"strconv"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Batch sizes. An agent has some KB, a result or an event some hundred bytes, and an action
// for 100,000 agents 4 MB.
const (
	agentBatch  = 1_000
	actionBatch = 8
	smallBatch  = 5_000
)

// noun is a kind of document, and the functions that copy and compare it.
type noun struct {
	kind  *store.Info
	name  string
	total func(ctx context.Context, from store.Store) (int, error)
	copy  func(ctx context.Context, m *mover) error
	// each calls f with every document. position is that of the document in its list if the
	// order matters, otherwise 0.
	each func(ctx context.Context, s store.Store, since int64, f func(id string, position int, v any)) error
	// since returns the argument since of each, for both stores. If it is nil, since is 0.
	// See firstEvent.
	since func(ctx context.Context, from store.Store) (int64, error)
}

// nouns are the kinds that a migration copies, in the order of store.Kinds: documents come after
// those that they refer to.
var nouns = func() []noun {
	own := map[*store.Info]noun{
		store.KindSettings: {total: unknown, copy: copySettings, each: eachSetting},
		store.KindActions:  {total: countActions, copy: copyActions, each: eachAction},
		store.KindAgents:   {total: countAgents, copy: copyAgents, each: eachAgent},
		store.KindResults:  {total: unknown, copy: copyResults, each: eachResult},
		store.KindTargets:  {total: unknown, copy: copyTargets, each: eachTarget},
		store.KindAudit:    {total: countAudit, copy: copyAudit, each: eachEntry},
		store.KindHistory:  {total: countHistory, copy: copyHistory, each: eachHistory},
		store.KindEvents:   {total: countEvents, copy: copyEvents, each: eachEvent, since: firstEvent},
	}
	var all []noun
	for _, kind := range store.Kinds() {
		if kind.Process {
			continue
		}
		n, ok := own[kind]
		if kind.Collected() {
			c := collection{kind}
			n, ok = noun{total: c.total, copy: c.copy, each: c.each}, true
		}
		if !ok {
			panic("no migration copies " + kind.Plural) // a mistake that every test finds
		}
		n.kind, n.name = kind, kind.Plural
		all = append(all, n)
	}
	return all
}()

func unknown(context.Context, store.Store) (int, error) { return 0, nil }

func copySettings(ctx context.Context, m *mover) error {
	values := map[string][]byte{}
	if err := eachSetting(ctx, m.from, 0, func(name string, _ int, v any) { values[name], _ = v.([]byte) }); err != nil {
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
	err := eachSetting(ctx, m.to, 0, func(name string, _ int, _ any) {
		if _, ok := values[name]; !ok {
			gone = append(gone, name)
		}
	})
	if err != nil {
		return err
	}
	for _, name := range gone {
		if err := retry(ctx, func() error { return m.to.RemoveSetting(ctx, name) }); err != nil {
			return err
		}
		m.count(0, 0, 1)
	}
	return nil
}

func eachSetting(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Settings().Each(ctx, func(name string, v []byte) {
		if name != store.GenerationSetting { // the destination has its own
			f(name, 0, v)
		}
	})
}

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
	existing, err := countAgents(ctx, m.to)
	if err != nil || existing <= len(seen) {
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
		if err := retry(ctx, func() error { return m.to.Agents().Delete(ctx, id) }); err != nil {
			return err
		}
		m.count(0, 0, 1)
	}
	return nil
}

// seenAgent is an agent with Last, which its JSON omits.
type seenAgent struct {
	fleet.Agent
	Last fleet.LastSeen
}

func eachAgent(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Agents().Each(ctx, store.AgentFilter{}, func(a fleet.Agent) { f(a.ID, 0, seenAgent{a, a.Last}) })
}

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
	seen := map[string]bool{}
	err := m.numbered(ctx, func(ctx context.Context) error {
		return allActions(ctx, m.from, func(list []fleet.Action) error {
			for i := range list {
				seen[list[i].ID] = true
			}
			return m.load(ctx, len(list), func() (int, error) { return m.to.LoadActions(ctx, list) })
		})
	}, m.to.DropActions)
	if err != nil {
		return err
	}
	// The source may have removed old actions since an earlier copy.
	return allActions(ctx, m.to, func(list []fleet.Action) error {
		for _, a := range list {
			if seen[a.ID] {
				continue
			}
			if err := retry(ctx, func() error { return m.to.Actions().Delete(ctx, a.ID) }); err != nil {
				return err
			}
			m.count(0, 0, 1)
		}
		return nil
	})
}

// numberedAction is an action with Seq, which its JSON omits.
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

func copyResults(ctx context.Context, m *mover) error {
	return inBatches(ctx, smallBatch, m.from.Results().Each, func(ctx context.Context, list []fleet.Result) error {
		return m.load(ctx, len(list), func() (int, error) { return m.to.LoadResults(ctx, list) })
	})
}

func eachResult(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Results().Each(ctx, func(r fleet.Result) { f(fleet.ResultID(r.ActionID, r.AgentID), 0, r) })
}

func copyTargets(ctx context.Context, m *mover) error {
	lists, err := m.from.Targets().Rollouts(ctx)
	if err != nil {
		return err
	}
	copied := map[string]bool{}
	for _, id := range lists {
		copied[id] = true
		err := inBatches(ctx, smallBatch, func(ctx context.Context, f func(fleet.Target)) error {
			return m.from.Targets().Each(ctx, id, f)
		}, func(ctx context.Context, list []fleet.Target) error {
			return m.load(ctx, len(list), func() (int, error) { return m.to.LoadTargets(ctx, id, list) })
		})
		if err != nil {
			return err
		}
	}
	existing, err := m.to.Targets().Rollouts(ctx)
	if err != nil {
		return err
	}
	for _, id := range existing {
		if copied[id] {
			continue
		}
		// The source has no such rollout either: targets are only deleted with their
		// rollout.
		if err := retry(ctx, func() error { return m.to.Rollouts().Delete(ctx, id) }); err != nil {
			return err
		}
		m.count(0, 0, 1)
	}
	return nil
}

func eachTarget(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	lists, err := s.Targets().Rollouts(ctx)
	if err != nil {
		return err
	}
	for i, id := range lists {
		// The order of rollouts determines which target of an agent is its latest.
		if err := s.Targets().Each(ctx, id, func(t fleet.Target) { f(id+":"+t.AgentID, i, t) }); err != nil {
			return err
		}
	}
	return nil
}

func countAudit(ctx context.Context, s store.Store) (int, error) {
	_, n, err := s.Audit().List(ctx, store.AuditQuery{})
	return n, err
}

func copyAudit(ctx context.Context, m *mover) error {
	before, err := countAudit(ctx, m.to)
	if err != nil {
		return err
	}
	// In order, oldest first: of entries with equal times, the one written later is newer.
	return inBatches(ctx, smallBatch, m.from.Audit().Each, func(ctx context.Context, list []fleet.AuditEntry) error {
		return m.load(ctx, len(list), func() (int, error) {
			added := m.out.Read + len(list) - before // Append ignores existing entries
			return min(max(added, 0), len(list)), m.to.Audit().Append(ctx, list)
		})
	})
}

func eachEntry(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.Audit().Each(ctx, func(e fleet.AuditEntry) { f(e.ID, 0, e) })
}

func countHistory(ctx context.Context, s store.Store) (int, error) { return s.History().Count(ctx) }

func copyHistory(ctx context.Context, m *mover) error {
	return inBatches(ctx, smallBatch, m.from.History().Each, func(ctx context.Context, list []fleet.HistoryRecord) error {
		return m.load(ctx, len(list), func() (int, error) { return len(list), m.to.History().Put(ctx, list) })
	})
}

func eachHistory(ctx context.Context, s store.Store, _ int64, f func(string, int, any)) error {
	return s.History().Each(ctx, func(r fleet.HistoryRecord) { f(r.ID, 0, r) })
}

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

// skipStep is how many numbers are skipped between two reports: a fifth of a second.
const skipStep = 10_000

// skipEvents skips the numbers of events that the source has trimmed.
func skipEvents(ctx context.Context, m *mover) error {
	first, _, err := m.from.Events().Bounds(ctx)
	for next := int64(skipStep); err == nil && next < first; next += skipStep {
		err = retry(ctx, func() error { return m.to.SkipEvents(ctx, next) })
		m.report(Step{Noun: "numbers of events", Done: int(next), Total: int(first)})
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
	// If all events are trimmed, the cursors of webhooks still tell how far numbers went.
	hooks, _, err := m.from.Webhooks().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	last := int64(0)
	for _, w := range hooks {
		last = max(last, w.After)
	}
	return retry(ctx, func() error { return m.to.SkipEvents(ctx, last) })
}

// firstEvent returns the Seq of the oldest event. The destination may still have older events,
// which the source has trimmed since they were copied. They are not compared, and the destination
// trims them later: deleting them now would use up sequence numbers.
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
