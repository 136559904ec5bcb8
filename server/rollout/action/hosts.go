package action

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Host is how an action stands on one agent.
type Host struct {
	AgentID  string
	Hostname string // empty if the agent is gone and has not answered
	State    HostState
	Since    *time.Time // nil if that is not known
	// Code and Reason are why it ended badly.
	Code, Reason string
	// Text says why the action stopped without an outcome.
	Text string
}

// HostState is a state of an upgrade, in the words of fleet.ProgressState, or one of these.
type HostState string

const (
	// HostDone: the agent has followed an order that is no upgrade.
	HostDone HostState = "done"
	// HostStopped: the action has no outcome on the agent. It was cancelled or has expired,
	// another order has replaced it, or the agent was unenrolled.
	HostStopped HostState = "stopped"
)

// HostStates lists all states in the order of an upgrade.
var HostStates = func() (all []HostState) {
	for _, s := range fleet.ProgressStates {
		all = append(all, HostState(s))
	}
	return append(all, HostDone, HostStopped)
}()

// HostQuery selects one page of the agents of an action.
type HostQuery struct {
	States []HostState // none: all
	Offset int
	Limit  int
}

// Hosts returns a page of the agents that an action was ordered for, in the order of the action
// and with those that were refused at its end, and how many match. Their states come from where
// the Progress of a Status does: the history has what has ended, also after newer orders, and
// the documents have what is under way.
func (s *Service) Hosts(ctx context.Context, actionID string, q HostQuery) ([]Host, int, error) {
	prepared, err := s.preparingAction(ctx, actionID)
	if err != nil {
		return nil, 0, err
	}
	a, err := s.Store.Actions().Get(ctx, actionID)
	switch {
	case prepared != nil && fleet.KindOf(err) == fleet.NotFound:
		return nil, 0, fleet.Errorf(fleet.Conflict, "action %s is being prepared, %d of its %d agents so far: its hosts are listed once it is", actionID, prepared.Preparing.Handled, prepared.Preparing.Agents)
	case err != nil:
		return nil, 0, err
	}
	list, err := s.statuses(ctx, []fleet.Action{a}, 0)
	if err != nil {
		return nil, 0, err
	}
	h := hostReader{Service: s, status: list[0], now: s.Now.UTC()}
	if err := h.readRefused(ctx); err != nil {
		return nil, 0, err
	}
	ids := slices.Clone(h.status.Agents)
	for _, r := range h.refused {
		ids = append(ids, r.AgentID)
	}
	if len(q.States) > 0 {
		if ids, err = h.in(ctx, ids, q.States); err != nil {
			return nil, 0, err
		}
	}
	from := min(q.Offset, len(ids))
	page, err := h.hosts(ctx, ids[from:min(from+q.Limit, len(ids))])
	return page, len(ids), err
}

// hostReader reads the agents of one action.
type hostReader struct {
	*Service
	status  Status
	refused []fleet.Result
	now     time.Time
}

func (h *hostReader) isUpgrade() bool { return h.status.Type == agentapi.ActionUpgrade }

// readRefused reads the results of the agents that were refused when the action was ordered.
func (h *hostReader) readRefused(ctx context.Context) error {
	if h.status.Actioned <= len(h.status.Agents) {
		return nil
	}
	ordered := fleet.SortedIDs(h.status.Agents)
	err := h.Store.Results().OfAction(ctx, h.status.ID, nil, func(r fleet.Result) {
		if _, found := slices.BinarySearch(ordered, r.AgentID); !found {
			h.refused = append(h.refused, r)
		}
	})
	slices.SortFunc(h.refused, func(a, b fleet.Result) int {
		return cmp.Or(cmp.Compare(a.Hostname, b.Hostname), cmp.Compare(a.AgentID, b.AgentID))
	})
	return err
}

// in returns those of the agents on which the action is in one of the states.
func (h *hostReader) in(ctx context.Context, ids []string, states []HostState) ([]string, error) {
	of := map[string]HostState{}
	if !h.isUpgrade() {
		if err := h.Store.Results().OfAction(ctx, h.status.ID, nil, func(r fleet.Result) { of[r.AgentID] = h.answered(r).State }); err != nil {
			return nil, err
		}
	}
	other := h.unanswered()
	if h.isUpgrade() {
		other = HostStopped
		if err := h.upgradeStates(ctx, states, of); err != nil {
			return nil, err
		}
	}
	for _, r := range h.refused {
		of[r.AgentID] = HostState(fleet.ProgressFailed)
	}
	return slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(states, cmp.Or(of[id], other)) }), nil
}

// upgradeStates sets the states of the agents of an upgrade, as far as they are needed to find
// the agents in one of the states asked for.
func (h *hostReader) upgradeStates(ctx context.Context, asked []HostState, of map[string]HostState) error {
	records := store.ActionHistory{ActionID: h.status.ID, States: []fleet.ProgressState{}}
	open := false
	for _, s := range asked {
		switch state := fleet.ProgressState(s); {
		case s == HostStopped: // it is known by the others
			records.States, open = append(records.States, fleet.ProgressCommitted, fleet.ProgressRolledBack, fleet.ProgressFailed), true
		case state.Ended():
			records.States = append(records.States, state)
		default:
			open = true
		}
	}
	if len(records.States) > 0 {
		if err := h.Store.History().OfAction(ctx, records, func(r fleet.HistoryRecord) { of[r.AgentID] = HostState(r.State) }); err != nil {
			return err
		}
	}
	if !open {
		return nil
	}
	return h.openStates(ctx, of)
}

