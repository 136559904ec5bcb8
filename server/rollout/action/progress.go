package action

import (
	"context"
	"maps"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// countProgress sets Progress, Causes and Unended of the upgrades among the statuses, and lets
// Counts agree with them. What has ended is in the history, also if later orders have replaced it in
// the documents; what has not is counted in the documents, only for actions that have such agents.
// Results say who has acknowledged, which is no outcome.
func (s *Service) countProgress(ctx context.Context, statuses []Status, now time.Time) error {
	var ids []string
	for i := range statuses {
		if statuses[i].Type == agentapi.ActionUpgrade {
			ids = append(ids, statuses[i].ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	ends, err := s.Store.History().CountEnds(ctx, ids)
	if err != nil {
		return err
	}
	var open []string // agent upgrades that have not ended on all their agents
	ended := make([]int, len(statuses))
	for i := range statuses {
		if st := &statuses[i]; st.Type == agentapi.ActionUpgrade {
			ended[i] = st.countEnds(ends[st.ID])
			if ended[i] < len(st.Agents) && st.Component() == "" {
				open = append(open, st.ID)
			}
		}
	}
	counts, err := s.countOpen(ctx, open, now)
	if err != nil {
		return err
	}
	for i := range statuses {
		st := &statuses[i]
		if st.Type != agentapi.ActionUpgrade {
			continue
		}
		unended := counts[st.ID]
		if ended[i] < len(st.Agents) && st.Component() != "" {
			if unended, err = s.countOpenComponents(ctx, st.ID, now); err != nil {
				return err
			}
		}
		for state, n := range unended {
			st.Progress[state] += n
			st.Unended += n
		}
		st.addRefused()
		st.agree()
		maps.DeleteFunc(st.Progress, func(_ fleet.ProgressState, n int) bool { return n == 0 })
	}
	return nil
}

// countEnds sets Progress and Causes by the history of the action, and returns how many of its
// agents have ended.
func (s *Status) countEnds(ends map[fleet.End]int) (ended int) {
	s.Progress, s.Causes = map[fleet.ProgressState]int{}, map[fleet.End]int{}
	for end, n := range ends {
		if end.State != fleet.ProgressNone && !end.State.Ended() {
			continue // its end was taken back, and the documents have it
		}
		ended += n
		if end.State == fleet.ProgressNone {
			continue // cancelled
		}
		s.Progress[end.State] += n
		if end.State != fleet.ProgressCommitted {
			s.Causes[end] += n
		}
	}
	return ended
}

// addRefused adds the agents that were refused when it was ordered, which neither the history nor
// documents have.
func (s *Status) addRefused() {
	if refused := s.Actioned - len(s.Agents); refused > 0 {
		s.Progress[fleet.ProgressFailed] += refused
		s.Causes[fleet.End{State: fleet.ProgressFailed, Code: RefusedCode}] += refused
	}
}

// agree replaces the counts of acknowledgements where Progress knows more. An agent that has ended
// badly counts as failed whatever it acknowledged, and one that is done or under way does not. Those
// that Progress does not have were stopped; they count as they have answered.
func (s *Status) agree() {
	bad := s.Progress[fleet.ProgressFailed] + s.Progress[fleet.ProgressRolledBack]
	done := s.Progress[fleet.ProgressCommitted]
	stopped := max(0, s.Actioned-bad-done-s.Unended)
	s.Counts.Failed = bad + max(0, min(s.Counts.Failed-bad, stopped))
	s.Counts.Acked = max(0, min(max(s.Counts.Acked, done), s.Actioned-s.Counts.Failed))
}

// RefusedCode is the code of the agents that the server refused when an action was ordered.
const RefusedCode = "refused"

// countOpen counts the agents on which upgrades of agents have not ended, by action and by how it
// stands. It reads the fleet once for all actions.
func (s *Service) countOpen(ctx context.Context, actionIDs []string, now time.Time) (map[string]map[fleet.ProgressState]int, error) {
	if len(actionIDs) == 0 {
		return nil, nil
	}
	rules := fleet.ProgressRules(now)
	var open, of kql.AnyOf // the first needs no document, unlike the id of the action
	queries := make([]kql.Filter, len(rules))
	for i, r := range rules {
		queries[i] = r.When
		if !isEnd(r) {
			open = append(open, r.When)
		}
	}
	for _, id := range actionIDs {
		of = append(of, kql.Equals{Field: fleet.FieldUpgradeAction, Value: id})
	}
	tally, err := s.Store.Agents().Tally(ctx, store.AgentFilter{ActiveOnly: true, Query: kql.AllOf{open, of}}, store.TallyQuery{
		Classes: [][]kql.Filter{queries}, Fields: []store.TallyField{{Field: fleet.FieldUpgradeAction, ByClass: true}},
	})
	if err != nil {
		return nil, err
	}
	out := map[string]map[fleet.ProgressState]int{}
	for id, count := range tally.Values[0] {
		out[id] = map[fleet.ProgressState]int{}
		for i, r := range rules {
			if !isEnd(r) {
				out[id][r.Value] += count.Classes[i]
			}
		}
	}
	return out, nil
}

// countOpenComponents counts the agents on which an upgrade of a component has not ended, by how
// it stands.
func (s *Service) countOpenComponents(ctx context.Context, actionID string, now time.Time) (map[fleet.ProgressState]int, error) {
	rules := fleet.ComponentProgressRules(actionID, now)
	queries := make([]kql.Filter, len(rules))
	for i, r := range rules {
		queries[i] = r.When
	}
	counts, err := store.CountFirst(ctx, s.Store.Agents(), store.AgentFilter{
		ActiveOnly: true, Query: kql.AllOf{kql.Exists{Field: fleet.FieldComponentsSince}, kql.Equals{Field: fleet.FieldComponentActions, Value: actionID}},
	}, queries)
	if err != nil {
		return nil, err
	}
	out := map[fleet.ProgressState]int{fleet.ProgressSent: counts[len(rules)]}
	for i, r := range rules {
		if !isEnd(r) {
			out[r.Value] += counts[i]
		}
	}
	return out, nil
}

// isEnd reports whether a rule is for agents on which no upgrade is under way.
func isEnd(r fleet.Rule[fleet.ProgressState]) bool {
	return r.Value == fleet.ProgressNone || r.Value.Ended()
}
