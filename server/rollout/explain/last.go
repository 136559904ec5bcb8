package explain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Last is who ordered the last upgrade of an agent, or of a component of it.
type Last struct {
	Action  *fleet.Action  // nil if there was none, or it is not kept any more
	Rollout *fleet.Rollout // that offered it; nil: it was ordered by itself
}

// lastUpgrade is what is known of the last upgrade, by whatever way it came.
type lastUpgrade struct {
	Reason
	next string
	// open means that it is under way, or has not brought its version: that is why this version
	// runs.
	open bool
	// onHost means that the version that runs is none that the server has ordered last.
	onHost bool
}

// lastOf describes the last upgrade; its text is empty if there was none.
func lastOf(s *fleet.Subject, l Last) lastUpgrade {
	name := nameOf(s.Component, s.Agent.Hostname())
	runs := fmt.Sprintf("%s runs %s", name, plan.VersionText(s.Version))
	if s.Component != "" && s.Version == "" {
		runs = name + " has no version yet"
	}
	by, order := l.words(s)
	say := func(since *time.Time, format string, args ...any) lastUpgrade {
		return lastUpgrade{Reason: Reason{Text: fmt.Sprintf(format, args...), Since: since}}
	}
	if d := s.OnHost(); d != nil {
		last := say(nil, "%s is being upgraded to %s, as was asked for on its host%s", name, d.TargetVersion, phaseWords(string(d.State)))
		if d.State == agentapi.UpgradeFailed {
			last = say(nil, "%s: its upgrade to %s, which was asked for on its host, failed: %s", runs, d.TargetVersion, causeWords(d))
		}
		last.open, last.onHost = true, true
		return last
	}
	switch {
	case s.Upgrading():
		last := say(s.UpgradeStartedAt, "%s is being upgraded from %s to %s %s", name, cmp.Or(s.UpgradeFrom, "no version"), s.UpgradeTo, by)
		if s.UpgradeDetails != nil {
			last.Text += phaseWords(string(s.UpgradeDetails.State))
		}
		last.open = true
		return last
	case s.UpgradeTo == "" && (s.Component == "" || s.Version == ""):
		return lastUpgrade{}
	case s.UpgradeTo == "":
		last := say(s.VersionSince, "%s, and the server has ordered no upgrade of it: it was installed on its host, or before the agent enrolled", runs)
		last.onHost = true
		return last
	case s.Version != s.Left() && (s.Left() != "" || s.Component != "") && !s.Stuck():
		last := say(s.VersionSince, "%s, which no order of the server brought there: it was changed on its host; the last order, %s, was of %s", runs, order, s.UpgradeTo)
		last.onHost = true
		return last
	case s.UpgradedAt != nil && s.UpgradeFrom == "":
		return say(s.UpgradedAt, "%s was installed in version %s %s", name, s.UpgradeTo, by)
	case s.UpgradedAt != nil && s.UpgradeFrom == s.UpgradeTo:
		return say(s.UpgradedAt, "%s was installed again in version %s %s", name, s.UpgradeTo, by)
	case s.UpgradedAt != nil:
		verb := "upgraded"
		if less, err := manifest.CompareVersions(s.UpgradeTo, s.UpgradeFrom); err == nil && less < 0 {
			verb = "brought back"
		}
		return say(s.UpgradedAt, "%s was %s from %s to %s %s", name, verb, s.UpgradeFrom, s.UpgradeTo, by)
	}
	since := l.since()
	last := say(since, "%s: its upgrade to %s, %s, was cancelled", runs, s.UpgradeTo, order)
	switch s.UpgradeStatus {
	case fleet.UpgradeRolledBack:
		last = say(since, "%s: its upgrade to %s, %s, was undone by its host: %s", runs, s.UpgradeTo, order, causeWords(s.UpgradeDetails))
	case fleet.UpgradeFailed:
		last = say(since, "%s: its upgrade to %s, %s, failed: %s", runs, s.UpgradeTo, order, causeWords(s.UpgradeDetails))
	}
	last.open = s.UpgradeStatus == fleet.UpgradeRolledBack || s.UpgradeStatus == fleet.UpgradeFailed
	return last
}

// words names who ordered it: after a verb, and as a part of its own.
func (l Last) words(s *fleet.Subject) (by, origin string) {
	switch {
	case l.Rollout != nil:
		return "by " + plan.Title(l.Rollout), "offered by " + plan.Title(l.Rollout)
	case s.UpgradeActionID == "":
		return "by an order on its host", "ordered on its host"
	case l.Action == nil || l.Action.CreatedBy == "":
		return "by action " + s.UpgradeActionID, "ordered by action " + s.UpgradeActionID
	}
	return fmt.Sprintf("by an order of %s (action %s)", l.Action.CreatedBy, s.UpgradeActionID), fmt.Sprintf("ordered by %s (action %s)", l.Action.CreatedBy, s.UpgradeActionID)
}

