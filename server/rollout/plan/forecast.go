package plan

import (
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// paceWindow is the time over which the pace is measured: long enough to contain several
	// waves of a batch, short enough to notice that hosts have become slow.
	paceWindow = 10 * time.Minute
	// markEvery is the shortest time between two marks, so that a rollout keeps about a dozen.
	markEvery = time.Minute
	// minPaced is the shortest time from which a pace is computed: before, it is chance.
	minPaced = 30 * time.Second
	// maxForecast bounds a forecast. What ends later is as good as not known.
	maxForecast = 365 * 24 * time.Hour
	// maxOpenings bounds the windows that a forecast steps through: some two a day for a year.
	maxOpenings = 1000
)

// Pace is how far a rollout is, how fast it goes, and when it will have ended.
type Pace struct {
	// Targets that have ended
	Done  int `json:"done"`
	Total int `json:"total"`
	// Targets that ended in a minute, over the last ten; absent while none has
	PerMinute *float64 `json:"per_minute,omitempty"`
	// When all will have ended at this pace and with the waits of the plan; absent while it does not
	// run, or cannot be known
	DoneAbout *time.Time `json:"done_about,omitempty"`
}

// Overview is what operators see of a rollout besides its document.
type Overview struct {
	// What can be ordered now, the primary one first
	Commands []fleet.Command `json:"commands,omitempty"`
	Pace     *Pace           `json:"pace,omitempty"` // nil before the start
	// Its failures by cause, the most frequent first
	Causes []Cause `json:"causes,omitempty"`
	// What would pause it next, as a sentence: 1 of 3 failures
	WouldStop string `json:"would_stop,omitempty"`
}

// markEnds adds how many targets have ended to the marks from which the pace is computed.
func markEnds(marks []fleet.EndMark, c *fleet.Counts, now time.Time) []fleet.EndMark {
	n := len(marks)
	if n > 0 && (marks[n-1].Ended == c.Ended() || now.Sub(marks[n-1].At) < markEvery) {
		return marks
	}
	first := 0 // the latest mark that is older than the window has what had ended at its begin
	for first+1 < n && now.Sub(marks[first+1].At) >= paceWindow {
		first++
	}
	return append(slices.Clone(marks[min(first, n):]), fleet.EndMark{At: now, Ended: c.Ended()})
}

// PaceOf returns the pace of a rollout.
func PaceOf(r *fleet.Rollout, freezes []fleet.Freeze, now time.Time) Pace {
	p := Pace{Done: r.Counts.Ended(), Total: r.Counts.Total}
	if !r.State.Active() || len(r.Marks) == 0 {
		return p
	}
	from := r.Marks[0]
	for _, m := range r.Marks {
		if now.Sub(m.At) >= paceWindow {
			from = m
		}
	}
	took := min(now.Sub(from.At), paceWindow)
	if took < minPaced || p.Done <= from.Ended {
		return p
	}
	perMinute := float64(p.Done-from.Ended) / took.Minutes()
	p.PerMinute = &perMinute
	p.DoneAbout = doneAbout(r, freezes, perMinute, now)
	return p
}

// doneAbout returns when all targets will have ended at a pace, with the waits, windows and
// freezes that are ahead; nil if that cannot be known: it waits for a person, or nothing opens. Targets that are
// away are not counted, since nobody knows when they come back.
func doneAbout(r *fleet.Rollout, freezes []fleet.Freeze, perMinute float64, now time.Time) *time.Time {
	left := r.Counts.Total - r.Counts.Ended() - r.Counts.Held
	if r.State != fleet.RolloutRunning || left <= 0 || r.PauseAsked != nil || Together(r.Plan.Strategy.Kind) || r.Plan.Pace.PauseOnSuccess || awaitsApproval(r) {
		return nil
	}
	work := time.Duration(float64(left) / perMinute * float64(time.Minute))
	t := now
	if len(r.Waiting) > 0 && r.Waiting[0].Until != nil && r.Waiting[0].Until.After(t) && isPause(r.Waiting[0].Code) {
		t = *r.Waiting[0].Until
	}
	for range maxOpenings {
		if t.Sub(now) > maxForecast || work > maxForecast {
			return nil
		}
		open, until := OfferableAt(&r.Plan, freezes, t)
		switch {
		case !open && !until.After(t):
			return nil // it never opens
		case !open:
			t = until
		case until.IsZero() || work <= until.Sub(t):
			t = t.Add(work + gapsAhead(r)).Round(time.Second)
			return &t
		default:
			work, t = work-until.Sub(t), until
		}
	}
	return nil
}

