// Package action creates the actions that operators order for agents, wakes the parked
// polls of these agents, handles acknowledgements, cancels actions, and ends upgrades that
// no message will end. The handlers of the admin API and of agents call it. The check-in
// delivers the actions.
package action

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// MaxAgents bounds the agents of an order that names them, as in Kibana.
const MaxAgents = 10_000

// MaxSelected bounds the agents that a query selects for one order: the largest fleet
// that is a goal.
const MaxSelected = 100_000

// Service creates actions and handles what agents answer.
type Service struct {
	Store  store.Store
	Health *storehealth.Monitor
	Feed   *Feed
	Events *event.Stream
	Log    *slog.Logger
	Now    clock.Clock
	// Sealer encrypts the data of actions that has secrets. Without a key such actions are
	// refused.
	Sealer keyfile.Sealer
	// Trust may be nil; then no package is withheld.
	Trust Trust
	// Locks may be nil; then no agent is locked.
	Locks Locks
	// Guards may be nil; then there are no freezes and no exposure budget.
	Guards Guards
	// RemovalsPerHour is how many agents operators may unenrol, migrate or move to another
	// policy or server within an hour unless they override it; 0: see removalLimit.
	RemovalsPerHour int
	// Owners may be nil; then no agent belongs to a declared fleet.
	Owners Owners
	// Lease says which server carries an accepted order out. It is nil if the store belongs to
	// this process.
	Lease *lease.Holder
	// Release answers the parked poll of an agent. It may be nil; then the poll ends by
	// itself.
	Release func(agentID string)

	reconciled store.UpgradingSince // the last agent of the last round of ReconcileUpgrades
	components *store.AgentPosition // the last one of those whose components are upgraded
	carrying   carrying
	page       int // of agents; zero: judgeSize
	leavers    leavers
}

// Trust decides which packages the publishers have signed.
type Trust interface {
	// SetWithheld sets Withheld of packages that hosts will not install.
	SetWithheld(ctx context.Context, packages []fleet.Package) error
}

// Locks returns the agents of running rollouts, for which orders are refused.
type Locks interface {
	// Locked returns, by agent id, a sentence that names the rollout which has the agent, or
	// the component of it.
	Locked(ctx context.Context, component string, agents []fleet.Agent) (map[string]string, error)
}

// Guards decide whether an upgrade may be ordered now. Rollouts make their offers by the
// same rules, so that no way to a host is without them.
type Guards interface {
	// Check returns an error that names the freeze or the budget which forbids the order.
	// Otherwise it returns when the order expires, which is not after o.Latest. agents calls
	// its argument with each agent that would be upgraded.
	Check(ctx context.Context, o GuardedOrder, agents func(func(*fleet.Agent)) error) (expires time.Time, err error)
}

// GuardedOrder is what Guards need to know of an order.
type GuardedOrder struct {
	Component, Version string
	// From and To are when its first and its last agent begin. Latest is when it expires if
	// no freeze begins before.
	From, To, Latest time.Time
	// OverrideFreeze and OverrideExposure are those of the UpgradeOrder.
	OverrideFreeze, OverrideExposure bool
	Now                              time.Time
}

// UpgradeOrder is an upgrade of some agents, or of a component of them.
type UpgradeOrder struct {
	// Component is the name of the component, empty for the agents themselves.
	Component string
	fleet.UpgradeRequest
	// Rollback goes back to a version of the component that the hosts have kept. Neither
	// packages nor guard rails matter to it. Agents themselves go back by Rollback.
	Rollback bool
	AgentIDs []string `json:"-"`
	// Selected means that a query has selected the agents, so there may be MaxSelected.
	Selected bool
	// Single makes Upgrade fail with a Refused if an agent is refused. Otherwise, and always
	// if only a package is missing, the refusal becomes an error result of the action.
	Single         bool
	StartTime      *time.Time
	RolloutSeconds int
	// OverrideFreeze and OverrideExposure say that the order is meant in spite of a freeze
	// or of the exposure budget. They need Why.
	OverrideFreeze, OverrideExposure bool
	Why                              string
	// TakeOver is the declared fleet whose agents are meant, as in Claim.
	TakeOver string
	// Actor is the name of the admin key.
	Actor string
	// stages means that nothing that runs is changed; see StageOrder.
	stages bool
}

// maxWhy bounds a reason, in bytes, as in rollouts.
const maxWhy = 2 << 10

func (o *UpgradeOrder) checkWhy() error {
	switch {
	case len(o.Why) > maxWhy:
		return fleet.FieldError("body.why", "has %d bytes, at most %d are accepted", len(o.Why), maxWhy)
	case (o.OverrideFreeze || o.OverrideExposure) && strings.TrimSpace(o.Why) == "":
		return fleet.FieldError("body.why", "is missing: say why the guard rail is overridden; the audit trail keeps it")
	}
	return nil
}

// CheckGuards returns an error that names the freeze or the exposure budget which forbids
// the order, as Upgrade would, and otherwise when the order expires.
func (s *Service) CheckGuards(ctx context.Context, o UpgradeOrder) (expires time.Time, err error) {
	now := s.Now.UTC()
	g := GuardedOrder{
		Component: o.Component, Version: o.Version, From: now, To: now, Latest: now.Add(fleet.DefaultExpiration),
		OverrideFreeze: o.OverrideFreeze, OverrideExposure: o.OverrideExposure, Now: now,
	}
	if o.StartTime != nil {
		g.From, g.To = beginsFrom(*o.StartTime, o.RolloutSeconds, now)
		g.Latest = o.StartTime.Add(fleet.DefaultExpiration)
	}
	if s.Guards == nil || o.Rollback {
		return g.Latest, nil
	}
	return s.Guards.Check(ctx, g, func(f func(*fleet.Agent)) error {
		do, _, err := s.upgradeStep(ctx, o)
		if err != nil {
			return err
		}
		return s.eachVerdict(ctx, o.AgentIDs, do, func(v Verdict) {
			if v.Err == nil {
				f(&v.Agent)
			}
		})
	})
}

