// Package explain explains why an agent runs its version and not that of a rollout, now
// or at a past time, as a chain of reasons from the most general to the most specific.
// It does no I/O: package rollout passes it the documents and the audit trail.
package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Explanation is why an agent runs its version and not that of a rollout.
type Explanation struct {
	AgentID string    `json:"agent_id"`
	At      time.Time `json:"at"`
	// Absent if no rollout is concerned
	RolloutID   string `json:"rollout_id,omitempty"`
	RolloutName string `json:"rollout_name,omitempty"`
	// The answer in one sentence
	Summary string `json:"summary"`
	// The reasons, broadest first
	Chain []Reason `json:"chain"`
	// What will change the situation, or what to do
	Next string `json:"next,omitempty"`
}

// Reason is one link of an explanation. Its code is empty if it only states a fact.
type Reason struct {
	Code  fleet.ReasonCode `json:"code" example:"soak"`
	Text  string           `json:"text"`
	Since *time.Time       `json:"since,omitempty"`
	Until *time.Time       `json:"until,omitempty"`
}

// moment is the state of a rollout at a time.
type moment struct {
	plan.TrailData
	since time.Time // when it came into this state, as far as is known
	// blocked is what prevents an offer to a target that is due for one; empty if that
	// is not known, or the target is not due.
	blocked fleet.ReasonCode
}

// momentAt returns the state of a rollout at a time. A started rollout without an entry
// before that time was running.
func momentAt(r *fleet.Rollout, trail []fleet.AuditEntry, at, now time.Time) moment {
	switch {
	case r.EndedAt != nil && !at.Before(*r.EndedAt):
		return moment{TrailData: plan.TrailData{State: r.State, Batch: plan.CurrentBatch(r)}, since: *r.EndedAt}
	case r.StartedAt == nil || at.Before(*r.StartedAt):
		return moment{TrailData: plan.TrailData{State: fleet.RolloutDraft}, since: r.CreatedAt}
	case !at.Before(now):
		m := moment{TrailData: plan.TrailOf(r), since: *r.StartedAt}
		if r.Stop != nil {
			m.since = r.Stop.At
		}
		return m
	}
	m := moment{TrailData: plan.TrailData{State: fleet.RolloutRunning}, since: *r.StartedAt}
	var latest *fleet.AuditEntry
	for i := range trail {
		e := &trail[i]
		if e.Verb != plan.VerbStep || e.At.After(at) || (latest != nil && !e.At.After(latest.At)) {
			continue
		}
		var d plan.TrailData
		if json.Unmarshal(e.Data, &d) != nil || d.State == "" {
			continue // another version wrote it in another form
		}
		latest, m = e, moment{TrailData: d, since: e.At}
	}
	if m.Stop != nil {
		m.since = m.Stop.At
	}
	return m
}

// targetAt returns a target as it was at a time, by its history.
func targetAt(t fleet.Target, at, now time.Time) fleet.Target {
	if !at.Before(now) {
		return t
	}
	was := t
	was.State, was.Phase, was.Code, was.Error = fleet.TargetPending, "", "", ""
	was.EndedAt, was.ExpiresAt = nil, nil
	for _, h := range t.History {
		if h.At.After(at) {
			break
		}
		was.State, was.Phase, was.Code, was.Error = h.State, h.Phase, h.Code, h.Error
		if h.State.Ended() {
			was.EndedAt = &h.At
		}
	}
	if t.OfferedAt != nil && t.OfferedAt.After(at) {
		was.OfferedAt = nil
	}
	if t.ReachedAt != nil && t.ReachedAt.After(at) {
		was.ReachedAt = nil
	}
	if was.State == t.State {
		was.ExpiresAt = t.ExpiresAt
	}
	return was
}

