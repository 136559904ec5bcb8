package plan

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// minAttempted is how many targets must have ended before a percentage of them
	// means anything: one failure of one is 100 %. The end of a smaller batch suffices
	// as well.
	minAttempted = 5
	// windowRepeats extends the wait for a batch of a plan with windows, so that it
	// gets at least a second window.
	windowRepeats = 7 * 24 * time.Hour
	// observationWaits is how many health waits canaries are observed for.
	observationWaits = 2
)

// stopped is why a rollout stops; an empty kind means that it does not.
type stopped struct {
	kind fleet.StopKind
	text string
	by   string // empty: muster
}

// crossed returns which gate stops the rollout. A rollout with nothing left to offer or
// to withdraw is not stopped: it ends by itself.
func (d *decision) crossed() stopped {
	if d.total.waiting()+d.total[Offered] == 0 {
		return stopped{}
	}
	if deadline := d.plan.Strategy.Deadline; deadline != nil {
		if !deadline.After(d.now) {
			return stopped{kind: fleet.StopDeadline, text: fmt.Sprintf("the plan's deadline %s has passed: nothing is offered after it", stamp(*deadline))}
		}
		d.wake(*deadline)
	}
	if s := d.failed(); s.kind != "" {
		return s
	}
	return d.overexposed()
}

// failed returns the stop because of too many failures, if there is one.
func (d *decision) failed() stopped {
	rule, bad := &d.plan.Failure, d.total.bad()
	// Forgiven failures that were retried are no longer in bad; new ones count.
	d.out.Forgiven = min(d.out.Forgiven, bad)
	failures, attempted := bad-d.out.Forgiven, d.total.attempted()
	if failures == 0 || d.given.Forced != nil || d.plan.Strategy.ForceContinue ||
		d.total.waiting()+d.total[Offered] == 0 {
		return stopped{}
	}
	count := fmt.Sprintf("%d of %d failed", failures, attempted)
	if d.out.Forgiven > 0 {
		count = fmt.Sprintf("%d of %d failed besides the %d that were forgiven", failures, attempted, d.out.Forgiven)
	}
	if n := d.failedCanaries(); n > 0 && !toleratesCanaries(d.plan) {
		return stopped{kind: fleet.StopCanary, text: fmt.Sprintf("%d of %d canaries failed", n, d.counts[d.at].counts().Total)}
	}
	if limit, counted := failureCount(rule); counted && failures >= limit {
		kind := fleet.StopThreshold
		if d.failedCanaries() > 0 {
			kind = fleet.StopCanary
		}
		return stopped{kind: kind, text: fmt.Sprintf("%s, the plan stops at %d", count, limit)}
	}
	if rule.Percent != nil && float64(failures)*100 > *rule.Percent*float64(attempted) && d.attemptedEnough(attempted) {
		return stopped{kind: fleet.StopThreshold, text: fmt.Sprintf("%s, which is %s %%; the plan stops above %s %%",
			count, Number(float64(failures)*100/float64(attempted)), Number(*rule.Percent))}
	}
	return stopped{}
}

// Tolerated reports whether the failures of a rollout that has ended are no more than its
// plan tolerates, or an operator has accepted them. A rollout can end with more, since one
// with nothing left to offer is not stopped. Targets that were refused count: the version did not
// reach them either.
func Tolerated(r *fleet.Rollout) bool {
	rule, bad := &r.Plan.Failure, r.Counts.Bad()
	failures := bad - min(r.Forgiven, bad) + r.Counts.Refused
	if r.Lockstep != nil && r.Lockstep.Undo != nil {
		return false
	}
	if r.Forced != nil || failures == 0 {
		return true
	}
	if Together(r.Plan.Strategy.Kind) {
		return false // its component is stopped there, or runs unwell beside the others
	}
	if r.Counts.Succeeded < failures {
		return false // a small rollout can fail as a whole below any count
	}
	for i := range r.Batches {
		if b := &r.Batches[i]; b.Kind == fleet.BatchCanary && b.Counts.Bad() > r.Forgiven && !toleratesCanaries(&r.Plan) && r.Promoted == nil {
			return false
		}
	}
	if limit, counted := failureCount(rule); counted && failures >= limit {
		return false
	}
	return rule.Percent == nil || float64(failures)*100 <= *rule.Percent*float64(r.Counts.Attempted())
}

// toleratesCanaries reports whether the plan's failure count applies to canaries. It
// does only if the plan itself gives one, since canaries exist to stop a rollout at the
// first failure.
func toleratesCanaries(p *fleet.Plan) bool {
	return p.Failure.Count != nil && *p.Failure.Count > 1 && !isServerDefault(p, "failure.count")
}

