package action

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Offer is a rollout's UPGRADE of some agents.
type Offer struct {
	// ID is chosen by the caller. Offering the same ID again has no effect.
	ID string
	fleet.UpgradeRequest
	// Rollback asks hosts to go back to the version they have kept.
	Rollback bool
	// Component makes it an upgrade of a component; nil: of the agents themselves. Its
	// UpgradeID is that of the offer.
	Component  *agentapi.ComponentData
	AgentIDs   []string
	Expiration time.Time
	Actor      string
	// Rollout is the rollout, and By who started it; empty: Actor.
	Rollout   *fleet.RolloutRef
	By        string
	Automatic bool
}

// ErrOtherOffer refuses an agent because the action of that id exists and is for other
// agents: another executor has used the id. The caller must offer again with a new one.
var ErrOtherOffer = errors.New("the action of this id is for other agents")

// Offer creates an UPGRADE for the agents that can follow it, and returns why the others
// cannot. If the action already exists, Offer returns the same refusals again.
//
// Refused agents get no result, since the rollout records them itself, and an action
// without agents is not created. After a crash between the marks and the action, a
// repeated Offer finds the marks and creates the action.
func (s *Service) Offer(ctx context.Context, o Offer) (refused map[string]error, err error) {
	if err := checkAgents(o.AgentIDs, false); err != nil {
		return nil, err
	}
	act, err := store.Optional(s.Store.Actions().Get(ctx, o.ID))
	if err != nil {
		return nil, err
	}
	do, err := s.offerStep(ctx, o)
	if err != nil {
		return nil, err
	}
	if act != nil {
		return s.offered(ctx, *act, o, do)
	}
	gone, err := s.withdrawn(ctx, o)
	if err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	data := agentapi.UpgradeData{Version: o.Version, SourceURI: o.SourceURI, Rollback: o.Rollback, Force: (o.Force || o.Retry) && !o.Rollback}
	if o.Component != nil {
		c := *o.Component
		c.UpgradeID = o.ID
		data.Component = &c
	}
	a := fleet.Action{
		ID: o.ID, Type: agentapi.ActionUpgrade, CreatedAt: now, CreatedBy: o.Actor, Automatic: o.Automatic, Rollout: o.Rollout, Expiration: &o.Expiration,
		Data: event.Data(data),
	}
	verdicts, err := s.judge(ctx, o.AgentIDs, step{check: func(agent *fleet.Agent) error {
		switch {
		case gone[agent.ID]:
			return fleet.Errorf(fleet.Conflict, "the offer to agent %s was withdrawn", agent.ID)
		case marked(agent, o.ID):
			return nil
		}
		return do.check(agent)
	}})
	if err != nil {
		return nil, err
	}
	var unmarked []Verdict
	for _, v := range verdicts {
		if v.Err == nil && marked(&v.Agent, o.ID) {
			a.Agents = append(a.Agents, v.Agent.ID) // marked before a crash
			continue
		}
		unmarked = append(unmarked, v)
	}
	refusals, err := s.mark(ctx, &a, unmarked, do)
	if err != nil {
		return nil, err
	}
	refused = map[string]error{}
	for _, v := range refusals {
		refused[v.Agent.ID] = v.Err
	}
	if len(a.Agents) == 0 {
		return refused, nil
	}
	a.Actioned = len(a.Agents)
	switch err := s.create(ctx, &a); {
	case err != nil && fleet.KindOf(err) == fleet.Conflict: // another executor came first
		made, err := s.Store.Actions().Get(ctx, o.ID)
		if err != nil {
			return nil, err
		}
		return s.offered(ctx, made, o, do)
	case err != nil:
		return nil, err
	}
	s.publishCreated(ctx, a, len(refused))
	return refused, nil
}

// offered returns the refusals of an offer whose action already exists.
func (s *Service) offered(ctx context.Context, a fleet.Action, o Offer, do step) (map[string]error, error) {
	has := make(map[string]bool, len(a.Agents))
	for _, id := range a.Agents {
		has[id] = true
	}
	refused := map[string]error{}
	left := slices.DeleteFunc(slices.Clone(o.AgentIDs), func(id string) bool { return has[id] })
	if len(left) == 0 {
		return refused, nil
	}
	verdicts, err := s.judge(ctx, left, do)
	if err != nil {
		return nil, err
	}
	for _, v := range verdicts {
		if refused[v.Agent.ID] = v.Err; v.Err == nil {
			refused[v.Agent.ID] = ErrOtherOffer
		}
	}
	return refused, nil
}

// offerStep returns the step of an offer.
func (s *Service) offerStep(ctx context.Context, o Offer) (step, error) {
	now := s.Now.UTC()
	component := o.component()
	runs := func(subject *fleet.Subject) error {
		if subject.Version != o.Version || o.configures() {
			return nil
		}
		// Also with force, since a rollout does not reinstall a version.
		return fleet.AlreadyHas(component, subject.Agent.ID, o.Version)
	}
	var inForce map[string]error // by policy
	if o.Component == nil || o.Component.Lockstep == nil {
		var err error
		if inForce, err = s.InForceElsewhere(ctx, component, o.Version); err != nil {
			return step{}, err
		}
	}
	by := fleet.Requester{By: cmp.Or(o.By, o.Actor), Rollout: o.Rollout}
	begin := func(agent *fleet.Agent) {
		if o.Rollback && component == "" {
			agent.BeginRollback(o.ID, o.Version, now)
		} else {
			agent.BeginOf(component, o.ID, o.Version, now)
		}
		agent.RequestedBy(component, by, now)
	}
	var catalog fleet.Catalog
	if !o.Rollback {
		var err error
		if catalog, err = s.CatalogOf(ctx, component); err != nil {
			return step{}, err
		}
	}
	return step{
		check: func(agent *fleet.Agent) error {
			subject := agent.Of(component)
			if err := cmp.Or(runs(&subject), inForce[agent.PolicyID]); err != nil {
				return err
			}
			if o.Rollback {
				return checkRollback(component, o.Version, now)(agent)
			}
			w := o.UpgradeRequest
			w.Force = w.Force || o.configures() && subject.Version == o.Version // only the configuration changes
			return subject.CheckUpgrade(w, catalog)
		},
		begin: begin,
	}, nil
}