// Target explains why a target of a rollout runs its version, at a time. a is the
// agent's document, which only shows its present state; nil if it was deleted. trail
// has the rollout's audit entries up to that time. blocked is what prevents an offer to
// a target that is due for one; empty if that is not known, or the target is not due.
func Target(r *fleet.Rollout, t fleet.Target, a *fleet.Agent, trail []fleet.AuditEntry, blocked fleet.ReasonCode, at, now time.Time) Explanation {
	m := momentAt(r, trail, at, now)
	m.blocked = blocked
	t = targetAt(t, at, now)
	e := explanationOf(r, t.AgentID, at)
	e.addState(r, m)
	waits := !t.State.Ended() && m.State == fleet.RolloutRunning
	if waits {
		for _, w := range m.Waiting {
			e.add(Reason{Code: w.Code, Text: w.Text, Since: &w.Since, Until: w.Until})
		}
	}
	e.add(batchReason(r, &t, m, at))
	last := targetReason(r, &t, m)
	if t.State == fleet.TargetPending && (t.Code == fleet.WhyStale || t.Code == fleet.WhyNoProgress) && last.Code != t.Code {
		e.add(Reason{Code: t.Code, Text: "its attempt before failed: " + plan.ReasonText(t.Code)})
	}
	e.add(last)
	if a != nil && !at.Before(now) {
		for _, link := range agentReasons(a, r.Plan.Component, &t, now) {
			e.add(link)
		}
	}
	if a == nil {
		e.add(Reason{Code: fleet.WhyGone, Text: "there is no document of the agent any more"})
	}
	e.Summary = summary(r, &t, last)
	e.Next = plan.ReasonNext(last.Code)
	if until := plan.CancelDeadline(&t, a, &r.Plan); !until.IsZero() && !at.Before(now) {
		e.unconfirmed(r, &t, until, now)
		return e
	}
	if t.State == fleet.TargetOffered || t.State == fleet.TargetUpgrading {
		e.noteStanding(r, &t, a, now)
	}
	if last.Code != fleet.WhyStuck { // repair comes before any version
		e.reconsider(r, a)
	}
	return e
}

// unconfirmed explains a target whose offer was withdrawn, and whose host has not confirmed that.
func (e *Explanation) unconfirmed(r *fleet.Rollout, t *fleet.Target, until, now time.Time) {
	link := Reason{Code: fleet.WhyUnconfirmed, Text: plan.ReasonText(fleet.WhyUnconfirmed)}
	if until.After(now) {
		link.Until = &until
	}
	e.add(link)
	e.Summary = fmt.Sprintf("%s was offered %s by %s, and the offer was withdrawn: %s", nameOf(r.Plan.Component, t.Hostname), t.To, plan.Title(r), link.Text)
	e.Next = plan.ReasonNext(link.Code)
}

// noteStanding adds that the upgrade of a target does not move, and until when the rollout waits
// for it.
func (e *Explanation) noteStanding(r *fleet.Rollout, t *fleet.Target, a *fleet.Agent, now time.Time) {
	if a == nil || plan.Together(r.Plan.Strategy.Kind) {
		return
	}
	s := a.Of(r.Plan.Component)
	since, bound := s.Moved(), plan.StallAfter(&s, &r.Plan)
	if since.IsZero() || s.UpgradeActionID != t.ActionID || now.Sub(since) < bound/fleet.StallFactor {
		return
	}
	until := since.Add(bound)
	e.add(Reason{Code: fleet.WhyNoProgress, Text: "it has made no progress since then", Since: &since, Until: &until})
	e.Next = fmt.Sprintf("If it has not moved by %s, it fails and the rollout goes on without it. Look at the agent's log and at its source of packages on the host.", timeText(until))
}

// reconsider replaces advice to bring the rollout's version to an agent on whose host it
// failed.
func (e *Explanation) reconsider(r *fleet.Rollout, a *fleet.Agent) {
	if a == nil || e.Next == "" || r.Plan.Force || r.RollbackOf != "" {
		return
	}
	subject := a.Of(r.Plan.Component)
	if _, failed := subject.FailedBefore(r.Plan.Version); failed && subject.Version != r.Plan.Version {
		e.Next = plan.ReasonNext(fleet.WhyFailedBefore)
	}
}

// nameOf names an agent by its host, or its component.
func nameOf(component, host string) string {
	if component == "" {
		return host
	}
	return component + " on " + host
}

func explanationOf(r *fleet.Rollout, agentID string, at time.Time) Explanation {
	return Explanation{AgentID: agentID, At: at, RolloutID: r.ID, RolloutName: r.Plan.Name, Chain: []Reason{}}
}

func (e *Explanation) add(r Reason) { e.Chain = append(e.Chain, r) }