// failureCount returns at how many failures the rule stops; counted is false if at no
// number.
func failureCount(rule *fleet.FailureRule) (limit int, counted bool) {
	switch {
	case rule.Count != nil:
		return max(*rule.Count, 1), true
	case rule.Percent == nil:
		return fleet.DefaultFailureCount, true
	}
	return 0, false
}

// failedCanaries returns the number of failures among the canaries that are observed
// now. Those of a promoted rollout are not: their failures count like all others.
func (d *decision) failedCanaries() int {
	if d.at == len(d.counts) || d.out.Batches[d.at].Kind != fleet.BatchCanary || d.given.Promoted != nil {
		return 0
	}
	return d.counts[d.at].bad()
}

// attemptedEnough reports whether a percentage of the attempted means anything.
func (d *decision) attemptedEnough(attempted int) bool {
	if d.at == len(d.counts) {
		return true
	}
	c, size := &d.counts[d.at], 0
	for _, n := range c {
		size += n
	}
	return attempted >= min(size, minAttempted) || c[Pending] == 0 && c.inFlight() == 0
}

// overexposed returns the stop because more agents run the version, or were offered it,
// than allowed. No offer leads to that, but fleets shrink and rules change.
func (d *decision) overexposed() stopped {
	e := d.world.Exposure
	if e == nil {
		return stopped{}
	}
	if e.Exposed > e.Limit {
		return stopped{kind: fleet.StopExposure, text: exposureText(&e.Exposure, nil)}
	}
	for i := range e.Sites {
		if v := &e.Sites[i]; v.Exposed > v.Limit {
			return stopped{kind: fleet.StopExposure, text: exposureText(&e.Exposure, v)}
		}
	}
	return stopped{}
}

// exposureText describes the budget of a label value, or of the fleet.
func exposureText(e *fleet.Exposure, v *fleet.ExposureValue) string {
	where, exposed, all, limit := "", e.Exposed, e.Fleet, e.Limit
	if v != nil {
		where, exposed, all, limit = fmt.Sprintf(" with %s %s", v.Label, v.Value), v.Exposed, v.Fleet, v.Limit
	}
	had := 100.0
	if e.NeededHours > 0 {
		had = min(100, e.HealthyHours/e.NeededHours*100)
	}
	// Whole percents: a text that changes in every round would be written in every
	// round.
	return fmt.Sprintf("%d of %d agents%s run %s or were offered it, and %d may; it has had %d %% of the %s healthy agent-hours it needs to go further",
		exposed, all, where, e.Version, limit, int(had), Number(e.NeededHours))
}

// roomLeft is what the exposure budget leaves in this step; nil: no bound.
type roomLeft struct {
	left  int
	sites []int
	full  int // the last site that had no room left; -1: none
}

func newRoomLeft(room *Room) *roomLeft {
	if room == nil {
		return nil
	}
	l := &roomLeft{left: room.Limit - room.Exposed, sites: make([]int, len(room.Sites)), full: -1}
	for i, v := range room.Sites {
		l.sites[i] = v.Limit - v.Exposed
	}
	return l
}

func (l *roomLeft) has(s *Target) bool {
	if l == nil {
		return true
	}
	for _, site := range s.Sites {
		if site >= 0 && int(site) < len(l.sites) && l.sites[site] <= 0 {
			l.full = int(site)
			return false
		}
	}
	return l.left > 0
}

func (l *roomLeft) take(s *Target) {
	if l == nil {
		return
	}
	l.left--
	for _, site := range s.Sites {
		if site >= 0 && int(site) < len(l.sites) {
			l.sites[site]--
		}
	}
}

// gatesAfter returns the waits between the current batch, which has ended, and the next
// one, most important first.
func (d *decision) gatesAfter() (waits []fleet.Wait, s stopped) {
	if d.isLast() || d.given.Promoted != nil {
		return nil, stopped{} // no batch follows, or it waits for nothing
	}
	b, c, pace := &d.out.Batches[d.at], &d.counts[d.at], &d.plan.Pace
	if s = d.unproven(); s.kind != "" {
		return nil, s
	}
	canary, watched := b.Kind == fleet.BatchCanary, *b.EndedAt
	if canary && c.inFlight() > 0 {
		waits = append(waits, fleet.Wait{Code: fleet.WhyObservation, Since: *b.EndedAt, Text: Count(c.inFlight(), "canary that was away is", "canaries that were away are") + " being upgraded"})
	}
	watch := func(code fleet.ReasonCode, long time.Duration, text string) {
		until := b.EndedAt.Add(long)
		if !until.After(d.now) {
			return
		}
		d.wake(until)
		waits = append(waits, fleet.Wait{Code: code, Since: *b.EndedAt, Until: &until, Text: text})
		if until.After(watched) {
			watched = until
		}
	}
	if c.attempted() > 0 && !pace.Emergency {
		if canary {
			watch(fleet.WhyObservation, observationWaits*healthWait(d.plan), fmt.Sprintf("the canaries are watched for %s", short(observationWaits*healthWait(d.plan))))
		}
		watch(fleet.WhySoak, pace.Soak.D(), fmt.Sprintf("%s is left to show its health for %s", d.batchName(), short(pace.Soak.D())))
	}
	if !canary || d.given.Approved != nil || !NeedsApproval(d.plan) {
		return waits, stopped{}
	}
	until := d.waitsUntil(watched)
	if !until.After(d.now) {
		return nil, stopped{kind: fleet.StopDeadline, text: fmt.Sprintf("nobody has approved the canaries in %s", short(until.Sub(*b.EndedAt)))}
	}
	d.wake(until)
	approval := fleet.Wait{Code: fleet.WhyApproval, Since: *b.EndedAt, Until: &until, Text: "an operator must approve what comes after the canaries"}
	return append([]fleet.Wait{approval}, waits...), stopped{}
}