// component returns the component's name, empty for an upgrade of agents.
func (o *Offer) component() string {
	if o.Component == nil {
		return ""
	}
	return o.Component.Name
}

// configures reports whether it writes configuration, also for the version that is installed.
func (o *Offer) configures() bool { return o.Component != nil && len(o.Component.Files) > 0 }

// marked reports whether the agent has the mark of an action.
func marked(a *fleet.Agent, actionID string) bool { return a.UpgradingBy(actionID) }

// withdrawn returns the agents whose offer was withdrawn before its action was created.
// An executor that was suspended meanwhile must not create it for them.
func (s *Service) withdrawn(ctx context.Context, o Offer) (map[string]bool, error) {
	counts, err := s.Store.Results().Counts(ctx, []string{o.ID})
	if err != nil || counts[o.ID] == (fleet.ResultCounts{}) {
		return nil, err
	}
	gone := map[string]bool{}
	for _, id := range o.AgentIDs {
		r, err := store.Optional(s.Store.Results().Get(ctx, o.ID, id))
		if err != nil {
			return nil, err
		}
		gone[id] = r != nil
	}
	return gone, nil
}

// Withdrawal withdraws an offer from agents that have not begun.
type Withdrawal struct {
	ID       string // of the CANCEL
	ActionID string
	AgentIDs []string
	Why      string
	Actor    string
}

// WithdrawalID returns the id of the CANCEL that withdraws an offer from these agents. It
// is the same for the same agents.
func WithdrawalID(actionID string, agentIDs []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(agentIDs)), "\n")))
	return fleet.CancelID(actionID) + "-" + hex.EncodeToString(sum[:6])
}

// Withdraw ensures that the action is not delivered to agents that have not received it,
// and sends a CANCEL to the others. It is idempotent.
//
// Agents that have begun are ignored. One that begins at the same time may continue; its
// own report then replaces the result and the changes of its document made here.
func (s *Service) Withdraw(ctx context.Context, w Withdrawal) error {
	if err := checkAgents(w.AgentIDs, false); err != nil {
		return err
	}
	now := s.Now.UTC()
	agents, err := s.Store.Agents().GetMany(ctx, w.AgentIDs)
	if err != nil {
		return err
	}
	agents = slices.DeleteFunc(agents, func(a fleet.Agent) bool { return !a.Withdrawable(w.ActionID) })
	if len(agents) == 0 {
		return nil
	}
	act, err := store.Optional(s.Store.Actions().Get(ctx, w.ActionID))
	if err != nil {
		return err
	}
	// The results first: once they are written, no check-in delivers the action.
	results := make([]fleet.Result, len(agents))
	ids := make([]string, len(agents))
	for i := range agents {
		results[i], ids[i] = fleet.Withdrawal(w.ActionID, &agents[i], w.Why, now), agents[i].ID
	}
	changed, err := s.Store.Results().Put(ctx, results)
	if err != nil {
		return err
	}
	// The marks of agents that have not begun; the others lose them when they answer the CANCEL.
	err = store.ChangeAgents(ctx, s.Store.Agents(), ids, func(a *fleet.Agent) bool {
		return a.Waits(w.ActionID) && marked(a, w.ActionID) && a.CancelUpgrade(w.ActionID, now)
	})
	if err != nil {
		return err
	}
	var events []fleet.Event
	if act != nil { // else it was never delivered
		c := fleet.Action{
			ID: w.ID, Type: agentapi.ActionCancel, Agents: ids, Actioned: len(ids), CreatedAt: now, CreatedBy: w.Actor,
			Expiration: act.Expiration, Data: event.Data(agentapi.CancelData{TargetID: w.ActionID}),
		}
		switch err := s.create(ctx, &c); {
		case err != nil && fleet.KindOf(err) == fleet.Conflict: // withdrawn before
			return nil
		case err != nil:
			return err
		}
		act.Agents = ids
		events = agentEvents(*act)
	}
	s.Events.Publish(ctx, append(fleet.ResultEvents(results, changed), events...)...)
	return nil
}

// GiveUp ends an upgrade of an agent, or of its component, as failed when no further message
// is expected. A later message of the agent still overrides it.
func (s *Service) GiveUp(ctx context.Context, agent fleet.Agent, actionID, why string) error {
	now := s.Now.UTC()
	r := fleet.Result{ActionID: actionID, AgentID: agent.ID, Hostname: agent.Hostname(), Error: why, Timestamp: now}
	changed, err := s.Store.Results().Put(ctx, []fleet.Result{r})
	if err != nil {
		return err
	}
	s.Events.Publish(ctx, fleet.ResultEvents([]fleet.Result{r}, changed)...)
	_, err = store.UpdateAgent(ctx, s.Store.Agents(), agent.ID, func(a *fleet.Agent) bool {
		return marked(a, r.ActionID) && a.GiveUpUpgrade(r.ActionID, why, now)
	})
	return err
}