// awaitsApproval reports whether an operator has yet to approve what follows the canaries.
func awaitsApproval(r *fleet.Rollout) bool {
	if r.Approved != nil || r.Promoted != nil || !NeedsApproval(&r.Plan) {
		return false
	}
	return slices.ContainsFunc(r.Batches, func(b fleet.Batch) bool { return b.Kind == fleet.BatchCanary && b.ClearedAt == nil })
}

// isPause reports whether nothing is offered during a wait, which ends by itself.
func isPause(c fleet.ReasonCode) bool {
	return c == fleet.WhySoak || c == fleet.WhyObservation || c == fleet.WhyWindow || c == fleet.WhyFreeze
}

// gapsAhead returns the waits between the batches that have not ended.
func gapsAhead(r *fleet.Rollout) (sum time.Duration) {
	if r.Promoted != nil {
		return 0
	}
	for i := range max(0, len(r.Batches)-1) {
		if r.Batches[i].EndedAt == nil {
			sum += Gap(&r.Plan, r.Batches[i].Kind)
		}
	}
	return sum
}

// Gap returns the shortest time between the end of a batch and the next one: the longer of the
// soak and, after canaries, their observation.
func Gap(p *fleet.Plan, kind fleet.BatchKind) time.Duration {
	if p.Pace.Emergency {
		return 0
	}
	d := p.Pace.Soak.D()
	if kind == fleet.BatchCanary {
		d = max(d, observationWaits*HealthWait(p))
	}
	return d
}

// HealthWait returns how long the health of an upgraded agent is observed.
func HealthWait(p *fleet.Plan) time.Duration {
	switch {
	case p.Strategy.SkipValidation:
		return 0
	case p.Health.Wait > 0:
		return p.Health.Wait.D()
	}
	return fleet.DefaultHealthWait
}

// VerifyTime returns how long it takes at least to verify a target whose host observes the version
// itself for a time, 0 if it does not.
func VerifyTime(p *fleet.Plan, observes time.Duration) time.Duration {
	if p.Strategy.SkipValidation {
		return 0
	}
	return max(HealthWait(p), observes)
}

// WouldStop returns at which failures a rollout would pause next, as a sentence; empty: none of
// its own would pause it, or it does not run.
func WouldStop(r *fleet.Rollout) string {
	if r.State != fleet.RolloutRunning && r.State != fleet.RolloutPaused {
		return ""
	}
	return Of(&r.Plan).wouldStop(r)
}

// batchesWouldStop is WouldStop of a rollout that goes batch by batch.
func batchesWouldStop(r *fleet.Rollout) string {
	rule := &r.Plan.Failure
	failures := r.Counts.Bad() - min(r.Forgiven, r.Counts.Bad())
	switch {
	case r.Forced != nil:
		return fmt.Sprintf("No number of failures pauses it: %s has forced it.", r.Forced.By)
	case r.Plan.Strategy.ForceContinue:
		return "No number of failures pauses it, by its plan."
	}
	at := CurrentBatch(r)
	if at < len(r.Batches) && r.Batches[at].Kind == fleet.BatchCanary && r.Batches[at].ClearedAt == nil && r.Promoted == nil && !toleratesCanaries(&r.Plan) {
		return "One canary that fails pauses it."
	}
	if limit, counted := failureCount(rule); counted {
		if failures >= limit {
			return fmt.Sprintf("It pauses at %s: there are %d.", Count(limit, "failure", "failures"), failures)
		}
		return fmt.Sprintf("%d of %s so far: %d more %s it.", failures, Count(limit, "failure", "failures"), limit-failures, map[bool]string{true: "pauses", false: "pause"}[limit-failures == 1])
	}
	attempted := r.Counts.Attempted()
	if attempted == 0 {
		return fmt.Sprintf("It pauses once more than %s %% of the targets that have ended have failed.", Number(*rule.Percent))
	}
	return fmt.Sprintf("%d of %d failed so far, which is %s %%: it pauses above %s %%.", failures, attempted, Number(float64(failures)*100/float64(attempted)), Number(*rule.Percent))
}