// beginsFrom returns when the first and the last agent of a scheduled upgrade begin, from
// now on.
func beginsFrom(start time.Time, rolloutSeconds int, now time.Time) (first, last time.Time) {
	last = start.Add(time.Duration(rolloutSeconds) * time.Second)
	if start.Before(now) {
		start = now
	}
	if last.Before(start) {
		last = start
	}
	return start, last
}

// CancelScheduled cancels the upgrades that were scheduled for a time within the freeze,
// except those that were ordered in spite of freezes. Hosts have a scheduled upgrade
// already, and begin it without asking the server.
func (s *Service) CancelScheduled(ctx context.Context, f fleet.Freeze, actor string) error {
	now := s.Now.UTC()
	// An upgrade can be scheduled a year ahead, so all stored actions are read. Retention
	// bounds their number.
	for offset := 0; ; offset += cancelPage {
		list, err := s.Store.Actions().List(ctx, store.ActionQuery{Offset: offset, Limit: cancelPage})
		if err != nil {
			return err
		}
		for i := range list {
			a := &list[i]
			if a.Type != agentapi.ActionUpgrade || a.StartTime == nil || a.OverrideFreeze || a.CancelledAt != nil || a.Expired(now) {
				continue
			}
			if end := a.StartTime.Add(time.Duration(a.RolloutSeconds) * time.Second); end.Before(now) {
				continue // all of them have begun
			}
			if from, to := beginsFrom(*a.StartTime, a.RolloutSeconds, now); !f.Holds(from, to) {
				continue
			}
			if _, err := s.cancel(ctx, a.ID, actor, "it was scheduled for a time within the freeze “"+f.Name+"”"); err != nil && fleet.KindOf(err) != fleet.Conflict { // Conflict: it is over
				return err
			}
		}
		if len(list) < cancelPage {
			return nil
		}
	}
}

// cancelPage bounds one read of CancelScheduled, since an action may name 100,000 agents.
const cancelPage = 20

// Verdict is whether an agent can follow an order.
type Verdict struct {
	Agent fleet.Agent
	Err   error // why it cannot; nil if it can
	begun bool  // an earlier try has marked it
}

// Refused is the error of a Single order whose agent cannot follow it.
type Refused struct{ Verdict }

func (r Refused) Error() string { return r.Err.Error() }

func (r Refused) Unwrap() error { return r.Err }

// EachVerdict calls f with the verdict of an order for each agent, in the order of the
// ids. Upgrade reaches the same verdicts unless an agent has changed meanwhile. A version
// that has no package is an error, so that it is noticed before the order.
// EachVerdict holds one page of agents in memory at a time.
func (s *Service) EachVerdict(ctx context.Context, o UpgradeOrder, f func(Verdict)) error {
	do, catalog, err := s.upgradeStep(ctx, o)
	if err != nil {
		return err
	}
	if err := o.check(catalog); err != nil {
		return err
	}
	return s.eachVerdict(ctx, o.AgentIDs, do, f)
}

func (s *Service) eachVerdict(ctx context.Context, ids []string, do step, f func(Verdict)) error {
	return s.eachPage(ctx, ids, do, func(page []Verdict) error {
		for _, v := range page {
			f(v)
		}
		return nil
	})
}

// CheckUpgradeRequest returns an error if a request to upgrade is wrong, whatever
// packages are published.
func CheckUpgradeRequest(r fleet.UpgradeRequest) error { return withSource(r).Check(nil) }

// withSource returns the request with a source_uri, so that Check and CheckUpgrade do not
// look at the published packages.
func withSource(r fleet.UpgradeRequest) fleet.UpgradeRequest {
	if r.SourceURI == "" {
		r.SourceURI = "https://elsewhere/"
	}
	return r
}

// noPackage is the refusal of an agent that could be upgraded if there were a package that
// its host installs. Kibana, which knows no packages, accepts such an order and leaves the
// failure to the agent. So it is an error result of the action, of single orders too.
type noPackage struct{ error }

func (e noPackage) Unwrap() error { return e.error }

// newAction returns an action that expires after fleet.DefaultExpiration.
func newAction(kind agentapi.ActionType, actor string, now time.Time) fleet.Action {
	expiration := now.Add(fleet.DefaultExpiration)
	return fleet.Action{ID: fleet.NewID(), Type: kind, CreatedAt: now, CreatedBy: actor, Expiration: &expiration}
}

// upgradeStep returns what an order checks of each agent, and the packages of what it
// upgrades, or an error if no agent can follow it.
func (s *Service) upgradeStep(ctx context.Context, o UpgradeOrder) (do step, catalog fleet.Catalog, err error) {
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return step{}, nil, err
	}
	do = step{component: o.Component, single: o.Single, why: o.Why, override: o.overrides()}
	if o.Rollback {
		packages, err := s.CatalogOf(ctx, o.Component)
		if err != nil {
			return step{}, nil, err
		}
		back := checkRollback(o.Component, o.Version, s.Now.UTC())
		inForce, err := s.checkInForce(ctx, o.Component, o.Version)
		if err != nil {
			return step{}, nil, err
		}
		do.check = func(a *fleet.Agent) error {
			subject := a.Of(o.Component)
			if subject.Version == o.Version {
				return fleet.Errorf(fleet.Invalid, "component %s of agent %s already is %s", o.Component, a.ID, o.Version).Because(fleet.CauseRunning)
			}
			if err := cmp.Or(inForce(a), back(a)); err != nil {
				return err
			}
			return subject.CheckState(o.Version, packages)
		}
		return do, nil, o.check(nil)
	}
	if catalog, err = s.CatalogOf(ctx, o.Component); err != nil {
		return step{}, nil, err
	}
	if o.SourceURI == "" {
		if err := s.CheckPublished(ctx, "path.name", o.Component, catalog); err != nil {
			return step{}, nil, err
		}
	}
	if o.Component != "" {
		if err := o.check(catalog); err != nil {
			return step{}, nil, err
		}
		do.check, err = s.checkComponentUpgrade(ctx, o, catalog)
		return do, catalog, err
	}
	do.check, err = s.checkAgentUpgrade(ctx, o, catalog)
	return do, catalog, err
}

// check validates the order without regard to any agent.
func (o *UpgradeOrder) check(catalog fleet.Catalog) error {
	if o.Rollback {
		return o.checkRollback()
	}
	if o.Component != "" {
		return o.ofComponent().Check(catalog)
	}
	return o.UpgradeRequest.Check(catalog)
}

