// Package rollout implements what operators do with rollouts: create, preview, start,
// pause, resume, approve, cancel and roll back, and ask for explanations. The admin
// handlers call [Service], which writes a rollout's document. Package reconcile reads
// the document and executes it.
package rollout

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Service changes the documents of rollouts for operators.
type Service struct {
	Store   store.Store
	Actions *action.Service
	Events  *event.Stream
	Log     *slog.Logger
	Now     clock.Clock
	// Reconciler is signalled after each change, so that it need not wait for its next
	// round; it may be nil.
	Reconciler Reconciler
	// Manifests finds upgrade manifests; nil: there are none.
	UpgradeManifests UpgradeManifests
	// Policies may be nil; then no agent is inactive.
	Policies Policies
	// Renderer renders configuration files of components; nil: there are none.
	Renderer Renderer
	// Owners may be nil; then no agent belongs to a declared fleet.
	Owners action.Owners
	// Connections are those of the agents, as far as this server knows them; nil: not at all.
	Connections fleet.Connections
	// Defaults are for fields that the plans of operators, and those of automatic upgrades, leave
	// out. Plans of declared fleets do not get them, since an object means the same on every server.
	Defaults plan.Defaults
}

// Reconciler executes the documents of rollouts.
type Reconciler interface {
	// Signal requests a round now.
	Signal()
}

// Policies has the policies that agents belong to.
type Policies interface {
	// Timeouts returns the inactivity timeouts by policy.
	Timeouts(ctx context.Context) (map[string]time.Duration, error)
}

// Renderer renders the configuration files of components. The preview renders them for each
// target and pins their digest; an offer renders them again, and a host whose files differ by
// then does not get it.
type Renderer interface {
	// RenderFor returns the files of the plan's component for an agent of the policy, all of
	// them; none if the server renders none for it. For the same arguments it returns the
	// same files.
	RenderFor(ctx context.Context, p fleet.Plan, policy fleet.Policy, a *fleet.Agent) ([]agentapi.RenderedFile, error)
	// Digest identifies files by all that hosts write. It is what agents report of the same
	// files in rendered_sha256, so that a host that has them already is left out.
	Digest(files []agentapi.RenderedFile) string
}

// UpgradeManifests finds upgrade manifests.
type UpgradeManifests interface {
	Get(ctx context.Context, profile, id string) (plan.UpgradeManifest, error)
	List(ctx context.Context) ([]plan.UpgradeManifest, error)
}

// Request says who gives a command, and why.
type Request struct {
	Actor, Why string
	// Automatic marks what it creates as the server's own work.
	Automatic bool
	// TakeOver is the declared fleet whose agents a rollout is for, as in action.Claim.
	TakeOver string
}

// maxWhy bounds a reason, in bytes, because documents, audit entries and notifications
// repeat it.
const maxWhy = 2 << 10

// Check refuses a reason that is too long.
func (req Request) Check() error {
	if len(req.Why) > maxWhy {
		return fleet.FieldError("body.why", "has %d bytes, at most %d are accepted", len(req.Why), maxWhy)
	}
	return nil
}

// NeedWhy refuses a command that overrides a gate without a reason.
func (req Request) NeedWhy(ask string) error {
	if strings.TrimSpace(req.Why) != "" {
		return nil
	}
	return fleet.FieldError("body.why", "is missing: %s", ask)
}

func (req Request) decision(now time.Time) fleet.Decision {
	return fleet.Decision{By: req.Actor, At: now, Why: req.Why}
}

// keptPreviews is how many previews of a draft are stored: enough to compare with one
// that a colleague saw. One of 10,000 agents has some two megabytes.
const keptPreviews = 5

// Create creates a draft.
func (s *Service) Create(ctx context.Context, p fleet.Plan, req Request) (fleet.Rollout, error) {
	if err := req.Check(); err != nil {
		return fleet.Rollout{}, err
	}
	return s.create(ctx, fleet.Rollout{ID: fleet.NewID(), Plan: s.Defaults.Apply(p), Automatic: req.Automatic}, req)
}

// CreateMember creates the draft of a member of a group under an id that the group has
// chosen. Its plan was resolved when the group was created. A repeated call returns the same
// rollout.
func (s *Service) CreateMember(ctx context.Context, group, id string, p fleet.Plan, req Request) (fleet.Rollout, error) {
	return s.createAs(ctx, fleet.Rollout{ID: id, Group: group, Plan: p}, req)
}

