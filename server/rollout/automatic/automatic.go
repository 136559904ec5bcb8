// Package automatic upgrades the agents of policies that require versions, and installs the
// components of policies where no version of them is yet, or a host withholds its start because another
// version is in force. One server, the owner of a lease, looks at each such policy from time to
// time, lets [Decide] or [Install] choose agents, and starts a rollout for them. Upgrades to
// required versions begin inside the policy's windows, and the rollout's batches stay in them.
// Everything else is the rollout's: batches, failure threshold, freezes, exposure budget, and
// operators who pause or cancel it.
package automatic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/lease"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// Interval is between two rounds. Kibana's is half an hour; who has set a version wants
	// to see it begin. A round reads the agents of the policies that require versions, and
	// that no rollout locks.
	Interval = 5 * time.Minute
	// firstRound lets agents check in after a restart of the server.
	firstRound = time.Minute
	// withheldInterval is between two searches for hosts that withhold a start: nothing of the component runs
	// there, so they do not wait for a round. After each search the server rests withheldRest times
	// as long as it took, since it reads the agents of the policies with a version in force.
	withheldInterval = 10 * time.Second
	withheldRest     = 20
	// leaseID is the lease whose owner upgrades.
	leaseID = "automatic-upgrades"
	// minSpread is, as in Kibana, from how many agents on they are not upgraded all at once.
	minSpread = 10
	// maxFailed bounds the agents of one policy whose earlier attempts a round looks up,
	// with one read for each. The others wait.
	maxFailed = 1_000
	// attemptsRead bounds the attempts that are counted: more than are tried.
	attemptsRead = 20
	// draftsRead is among how many of the latest rollouts a draft is found whose start a
	// crash interrupted.
	draftsRead = 50
)

// Service upgrades the agents of policies that require versions.
type Service struct {
	Store    store.Store
	Rollouts *rollout.Service
	Lease    *lease.Owner
	Log      *slog.Logger
	Now      clock.Clock
}

// Run runs rounds, on the server that owns the lease, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	search, next := s.Now.UTC(), s.Now.UTC().Add(firstRound)
	lease.Rounds{Work: "automatic upgrades", Lease: s.Lease, Interval: withheldInterval, Log: s.Log}.Run(ctx, func(ctx context.Context) (err error) {
		began := s.Now.UTC()
		if !began.Before(search) {
			err = s.JoinWithheld(ctx)
			search = began.Add(withheldRest * s.Now.UTC().Sub(began))
		}
		if !began.Before(next) {
			err = errors.Join(err, s.Round(ctx))
			next = s.Now.UTC().Add(Interval)
		}
		return err
	})
}