// checkRollback validates a rollback of a component without regard to any agent.
func (o *UpgradeOrder) checkRollback() error {
	if err := manifest.ValidComponentName(o.Component); err != nil {
		return fleet.FieldError("path.name", "%w", err)
	}
	if o.SourceURI != "" {
		return fleet.FieldError("body.source_uri", "contradicts rollback: hosts go back to a version that they have kept, and download nothing")
	}
	if _, err := manifest.ParseVersion(o.Version); err != nil {
		return fleet.FieldError("body.version", "%w", err)
	}
	return nil
}

// checkRollback returns a function that reports why an agent, or its component, cannot go back
// to the version.
func checkRollback(component, version string, now time.Time) func(*fleet.Agent) error {
	return func(agent *fleet.Agent) error {
		subject := agent.Of(component)
		to, err := subject.CheckRollback(version, now)
		if err == nil && to != version {
			err = fleet.Errorf(fleet.Invalid, "agent %s would go back to %s, not to %s", agent.ID, to, version).Because(fleet.CauseNoWayBack)
		}
		return err
	}
}

func (o *UpgradeOrder) ofComponent() fleet.ComponentRequest {
	return fleet.ComponentRequest{Name: o.Component, UpgradeRequest: o.UpgradeRequest}
}

// checkComponentUpgrade returns a function that reports why an agent cannot follow an order of
// its component.
func (s *Service) checkComponentUpgrade(ctx context.Context, o UpgradeOrder, catalog fleet.Catalog) (func(*fleet.Agent) error, error) {
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	listed := map[string]agentapi.PolicyComponent{} // by policy
	for _, p := range policies {
		if i := slices.IndexFunc(p.Components, func(c agentapi.PolicyComponent) bool { return c.Name == o.Component }); i >= 0 {
			listed[p.ID] = p.Components[i]
		}
	}
	check := func(a *fleet.Agent) error {
		err := a.CheckComponentUpgrade(o.ofComponent(), catalog)
		if err == nil && !o.stages {
			err = fleet.CheckInForce(listed[a.PolicyID], o.Version)
		}
		if err == nil {
			subject := a.Of(o.Component)
			err = subject.CheckRendered(o.UpgradeRequest)
		}
		if err != nil || o.SourceURI != "" {
			return err
		}
		for _, p := range catalog.For(o.Version, a.Host()) {
			if err = fleet.CheckPin(listed[a.PolicyID], o.Version, p.Image); err == nil {
				return nil
			}
		}
		return err
	}
	if err != nil {
		return nil, err
	}
	return s.unlessHosted(ctx, o, check)
}

// checkInForce returns a function that reports why an agent must not be brought to a version of a
// component: another one is in force for its policy. Upgrades in lockstep are not asked.
func (s *Service) checkInForce(ctx context.Context, component, version string) (func(*fleet.Agent) error, error) {
	refused := map[string]error{} // by policy
	if component != "" {
		policies, _, err := s.Store.Policies().List(ctx, 0, 0)
		if err != nil {
			return nil, err
		}
		for _, p := range policies {
			if c := p.Component(component); c != nil {
				refused[p.ID] = fleet.CheckInForce(*c, version)
			}
		}
	}
	return func(a *fleet.Agent) error { return refused[a.PolicyID] }, nil
}

// unlessHosted refuses the agents of managed policies, unless the order has force.
func (s *Service) unlessHosted(ctx context.Context, o UpgradeOrder, check func(*fleet.Agent) error) (func(*fleet.Agent) error, error) {
	if o.Force && !o.Single { // as in Kibana, where force does not open this for one agent
		return check, nil
	}
	check, err := s.unlessManaged(ctx, check, "Cannot upgrade agent %s in hosted agent policy %s: it is managed (is_managed)")
	if len(o.AgentIDs) > 1 { // the call for one agent has no such force
		check = managedForceable(check)
	}
	return check, err
}

// checkAgentUpgrade returns a function that reports why an agent cannot follow the order.
func (s *Service) checkAgentUpgrade(ctx context.Context, o UpgradeOrder, catalog fleet.Catalog) (func(*fleet.Agent) error, error) {
	if err := CheckUpgradeRequest(o.UpgradeRequest); err != nil {
		return nil, err
	}
	missing := o.UpgradeRequest.Check(catalog)
	var of *fleet.Error
	if errors.As(missing, &of) {
		missing = fleet.Errorf(of.Kind, "%s", of.Message).Because(cmp.Or(of.Cause, fleet.CauseNotPublished)) // without the field of the request
	}
	check := func(a *fleet.Agent) error {
		err := a.CheckUpgrade(o.UpgradeRequest, catalog)
		if err == nil && missing == nil {
			return nil
		}
		var lacks *fleet.Error
		if errors.As(err, &lacks) && lacks.Cause == fleet.CauseRunning {
			return err // of another source it is not known whether it holds this build
		}
		if refused := a.CheckUpgrade(withSource(o.UpgradeRequest), catalog); refused != nil {
			return refused
		}
		if missing != nil {
			err = missing
		}
		if errors.As(err, &lacks) && lacks.Cause == fleet.CauseNoSpace {
			return err
		}
		return noPackage{err}
	}
	return s.unlessHosted(ctx, o, check)
}

// checkLocks refuses the agents of a running rollout, which would count another upgrade
// as a failure of its own.
func (s *Service) checkLocks(ctx context.Context, verdicts []Verdict, do step) error {
	if s.Locks == nil {
		return nil
	}
	free := make([]fleet.Agent, 0, len(verdicts))
	for _, v := range verdicts {
		if v.Err == nil && !v.begun {
			free = append(free, v.Agent)
		}
	}
	if len(free) == 0 {
		return nil
	}
	locked, err := s.Locks.Locked(ctx, do.component, free)
	if err != nil {
		return err
	}
	for i := range verdicts {
		if why, ok := locked[verdicts[i].Agent.ID]; ok && verdicts[i].Err == nil && !verdicts[i].begun {
			refused := fleet.Errorf(fleet.Conflict, "%s%s", why, do.hint).Because(fleet.CauseRollout)
			refused.Forceable = do.hint != ""
			verdicts[i].Err = refused
		}
	}
	return nil
}