// CreateDeclared creates the draft of a rollout that carries out a declared fleet, under an id
// that its reconciler has chosen. specHash is the rollout hash of its spec. A repeated call returns
// the same rollout, whatever its state.
func (s *Service) CreateDeclared(ctx context.Context, id, fleetName, specHash string, p fleet.Plan, req Request) (fleet.Rollout, error) {
	if err := req.Check(); err != nil {
		return fleet.Rollout{}, err
	}
	return s.createAs(ctx, fleet.Rollout{ID: id, Fleet: fleetName, SpecHash: specHash, Plan: p, Automatic: req.Automatic}, req)
}

// createAs creates a draft with the id, the owner and the plan of r, or returns the rollout that
// has the id. One of another owner is a conflict.
func (s *Service) createAs(ctx context.Context, r fleet.Rollout, req Request) (fleet.Rollout, error) {
	known, err := s.Store.Rollouts().Get(ctx, r.ID)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return s.create(ctx, r, req)
	case err != nil:
		return known, err
	case known.Group != r.Group || known.Fleet != r.Fleet || known.SpecHash != r.SpecHash:
		return known, fleet.Errorf(fleet.Conflict, "%s exists already, and was made for something else", plan.Title(&known))
	}
	return known, nil
}

// Resolve returns the plan complete and checked, as a rollout of it would be stored.
func (s *Service) Resolve(ctx context.Context, p fleet.Plan) (fleet.Plan, error) {
	return s.ResolveDeclared(ctx, s.Defaults.Apply(p))
}

// ResolveDeclared is Resolve for the plan of a declared fleet.
func (s *Service) ResolveDeclared(ctx context.Context, p fleet.Plan) (fleet.Plan, error) {
	err := s.complete(ctx, &p)
	return p, err
}

// create completes the plan of a rollout, checks it against the fleet, and stores the draft.
func (s *Service) create(ctx context.Context, r fleet.Rollout, req Request) (fleet.Rollout, error) {
	if err := s.complete(ctx, &r.Plan); err != nil {
		return fleet.Rollout{}, err
	}
	if err := s.checkFree(ctx, &r.Plan, ""); err != nil {
		return fleet.Rollout{}, err
	}
	if err := s.checkInForce(ctx, &r.Plan); err != nil {
		return fleet.Rollout{}, err
	}
	if err := s.checkOwned(ctx, &r, req); err != nil {
		return fleet.Rollout{}, err
	}
	now := s.Now.UTC()
	r.State, r.CreatedAt, r.CreatedBy = fleet.RolloutDraft, now, req.Actor
	if err := s.record(ctx, &r, "create", req, "created the draft of "+plan.Name(&r), now); err != nil {
		return fleet.Rollout{}, err
	}
	if err := s.Store.Rollouts().Create(ctx, r); err != nil {
		return fleet.Rollout{}, err
	}
	s.publish(ctx, fleet.EventRolloutCreated, &r, req, now)
	return r, nil
}

// complete resolves the plan and checks it.
func (s *Service) complete(ctx context.Context, p *fleet.Plan) error {
	var upgradeManifest *plan.UpgradeManifest
	component := p.Component
	if p.UpgradeID != "" {
		m, err := s.GetUpgradeManifest(ctx, p.Profile, p.UpgradeID)
		if err != nil {
			return err
		}
		upgradeManifest = &m
		component = cmp.Or(component, m.Component)
	}
	catalog, err := s.Actions.CatalogOf(ctx, component)
	if err != nil {
		return err
	}
	if upgradeManifest == nil && p.SourceURI == "" && len(p.Artifacts) == 0 {
		if err := s.Actions.CheckPublished(ctx, "body.plan.component", component, catalog); err != nil {
			return err
		}
	}
	if err := plan.Resolve(p, upgradeManifest, catalog); err != nil {
		return err
	}
	return plan.Check(p)
}

