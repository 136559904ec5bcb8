// Package group upgrades several things one after the other: each member of a group is a
// rollout, which the group creates, previews and starts through the service of rollouts
// when the member before it is done, so that all rules of rollouts hold. [Decide] decides
// the next step; the server that owns the lease executes it, and operators change the
// group's document through [Service].
package group

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/lease"
)

// system is the actor of what no person decided.
const system = fleet.System

// Config is what a service depends on.
type Config struct {
	Store    store.Store
	Rollouts *rollout.Service
	Lease    *lease.Owner
	Events   *event.Stream
	Log      *slog.Logger
	Now      clock.Clock
}

// Service changes groups for operators, and executes them.
type Service struct {
	Config
	wake    chan struct{}
	changed atomic.Bool // an operator has changed a group since the last round
	known   []string    // the active groups, as of the last complete read
	readAt  time.Time
	// nextEnded is where the next correction of groups that ended long ago begins.
	nextEnded int
}

// New returns a service. Groups advance while its Run is running.
func New(c Config) *Service { return &Service{Config: c, wake: make(chan struct{}, 1)} }

func decision(req rollout.Request, now time.Time) *fleet.Decision {
	return &fleet.Decision{By: req.Actor, At: now, Why: req.Why}
}

// title names a group for a sentence.
func title(g *fleet.RolloutGroup) string { return "group “" + g.Plan.Name + "” (" + g.ID + ")" }

// Create creates a draft. The plans of its members are resolved and checked, and stored
// complete.
func (s *Service) Create(ctx context.Context, p fleet.GroupPlan, req rollout.Request) (fleet.RolloutGroup, error) {
	if err := req.Check(); err != nil {
		return fleet.RolloutGroup{}, err
	}
	if err := Check(&p); err != nil {
		return fleet.RolloutGroup{}, err
	}
	now := s.Now.UTC()
	g := fleet.RolloutGroup{ID: fleet.NewID(), State: fleet.GroupDraft, CreatedAt: now, CreatedBy: req.Actor}
	p.Members = slices.Clone(p.Members)
	for i := range p.Members {
		m := &p.Members[i]
		m.Plan.Version = p.DesiredVersions[m.Name]
		if m.Plan.Name == "" {
			m.Plan.Name = nameOf(p.Name, m.Name)
		}
		var err error
		if m.Plan, err = s.Rollouts.Resolve(ctx, m.Plan); err != nil {
			return fleet.RolloutGroup{}, inMember(err, i)
		}
		g.Members = append(g.Members, fleet.GroupMember{Name: m.Name, State: fleet.MemberPending})
	}
	g.Plan = p
	if err := s.record(ctx, &g, "create", req, "created the draft of "+title(&g), now); err != nil {
		return fleet.RolloutGroup{}, err
	}
	if err := s.Store.RolloutGroups().Create(ctx, g); err != nil {
		return fleet.RolloutGroup{}, err
	}
	s.publish(ctx, fleet.EventGroupCreated, &g, req.Actor, now)
	return g, nil
}

// nameOf returns the name of a member's rollout, within the bound of such names.
func nameOf(group, member string) string {
	const most = maxName - 70 // a member's name has at most 60 bytes
	if len(group) > most {
		group = strings.ToValidUTF8(group[:most], "") + "…"
	}
	return group + ": " + member
}

// inMember names the member in an error about the plan of its rollout.
func inMember(err error, i int) error {
	var e *fleet.Error
	if !errors.As(err, &e) {
		return err
	}
	named := *e
	if rest, ok := strings.CutPrefix(e.Field, "body.plan."); ok {
		named.Field = field("members[%d].plan.%s", i, rest)
	} else {
		named.Message = fmt.Sprintf("members[%d]: %s", i, e.Message)
	}
	return &named
}