// Round starts at most one rollout for each policy if this server owns the lease. It must
// not be called concurrently.
func (s *Service) Round(ctx context.Context) error {
	owned, err := s.Lease.Take(ctx, leaseID)
	if err != nil || !owned {
		return err
	}
	policies, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	timeouts := make(map[string]time.Duration, len(policies))
	var requiring, installing []fleet.Policy
	for _, p := range policies {
		timeouts[p.ID] = p.InactivityTimeout
		if len(p.RequiredVersions) > 0 && !p.Managed {
			requiring = append(requiring, p)
		}
		if !p.Managed && slices.ContainsFunc(p.Components, func(c agentapi.PolicyComponent) bool { return fleet.WantedVersion(c) != "" }) {
			installing = append(installing, p)
		}
	}
	if len(requiring)+len(installing) == 0 {
		return nil
	}
	if err := s.finishDrafts(ctx); err != nil {
		return err
	}
	for _, p := range installing {
		if err := s.install(ctx, &p, fleet.WantedVersion); err != nil {
			return fmt.Errorf("components of policy %s: %w", p.ID, err)
		}
	}
	catalog, err := s.Rollouts.Actions.Catalog(ctx)
	if err != nil {
		return err
	}
	locked, err := rollout.Locks{Store: s.Store}.OfPolicies(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range requiring {
		if _, busy := locked[p.ID]; busy {
			continue // a rollout of it is under way, or is paused
		}
		if err := s.upgrade(ctx, p, catalog, timeouts[p.ID]); err != nil {
			return fmt.Errorf("policy %s: %w", p.ID, err)
		}
	}
	return nil
}

func request(p *fleet.Policy) rollout.Request {
	return rollout.Request{Actor: "automatic upgrades of policy " + p.Name, Why: "the policy requires the version", Automatic: true}
}

// upgrade starts a rollout for the first required version that lacks agents. Those of the
// other versions follow when it has ended, since it locks the policy.
func (s *Service) upgrade(ctx context.Context, p fleet.Policy, catalog fleet.Catalog, inactivity time.Duration) error {
	now := s.Now.UTC()
	for _, v := range p.RequiredVersions {
		if !slices.ContainsFunc(catalog, func(p fleet.Package) bool { return p.Version == v.Version }) {
			s.Log.Warn("a policy requires a version that is not published: push it with `muster package push`", "policy", p.ID, "version", v.Version)
		}
	}
	if open, until := plan.OfferableAt(&fleet.Plan{Pace: fleet.Pace{Windows: p.UpgradeWindows}}, nil, now); !open {
		s.Log.Debug("automatic upgrades of a policy wait for its window", "policy", p.ID, "until", until)
		return nil // a rollout that only waits would hold the policy
	}
	members, err := s.members(ctx, p, catalog, inactivity, now)
	if err != nil {
		return err
	}
	for _, u := range Decide(p.RequiredVersions, members, now) {
		if u.Short > 0 {
			s.Log.Debug("a policy has too few agents that can be upgraded", "policy", p.ID, "version", u.Version, "short", u.Short)
		}
		if len(u.Agents) == 0 {
			continue
		}
		if started, err := s.tryStart(ctx, &p, planOf(&p, u)); err != nil || started {
			return err
		}
	}
	return nil
}

// tryStart is start that logs a refusal.
func (s *Service) tryStart(ctx context.Context, p *fleet.Policy, plan fleet.Plan) (started bool, err error) {
	started, err = s.start(ctx, p, plan)
	var refusal *fleet.Error
	if errors.As(err, &refusal) && refusal.Kind != fleet.Unavailable && refusal.Kind != fleet.Internal {
		// Such as an exposure budget that is used up, or a rollout that has taken the policy since.
		s.Log.Warn("an automatic upgrade waits", "policy", p.ID, "version", plan.What(plan.Version), "agents", len(plan.Select.Agents), "error", err)
		return false, nil
	}
	return started, err
}

// start starts a rollout. started is false if no agent would be upgraded.
func (s *Service) start(ctx context.Context, p *fleet.Policy, plan fleet.Plan) (started bool, err error) {
	req := request(p)
	// First without storing anything, so that what is refused leaves no trace every few
	// minutes.
	dry, err := s.Rollouts.DryRun(ctx, plan)
	if err != nil || len(dry.Targets) == 0 {
		return false, err
	}
	r, err := s.Rollouts.Create(ctx, plan, req)
	if err != nil {
		return false, err
	}
	pre, err := s.Rollouts.Begin(ctx, &r, true, func(*fleet.Preview) error { return nil }, req)
	if err != nil {
		return false, errors.Join(err, s.Rollouts.Delete(ctx, r.ID, req))
	}
	s.Log.Info("an automatic upgrade has begun", "policy", p.ID, "version", plan.What(plan.Version), "agents", len(pre.Targets), "rollout", r.ID)
	return true, nil
}

// maxPolicyName bounds the policy's name in the rollout's, which has a bound of its own.
const maxPolicyName = 100

func planOf(p *fleet.Policy, u Upgrade) fleet.Plan {
	return spread(fleet.Plan{
		Name: fmt.Sprintf("automatic upgrade of policy %s to %s", nameOf(p), u.Version), Version: u.Version,
		Select: fleet.Selector{Agents: u.Agents}, Pace: fleet.Pace{Windows: p.UpgradeWindows},
	})
}

func nameOf(p *fleet.Policy) string {
	if len(p.Name) > maxPolicyName {
		return strings.ToValidUTF8(p.Name[:maxPolicyName], "") + "…"
	}
	return p.Name
}

func spread(plan fleet.Plan) fleet.Plan {
	plan.Strategy.Kind = fleet.Rolling
	if len(plan.Select.Agents) < minSpread {
		plan.Strategy.Kind = fleet.AllAtOnce
	}
	return plan
}

// finishDrafts completes starts that a crash interrupted, and deletes drafts that were not
// started at all.
func (s *Service) finishDrafts(ctx context.Context) error {
	latest, _, err := s.Store.Rollouts().List(ctx, 0, draftsRead)
	if err != nil {
		return err
	}
	for _, r := range latest {
		if !r.Automatic || r.State != fleet.RolloutDraft || r.RollbackOf != "" {
			continue
		}
		req := rollout.Request{Actor: r.CreatedBy, Why: "a restart interrupted its start", Automatic: true}
		if r.Pin == nil {
			err = s.Rollouts.Delete(ctx, r.ID, req)
		} else {
			_, err = s.Rollouts.Start(ctx, r.ID, r.Pin.Hash, true, req)
		}
		if err != nil {
			return fmt.Errorf("finish the rollout %s: %w", r.ID, err)
		}
	}
	return nil
}

// members reads the agents of a policy, except those that are inactive or gone.
func (s *Service) members(ctx context.Context, p fleet.Policy, catalog fleet.Catalog, inactivity time.Duration, now time.Time) ([]Member, error) {
	var members []Member
	owned, err := s.owned(ctx, "")
	if err != nil {
		return nil, err
	}
	err = s.Store.Agents().Each(ctx, store.AgentFilter{PolicyID: p.ID, ActiveOnly: true}, func(a fleet.Agent) {
		switch a.Facts().StatusAt(now, inactivity) {
		case fleet.StatusInactive, fleet.StatusUnenrolled, fleet.StatusUninstalled:
		default:
			if owned(&a) {
				return
			}
			members = append(members, memberOf(&a, p.RequiredVersions, catalog))
		}
	})
	if err != nil {
		return nil, err
	}
	looked := 0
	for i := range members {
		m := &members[i]
		if m.Failed == "" {
			continue
		}
		m.LastAttempt = now // not due
		if looked++; looked > maxFailed {
			continue
		}
		targets, err := s.Store.Targets().ByAgent(ctx, m.ID, attemptsRead)
		if err != nil {
			return nil, err
		}
		m.Attempts, m.LastAttempt = attempts(targets, m.Failed)
	}
	return members, nil
}

// owned returns a function that reports whether a declared fleet decides about a component of an
// agent, or about the agent itself: the requirements of its policy do not matter then.
func (s *Service) owned(ctx context.Context, component string) (func(*fleet.Agent) bool, error) {
	if s.Rollouts.Owners == nil {
		return func(*fleet.Agent) bool { return false }, nil
	}
	of, err := s.Rollouts.Owners.Of(ctx, component)
	return func(a *fleet.Agent) bool { return of != nil && of(a) != "" }, err
}

func memberOf(a *fleet.Agent, required []fleet.RequiredVersion, catalog fleet.Catalog) Member {
	m := Member{ID: a.ID, Version: a.Version, Key: fleet.VersionKey(a.Version), Accepts: make([]bool, len(required))}
	switch {
	case a.Upgrading():
		m.Going = a.UpgradeTo
	case a.UpgradeStatus == fleet.UpgradeFailed || a.UpgradeStatus == fleet.UpgradeRolledBack:
		m.Failed = a.UpgradeTo
	}
	for i, v := range required {
		m.Accepts[i] = a.CheckUpgrade(fleet.UpgradeRequest{Version: v.Version}, catalog) == nil
	}
	return m
}

// attempts counts an agent's targets that ended badly at a version. An upgrade outside of
// rollouts is one attempt of long ago.
func attempts(targets []fleet.Target, version string) (n int, last time.Time) {
	for i := range targets {
		t := &targets[i]
		if t.To != version || t.EndedAt == nil || t.State != fleet.TargetFailed && t.State != fleet.TargetRolledBack {
			continue
		}
		n++
		if t.EndedAt.After(last) {
			last = *t.EndedAt
		}
	}
	return n, last
}