// checkFree refuses a plan that selects agents of a policy that an active rollout
// holds. Its start would be refused too, but now the operator can still change the
// plan. A rollout that the new one takes the place of may hold them.
func (s *Service) checkFree(ctx context.Context, p *fleet.Plan, replaces string) error {
	locked, err := s.locks().locked(ctx, p.Component, replaces)
	if err != nil || len(locked) == 0 {
		return err
	}
	chosen, err := s.selector(ctx, &p.Select, s.Now.UTC())
	if err != nil {
		return err
	}
	policies := map[string]bool{}
	err = store.EachOf(ctx, s.Store.Agents(), p.Component, func(a *fleet.Agent) {
		if _, ok := locked[a.PolicyID]; ok && !policies[a.PolicyID] && chosen.MatchesAgent(a) {
			policies[a.PolicyID] = true
		}
	})
	if err != nil || len(policies) == 0 {
		return err
	}
	ids := make([]string, 0, len(policies))
	for id := range policies {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return lockedError(p.Component, ids[0], locked[ids[0]])
}

// checkInForce refuses a plan that would bring hosts to another version than the one that is in
// force for their policy, except in lockstep. Their preview leaves them out too, but now the
// operator can still change the plan.
func (s *Service) checkInForce(ctx context.Context, p *fleet.Plan) error {
	if plan.Together(p.Strategy.Kind) {
		return nil
	}
	refused, err := s.Actions.InForceElsewhere(ctx, p.Component, p.Version)
	if err != nil || len(refused) == 0 {
		return err
	}
	chosen, err := s.selector(ctx, &p.Select, s.Now.UTC())
	if err != nil {
		return err
	}
	first := ""
	err = store.EachOf(ctx, s.Store.Agents(), p.Component, func(a *fleet.Agent) {
		subject := a.Of(p.Component)
		if refused[a.PolicyID] != nil && (first == "" || a.PolicyID < first) && subject.Version != p.Version && chosen.MatchesAgent(a) {
			first = a.PolicyID
		}
	})
	if err != nil || first == "" {
		return err
	}
	return fleet.FieldError("body.plan.strategy", "does not go with policy %s: %w", first, refused[first])
}

// selector compiles a selector for the current time.
func (s *Service) selector(ctx context.Context, sel *fleet.Selector, now time.Time) (plan.Selector, error) {
	at := plan.QueryTime{Now: now}
	if s.Policies != nil {
		var err error
		if at.Timeouts, err = s.Policies.Timeouts(ctx); err != nil {
			return plan.Selector{}, err
		}
	}
	return plan.NewSelector(sel, at)
}

func lockedError(component, policy string, h preview.LockOwner) *fleet.Error {
	e := fleet.Errorf(fleet.Conflict, "rollout %q (%s) is active on %s: wait until it has ended, or cancel it", h.Name, h.ID, fleet.PartOf(component, "policy "+policy))
	e.Code = errActiveRollout
	return e
}

// errActiveRollout is the code of the error that another rollout is active on the
// policy.
const errActiveRollout = "rollout_policy_locked"

// DryRun previews a plan without storing anything. What would refuse to create a draft is among
// the refusals.
func (s *Service) DryRun(ctx context.Context, p fleet.Plan) (fleet.Preview, error) {
	return s.DryRunMember(ctx, s.Defaults.Apply(p))
}

// DryRunMember is DryRun of the plan of a group's member, which was resolved when the group was
// created.
func (s *Service) DryRunMember(ctx context.Context, p fleet.Plan) (fleet.Preview, error) {
	return s.dryRun(ctx, fleet.Rollout{State: fleet.RolloutDraft, Plan: p})
}

// DryRunDeclared is DryRun of the rollout of a declared fleet, which takes the place of its rollout
// under way, if one is named.
func (s *Service) DryRunDeclared(ctx context.Context, fleetName, replaces string, p fleet.Plan) (fleet.Preview, error) {
	return s.dryRun(ctx, fleet.Rollout{ID: replaces, Fleet: fleetName, State: fleet.RolloutDraft, Plan: p})
}

func (s *Service) dryRun(ctx context.Context, r fleet.Rollout) (fleet.Preview, error) {
	if err := s.complete(ctx, &r.Plan); err != nil {
		return fleet.Preview{}, err
	}
	pre, err := s.preview(ctx, &r, Request{})
	if err != nil {
		return pre, err
	}
	pre.RolloutID = ""
	for _, check := range []error{s.checkFree(ctx, &r.Plan, r.ID), s.checkInForce(ctx, &r.Plan)} {
		if err := pre.Refuse(check); err != nil {
			return pre, err
		}
	}
	return pre, nil
}

// Preview previews a draft and stores the preview, so that the start can refer to its
// hash.
func (s *Service) Preview(ctx context.Context, id string) (fleet.Preview, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return fleet.Preview{}, err
	}
	if err := plan.CheckKnown(&r); err != nil {
		return fleet.Preview{}, err
	}
	if r.State != fleet.RolloutDraft {
		return fleet.Preview{}, fleet.Errorf(fleet.Conflict, "%s is %s: only drafts are previewed; what was started is preview %s", plan.Title(&r), r.State, r.Pin.Hash)
	}
	if r.RollbackOf != "" {
		return fleet.Preview{}, interruptedRollback(&r)
	}
	pre, err := s.preview(ctx, &r, Request{})
	if err != nil {
		return fleet.Preview{}, err
	}
	return pre, s.keep(ctx, id, pre)
}