// Depart lets the explanation of an agent that has left say so first: nothing is done about it any
// more, and no order reaches it.
func (e *Explanation) Depart(a *fleet.Agent) {
	left, ok := a.Left()
	if !ok {
		return
	}
	e.Summary = fmt.Sprintf("%s %s; before that: %s", a.Hostname(), left.Text, e.Summary)
	e.Next = "Enrol the host again if it is to follow orders."
}

// addState adds the state of the rollout, and who declared it.
func (e *Explanation) addState(r *fleet.Rollout, m moment) {
	e.add(stateReason(r, m))
	if r.Fleet != "" {
		e.add(Reason{Text: fmt.Sprintf("the declared fleet %s made the rollout, and decides what its agents run", r.Fleet)})
	}
}

// stateReason returns the most general reason: the state of the rollout.
func stateReason(r *fleet.Rollout, m moment) Reason {
	link := Reason{Since: &m.since}
	switch {
	case m.State == fleet.RolloutDraft:
		link.Code, link.Text = fleet.WhyDraft, plan.Title(r)+" has not been started"
	case m.State == fleet.RolloutPaused:
		link.Code = fleet.WhyPaused
		link.Text = plan.Title(r) + " is paused"
		if m.Stop != nil {
			link.Code = plan.StopReason(m.Stop)
			link.Text += ": " + m.Stop.Text
		}
	case m.State == fleet.RolloutCancelling:
		link.Code, link.Text = fleet.WhyOperator, plan.Title(r)+" is being cancelled: nothing more is offered"
	case m.State.Ended():
		link.Code, link.Text = fleet.WhyOver, fmt.Sprintf("%s has ended: %s", plan.Title(r), strings.ReplaceAll(string(m.State), "_", " "))
	default:
		link.Text = plan.Title(r) + " is running"
		if m.Lockstep != "" {
			link.Text += " in lockstep, in the phase " + strings.ReplaceAll(string(m.Lockstep), "_", " ")
		}
		if r.Plan.Version != "" {
			link.Text += ", to " + r.Plan.What(r.Plan.Version)
		}
	}
	return link
}

// batchReason returns the position of the target in the rollout.
func batchReason(r *fleet.Rollout, t *fleet.Target, m moment, at time.Time) Reason {
	words := fmt.Sprintf("%s is in batch %d of %d", nameOf(r.Plan.Component, t.Hostname), t.Batch+1, max(len(r.Batches), t.Batch+1))
	if t.Batch >= len(r.Batches) {
		return Reason{Text: words}
	}
	b := r.Batches[t.Batch]
	words += plan.Of(&r.Plan).BatchText(&b)
	before := func(when *time.Time) bool { return when != nil && !when.After(at) }
	switch {
	case before(b.EndedAt):
		return Reason{Text: words + ", which is done", Since: b.EndedAt}
	case before(b.StartedAt):
		return Reason{Text: words + ", which is under way", Since: b.StartedAt}
	case m.State == fleet.RolloutRunning && t.Batch > m.Batch:
		return Reason{Code: fleet.WhyBatch, Text: fmt.Sprintf("%s; batch %d comes before it", words, m.Batch+1)}
	}
	return Reason{Text: words + ", which has not begun"}
}