// lacksEvidence reports whether a batch is of canaries that are all away. It then does not
// end before one comes back, or none can any more.
func (d *decision) lacksEvidence(at int) bool {
	c := &d.counts[at]
	if d.out.Batches[at].Kind != fleet.BatchCanary || c.attempted() > 0 || d.plan.Pace.Emergency || d.given.Promoted != nil {
		return false
	}
	return c[Held] > 0 || d.out.State == fleet.RolloutPaused
}

// unproven returns the stop of a rollout none of whose canaries was upgraded, since the
// fleet would be next. An operator who resumes it accepts that.
func (d *decision) unproven() stopped {
	b, c := &d.out.Batches[d.at], d.counts[d.at].counts()
	if b.Kind != fleet.BatchCanary || c.Attempted() > 0 || c.InFlight() > 0 || c.Total == 0 || d.plan.Pace.Emergency ||
		d.given.Forced != nil || d.given.Approved != nil || d.out.RunningSince.After(*b.EndedAt) {
		return stopped{}
	}
	return stopped{kind: fleet.StopCanary, text: fmt.Sprintf("none of the %d canaries was upgraded, so that nothing is known of the version", c.Total)}
}

// overdue stops a rollout whose current batch exceeds its time. First it skips targets
// whose agents are busy.
func (d *decision) overdue() bool {
	b := &d.out.Batches[d.at]
	from := b.StartedAt
	if from == nil && d.at > 0 {
		from = d.out.Batches[d.at-1].ClearedAt
	}
	if from == nil {
		from = d.out.RunningSince
	}
	deadline := d.waitsUntil(*from)
	if deadline.After(d.now) {
		d.wake(deadline)
		return false
	}
	for i := d.first[d.at]; i < d.first[d.at+1]; i++ {
		s := &d.targets[i]
		if s.State == Pending && s.Online && s.Busy && !d.moveBounded(d.at, i, Skipped, codeBusy) {
			return false
		}
	}
	if d.ended(d.at) {
		d.more = true
		return false
	}
	c := &d.counts[d.at]
	text := fmt.Sprintf("%s has taken %s and is not done: %d pending, %d in flight", d.batchName(), short(d.now.Sub(*from)), c[Pending], c.inFlight())
	if c.inFlight()+c[Pending] == 0 {
		text = fmt.Sprintf("none of the canaries came in %s", short(d.now.Sub(*from)))
	}
	d.stop(stopped{kind: fleet.StopDeadline, text: text})
	return true
}

// waitsUntil returns the deadline of a wait. Pauses and freezes do not count.
func (d *decision) waitsUntil(from time.Time) time.Time {
	if since := d.out.RunningSince; since != nil && since.After(from) {
		from = *since
	}
	long := d.plan.Pace.WaitFor.D()
	if long <= 0 {
		long = fleet.DefaultWaitFor
	}
	if !d.plan.Pace.Emergency {
		if thaw := lastThaw(d.world.Freezes, d.now); thaw.After(from) {
			from = thaw
		}
		if len(d.plan.Pace.Windows) > 0 {
			long += windowRepeats
		}
	}
	return from.Add(long)
}

// isLast reports whether no target waits after the current batch.
func (d *decision) isLast() bool {
	for b := d.at + 1; b < len(d.counts); b++ {
		if d.counts[b].waiting() > 0 {
			return false
		}
	}
	return true
}