// keep stores a preview under its hash, and drops the oldest of its rollout. The list
// of hashes is written before the new preview is stored and after the oldest is
// dropped, so a crash leaves a hash without a preview, never a preview that nothing
// drops.
func (s *Service) keep(ctx context.Context, id string, pre fleet.Preview) error {
	_, _, err := store.Change(ctx, store.WithGet(s.Store.Rollouts(), s.Get), id, func(r fleet.Rollout) (fleet.Rollout, error) {
		if r.State != fleet.RolloutDraft || r.Pin != nil {
			return r, nil // started meanwhile: only the pinned preview is kept
		}
		hashes := slices.DeleteFunc(slices.Clone(r.Previews), func(h string) bool { return h == pre.Hash })
		hashes = append(hashes, pre.Hash)
		for len(hashes) > keptPreviews {
			if err := s.dropPreview(ctx, id, hashes[0]); err != nil {
				return r, err
			}
			hashes = hashes[1:]
		}
		r.Previews = hashes
		return r, nil
	})
	if err != nil {
		return err
	}
	return s.putPreview(ctx, pre, true)
}

// putPreview stores a preview. Rollouts with the same plan share a hash and therefore a
// preview. It belongs to the rollout that was started with it, else to the one that was
// previewed last. The rollout's own is replaced only to update its times, since nothing
// else can differ.
func (s *Service) putPreview(ctx context.Context, pre fleet.Preview, fresh bool) error {
	_, _, err := store.Put(ctx, s.Store.Previews(), pre.Hash, func(old *fleet.Preview) (fleet.Preview, error) {
		if old == nil {
			return pre, nil
		}
		if old.RolloutID == pre.RolloutID && !fresh {
			return *old, nil
		}
		if theirs, err := s.pinnedBy(ctx, old.RolloutID, pre); err != nil || theirs {
			return *old, err
		}
		return pre, nil
	})
	return err
}

// pinnedBy reports whether another rollout was started with this preview.
func (s *Service) pinnedBy(ctx context.Context, id string, pre fleet.Preview) (bool, error) {
	if id == pre.RolloutID {
		return false, nil
	}
	owner, err := s.Store.Rollouts().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return false, nil
	}
	return owner.Pin != nil && owner.Pin.Hash == pre.Hash, err
}

// dropPreview removes a preview if it belongs to the rollout.
func (s *Service) dropPreview(ctx context.Context, id, hash string) error {
	pre, err := s.Store.Previews().Get(ctx, hash)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return nil
	case err != nil:
		return err
	case pre.RolloutID != id:
		return nil
	}
	return s.Store.Previews().Delete(ctx, hash)
}

// Delete removes a draft.
func (s *Service) Delete(ctx context.Context, id string, req Request) error {
	if err := req.Check(); err != nil {
		return err
	}
	r, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if refused := plan.CheckCommand(plan.CommandDelete, &r, plan.Around{}, s.Now.UTC()); refused != nil {
		return refused.Err(plan.Title(&r))
	}
	if err := store.RemoveOwned(ctx, s.Store, store.KindRollouts, &r); err != nil {
		return err
	}
	if err := s.record(ctx, &r, "delete", req, "deleted the draft", s.Now.UTC()); err != nil {
		return err
	}
	return s.Store.Rollouts().Delete(ctx, id)
}

// Get returns a rollout.
func (s *Service) Get(ctx context.Context, id string) (fleet.Rollout, error) {
	r, err := s.Store.Rollouts().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return r, fleet.Errorf(fleet.NotFound, "there is no rollout %s: `muster rollouts list` shows those there are", id)
	}
	leaveToNewer(&r)
	return r, err
}

// leaveToNewer adds to what a rollout waits for that this server leaves it alone, if it does;
// see plan.CheckKnown. The reason is not stored, since this server must not write the document.
func leaveToNewer(r *fleet.Rollout) {
	err := plan.CheckKnown(r)
	if err == nil || !r.State.Active() {
		return
	}
	since := r.CreatedAt
	if r.StartedAt != nil {
		since = *r.StartedAt
	}
	r.Waiting = append([]fleet.Wait{{Code: fleet.WhyNewerServer, Text: err.Error(), Since: since}}, r.Waiting...)
}

// List returns rollouts, newest first, and their total number.
func (s *Service) List(ctx context.Context, offset, limit int) ([]fleet.Rollout, int, error) {
	list, total, err := s.Store.Rollouts().List(ctx, offset, limit)
	for i := range list {
		leaveToNewer(&list[i])
	}
	return list, total, err
}