// targetReason returns why the target is in its state. If it waits, this is the most
// general thing that it waits for: its own limits matter only if nothing prevents all
// offers.
func targetReason(r *fleet.Rollout, t *fleet.Target, m moment) Reason {
	switch t.State {
	case fleet.TargetPending, fleet.TargetHeld:
		code := waitCode(t, m)
		link := Reason{Code: code, Text: fmt.Sprintf("it has not been offered %s: %s", t.To, plan.ReasonText(code))}
		if t.State == fleet.TargetHeld {
			link.Text = fmt.Sprintf("its turn came while it was away; %s is held for it: %s", t.To, plan.ReasonText(code))
			link.Until = t.ExpiresAt
		}
		if len(m.Waiting) > 0 && m.State == fleet.RolloutRunning && m.Waiting[0].Code == code {
			link.Until = cmp.Or(link.Until, m.Waiting[0].Until)
		}
		return link
	case fleet.TargetOffered:
		return Reason{Text: fmt.Sprintf("it was offered %s and has not begun to change the host%s", t.To, phaseWords(t.Phase)), Since: t.OfferedAt}
	case fleet.TargetUpgrading:
		text := fmt.Sprintf("it is being upgraded to %s%s", t.To, phaseWords(t.Phase))
		if t.Reached != "" {
			text += fmt.Sprintf(", and has reached the phase %s in lockstep", t.Reached)
		}
		return Reason{Text: text, Since: t.OfferedAt}
	case fleet.TargetVerifying:
		return Reason{Text: fmt.Sprintf("it runs %s, and its health is being watched", t.To), Since: t.ReachedAt}
	}
	text := plan.ReasonText(t.Code)
	if t.State == fleet.TargetCancelled && t.Code == fleet.WhyOperator { // with its rollout, whoever cancelled that
		text = "the rollout was cancelled before its turn"
		if r.RolledBackBy != "" {
			text = "the rollout was rolled back before its turn"
		}
	}
	if t.Error != "" && t.Error != text {
		text = strings.TrimPrefix(text+": "+t.Error, ": ")
	}
	return Reason{Code: t.Code, Text: strings.TrimSuffix(fmt.Sprintf("it %s: %s", stateWords(t.State), text), ": "), Since: t.EndedAt}
}

// waitCode returns the most informative reason of a waiting target.
func waitCode(t *fleet.Target, m moment) fleet.ReasonCode {
	switch {
	case m.State == fleet.RolloutDraft:
		return fleet.WhyDraft
	case m.State == fleet.RolloutPaused:
		return plan.StopReason(m.Stop)
	case m.State == fleet.RolloutCancelling:
		return fleet.WhyOperator
	case m.State.Ended():
		return fleet.WhyOver
	case m.blocked != "":
		for _, w := range m.Waiting {
			if closes(w.Code) {
				return w.Code
			}
		}
		return m.blocked
	case t.State == fleet.TargetHeld && (t.Code == "" || t.Code == fleet.WhyAway):
		return fleet.WhyAway
	case t.Batch > m.Batch:
		return fleet.WhyBatch
	case len(m.Waiting) > 0 && blocks(m.Waiting[0].Code):
		return m.Waiting[0].Code
	case t.Code != "" && t.Code != fleet.WhyBatch && t.Code != fleet.WhyNext: // the start writes these to all targets
		return t.Code
	case len(m.Waiting) > 0:
		return m.Waiting[0].Code
	}
	return fleet.WhyNext
}

// closes reports whether a wait prevents all offers of a rollout.
func closes(c fleet.ReasonCode) bool {
	return c == fleet.WhyWindow || c == fleet.WhyFreeze || c == fleet.WhyRollingBack || c == fleet.WhyNewerServer
}

// blocks reports whether a wait prevents all offers to the next batch of a rollout.
func blocks(c fleet.ReasonCode) bool {
	switch c {
	case fleet.WhySoak, fleet.WhyObservation, fleet.WhyApproval, fleet.WhyWindow, fleet.WhyFreeze, fleet.WhyExposure, fleet.WhyDeadline, fleet.WhyRollingBack, fleet.WhyNewerServer, fleet.WhyVerify, fleet.WhyLockstep:
		return true
	}
	return false
}

func stateWords(s fleet.TargetState) string {
	switch s {
	case fleet.TargetSucceeded:
		return "was upgraded"
	case fleet.TargetFailed:
		return "failed"
	case fleet.TargetRolledBack:
		return "was rolled back"
	case fleet.TargetWithdrawn:
		return "had its offer withdrawn before it began"
	case fleet.TargetSkipped:
		return "was left out"
	case fleet.TargetExpired:
		return "missed its offer"
	case fleet.TargetCancelled:
		return "was cancelled"
	}
	return string(s)
}

// phaseWords returns the phase that the agent reported, in parentheses.
func phaseWords(phase string) string {
	if phase == "" {
		return ""
	}
	return " (" + strings.ToLower(strings.TrimPrefix(phase, "UPG_")) + ")"
}