// Get returns a group.
func (s *Service) Get(ctx context.Context, id string) (fleet.RolloutGroup, error) {
	g, err := s.Store.RolloutGroups().Get(ctx, id)
	if err != nil && fleet.KindOf(err) == fleet.NotFound {
		return g, fleet.Errorf(fleet.NotFound, "there is no group %s: `muster groups list` shows those there are", id)
	}
	return g, err
}

// List returns groups, newest first, and their total number.
func (s *Service) List(ctx context.Context, offset, limit int) ([]fleet.RolloutGroup, int, error) {
	return s.Store.RolloutGroups().List(ctx, offset, limit)
}

// Status returns a group with the progress of its members, and what it waits for.
func (s *Service) Status(ctx context.Context, id string) (fleet.GroupStatus, error) {
	g, err := s.Get(ctx, id)
	if err != nil {
		return fleet.GroupStatus{}, err
	}
	seen, err := s.look(ctx, &g)
	if err != nil {
		return fleet.GroupStatus{}, err
	}
	step := Decide(&g, seen, s.Now.UTC())
	st := fleet.GroupStatus{RolloutGroup: g, Commands: Commands(&g), Waiting: step.Text, Until: step.Until, Progress: make([]fleet.GroupProgress, len(g.Members))}
	for i, m := range g.Members {
		p := fleet.GroupProgress{Name: m.Name, State: m.State, Version: g.Plan.DesiredVersions[m.Name]}
		if r := seen[i].Rollout; r != nil {
			counts := r.Counts
			p.RolloutState, p.Counts, p.Stop, p.Waiting = r.State, &counts, r.Stop, r.Waiting
		}
		if b := seen[i].Rollback; b != nil {
			p.RollbackID = b.ID
		}
		st.Progress[i] = p
	}
	return st, nil
}

// Preview previews all members of a draft as of now. It stores their hashes, so that the
// start can say which member has changed.
func (s *Service) Preview(ctx context.Context, id string) (fleet.GroupPreview, error) {
	var pre fleet.GroupPreview
	_, _, err := store.Change(ctx, store.WithGet(s.Store.RolloutGroups(), s.Get), id, func(g fleet.RolloutGroup) (fleet.RolloutGroup, error) {
		if g.State != fleet.GroupDraft {
			return g, fleet.Errorf(fleet.Conflict, "%s is %s: only drafts are previewed", title(&g), g.State)
		}
		var err error
		if pre, err = s.preview(ctx, &g); err != nil {
			return g, err
		}
		remember(&g, &pre)
		return g, nil
	})
	return pre, err
}

func remember(g *fleet.RolloutGroup, pre *fleet.GroupPreview) {
	g.Hash = pre.Hash
	g.Members = slices.Clone(g.Members)
	for i := range g.Members {
		g.Members[i].Hash = pre.Members[i].Hash
	}
}

// preview previews each member. Only summaries are kept, since a preview of a large fleet
// has tens of megabytes.
func (s *Service) preview(ctx context.Context, g *fleet.RolloutGroup) (fleet.GroupPreview, error) {
	out := fleet.GroupPreview{GroupID: g.ID, At: s.Now.UTC()}
	sum := sha256.New()
	fmt.Fprintf(sum, "group of rollouts\n%s\n%t\n", g.Plan.FailurePolicy, g.Plan.AcceptDrift)
	for i := range g.Plan.Members {
		m := &g.Plan.Members[i]
		pre, err := s.Rollouts.DryRunMember(ctx, m.Plan)
		if err != nil {
			return out, inMember(err, i)
		}
		warnings := slices.Clip(append([]string{}, pre.Warnings...))
		for _, refused := range pre.Refusals { // that of a later member may be over by then
			warnings = append(warnings, "as things are now, its start would be refused: "+refused.Text)
		}
		fmt.Fprintf(sum, "%s %s %s\n", m.Name, m.Soak, pre.Hash)
		out.Members = append(out.Members, fleet.GroupMemberPreview{
			Name: m.Name, Version: m.Plan.Version, Hash: pre.Hash, Targets: len(pre.Targets), Skipped: len(pre.Skipped), Batches: len(pre.Batches),
			LeftOut: preview.LeftOut(pre.Skipped), Offline: pre.Offline, AtLeast: pre.AtLeast, Estimate: pre.Estimate, Warnings: warnings,
		})
		out.AtLeast, out.Estimate = out.AtLeast+pre.AtLeast, out.Estimate+pre.Estimate
		if i < len(g.Plan.Members)-1 {
			out.AtLeast, out.Estimate = out.AtLeast+m.Soak, out.Estimate+m.Soak
		}
	}
	out.Hash = "sha256:" + hex.EncodeToString(sum.Sum(nil))
	return out, nil
}