// checkAgents checks the number and the uniqueness of the agents of an order.
func checkAgents(agentIDs []string, selected bool) error {
	switch n := len(agentIDs); {
	case n == 0 && selected:
		return fleet.FieldError("body.agents", "is a query that selects no agents: try it in the list of agents, with inactive ones if they are meant")
	case n == 0:
		// An empty list must not mean all: that has upgraded fleets by accident.
		return fleet.FieldError("body.agents", "is empty: name at least one agent")
	case selected && n > MaxSelected:
		return fleet.FieldError("body.agents", "is a query that selects %d agents, at most %d can follow one order: ask for fewer, or make a rollout", n, MaxSelected)
	case !selected && n > MaxAgents:
		return fleet.FieldError("body.agents", "names %d agents, at most %d can be named: select them by a query", n, MaxAgents)
	}
	ids := slices.Clone(agentIDs)
	slices.Sort(ids)
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			return fleet.FieldError("body.agents", "names agent %s twice", ids[i])
		}
	}
	return nil
}

// judgeSize is how many agents are read and written at once: 100,000 documents would take
// half a gigabyte.
const judgeSize = 1000

func (s *Service) pageSize() int { return cmp.Or(s.page, judgeSize) }

// eachPage calls f with the verdicts of the agents, page by page in the order of the ids.
// Agents of a running rollout are refused unless do.locked. While f handles a page the
// next one is judged, so at most two are in memory. An error of either ends both.
func (s *Service) eachPage(ctx context.Context, ids []string, do step, f func([]Verdict) error) error {
	ahead, stop := context.WithCancel(ctx)
	defer stop()
	pages := make(chan []Verdict)
	var judging errgroup.Group
	judging.Go(func() error {
		defer close(pages)
		for some := range slices.Chunk(ids, s.pageSize()) {
			page, err := s.judge(ahead, some, do)
			if err == nil && !do.locked {
				err = s.checkLocks(ahead, page, do)
			}
			if err != nil {
				return err
			}
			select {
			case pages <- page:
			case <-ahead.Done():
				return fleet.Errorf(fleet.Unavailable, "the caller stopped waiting: %w", ahead.Err())
			}
		}
		return nil
	})
	for page := range pages {
		if err := f(page); err != nil {
			stop()
			_ = judging.Wait() // it ends because stop canceled it
			return err
		}
	}
	return judging.Wait()
}

// judge returns the verdict of each agent, in the order of the ids.
func (s *Service) judge(ctx context.Context, ids []string, do step) ([]Verdict, error) {
	found, err := s.Store.Agents().GetMany(ctx, ids)
	if err != nil {
		return nil, err
	}
	verdicts := make([]Verdict, len(ids))
	for i, id := range ids {
		v := &verdicts[i]
		if len(found) == 0 || found[0].ID != id { // found is in the order of ids
			v.Agent, v.Err = notFound(id)
			continue
		}
		v.Agent, found = found[0], found[1:]
		if v.begun = do.resumed && do.begun != nil && do.begun(&v.Agent); !v.begun {
			v.Err = do.check(&v.Agent)
		}
	}
	return verdicts, nil
}

// Found returns how many of the agents exist.
func (s *Service) Found(ctx context.Context, ids []string) (n int, err error) {
	for some := range slices.Chunk(ids, s.pageSize()) {
		agents, err := s.Store.Agents().GetMany(ctx, some)
		if err != nil {
			return 0, err
		}
		n += len(agents)
	}
	return n, nil
}

func notFound(id string) (fleet.Agent, error) {
	return fleet.Agent{ID: id}, fleet.Errorf(fleet.NotFound, "Agent %s not found", id).Because(fleet.CauseNotFound)
}