// agentReasons returns what the host reported: when it was last heard from, how far the
// upgrade is, when it retries, and what its watcher found.
func agentReasons(a *fleet.Agent, component string, t *fleet.Target, now time.Time) []Reason {
	var links []Reason
	add := func(since *time.Time, format string, args ...any) {
		links = append(links, Reason{Text: fmt.Sprintf(format, args...), Since: since})
	}
	left, gone := a.Left()
	switch seen := a.LastActivity(); {
	case gone:
		links = append(links, Reason{Code: fleet.WhyGone, Text: "the agent " + left.Text, Since: left.At})
	case a.Last.At == nil:
		links = append(links, Reason{Code: fleet.WhyNeverSeen, Text: plan.ReasonText(fleet.WhyNeverSeen), Since: &seen})
	case now.Sub(seen) > fleet.OfflineAfter:
		links = append(links, Reason{Code: fleet.WhyAway, Text: fmt.Sprintf("the agent runs %s and has been silent since %s", plan.VersionText(a.Version), timeText(seen)), Since: &seen})
	default:
		add(nil, "the agent runs %s and its status is %s", plan.VersionText(a.Version), cmp.Or(a.Last.Status, "unknown"))
		if a.Last.Message != "" && a.Last.Status != "online" {
			links[0].Text += ": " + a.Last.Message
		}
	}
	if text := a.SharedText(); text != "" {
		add(a.SharedSince, "%s. %s", text, fleet.SharedRemedy)
	}
	if text := a.NewHostText(); text != "" {
		add(a.NewHostSince, "%s", text)
	}
	s := a.Of(component)
	if component != "" {
		add(nil, "%s", componentWords(&s))
		for _, p := range s.RollbackProblems() {
			add(nil, "version %s, which its host has kept, is not complete: %s", p.Version, p.Reason)
		}
	}
	ours := t.ActionID != "" && s.UpgradeActionID == t.ActionID
	if s.Upgrading() && !ours {
		links = append(links, Reason{Code: fleet.WhyBusy, Text: fmt.Sprintf("another upgrade, to %s, is under way on it", s.UpgradeTo), Since: s.UpgradeStartedAt})
	}
	if d := s.UpgradeDetails; d != nil && ours {
		links = append(links, Reason{Text: detailWords(d), Since: s.UpgradeStartedAt, Until: d.Metadata.ScheduledAt})
	}
	if w := s.Watch; w != nil && ours && w.ActionID == t.ActionID {
		text := fmt.Sprintf("its watcher reports: %s %s", strings.ReplaceAll(string(w.Phase), "_", " "), w.To)
		if w.Reason != nil {
			text += ": " + w.Reason.Text
		} else if w.Waiting != "" {
			text += ", waiting: " + w.Waiting
		}
		add(&w.ReceivedAt, "%s", text)
	}
	if _, text := a.Diagnose(now); text != "" {
		add(nil, "%s", text)
	}
	return links
}

// componentWords says what the agent reports of its component.
func componentWords(s *fleet.Subject) string {
	if !s.Reported {
		return "it reports no component " + s.Component
	}
	text := "component " + s.Component + " has no version yet"
	if s.Version != "" {
		text = fmt.Sprintf("component %s is %s", s.Component, s.Version)
	}
	if s.LastHealthyVersion != "" && s.LastHealthyVersion != s.Version {
		text += ", the last healthy version was " + s.LastHealthyVersion
	}
	status, message := s.ComponentStatus()
	return strings.TrimSuffix(fmt.Sprintf("%s, and its status is %s: %s", text, cmp.Or(strings.ToLower(status), "unknown"), message), ": ")
}

// detailWords describes the agent's report of its upgrade, with its retries.
func detailWords(d *agentapi.UpgradeDetails) string {
	words := "it reports " + strings.ToLower(strings.TrimPrefix(string(d.State), "UPG_"))
	m := d.Metadata
	switch {
	case d.State == agentapi.UpgradeScheduled && m.RetryErrorMsg != "":
		words += ": its last attempt failed (" + m.RetryErrorMsg + "), and it tries again"
		if m.ScheduledAt != nil {
			words += " at " + timeText(*m.ScheduledAt)
		}
		if m.RetryLimit > 0 {
			words += fmt.Sprintf(", retry %d of %d", m.RetryAttempt, m.RetryLimit)
		}
	case d.State == agentapi.UpgradeScheduled && m.ScheduledAt != nil:
		words += " for " + timeText(*m.ScheduledAt)
	case d.State == agentapi.UpgradeDownloading && m.DownloadPercent > 0:
		words += fmt.Sprintf(" %.0f %%", m.DownloadPercent)
	case m.Reason != "" || m.ErrorMsg != "":
		words += ": " + cmp.Or(m.ErrorMsg, m.Reason)
	}
	return words
}