// stop pauses the rollout. A gate also withdraws, in the same step, the offers that
// no agent has begun; a pause at the end of a batch does not.
func (d *decision) stop(s stopped) {
	stop := &fleet.Stop{Kind: s.kind, Text: s.text, By: s.by, At: d.now, Batch: max(0, min(d.at, len(d.counts)-1))}
	if stop.By == "" {
		stop.By = fleet.System
	}
	if withdraws(s.kind) {
		stop.Withdrawn = d.withdraw()
	}
	d.out.State, d.out.Stop, d.out.PauseAsked, d.out.RunningSince = fleet.RolloutPaused, stop, nil, nil
	d.out.Generation++
	d.setReason(0, len(d.targets), CodeOf(StopReason(stop)))
	d.out.Waiting = d.waitsPaused()
}

// withdraws reports whether a rollout with a stop of this kind takes back all offers that no agent
// has begun.
func withdraws(k fleet.StopKind) bool { return k.Gate() || k == fleet.StopRollback }

// TakesBack returns why a rollout takes back all offers that no agent has begun; an empty code: it does not.
func TakesBack(r *fleet.Rollout) (code fleet.ReasonCode, why string) {
	switch l := r.Lockstep; {
	case l != nil && l.Undo != nil:
		return fleet.WhyUndone, l.Undo.Why
	case r.State == fleet.RolloutPaused && r.Stop != nil && withdraws(r.Stop.Kind):
		return StopReason(r.Stop), r.Stop.Text
	case r.State == fleet.RolloutCancelling:
		return fleet.WhyOperator, "the rollout is being cancelled"
	}
	return "", ""
}

// waitsPaused returns what a paused rollout waits for: an operator.
func (d *decision) waitsPaused() []fleet.Wait {
	w := fleet.Wait{Code: StopReason(d.out.Stop), Text: "it is paused"}
	if s := d.out.Stop; s != nil {
		w.Text, w.Since = s.Text, s.At
	}
	return []fleet.Wait{w}
}

// waits returns what a rollout that is not paused waits for. setSince sets the times
// that are zero.
func (d *decision) waits() []fleet.Wait {
	waits := d.gates
	if len(d.step.Offer) > 0 {
		return waits
	}
	add := func(code Code, until *time.Time, format string, args ...any) {
		waits = append(waits, fleet.Wait{Code: code.Name(), Text: fmt.Sprintf(format, args...), Until: until})
	}
	if d.closed != 0 && d.total.waiting() > 0 {
		add(d.closed, d.opens, "%s", d.closeText)
	}
	if d.blocked[codeExposure] > 0 {
		var site *fleet.ExposureValue
		if d.room.left > 0 && d.room.full >= 0 {
			site = &d.world.Exposure.Sites[d.room.full]
		}
		d.wake(d.now.Add(exposureInterval))
		add(codeExposure, nil, "%s", exposureText(&d.world.Exposure.Exposure, site))
	}
	if n := d.blocked[codeLabelLimit]; n > 0 {
		add(codeLabelLimit, nil, "%s for others with the same %s: as many of them are being upgraded as may at one time", Count(n, "agent waits", "agents wait"), d.limitedLabels())
	}
	if d.blocked[codeParallel] > 0 {
		add(codeParallel, nil, "%s being upgraded, as many as may at one time", Count(d.inFlight, "agent is", "agents are"))
	}
	if n := d.blocked[codeBusy]; n > 0 {
		add(codeBusy, nil, "%s something else under way", Count(n, "agent has", "agents have"))
	}
	if d.inFlight > 0 {
		add(codeBatch, nil, "%s", d.inFlightText())
	}
	if n := d.total[Held]; n > 0 && len(waits) == 0 && !d.more {
		add(codeAway, nil, "%s away; offers are held until they come back or expire", Count(n, "agent is", "agents are"))
	}
	return waits
}

func (d *decision) inFlightText() string {
	if d.at < len(d.counts) {
		if n := d.counts[d.at].inFlight(); n == d.inFlight {
			return fmt.Sprintf("%s being upgraded in %s", Count(n, "agent is", "agents are"), d.batchName())
		}
	}
	return Count(d.inFlight, "agent is", "agents are") + " being upgraded"
}

// limitedLabels names the labels that the plan limits.
func (d *decision) limitedLabels() string {
	var labels []string
	for _, l := range d.plan.Limits.Per {
		labels = append(labels, l.Label)
	}
	return strings.Join(labels, " or ")
}

// setSince sets since when each wait has lasted.
func (d *decision) setSince() {
	for i := range d.out.Waiting {
		w := &d.out.Waiting[i]
		if !w.Since.IsZero() {
			continue
		}
		w.Since = d.now
		for _, old := range d.given.Waiting {
			if old.Code == w.Code {
				w.Since = old.Since
				break
			}
		}
	}
}

// batchName names the current batch for a sentence, counted from 1.
func (d *decision) batchName() string {
	return fmt.Sprintf("batch %d of %d", d.at+1, len(d.counts))
}