// Upgrade creates one UPGRADE action. Agents that cannot be upgraded become
// error results of it, unless the order is Single. A running rollout of the same subject,
// the agents or the component, holds it.
//
// The agents are marked before the action exists. Otherwise a fast agent could finish
// before its mark is written, and look "updating" for ever. An order of several agents is
// stored before the marks (accept), so it ends with an action. After a crash in the order of a
// Single agent, ReconcileUpgrades clears the mark.
func (s *Service) Upgrade(ctx context.Context, o UpgradeOrder) (fleet.Action, error) {
	now, asked := s.Now.UTC(), o
	key, earlier, err := s.ordered(ctx, o.Single, "upgrade", &o, nil, o.Actor, o.AgentIDs)
	if err != nil || earlier != nil {
		return deref(earlier), err
	}
	if o.RolloutSeconds > 0 && o.StartTime == nil {
		o.StartTime = &now
	}
	if err := o.checkWhy(); err != nil {
		return fleet.Action{}, err
	}
	do, catalog, err := s.upgradeStep(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	expires, err := s.CheckGuards(ctx, o)
	if err != nil {
		return fleet.Action{}, err
	}
	suspend, err := s.claim(ctx, o.claim(), o.AgentIDs, do)
	if err != nil {
		return fleet.Action{}, err
	}
	if err := s.takeOver(ctx, suspend, o.claim()); err != nil {
		return fleet.Action{}, err
	}
	id, data := fleet.NewID(), agentapi.UpgradeData{Version: o.Version, SourceURI: o.SourceURI, Force: o.Force && !o.Rollback, Rollback: o.Rollback}
	if o.Component != "" {
		data.Component = o.ofComponent().Data(id, catalog)
	}
	a := fleet.Action{
		ID: id, Type: agentapi.ActionUpgrade, CreatedAt: now, CreatedBy: o.Actor,
		StartTime: o.StartTime, RolloutSeconds: o.RolloutSeconds, Expiration: &expires, OverrideFreeze: o.OverrideFreeze, Data: event.Data(data),
	}
	o.marks(&do, &a)
	return s.order(ctx, a, o.AgentIDs, do, key, "upgrade", &asked)
}

// marks adds to a step how the order marks an agent.
func (o *UpgradeOrder) marks(do *step, a *fleet.Action) {
	id, now, start, by := a.ID, a.CreatedAt, a.CreatedAt, fleet.Orderer{By: o.Actor, Why: o.Why}
	if a.StartTime != nil && a.StartTime.After(now) {
		start = *a.StartTime
	}
	do.begun = func(agent *fleet.Agent) bool { return marked(agent, id) }
	do.begin = func(agent *fleet.Agent) {
		agent.BeginOf(o.Component, id, o.Version, start)
		agent.OrderedBy(o.Component, by, now)
	}
}

func (o *UpgradeOrder) step(ctx context.Context, s *Service, a *fleet.Action, agentIDs []string) (step, error) {
	o.AgentIDs = agentIDs
	do, _, err := s.upgradeStep(ctx, *o)
	o.marks(&do, a)
	return do, err
}

func (o *UpgradeOrder) overrides() (which []string) {
	if o.OverrideFreeze {
		which = append(which, "freeze")
	}
	if o.OverrideExposure {
		which = append(which, "exposure")
	}
	return which
}

// step is what an action does to the document of each agent.
type step struct {
	// check reports why an agent cannot follow. It is called again for an agent that has
	// changed meanwhile.
	check func(*fleet.Agent) error
	// begin marks the document; nil if it stays as it is.
	begin func(*fleet.Agent)
	// begun reports whether begin has marked the document. It is asked if the order is resumed;
	// nil: begin can be repeated, and check permits that.
	begun   func(*fleet.Agent) bool
	resumed bool // another process may have begun the order
	// locked permits agents of a running rollout, or of one of the component; otherwise hint
	// is appended to their refusal.
	locked    bool
	component string
	hint      string
	// single makes the order fail with the first refusal.
	single bool
	// why is the operator's reason, and override the guard rails that the order overrides,
	// for the audit trail.
	why      string
	override []string
	// done is the result's message if begin completes the action; empty if agents have
	// to answer.
	done string
}

// order carries an order out, so that its action has the agents that follow and error results of
// the others. The order of a Single agent is over when the caller gets the answer; others are
// accepted first.
func (s *Service) order(ctx context.Context, a fleet.Action, agentIDs []string, do step, key, kind string, t terms) (fleet.Action, error) {
	if !do.single {
		done, err := s.accept(ctx, []fleet.AcceptedOrder{{
			ID: key, Kind: kind, Terms: event.Data(t), Action: a, AgentIDs: agentIDs, Entry: entryOf(ctx, a, agentIDs, do),
		}}, []step{do})
		if err != nil {
			return fleet.Action{}, err
		}
		return done[0], nil
	}
	ctx = context.WithoutCancel(ctx) // of one agent, it takes less than a caller who goes away could save
	a, err := s.execute(ctx, a, agentIDs, do, func(int) error { return nil })
	if err == nil {
		s.publishCreated(ctx, a, a.Actioned-len(a.Agents))
	}
	return a, err
}

// ordered returns the key of an order, and the action of the same order if that is being carried
// out: the caller has asked again. Orders of a Single agent are not accepted, and have no key.
func (s *Service) ordered(ctx context.Context, single bool, kind string, t terms, data []byte, actor string, agentIDs []string) (key string, earlier *fleet.Action, err error) {
	if single {
		return "", nil, nil
	}
	key = keyOf(kind, t, data, actor, agentIDs)
	actions, found, err := s.again(ctx, key)
	if err != nil || !found {
		return key, nil, err
	}
	return key, &actions[0], nil
}

func deref(a *fleet.Action) fleet.Action {
	if a == nil {
		return fleet.Action{}
	}
	return *a
}

// execute marks the agents and creates the action. The refusals of agents become error results of
// it. After each page execute calls handled with the number of its agents.
func (s *Service) execute(ctx context.Context, a fleet.Action, agentIDs []string, do step, handled func(n int) error) (fleet.Action, error) {
	a.Agents, a.Actioned = nil, len(agentIDs)
	ids, err := s.Store.Agents().InOrder(ctx, agentIDs)
	if err != nil {
		return fleet.Action{}, err
	}
	err = s.eachPage(ctx, ids, do, func(page []Verdict) error {
		open, err := s.withoutAnswered(ctx, &a, page, do)
		if err != nil {
			return err
		}
		if do.single && open[0].Err == nil {
			if err := s.Store.Audit().Append(ctx, []fleet.AuditEntry{entryOf(ctx, a, agentIDs, do)}); err != nil {
				return err
			}
		}
		marked := len(a.Agents)
		more, err := s.mark(ctx, &a, open, do)
		if err != nil {
			return err
		}
		refused := make([]fleet.Result, len(more))
		for i, v := range more {
			if do.single && !errors.As(v.Err, new(noPackage)) {
				return Refused{v}
			}
			refused[i] = fleet.Result{ActionID: a.ID, AgentID: v.Agent.ID, Hostname: v.Agent.Hostname(), Error: v.Err.Error(), Timestamp: a.CreatedAt}
		}
		if len(refused) > 0 {
			if _, err := s.Store.Results().Put(ctx, refused); err != nil {
				return err
			}
		}
		if do.done != "" {
			if err := s.finish(ctx, a, a.Agents[marked:], open, do.done); err != nil {
				return err
			}
		}
		return handled(len(page))
	})
	if err != nil {
		return fleet.Action{}, err
	}
	a.Agents = inOrderOf(agentIDs, a.Agents)
	err = s.create(ctx, &a)
	if err != nil && fleet.KindOf(err) == fleet.Conflict && !do.single { // an earlier try has created it
		return s.Store.Actions().Get(ctx, a.ID)
	}
	return a, err
}

// withoutAnswered returns the verdicts of the agents that have no result yet of an order that is
// resumed. It adds those with a good result to the action.
func (s *Service) withoutAnswered(ctx context.Context, a *fleet.Action, page []Verdict, do step) ([]Verdict, error) {
	if !do.resumed {
		return page, nil
	}
	ids := make([]string, len(page))
	for i := range page {
		ids[i] = page[i].Agent.ID
	}
	failed := map[string]bool{}
	if err := s.Store.Results().OfAction(ctx, a.ID, ids, func(r fleet.Result) { failed[r.AgentID] = r.Error != "" }); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(page, func(v Verdict) bool {
		refused, answered := failed[v.Agent.ID]
		if answered && !refused {
			a.Agents = append(a.Agents, v.Agent.ID)
		}
		return answered
	}), nil
}

// maxRecorded bounds the agents that an audit entry names. The action names all.
const maxRecorded = 100

// recordedAs returns the verb of the audit entries about an action, and what it orders, which is
// followed by its agents.
func recordedAs(a fleet.Action) (verb, what string) {
	switch {
	case a.Type == agentapi.ActionUnenroll:
		return "agent.unenroll", "the unenrolment of"
	case a.Type == agentapi.ActionRequestDiagnostics:
		return "agent.request_diagnostics", "the diagnostics of"
	case a.Type == agentapi.ActionForceUnenroll:
		return "agent.revoke", "the unenrolment, with revoked keys, of"
	case a.Type == agentapi.ActionPolicyReassign:
		return "agent.reassign", "policy " + a.NewPolicy() + " for"
	case a.Type == agentapi.ActionUpdateTags:
		return "agent.tag", "other tags for"
	case a.Type == agentapi.ActionStage:
		return "agent.stage", "the staging of " + fleet.What(a.Component(), a.Upgrade().Version) + " on"
	case a.Upgrade().Rollback && a.Component() != "":
		return "component.rollback", "the rollback of component " + a.Component() + " to " + a.Upgrade().Version + " of"
	case a.Upgrade().Rollback:
		return "agent.rollback", "the rollback to " + a.Upgrade().Version + " of"
	case a.Component() != "":
		return "component.upgrade", "the upgrade of component " + a.Component() + " to " + a.Upgrade().Version + " of"
	case a.Type == agentapi.ActionUpgrade:
		return "agent.upgrade", "the upgrade to " + a.Upgrade().Version + " of"
	}
	return "agent.action", string(a.Type) + " of"
}

// entryOf returns the audit entry about an order, which is written before the first agent is
// changed. It says what was asked for; ended records what was done, where that may differ.
func entryOf(ctx context.Context, a fleet.Action, agentIDs []string, do step) fleet.AuditEntry {
	verb, what := recordedAs(a)
	text := "ordered " + what
	if len(agentIDs) == 1 {
		text += " agent " + agentIDs[0]
	} else {
		text += fmt.Sprintf(" %d agents", len(agentIDs))
	}
	data := map[string]any{"agents": agentIDs[:min(len(agentIDs), maxRecorded)], "count": len(agentIDs)}
	if a.StartTime != nil {
		data["start_time"] = a.StartTime
	}
	for _, rail := range do.override {
		text += ", in spite of the " + map[string]string{"freeze": "freeze", "exposure": "exposure budget", ErrRemovalLimit: "removal limit"}[rail]
		data["override"] = do.override
	}
	return fleet.AuditEntry{
		ID: fleet.NewID(), At: a.CreatedAt, Actor: a.CreatedBy, Verb: verb, Subject: a.ID, Why: cmp.Or(do.why, audit.Why(ctx)), Text: a.CreatedBy + " " + text, Data: event.Data(data),
	}
}

// inOrderOf returns some in the order of ids. An agent's position in the action decides
// when its upgrade starts if the upgrades are spread over time.
func inOrderOf(ids, some []string) []string {
	if len(some) == len(ids) {
		return slices.Clone(ids)
	}
	has := make(map[string]bool, len(some))
	for _, id := range some {
		has[id] = true
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !has[id] })
}