func (h *hostReader) openStates(ctx context.Context, of map[string]HostState) error {
	id, component := h.status.ID, h.status.Component()
	field := fleet.FieldUpgradeAction
	if component != "" {
		field = fleet.FieldComponentActions
	}
	filter := store.AgentFilter{ActiveOnly: true, Query: kql.Equals{Field: field, Value: id}}
	return h.Store.Agents().Each(ctx, filter, func(a fleet.Agent) {
		if p, ok := a.ActionProgressAt(id, component, h.now); ok && !p.State.Ended() {
			of[a.ID] = HostState(p.State)
		}
	})
}

// hosts returns how the action stands on the agents, in their order.
func (h *hostReader) hosts(ctx context.Context, ids []string) ([]Host, error) {
	if len(ids) == 0 {
		return []Host{}, nil
	}
	agents, err := h.Store.Agents().GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	documents := map[string]*fleet.Agent{}
	for i := range agents {
		documents[agents[i].ID] = &agents[i]
	}
	results := map[string]fleet.Result{}
	if err := h.Store.Results().OfAction(ctx, h.status.ID, ids, func(r fleet.Result) { results[r.AgentID] = r }); err != nil {
		return nil, err
	}
	records := map[string]fleet.HistoryRecord{}
	if h.isUpgrade() {
		err := h.Store.History().OfAction(ctx, store.ActionHistory{ActionID: h.status.ID, AgentIDs: ids}, func(r fleet.HistoryRecord) {
			if r.EndedAt != nil { // else its end was taken back
				records[r.AgentID] = r
			}
		})
		if err != nil {
			return nil, err
		}
	}
	ordered := map[string]bool{}
	for _, id := range h.status.Agents {
		ordered[id] = true
	}
	out := make([]Host, len(ids))
	for i, id := range ids {
		result, hasResult := results[id]
		record, hasRecord := records[id]
		switch {
		case !ordered[id]:
			out[i] = h.answered(result)
			out[i].Code = RefusedCode
		case hasRecord:
			out[i] = h.ended(record)
		default:
			out[i] = h.unrecorded(documents[id], result, hasResult)
		}
		out[i].AgentID, out[i].Hostname = id, result.Hostname
		if a := documents[id]; a != nil {
			out[i].Hostname = a.Hostname()
		}
	}
	return out, nil
}

// ended returns how an upgrade stands that has a record.
func (h *hostReader) ended(r fleet.HistoryRecord) Host {
	if r.State == fleet.ProgressNone {
		return Host{State: HostStopped, Since: r.EndedAt, Text: r.Text}
	}
	return Host{State: HostState(r.State), Since: r.EndedAt, Code: r.Code, Reason: r.Reason}
}

// answered returns how the action stands on an agent by its result.
func (h *hostReader) answered(r fleet.Result) Host {
	switch {
	case r.Withdrawn():
		return Host{State: HostStopped, Since: &r.Timestamp, Text: fleet.Sentence(r.WithdrawnWhy())}
	case r.Error != "":
		return Host{State: HostState(fleet.ProgressFailed), Since: &r.Timestamp, Reason: r.Error}
	}
	return Host{State: HostDone, Since: &r.Timestamp}
}

// unrecorded returns how the action stands on an agent without a record. a is nil if the agent
// is gone.
func (h *hostReader) unrecorded(a *fleet.Agent, r fleet.Result, answered bool) Host {
	if h.isUpgrade() && a != nil {
		if p, ok := a.ActionProgressAt(h.status.ID, h.status.Component(), h.now); ok && !p.State.Ended() {
			return Host{State: HostState(p.State), Since: p.Since, Reason: p.Retrying}
		}
	}
	if answered && !h.isUpgrade() {
		return h.answered(r)
	}
	if !h.isUpgrade() && h.unanswered() != HostStopped {
		return Host{State: h.unanswered(), Since: &h.status.CreatedAt}
	}
	host := Host{State: HostStopped, Reason: r.Error}
	switch {
	case h.status.CancelledAt != nil:
		host.Since, host.Text = h.status.CancelledAt, "The action was cancelled before it was done."
	case a == nil:
		host.Text = "The agent was removed before it was done."
	case a.HasLeft():
		left, _ := a.Left()
		host.Since, host.Text = left.At, fleet.Sentence(left.NoOutcome())
	case h.status.Expired(h.now):
		host.Since, host.Text = h.status.Expiration, "The action expired before the agent answered."
	default:
		host.Text = "Another order has replaced it."
	}
	return host
}

// unanswered is the state of agents without a result of an action that is no upgrade.
func (h *hostReader) unanswered() HostState {
	if h.status.CancelledAt != nil || h.status.Expired(h.now) {
		return HostStopped
	}
	return HostState(fleet.ProgressSent)
}