// targetPhases are how upgrades stand by the phase that their agent reports.
var targetPhases = map[string]fleet.ProgressState{
	"UPG_SCHEDULED": fleet.ProgressScheduled, "UPG_REQUESTED": fleet.ProgressAccepted, "UPG_DOWNLOADING": fleet.ProgressDownloading,
	"UPG_EXTRACTING": fleet.ProgressInstalling, "UPG_REPLACING": fleet.ProgressInstalling, "UPG_RESTARTING": fleet.ProgressRestarting, "UPG_WATCHING": fleet.ProgressWatching,
}

// ProgressOf returns how the upgrade of a target stands, in the words of agents. It has not begun
// while the rollout has offered nothing, and a target that was left out has none.
func ProgressOf(t *fleet.Target) fleet.ProgressState {
	switch t.State {
	case fleet.TargetHeld:
		return fleet.ProgressWaitingForHost
	case fleet.TargetOffered:
		if s, ok := targetPhases[t.Phase]; ok {
			return s
		}
		return fleet.ProgressSent
	case fleet.TargetUpgrading:
		if s, ok := targetPhases[t.Phase]; ok {
			return s
		}
		return fleet.ProgressInstalling
	case fleet.TargetVerifying:
		return fleet.ProgressWatching
	case fleet.TargetSucceeded:
		return fleet.ProgressCommitted
	case fleet.TargetFailed:
		return fleet.ProgressFailed
	case fleet.TargetRolledBack:
		return fleet.ProgressRolledBack
	}
	return fleet.ProgressNone
}

// Cause is a reason for which targets failed.
type Cause struct {
	Code fleet.ReasonCode `json:"code"`
	// As a sentence
	Text  string            `json:"text"`
	State fleet.TargetState `json:"state"`
	Count int               `json:"count"`
	// The error of one of them
	Sample string `json:"sample,omitempty"`
}

// maxCauses bounds the causes of a rollout; the rest are counted together, as others.
const maxCauses = 20

// CodeOther is the code of the causes that are counted together.
const CodeOther fleet.ReasonCode = "other"

// Causes groups failed targets by code and error, without what differs from host to host.
type Causes struct {
	byKey map[string]*Cause
	keys  []string // in the order of their first target
}

// Add counts a target. One that did not fail is ignored.
func (c *Causes) Add(t *fleet.Target) {
	if t.State != fleet.TargetFailed && t.State != fleet.TargetRolledBack {
		return
	}
	text := ReasonText(t.Code)
	if general := fleet.GeneralError(t.Error, t.Hostname, t.AgentID); general != "" && general != text {
		if text != "" {
			text += ": "
		}
		text += general
	}
	key := string(t.State) + "\x00" + string(t.Code) + "\x00" + text
	if c.byKey[key] == nil {
		if c.byKey == nil {
			c.byKey = map[string]*Cause{}
		}
		c.byKey[key] = &Cause{Code: t.Code, Text: fleet.Sentence(text), State: t.State, Sample: t.Error}
		c.keys = append(c.keys, key)
	}
	c.byKey[key].Count++
}

// List returns the causes, the most frequent first.
func (c *Causes) List() []Cause {
	list := make([]Cause, len(c.keys))
	for i, key := range c.keys {
		list[i] = *c.byKey[key]
	}
	slices.SortStableFunc(list, func(a, b Cause) int { return b.Count - a.Count })
	if len(list) > maxCauses {
		rest := Cause{Code: CodeOther, Text: "Other causes.", State: fleet.TargetFailed}
		for _, other := range list[maxCauses-1:] {
			rest.Count += other.Count
		}
		list = append(list[:maxCauses-1], rest)
	}
	return list
}