// finish writes the results of an action that agents do not have to answer. They are
// written before the action, so that no check-in delivers it.
func (s *Service) finish(ctx context.Context, a fleet.Action, ids []string, page []Verdict, message string) error {
	if len(ids) == 0 {
		return nil
	}
	hosts := make(map[string]string, len(page))
	for i := range page {
		hosts[page[i].Agent.ID] = page[i].Agent.Hostname()
	}
	results := make([]fleet.Result, len(ids))
	for i, id := range ids {
		results[i] = fleet.Result{ActionID: a.ID, AgentID: id, Hostname: hosts[id], Message: message, Timestamp: a.CreatedAt}
	}
	_, err := s.Store.Results().Put(ctx, results)
	return err
}

// publishCreated publishes the events of a new action and of its marked agents.
func (s *Service) publishCreated(ctx context.Context, a fleet.Action, refused int) {
	data := map[string]any{"type": a.Type, "version": a.Upgrade().Version, "agents": len(a.Agents), "refused": refused}
	if a.Upgrade().Rollback {
		data["rollback"] = true
	}
	if a.Component() != "" {
		data["component"] = a.Component()
	}
	created := fleet.Event{Type: fleet.EventActionCreated, Subject: a.ID, Actor: a.CreatedBy, Data: event.Data(data)}
	s.Events.Publish(ctx, append([]fleet.Event{created}, agentEvents(a)...)...)
}

// markTries bounds how often the mark of an agent is tried again after a conflict.
const markTries = 4

// mark applies do.begin to every agent that can follow, writes it, and adds the agent to
// the action. It returns the others.
func (s *Service) mark(ctx context.Context, a *fleet.Action, verdicts []Verdict, do step) ([]Verdict, error) {
	var refused []Verdict
	refuse := func(agent fleet.Agent, err error) { refused = append(refused, Verdict{Agent: agent, Err: err}) }
	todo := make([]fleet.Agent, 0, len(verdicts))
	for i := range verdicts {
		switch v := &verdicts[i]; {
		case v.Err != nil:
			refuse(v.Agent, v.Err)
		case v.begun:
			a.Agents = append(a.Agents, v.Agent.ID)
		default:
			todo = append(todo, v.Agent)
		}
	}
	if do.begin == nil {
		for i := range todo {
			a.Agents = append(a.Agents, todo[i].ID)
		}
		return refused, nil
	}
	for try := 1; len(todo) > 0; try++ {
		for i := range todo {
			do.begin(&todo[i])
		}
		errs, err := s.Store.Agents().UpdateMany(ctx, todo)
		if err != nil {
			return nil, err
		}
		var again []string
		for i, err := range errs {
			switch {
			case err == nil:
				a.Agents = append(a.Agents, todo[i].ID)
			case fleet.KindOf(err) == fleet.Conflict && try < markTries:
				again = append(again, todo[i].ID)
			default:
				refuse(todo[i], err)
			}
		}
		if len(again) == 0 {
			break
		}
		fresh, err := s.Store.Agents().GetMany(ctx, again)
		if err != nil {
			return nil, err
		}
		for _, id := range again {
			if !slices.ContainsFunc(fresh, func(a fleet.Agent) bool { return a.ID == id }) {
				refuse(notFound(id))
			}
		}
		todo = todo[:0:0]
		for _, agent := range fresh {
			if err := do.check(&agent); err != nil {
				refuse(agent, err)
				continue
			}
			todo = append(todo, agent)
		}
	}
	return refused, nil
}