func timeText(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// summary returns the answer in one sentence.
func summary(r *fleet.Rollout, t *fleet.Target, last Reason) string {
	name := nameOf(r.Plan.Component, t.Hostname)
	switch t.State {
	case fleet.TargetPending, fleet.TargetHeld:
		return fmt.Sprintf("%s has not been offered %s by %s: %s", name, t.To, plan.Title(r), plan.ReasonText(last.Code))
	case fleet.TargetOffered, fleet.TargetUpgrading, fleet.TargetVerifying:
		return fmt.Sprintf("%s: %s", name, last.Text)
	case fleet.TargetSucceeded:
		if r.Plan.Component != "" && t.From == "" {
			return fmt.Sprintf("%s was installed in version %s by %s", name, t.To, plan.Title(r))
		}
		return fmt.Sprintf("%s was upgraded from %s to %s by %s", name, plan.VersionText(t.From), t.To, plan.Title(r))
	}
	why := strings.TrimPrefix(last.Text, "it ")
	switch {
	case t.ReachedAt != nil && t.State != fleet.TargetRolledBack:
		return fmt.Sprintf("%s reached %s by %s, and %s", name, t.To, plan.Title(r), why)
	case t.Code == fleet.WhyGone && t.ActionID != "":
		return fmt.Sprintf("%s was offered %s by %s, and left the fleet before it reported how that ended: what its host runs is not known", name, t.To, plan.Title(r))
	}
	return fmt.Sprintf("%s was not brought to %s by %s: %s", name, t.To, plan.Title(r), why)
}

// Skipped explains why a rollout skipped an agent, by its pinned preview.
func Skipped(r *fleet.Rollout, a *fleet.Agent, out fleet.SkippedAgent, trail []fleet.AuditEntry, at, now time.Time) Explanation {
	e := explanationOf(r, out.AgentID, at)
	e.addState(r, momentAt(r, trail, at, now))
	text := plan.ReasonText(out.Code)
	if out.Text != "" {
		text = out.Text
	}
	e.add(Reason{Code: out.Code, Text: "it was left out when the rollout was previewed: " + text})
	e.Summary = fmt.Sprintf("%s was left out of %s: %s", nameOf(r.Plan.Component, out.Hostname), plan.Title(r), text)
	e.Next = plan.ReasonNext(out.Code)
	e.reconsider(r, a)
	return e
}

// NonTarget explains why an agent is not a target of a rollout. chosen reports whether
// the rollout's selector matches it now.
func NonTarget(r *fleet.Rollout, a *fleet.Agent, chosen bool, pinned *fleet.Preview, at, now time.Time) Explanation {
	e := explanationOf(r, a.ID, at)
	e.addState(r, momentAt(r, nil, at, now))
	why := "the rollout's select does not choose it"
	next := "Change the select of a new rollout, or upgrade the agent by itself."
	switch {
	case r.RollbackOf != "":
		why, next = "the rollout that is rolled back had not changed it", ""
	case !chosen:
	case r.State == fleet.RolloutDraft:
		why, next = "the rollout is a draft, and has not been previewed since the agent came to match its select", "Preview the rollout."
		if pinned != nil {
			for _, t := range pinned.Targets {
				if t.AgentID == a.ID {
					why, next = fmt.Sprintf("the rollout is a draft; its preview has it in batch %d", t.Batch+1), plan.ReasonNext(fleet.WhyDraft)
				}
			}
		}
	case r.StartedAt != nil && a.EnrolledAt.After(*r.StartedAt) && r.Plan.LateJoiners != fleet.LateJoin:
		why, next = "it enrolled after the start, and the plan accepts no late joiners", "Start another rollout for it, or with late_joiners: join."
	case pinned == nil:
		why = "its preview, which would say why, is not kept any more"
	case r.State.Active() && r.Plan.LateJoiners == fleet.LateJoin:
		why, next = "it came to match the select after the start, and is taken in at one of the next looks at the fleet", ""
	default:
		why, next = "it came to match the select after the start", "Start another rollout for it."
	}
	e.add(Reason{Text: why})
	e.Summary = fmt.Sprintf("%s is no target of %s: %s", nameOf(r.Plan.Component, a.Hostname()), plan.Title(r), why)
	e.Next = next
	e.reconsider(r, a)
	return e
}

// Alone explains an agent, or a component of it, that was never a target. wanted is the version
// of a component that its policy names, and c has the packages.
func Alone(a *fleet.Agent, component, wanted string, l Last, c fleet.Catalog, at, now time.Time) Explanation {
	e := Explanation{AgentID: a.ID, At: at, Chain: []Reason{}}
	s := a.Of(component)
	var last lastUpgrade
	if !at.Before(now) {
		last = lastOf(&s, l)
	}
	if last.Text != "" {
		e.add(last.Reason)
	}
	e.add(Reason{Text: "no rollout includes it, now or earlier"})
	none := &fleet.Target{ActionID: s.UpgradeActionID}
	for _, link := range agentReasons(a, component, none, now) {
		e.add(link)
	}
	runs, create := a.Hostname()+" runs "+plan.VersionText(s.Version), "muster rollouts create"
	if component != "" {
		runs, create = a.Hostname()+": "+componentWords(&s), create+" --component "+component
		if !s.Reported {
			e.Summary, e.Next = runs, plan.ReasonNext(fleet.WhyNoComponent)
			return e
		}
	}
	if last.open {
		last = last.withNext(&s, "", c, now)
		e.Summary, e.Next = last.Text, last.next
		return e
	}
	host := a.Host()
	newest := ""
	var failed []string // later than the one that runs
	for _, v := range c.Versions() {
		if !c.Has(v, host) {
			continue
		}
		err := checkFailedBefore(&s, v, c)
		if later, _ := manifest.CompareVersions(v, s.Version); err == nil || later <= 0 && s.Version != "" {
			newest = v
			break
		}
		failed = append(failed, v)
		e.add(Reason{Code: fleet.WhyFailedBefore, Text: err.Error()})
	}
	if s.Version == "" && wanted != "" && c.Has(wanted, host) && checkFailedBefore(&s, wanted, c) == nil {
		newest = wanted // as its policy says
	}
	later, _ := manifest.CompareVersions(newest, s.Version)
	if len(failed) > 0 && (newest == "" || later <= 0) {
		e.Summary = fmt.Sprintf("%s; %s failed on its host before, and nothing else that is later is published for its platform", runs, fleet.List(failed))
		e.Next = plan.ReasonNext(fleet.WhyFailedBefore)
		return e
	}
	if newest == "" {
		e.Summary = runs + "; nothing newer is published for its platform, and no rollout has it"
		e.Next = "Publish a version with `muster package push`, then make a rollout."
		return e
	}
	switch err := s.CheckUpgrade(fleet.UpgradeRequest{Version: newest}, c); {
	case s.Version == newest:
		e.Summary = runs + ", the newest version published for its platform"
	case err != nil:
		e.add(Reason{Code: fleet.WhyRefused, Text: err.Error()})
		e.Summary = fmt.Sprintf("%s, and %s is published, but it cannot take it: %s", runs, newest, err)
		e.Next = plan.ReasonNext(fleet.WhyRefused)
	default:
		e.Summary = fmt.Sprintf("%s, and %s is published, but no rollout brings it there", runs, newest)
		e.Next = fmt.Sprintf("Make a rollout to %s with `%s --version %s`, or upgrade it by itself with `%s`.", newest, create, newest, command(&s, newest))
	}
	return e
}

// checkFailedBefore says when and why the version failed on the host.
func checkFailedBefore(s *fleet.Subject, version string, c fleet.Catalog) error {
	if s.Component == "" {
		return s.Agent.CheckFailedBefore(version, c)
	}
	if f, ok := s.FailedBefore(version); ok {
		return fmt.Errorf("version %s of component %s %w (%s)", version, s.Component, fleet.ErrFailedBefore, f.Reason)
	}
	return nil
}