// Start starts a draft as previewed, or with acceptDrift with the fleet as it is now. A
// repeated call returns the started group.
func (s *Service) Start(ctx context.Context, id, hash string, acceptDrift bool, req rollout.Request) (fleet.RolloutGroup, error) {
	if hash == "" {
		return fleet.RolloutGroup{}, fleet.FieldError("body.hash", "is missing: preview the group, and start it with the preview's hash")
	}
	g, err := s.Get(ctx, id)
	if err != nil {
		return g, err
	}
	if g.State != fleet.GroupDraft {
		if g.Hash != hash && !acceptDrift {
			return g, fleet.Errorf(fleet.Conflict, "%s was started with preview %s, not with %s: make another group for another plan", title(&g), g.Hash, hash)
		}
		return g, nil
	}
	pre, err := s.preview(ctx, &g)
	if err != nil {
		return g, err
	}
	if err := startable(&g, &pre, hash, acceptDrift); err != nil {
		return g, err
	}
	return s.command(ctx, id, req, command{verb: "start", event: fleet.EventGroupStarted, decide: func(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (string, error) {
		if g.State != fleet.GroupDraft {
			return "", nil
		}
		remember(g, &pre)
		g.State, g.StartedAt, g.StartedBy = fleet.GroupRunning, &now, req.Actor
		return fmt.Sprintf("started it with %s", plan.Count(len(g.Members), "member", "members")), nil
	}})
}

// startable returns why a draft cannot be started with the preview as of now.
func startable(g *fleet.RolloutGroup, pre *fleet.GroupPreview, hash string, acceptDrift bool) error {
	if pre.Hash != hash && !acceptDrift {
		var changed []string
		for i := range g.Members {
			if g.Members[i].Hash != pre.Members[i].Hash {
				changed = append(changed, g.Members[i].Name)
			}
		}
		about := ""
		if len(changed) > 0 {
			about = ", of " + fleet.List(changed)
		}
		e := fleet.Errorf(fleet.Conflict, "the fleet has changed since the preview%s: look at the new preview and start with its hash, or accept the drift", about)
		e.Code = ErrDrift
		return e
	}
	for i := range pre.Members {
		if pre.Members[i].Targets == 0 {
			return fleet.Errorf(fleet.Conflict, "member %s would upgrade no agent (%s): leave it out, or change what it selects", pre.Members[i].Name, cmp.Or(pre.Members[i].LeftOut, "none matches"))
		}
	}
	return nil
}

// command is one operation of operators, as in package rollout: decide changes the group
// and returns what follows the actor's name in the audit trail, or an empty text if there
// is nothing to change. It may be called several times.
type command struct {
	verb   string
	name   string // that checkCommand knows; empty: decide checks it
	decide func(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (text string, err error)
	event  string // empty means progress
}

// apply carries out a command on a group if it is possible.
func (c command) apply(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (text string, err error) {
	if c.name == "" {
		return c.decide(g, req, now)
	}
	switch refused := checkCommand(c.name, g); {
	case refused != nil && refused.Done:
		return "", nil
	case refused != nil:
		return "", refused.Err(title(g))
	}
	if why := needsReason(c.name, g); why != "" {
		if err := req.NeedWhy(why); err != nil {
			return "", err
		}
	}
	return c.decide(g, req, now)
}

func (s *Service) command(ctx context.Context, id string, req rollout.Request, c command) (fleet.RolloutGroup, error) {
	if err := req.Check(); err != nil {
		return fleet.RolloutGroup{}, err
	}
	var (
		now    time.Time
		before fleet.GroupState
		text   string
	)
	g, written, err := store.Change(ctx, store.WithGet(s.Store.RolloutGroups(), s.Get), id, func(was fleet.RolloutGroup) (_ fleet.RolloutGroup, err error) {
		g := was
		g.Members = slices.Clone(g.Members)
		now, before = s.Now.UTC(), g.State
		if text, err = c.apply(&g, req, now); err != nil || text == "" {
			return was, err
		}
		g.Generation++
		return g, nil
	}, func(_, g fleet.RolloutGroup) error { return s.record(ctx, &g, c.verb, req, text, now) })
	if written {
		typ := c.event
		if typ == "" || g.State == before {
			typ = fleet.EventGroupProgress
		}
		s.publish(ctx, typ, &g, req.Actor, now)
		s.signal()
	}
	return g, err
}

// Pause starts no more members, and pauses the rollout of the current one after its batch,
// or at once.
func (s *Service) Pause(ctx context.Context, id string, atOnce bool, req rollout.Request) (fleet.RolloutGroup, error) {
	return s.command(ctx, id, req, command{verb: "pause", name: pauseName(atOnce), event: fleet.EventGroupPaused, decide: func(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (string, error) {
		return pause(g, atOnce, req, now)
	}})
}

func pauseName(atOnce bool) string {
	if atOnce {
		return commandPauseNow
	}
	return commandPause
}

func pause(g *fleet.RolloutGroup, atOnce bool, req rollout.Request, now time.Time) (string, error) {
	text := req.Actor + " paused it"
	if why := strings.TrimSpace(req.Why); why != "" {
		text += ": " + why
	}
	g.State, g.Resume = fleet.GroupPaused, nil
	g.Stop = &fleet.GroupStop{Kind: fleet.GroupStopOperator, Text: text, By: req.Actor, At: now, AtOnce: atOnce}
	if atOnce {
		return "paused it, and the rollout of its member at once", nil
	}
	return "paused it", nil
}

// Resume continues a paused group, with the rollout of its current member. After a failure
// or a drift it needs a reason, and accepts them.
func (s *Service) Resume(ctx context.Context, id string, req rollout.Request) (fleet.RolloutGroup, error) {
	return s.command(ctx, id, req, command{verb: "resume", name: commandResume, event: fleet.EventGroupResumed, decide: resume})
}

func resume(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (string, error) {
	if stop := g.Stop; stop != nil && stop.Kind == fleet.GroupStopDrift {
		if m := member(g, stop.Member); m != nil {
			m.AcceptDrift = true
		}
	}
	if g.RollingBack != nil {
		g.State, g.Stop = fleet.GroupRollingBack, nil
		return "resumed its rollback", nil
	}
	// The stop stays until the order is executed, since it says what the order accepts.
	g.State, g.Resume = fleet.GroupRunning, decision(req, now)
	return "resumed it", nil
}

func member(g *fleet.RolloutGroup, name string) *fleet.GroupMember {
	for i := range g.Members {
		if g.Members[i].Name == name {
			return &g.Members[i]
		}
	}
	return nil
}

// Cancel starts no more members and cancels the rollout of the current one. What is
// upgraded stays upgraded.
func (s *Service) Cancel(ctx context.Context, id string, req rollout.Request) (fleet.RolloutGroup, error) {
	return s.command(ctx, id, req, command{verb: "cancel", name: commandCancel, decide: cancel})
}

func cancel(g *fleet.RolloutGroup, _ rollout.Request, _ time.Time) (string, error) {
	g.State, g.Stop, g.Resume = fleet.GroupCancelling, nil, nil
	return "cancelled it; upgrades under way still end", nil
}

// Rollback rolls back all members that have begun, in reverse order. A group can be rolled
// back after it has ended too.
func (s *Service) Rollback(ctx context.Context, id string, req rollout.Request) (fleet.RolloutGroup, error) {
	return s.command(ctx, id, req, command{verb: "rollback", name: commandRollback, event: fleet.EventGroupRollbackStarted, decide: rollBack})
}

func rollBack(g *fleet.RolloutGroup, req rollout.Request, now time.Time) (string, error) {
	g.State, g.RollingBack = fleet.GroupRollingBack, decision(req, now)
	g.Stop, g.Resume, g.EndedAt = nil, nil, nil
	return "began to roll back all members", nil
}

// Skip leaves a member out, and the group goes on if that member had stopped it. A rollout
// of the member that is under way is cancelled. During a rollback the member keeps its
// version.
func (s *Service) Skip(ctx context.Context, id, name string, req rollout.Request) (fleet.RolloutGroup, error) {
	return s.command(ctx, id, req, command{verb: "skip", event: fleet.EventGroupResumed, decide: func(g *fleet.RolloutGroup, req rollout.Request, _ time.Time) (string, error) {
		return skip(g, name, req)
	}})
}

func skip(g *fleet.RolloutGroup, name string, req rollout.Request) (string, error) {
	m := member(g, name)
	if m == nil {
		return "", fleet.FieldError("body.member", "is %q, which is no member of %s", name, title(g))
	}
	switch refused := checkMember(g, m); {
	case refused != nil && refused.Done:
		return "", nil
	case refused != nil:
		return "", refused.Err(title(g))
	}
	stopped := stoppedAt(g, name)
	if g.RollingBack != nil && g.State.Active() {
		m.State, g.State, g.Stop = fleet.MemberKept, fleet.GroupRollingBack, nil
		return "left " + name + " out of the rollback", nil
	}
	if stopped {
		if why := needsReason(commandSkip, g); why != "" {
			if err := req.NeedWhy(why); err != nil {
				return "", err
			}
		}
		g.State, g.Stop = fleet.GroupRunning, nil
	}
	m.State = fleet.MemberSkipped
	return "left out " + name, nil
}

// Delete removes a draft.
func (s *Service) Delete(ctx context.Context, id string, req rollout.Request) error {
	if err := req.Check(); err != nil {
		return err
	}
	g, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	if refused := checkCommand(commandDelete, &g); refused != nil {
		return refused.Err(title(&g))
	}
	if err := s.record(ctx, &g, "delete", req, "deleted the draft", s.Now.UTC()); err != nil {
		return err
	}
	return s.Store.RolloutGroups().Delete(ctx, id)
}

// record writes an audit entry before the change. Its id is derived from what the command
// changes, so that a retried command writes no second one.
func (s *Service) record(ctx context.Context, g *fleet.RolloutGroup, verb string, req rollout.Request, text string, now time.Time) error {
	return s.Store.Audit().Append(ctx, []fleet.AuditEntry{{
		ID: g.ID + "-g" + strconv.FormatInt(g.Generation, 10) + "-" + verb + "-" + audit.By(req.Actor), At: now, Actor: req.Actor, Verb: "group." + verb, Subject: g.ID, Why: req.Why,
		Text: req.Actor + " " + text,
	}})
}

func (s *Service) publish(ctx context.Context, typ string, g *fleet.RolloutGroup, actor string, now time.Time) {
	e := fleet.GroupEvent(typ, g, now)
	if actor != system {
		e.Actor = actor
	}
	s.Events.Publish(ctx, e)
}

func (s *Service) signal() {
	s.changed.Store(true)
	select {
	case s.wake <- struct{}{}:
	default: // a round is due anyway
	}
}