// Cancel cancels an upgrade for agents that have not begun. An agent that has begun
// decides itself whether it still can cancel.
func (s *Service) Cancel(ctx context.Context, actionID, actor string) (fleet.Action, error) {
	return s.cancel(ctx, actionID, actor, "")
}

func (s *Service) cancel(ctx context.Context, actionID, actor, why string) (fleet.Action, error) {
	prepared, err := s.preparingAction(ctx, actionID)
	if err != nil {
		return fleet.Action{}, err
	}
	var target fleet.Action
	if prepared != nil { // it is cancelled once it exists
		target = prepared.Action
	} else if target, err = s.Store.Actions().Get(ctx, actionID); err != nil {
		return fleet.Action{}, err
	}
	counts, err := s.Store.Results().Counts(ctx, []string{actionID})
	if err != nil {
		return fleet.Action{}, err
	}
	now := s.Now.UTC()
	if prepared == nil {
		status := []Status{{Action: target, Counts: counts[actionID]}}
		if err := s.countProgress(ctx, status, now); err != nil {
			return fleet.Action{}, err
		}
		err = target.CheckCancel(status[0].Counts, status[0].Stoppable(), now)
	} else {
		err = target.CheckCancelType()
	}
	if err != nil {
		return fleet.Action{}, err
	}
	c := fleet.Action{
		ID: fleet.CancelID(actionID), Type: agentapi.ActionCancel, CreatedAt: now, CreatedBy: actor, Expiration: target.Expiration,
		Data: event.Data(agentapi.CancelData{TargetID: actionID}),
	}
	done, err := s.accept(ctx, []fleet.AcceptedOrder{{ID: c.ID, Kind: cancelKind, Action: c, AgentIDs: []string{}, Entry: fleet.AuditEntry{
		ID: fleet.NewID(), At: now, Actor: actor, Verb: "action.cancel", Subject: actionID, Why: cmp.Or(why, audit.Why(ctx)), Text: actor + " cancelled the " + upgradeText(target),
	}}}, []step{{}})
	if err != nil {
		return fleet.Action{}, err
	}
	return done[0], nil
}

// carryOutCancel marks the action as cancelled, creates the CANCEL, and takes their marks from the
// agents that have not received the action. The others lose it when they answer.
func (s *Service) carryOutCancel(ctx context.Context, r *carried, o *fleet.AcceptedOrder) (fleet.Action, error) {
	actionID := o.Action.Cancels()
	if err := s.waitUntilCreated(ctx, actionID); err != nil {
		return fleet.Action{}, err
	}
	target, err := s.Store.Actions().Get(ctx, actionID)
	if err != nil {
		return fleet.Action{}, err
	}
	now := s.Now.UTC()
	if err := s.Store.Actions().Cancel(ctx, actionID, now); err != nil {
		return fleet.Action{}, err
	}
	c := o.Action
	c.Agents, c.Actioned = target.Agents, len(target.Agents)
	if err = s.create(ctx, &c); fleet.KindOf(err) == fleet.Conflict { // it was cancelled before
		c, err = s.Store.Actions().Get(ctx, c.ID)
	}
	if err != nil {
		return fleet.Action{}, err
	}
	if target.Type == agentapi.ActionUpgrade {
		ids, err := s.Store.Agents().InOrder(ctx, target.Agents)
		if err != nil {
			return fleet.Action{}, err
		}
		for some := range slices.Chunk(ids, s.pageSize()) {
			err := store.ChangeAgents(ctx, s.Store.Agents(), some, func(a *fleet.Agent) bool { return a.Waits(actionID) && a.CancelUpgrade(actionID, now) })
			if err == nil {
				r.handled.Add(int64(len(some)))
				err = s.hold(ctx, o)
			}
			if err != nil {
				return fleet.Action{}, err
			}
		}
	}
	cancelled := fleet.Event{Type: fleet.EventActionCancelled, Subject: actionID, Actor: o.Action.CreatedBy}
	s.Events.Publish(ctx, append([]fleet.Event{cancelled}, agentEvents(target)...)...)
	return c, nil
}

// waitUntilCreated waits while the order of an action is being carried out. If no server carries it
// out, this one does.
func (s *Service) waitUntilCreated(ctx context.Context, actionID string) error {
	orders, _, err := s.Store.AcceptedOrders().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	for _, o := range orders {
		if o.Kind != cancelKind && o.Action.ID == actionID {
			_, err := s.join(ctx, o.ID)
			return err
		}
	}
	return nil
}

// upgradeText says what an UPGRADE or a STAGE does.
func upgradeText(a fleet.Action) string {
	name := a.Component()
	switch {
	case a.Type == agentapi.ActionStage:
		return "staging of " + fleet.What(name, a.Upgrade().Version)
	case name != "":
		return "upgrade of component " + name + " to " + a.Upgrade().Version
	}
	return "upgrade to " + a.Upgrade().Version
}

// Catalog returns the published packages of agents.
func (s *Service) Catalog(ctx context.Context) (fleet.Catalog, error) { return s.CatalogOf(ctx, "") }

// CheckPublished returns an error about a field that names a component of which no package is
// published, with those that have packages: the name is probably wrong. catalog has its packages.
func (s *Service) CheckPublished(ctx context.Context, field, component string, catalog fleet.Catalog) error {
	if component == "" || len(catalog) > 0 || manifest.ValidComponentName(component) != nil {
		return nil
	}
	packages, _, err := s.Store.Packages().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	names := map[string]bool{}
	for _, p := range packages {
		if p.Component != "" {
			names[p.Component] = true
		}
	}
	if len(names) == 0 {
		return nil // then no version is, which is another error
	}
	return fleet.FieldError(field, "is %s, and no package of that component is published: packages of %s are", component, fleet.List(slices.Sorted(maps.Keys(names))))
}