func (l Last) since() *time.Time {
	if l.Action == nil {
		return nil
	}
	return &l.Action.CreatedAt
}

func causeWords(d *agentapi.UpgradeDetails) string {
	if d == nil {
		return "the agent gave no reason"
	}
	return cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason, "the agent gave no reason")
}

// advise returns how a version comes to the agent, or to the component of it, by itself.
func advise(s *fleet.Subject, version string, c fleet.Catalog) string {
	w := fleet.UpgradeRequest{Version: version}
	switch {
	case s.CheckUpgrade(w, c) == nil && s.CheckRendered(w) == nil:
		return "`" + command(s, version) + "`"
	case s.CheckUpgrade(fleet.UpgradeRequest{Version: version, Force: true}, c) == nil:
		return "`" + command(s, version) + " --force`"
	}
	return ""
}

// command is the whole command of a single order.
func command(s *fleet.Subject, version string) string {
	host := cmp.Or(s.Agent.Hostname(), s.Agent.ID)
	if s.Component != "" {
		return fmt.Sprintf("muster components upgrade %s %s --version %s", s.Component, host, version)
	}
	return fmt.Sprintf("muster agents upgrade %s --version %s", host, version)
}

// withNext adds what to do. It never names the version that failed last: that one fails again until
// its cause is gone, and a host that has rolled it back refuses it. wanted is the version that a rollout has not kept there, if any.
func (l lastUpgrade) withNext(s *fleet.Subject, wanted string, c fleet.Catalog, now time.Time) lastUpgrade {
	again := wanted
	if l.open && !l.onHost {
		again = s.UpgradeTo
	}
	how := ""
	if again != "" && again != s.Version {
		how = advise(s, again, c)
	}
	switch _, failed := s.FailedBefore(again); {
	case s.Stuck():
		l.next = plan.ReasonNext(fleet.WhyStuck)
	case s.Busy():
		l.next = busyNext(s, now)
	case how == "":
	case failed:
		l.next = plan.ReasonNext(fleet.WhyFailedBefore)
	case l.open:
		l.next = "Fix the reported cause first: until then it fails again. Then retry it, or upgrade to a later version."
	default:
		l.next = fmt.Sprintf("If it is to run %s: %s.", again, how)
	}
	return l
}

// busyNext says what becomes of an upgrade under way.
func busyNext(s *fleet.Subject, now time.Time) string {
	switch since, stalled := s.Stalled(now); {
	case stalled:
		return fmt.Sprintf("Its host is online, and has made no progress since %s: look at the agent's log and at its source of packages on the host, and restart the agent, or cancel the action.", timeText(since))
	case s.Upgrading() && now.Sub(s.Agent.LastActivity()) > fleet.OfflineAfter:
		return "It goes on when its host is back."
	}
	return "It ends by itself."
}

// StartFrom lets the explanation of a rollout that has ended for the target t begin with the
// last upgrade, if that came later and by another way. c has the packages.
func (e *Explanation) StartFrom(a *fleet.Agent, component string, t *fleet.Target, l Last, c fleet.Catalog, now time.Time) {
	s := a.Of(component)
	last := lastOf(&s, l).withNext(&s, t.To, c, now)
	if last.Text == "" || !s.Reported || !last.later(&s, t, l) {
		return
	}
	e.Chain = append([]Reason{last.Reason, {Text: "the last rollout of it is older: " + e.Summary}}, e.Chain...)
	e.Summary, e.Next = last.Text, last.next
}

// AfterRollback says what to do about a host that a rollback has not brought back, or that has put the
// newer version back since. A rollback is ordered once, so it names an order that is accepted.
func (e *Explanation) AfterRollback(r *fleet.Rollout, a *fleet.Agent, t *fleet.Target, c fleet.Catalog) {
	s := a.Of(r.Plan.Component)
	bad := t.State == fleet.TargetFailed || t.State == fleet.TargetRolledBack
	if r.RollbackOf == "" || !bad || t.Code == fleet.WhyStuck || s.Version == t.To {
		return
	}
	e.Next = fmt.Sprintf("Find out why its host does not keep %s.", t.To)
	if how := advise(&s, t.To, c); how != "" {
		e.Next = fmt.Sprintf("Find out why its host does not keep %s, then bring it there: %s.", t.To, how)
	}
}

// later reports whether the upgrade came after the rollout had ended for the target.
func (l lastUpgrade) later(s *fleet.Subject, t *fleet.Target, by Last) bool {
	switch {
	case l.onHost:
		return s.OnHost() != nil || t.OfferedAt != nil || s.Version != t.From
	case s.UpgradeTo == "" || s.UpgradeActionID != "" && (t.ActionID == s.UpgradeActionID || slices.Contains(t.ActionIDs, s.UpgradeActionID)):
		return false
	case by.Action != nil && t.EndedAt != nil:
		return by.Action.CreatedAt.After(*t.EndedAt)
	}
	return t.ActionID != "" // that order is older than the last one
}