// ListTargets returns a page of a rollout's targets, and the total number.
func (s *Service) ListTargets(ctx context.Context, q store.TargetQuery) ([]fleet.Target, int, error) {
	if _, err := s.Get(ctx, q.RolloutID); err != nil {
		return nil, 0, err
	}
	return s.Store.Targets().List(ctx, q)
}

// TargetQuery selects one page of targets. No store has an index of reasons: who asks for one also
// asks for a state, and few targets fail.
type TargetQuery struct {
	store.TargetQuery
	Agent string // only the target that is this agent; empty: all
	Code  string // only those with this reason; empty: all
}

// FindTargets is ListTargets with a filter.
func (s *Service) FindTargets(ctx context.Context, q TargetQuery) (with []fleet.Target, total int, err error) {
	offset, limit := q.Offset, q.Limit
	switch {
	case q.Agent != "":
		with, err = s.TargetsOf(ctx, q.RolloutID, q.Agent)
	case q.Code != "":
		q.Offset, q.Limit = 0, fleet.MaxTargets
		with, _, err = s.ListTargets(ctx, q.TargetQuery)
	default:
		return s.ListTargets(ctx, q.TargetQuery)
	}
	with = slices.DeleteFunc(with, func(t fleet.Target) bool {
		return len(q.States) > 0 && !slices.Contains(q.States, t.State) || q.Batch != nil && t.Batch != *q.Batch || q.Code != "" && string(t.Code) != q.Code
	})
	return fleet.Part(with, offset, limit), len(with), err
}

// TargetsOf returns the targets that are agents, without those that are no targets of the rollout.
func (s *Service) TargetsOf(ctx context.Context, id string, agents ...string) ([]fleet.Target, error) {
	return s.Store.Targets().GetMany(ctx, id, agents)
}

// Trail returns the audit trail of a rollout, newest first; also of a deleted one.
func (s *Service) Trail(ctx context.Context, id string, offset, limit int) ([]fleet.AuditEntry, int, error) {
	return s.Store.Audit().List(ctx, store.AuditQuery{Subject: id, Offset: offset, Limit: limit})
}

// GetPreview returns a stored preview.
func (s *Service) GetPreview(ctx context.Context, hash string) (fleet.Preview, error) {
	pre, err := s.Store.Previews().Get(ctx, hash)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return pre, fleet.Errorf(fleet.NotFound, "preview %s is not kept (of a draft the last %d are, of what was started the pinned one): preview the rollout again", hash, keptPreviews)
	}
	return pre, err
}

// ListManifests returns all upgrade manifests.
func (s *Service) ListUpgradeManifests(ctx context.Context) ([]plan.UpgradeManifest, error) {
	if s.UpgradeManifests == nil {
		return []plan.UpgradeManifest{}, nil
	}
	return s.UpgradeManifests.List(ctx)
}

// GetManifest returns an upgrade manifest.
func (s *Service) GetUpgradeManifest(ctx context.Context, profile, id string) (plan.UpgradeManifest, error) {
	if s.UpgradeManifests == nil {
		return plan.UpgradeManifest{}, fleet.Errorf(fleet.NotFound, "there is no upgrade manifest %s/%s: this server has none", profile, id)
	}
	return s.UpgradeManifests.Get(ctx, profile, id)
}

// interruptedRollback returns the error for a command that the draft of a rollback,
// unlike other drafts, does not allow.
func interruptedRollback(r *fleet.Rollout) error {
	return fleet.Errorf(fleet.Conflict, "%s is a rollback whose start was interrupted: ask for the rollback of %s again", plan.Title(r), r.RollbackOf)
}

// record writes an audit entry. Its id is derived from what the command changes, so
// that a retried command writes no second one. It comes before the change: an entry
// without its change is better than a change without its entry.
func (s *Service) record(ctx context.Context, r *fleet.Rollout, verb string, req Request, text string, now time.Time) error {
	return s.Store.Audit().Append(ctx, []fleet.AuditEntry{{
		ID: r.ID + "-g" + strconv.FormatInt(r.Generation, 10) + "-" + verb + "-" + audit.By(req.Actor), At: now, Actor: req.Actor, Verb: "rollout." + verb, Subject: r.ID, Why: req.Why,
		Text: req.Actor + " " + text,
	}})
}

func (s *Service) publish(ctx context.Context, typ string, r *fleet.Rollout, req Request, now time.Time) {
	e := fleet.RolloutEvent(typ, r, now)
	e.Actor = req.Actor
	s.Events.Publish(ctx, e)
}

func (s *Service) signal() {
	if s.Reconciler != nil {
		s.Reconciler.Signal()
	}
}