// CatalogOf returns the published packages of a component, or those of agents if the name is
// empty.
func (s *Service) CatalogOf(ctx context.Context, component string) (fleet.Catalog, error) {
	packages, _, err := s.Store.Packages().List(ctx, 0, 0)
	if err != nil {
		return nil, err
	}
	catalog := fleet.OfComponent(packages, component)
	if s.Trust != nil {
		err = s.Trust.SetWithheld(ctx, catalog)
	}
	return catalog, err
}

func (s *Service) create(ctx context.Context, a *fleet.Action) error {
	seq, err := s.Store.Actions().Create(ctx, *a)
	if err != nil {
		return err
	}
	a.Seq = seq
	s.Feed.Signal()
	return nil
}

// apply writes the report, and wakes the readers of the event stream if it has events.
func (s *Service) apply(ctx context.Context, agent fleet.Agent, now time.Time, report func(*fleet.Agent) store.Report) error {
	events, err := store.ApplyReport(ctx, s.Store.Agents(), agent, now, report)
	if events {
		s.Events.Wake()
	}
	return err
}

// agentEventsMax bounds the events of one action that name agents. For more agents there
// is one event, and readers fetch the list again.
const agentEventsMax = 100

// agentEvents returns the events of the agents of an action.
func agentEvents(a fleet.Action) []fleet.Event {
	e := fleet.Event{Type: fleet.EventAgentUpgrade, Data: event.Data(map[string]string{"action_id": a.ID})}
	switch a.Type {
	case agentapi.ActionUpgrade:
		if name := a.Component(); name != "" {
			e = fleet.Event{Type: fleet.EventAgentComponent, Data: event.Data(map[string]string{"action_id": a.ID, "component": name})}
		}
	case agentapi.ActionUnenroll, agentapi.ActionForceUnenroll:
		e = fleet.Event{
			Type: fleet.EventAgentUnenrolled, Actor: a.CreatedBy,
			Data: event.Data(map[string]any{"action_id": a.ID, "revoked": a.Type == agentapi.ActionForceUnenroll}),
		}
	default: // their documents do not change
		return nil
	}
	if len(a.Agents) > agentEventsMax {
		return []fleet.Event{e}
	}
	events := make([]fleet.Event, len(a.Agents))
	for i, id := range a.Agents {
		events[i] = e
		events[i].Subject = id
	}
	return events
}

// Status is an action with its state and its results, or a POLICY_CHANGE, which has no
// document.
type Status struct {
	fleet.Action
	// Policy is the revision of a POLICY_CHANGE; zero for other types.
	Policy fleet.PolicyAt
	State  fleet.ActionState
	Counts fleet.ResultCounts
	// Progress counts the agents of an UPGRADE by how it stands on them.
	Progress map[fleet.ProgressState]int
	// Causes count those on which it ended badly by the reason.
	Causes map[fleet.End]int
	// Unended is how many agents' upgrade has not ended, whatever they have acknowledged.
	Unended int
	Errors  []fleet.Result
	// Preparing is set while the order is being carried out. Then the action does not exist yet.
	Preparing *Preparing
}

// Done returns how many agents are done: of an upgrade, their watchers have committed.
func (s Status) Done() int {
	if s.Type == agentapi.ActionUpgrade {
		return s.Progress[fleet.ProgressCommitted]
	}
	return s.Counts.Acked
}

// Outcome is State, except that an upgrade is over only when it has ended on every agent.
func (s Status) Outcome() fleet.ActionState { return s.State.Outcome(s.Unended) }

// Stoppable returns on how many agents the upgrade has not ended, and their hosts do not run its
// version yet.
func (s Status) Stoppable() int { return s.Unended - s.Progress[fleet.ProgressWatching] }

// notListed are the types of actions that are not listed: a CANCEL shows in the state of the
// action that it cancels.
var notListed = []agentapi.ActionType{agentapi.ActionCancel}

// List returns the statuses of the actions that q selects, newest first, except notListed.
func (s *Service) List(ctx context.Context, q store.ActionQuery, errorSize int) ([]Status, error) {
	q.Except = append(slices.Clone(q.Except), notListed...)
	actions, err := s.Store.Actions().List(ctx, q)
	if err != nil {
		return nil, err
	}
	return s.statuses(ctx, actions, errorSize)
}

// Status returns the status of one action, or of a new revision of a policy.
func (s *Service) Status(ctx context.Context, id string, errorSize int) (Status, error) {
	prepared, err := s.preparingAction(ctx, id)
	if err != nil {
		return Status{}, err
	}
	a, err := s.Store.Actions().Get(ctx, id)
	switch {
	case fleet.KindOf(err) == fleet.NotFound && prepared != nil:
		return *prepared, nil
	case fleet.KindOf(err) == fleet.NotFound:
		return s.policyChange(ctx, id, err)
	}
	if err != nil {
		return Status{}, err
	}
	list, err := s.statuses(ctx, []fleet.Action{a}, errorSize)
	if err != nil {
		return Status{}, err
	}
	return list[0], nil
}

// statuses returns the status of each action, with at most errorSize errors.
func (s *Service) statuses(ctx context.Context, actions []fleet.Action, errorSize int) ([]Status, error) {
	ids := make([]string, len(actions))
	for i, a := range actions {
		ids[i] = a.ID
	}
	counts, err := s.Store.Results().Counts(ctx, ids)
	if err != nil {
		return nil, err
	}
	now := s.Now.UTC()
	out := make([]Status, len(actions))
	for i, a := range actions {
		out[i] = Status{Action: a, Counts: counts[a.ID], Errors: []fleet.Result{}}
	}
	if err := s.countProgress(ctx, out, now); err != nil {
		return nil, err
	}
	for i := range out {
		st := &out[i]
		st.State = st.StateAt(st.Counts, now)
		if st.Counts.Failed > 0 && errorSize > 0 {
			if st.Errors, err = s.Store.Results().Errors(ctx, st.ID, errorSize); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}
