// Package plan decides what a rollout does. Its functions read no clock and do no I/O:
// [Check] and [Resolve] complete a plan, [NewSelector] finds its agents, [Decide]
// decides which targets are offered the version now and why the others are not,
// [Assess] returns the state of one target, and [Tally] counts how far a version may
// spread. Package preview calls them before a rollout starts, package reconcile while
// it runs, and package explain to explain it, so the three cannot disagree.
package plan

import (
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// MaxMoves bounds the targets that one round moves, besides offers and withdrawals,
	// so that its writes end long before its lease does. The next round moves the rest.
	MaxMoves = 10_000
	// exposureInterval is how often the budget is computed while a rollout waits for
	// it, since healthy hours increase by themselves.
	exposureInterval = 10 * time.Second
)

// The codes that Decide returns.
var (
	codeDraft       = CodeOf(fleet.WhyDraft)
	codeBatch       = CodeOf(fleet.WhyBatch)
	codeParallel    = CodeOf(fleet.WhyParallel)
	codeLabelLimit  = CodeOf(fleet.WhyLabelLimit)
	codeWindow      = CodeOf(fleet.WhyWindow)
	codeFreeze      = CodeOf(fleet.WhyFreeze)
	codeThreshold   = CodeOf(fleet.WhyThreshold)
	codeExposure    = CodeOf(fleet.WhyExposure)
	codeDeadline    = CodeOf(fleet.WhyDeadline)
	codeAway        = CodeOf(fleet.WhyAway)
	codeBusy        = CodeOf(fleet.WhyBusy)
	codeOver        = CodeOf(fleet.WhyOver)
	codeRollingBack = CodeOf(fleet.WhyRollingBack)
	codeNext        = CodeOf(fleet.WhyNext)
	codeStale       = CodeOf(fleet.WhyStale)
	codeNoProgress  = CodeOf(fleet.WhyNoProgress)
	codeOperator    = CodeOf(fleet.WhyOperator)
	codeExpired     = CodeOf(fleet.WhyExpired)
	codeUnchecked   = CodeOf(fleet.WhyUnchecked)
)

// Decide decides what a rollout does next. Targets are in the order of their batches.
// The step depends only on the arguments, none of which is changed.
//
// A round counts the targets; stops if a gate requires it; finds the current batch;
// offers first to targets of earlier batches that were away, then to the batch; and
// sets the reason of every other waiting target. The counts, batches and reasons of a
// step are those after its offers, withdrawals and moves.
func Decide(r *fleet.Rollout, targets []Target, w World, now time.Time) Step {
	d := newDecision(r, targets, w, now)
	d.count()
	Of(&r.Plan).decide(d)
	return d.finish()
}

// targetCounts are numbers of targets by State.
type targetCounts [len(fleet.TargetStates)]int

func (c *targetCounts) inFlight() int { return c[Offered] + c[Upgrading] + c[Verifying] }

func (c *targetCounts) waiting() int { return c[Pending] + c[Held] }

func (c *targetCounts) bad() int { return c[Failed] + c[RolledBack] }

func (c *targetCounts) attempted() int { return c[Succeeded] + c.bad() }

func (c *targetCounts) counts() fleet.Counts {
	var counts fleet.Counts
	for s, n := range c {
		*counts.Of(State(s).Name()) = n
		counts.Total += n
	}
	return counts
}

// decision is one call of Decide.
type decision struct {
	given   *fleet.Rollout
	plan    *fleet.Plan
	targets []Target
	world   World
	now     time.Time

	step Step
	out  *fleet.Rollout // step.Rollout

	first    []int          // the first target of each batch, and the end
	counts   []targetCounts // of each batch
	total    targetCounts
	refused  []int // of each batch; see Refused
	inFlight int   // in flight, after this step's offers
	// offered are targets whose offer can be withdrawn.
	offered []int32
	// inGroup is how many of each group are in flight, for each label limit.
	inGroup [fleet.MaxLabelLimits][]int32
	room    *roomLeft

	at        int // the current batch: the first not cleared; len(counts) if all are
	gates     []fleet.Wait
	closed    Code // why nothing may be offered now: windows, freezes, rollbacks
	closeText string
	opens     *time.Time          // when closed ends; nil: not known
	blocked   [len(codeNames)]int // targets that are due and were not offered, by reason
	more      bool                // another round has work at once
	phase     *fleet.Lockstep     // out.Lockstep, in a rollout in lockstep
}

func newDecision(r *fleet.Rollout, targets []Target, w World, now time.Time) *decision {
	d := &decision{given: r, plan: &r.Plan, targets: targets, world: w, now: now}
	d.step.Rollout = *r
	d.step.Reasons = make([]Code, len(targets))
	d.out = &d.step.Rollout
	d.out.Batches = slices.Clone(r.Batches)
	if len(d.out.Batches) == 0 && len(targets) > 0 {
		d.out.Batches = []fleet.Batch{{Kind: fleet.BatchRegular}}
	}
	n := len(d.out.Batches)
	d.counts, d.refused = make([]targetCounts, n), make([]int, n)
	d.first = make([]int, n+1)
	for b := 1; b < n; b++ {
		from := d.first[b-1]
		d.first[b] = from + sort.Search(len(targets)-from, func(i int) bool { return int(targets[from+i].Batch) >= b })
	}
	d.first[n] = len(targets)
	for d.at < n && d.out.Batches[d.at].ClearedAt != nil {
		d.at++
	}
	return d
}

// count counts every target. It expires offers that were held too long, and makes
// targets that failed without a sign of harm pending again while they have retries.
func (d *decision) count() {
	reason := codeBatch
	switch {
	case d.given.State == fleet.RolloutDraft:
		reason = codeDraft
	case d.given.State == fleet.RolloutPaused:
		reason = CodeOf(StopReason(d.given.Stop))
	case d.given.State != fleet.RolloutRunning:
		reason = codeOver
	}
	goesOn := d.given.State == fleet.RolloutRunning || d.given.State == fleet.RolloutPaused
	for b := range d.counts {
		c := &d.counts[b]
		for i := d.first[b]; i < d.first[b+1]; i++ {
			s := &d.targets[i]
			c[min(s.State, Cancelled)]++
			switch s.State {
			case Pending:
				d.step.Reasons[i] = reason
			case Held:
				d.step.Reasons[i] = reason
				if goesOn {
					d.expireHeld(b, i)
				}
			case Offered, Upgrading, Verifying:
				d.countInFlight(i)
				if s.State == Offered {
					d.offered = append(d.offered, int32(i))
				}
			case Skipped:
				if s.Refused() {
					d.refused[b]++
				}
			case Failed:
				// Not bounded by MaxMoves: no more targets fail in a round than were in
				// flight, and one that stays failed here would count as a failure.
				if goesOn && (s.Code == codeStale || s.Code == codeNoProgress) && int(s.Attempts) <= d.plan.Failure.Retries {
					d.move(b, i, Pending, s.Code)
					d.step.Reasons[i] = reason
					if d.given.State == fleet.RolloutRunning {
						d.step.Reasons[i], d.more = codeNext, true
					}
				}
			}
		}
	}
	d.total = targetCounts{}
	for b := range d.counts {
		for s, n := range d.counts[b] {
			d.total[s] += n
		}
	}
}

// expireHeld ends an offer that was held for the maximum time.
func (d *decision) expireHeld(b, i int) {
	s := &d.targets[i]
	if !s.Online {
		d.step.Reasons[i] = codeAway
	}
	if s.Expires == 0 {
		return
	}
	if expires := time.Unix(0, s.Expires); expires.After(d.now) {
		d.wake(expires)
	} else {
		d.moveBounded(b, i, Expired, codeExpired)
	}
}

// countInFlight counts a target in flight against the limits.
func (d *decision) countInFlight(i int) {
	d.inFlight++
	for k := range d.labelLimits() {
		group := int(d.targets[i].Groups[k])
		if group < 0 {
			continue
		}
		if n := group + 1 - len(d.inGroup[k]); n > 0 {
			d.inGroup[k] = append(d.inGroup[k], make([]int32, n)...)
		}
		d.inGroup[k][group]++
	}
}

func (d *decision) labelLimits() int { return min(len(d.plan.Limits.Per), fleet.MaxLabelLimits) }

// move changes a target's state and clears its reason. If the target still waits, the
// caller sets one.
func (d *decision) move(b, i int, to State, code Code) {
	d.step.Moves = append(d.step.Moves, Move{Target: int32(i), To: to, Code: code})
	d.recount(b, i, to)
	d.step.Reasons[i] = 0
}

// moveBounded moves a target unless the round has reached MaxMoves.
func (d *decision) moveBounded(b, i int, to State, code Code) bool {
	if len(d.step.Moves) >= MaxMoves {
		d.more = true
		return false
	}
	d.move(b, i, to, code)
	return true
}

func (d *decision) recount(b, i int, to State) {
	from := min(d.targets[i].State, Cancelled)
	d.counts[b][from]--
	d.total[from]--
	d.counts[b][to]++
	d.total[to]++
}

// run does a round of a running rollout.
func (d *decision) run() {
	if d.out.RunningSince == nil {
		d.out.RunningSince = d.moment()
	}
	d.checkOpen()
	if s := d.crossed(); s.kind != "" {
		d.stop(s)
		return
	}
	if d.stages() {
		if d.pauseAsAsked(); !d.running() {
			d.out.Waiting = d.given.Waiting
		}
		return
	}
	d.advance()
	if d.closed == 0 && d.running() {
		d.offerReturned()
		for d.offerBatch() {
			// One step must not both offer and stop.
			if len(d.step.Offer) > 0 {
				d.more = true
				break
			}
			at := d.at
			if d.advance(); !d.running() || d.at == at {
				break
			}
			d.more = true // agents of the batches just cleared may be back
		}
	}
	if !d.running() {
		return
	}
	d.setReasons()
	if d.at == len(d.counts) && d.total.waiting() == 0 && d.inFlight == 0 {
		if d.goesBack() || d.watched() || d.unconfirmed() {
			return
		}
		d.end(fleet.RolloutCompleted)
		d.out.Counts = d.allCounts()
		d.out.State = EndState(d.out)
		return
	}
	d.out.Waiting = d.waits()
}

// allCounts counts the targets of all batches.
func (d *decision) allCounts() fleet.Counts {
	c := d.total.counts()
	for _, n := range d.refused {
		c.Refused += n
	}
	return c
}

func (d *decision) running() bool { return d.out.State == fleet.RolloutRunning }

// checkOpen sets closed if windows, freezes or a rollback prevent offers.
func (d *decision) checkOpen() {
	d.room = newRoomLeft(d.world.Exposure)
	var changes time.Time
	d.closed, d.closeText, changes = closedNow(d.plan, d.world.Freezes, d.now)
	d.wake(changes)
	if _, until := OfferableAt(d.plan, d.world.Freezes, d.now); !until.IsZero() {
		d.wake(until)
		if d.closed != 0 {
			d.opens = &until
		}
	}
	if d.world.RollingBack {
		d.closed, d.closeText, d.opens = codeRollingBack, "its rollback is under way", nil
	}
}

// advance updates which batches have started, ended and been cleared. It pauses if the
// plan or an operator requires a pause.
func (d *decision) advance() {
	d.noteEnds()
	for d.gates = nil; d.at < len(d.counts); d.at++ {
		b := &d.out.Batches[d.at]
		if b.ClearedAt != nil {
			continue
		}
		ended := d.ended(d.at)
		if !ended && b.Kind == fleet.BatchCanary && d.given.Promoted != nil {
			b.ClearedAt = d.moment() // the others need not wait for them; noteEnds sets the rest
			continue
		}
		if !ended {
			if d.closed == 0 && d.overdue() {
				return
			}
			break
		}
		waits, s := d.gatesAfter()
		if s.kind != "" {
			d.stop(s)
			return
		}
		if len(waits) > 0 {
			d.gates = waits
			break
		}
		b.ClearedAt = d.moment()
		if d.plan.Pace.PauseOnSuccess && d.counts[d.at].attempted() > 0 && !d.isLast() {
			d.stop(stopped{kind: fleet.StopSuccess, text: d.batchName() + " is done, and the plan pauses after each"})
			d.at++
			return
		}
	}
	d.pauseAsAsked()
}

// noteEnds sets when batches began and ended that were cleared before: canaries of a rollout
// that was promoted.
func (d *decision) noteEnds() {
	for at := range min(d.at, len(d.counts)) {
		if d.out.Batches[at].EndedAt == nil {
			d.ended(at)
		}
	}
}

// ended reports whether a batch has ended, and sets when it began and ended. Offline agents
// do not prevent its end. A target that becomes pending again restarts it.
func (d *decision) ended(at int) bool {
	b, c := &d.out.Batches[at], &d.counts[at]
	if b.EndedAt != nil && c[Pending] > 0 {
		b.StartedAt, b.EndedAt = d.moment(), nil
	}
	// In flight and not started: a crash came between the two writes.
	if b.StartedAt == nil && (c[Pending] == 0 || c.inFlight() > 0 || c.attempted() > 0) {
		b.StartedAt = d.moment()
	}
	if b.EndedAt == nil && b.StartedAt != nil && c[Pending] == 0 && c.inFlight() == 0 && !d.lacksEvidence(at) {
		b.EndedAt = d.moment()
	}
	return b.EndedAt != nil
}

// pauseAsAsked pauses once the current batch has ended, or if it has not begun.
func (d *decision) pauseAsAsked() {
	asked := d.out.PauseAsked
	if asked == nil || d.total.waiting() == 0 {
		return
	}
	underWay := d.at < len(d.counts) && d.out.Batches[d.at].StartedAt != nil && d.out.Batches[d.at].EndedAt == nil
	if underWay && (d.closed == 0 || d.inFlight > 0) {
		return
	}
	text := asked.Why
	if text == "" {
		text = "an operator asked for it"
	}
	d.stop(stopped{kind: fleet.StopOperator, text: text, by: asked.By})
}

// offerReturned offers to targets of earlier batches: first to agents that are back,
// then to targets that became pending again.
func (d *decision) offerReturned() {
	for b := range min(d.at+1, len(d.counts)) {
		if d.counts[b][Held] == 0 {
			continue
		}
		for i := d.first[b]; i < d.first[b+1]; i++ {
			if d.targets[i].State == Held && d.step.Reasons[i] != 0 && d.targets[i].Online {
				d.offer(b, i)
			}
		}
	}
	for b := range d.at {
		if d.counts[b][Pending] == 0 {
			continue
		}
		for i := d.first[b]; i < d.first[b+1]; i++ {
			if d.targets[i].State == Pending {
				d.offerAgain(b, i)
			}
		}
	}
}

// offerAgain offers to a pending target of an earlier batch. It ends the target after
// the maximum duration of a batch, since nothing else would.
func (d *decision) offerAgain(b, i int) {
	s := &d.targets[i]
	if !s.Online {
		d.hold(b, i)
		return
	}
	code := d.offer(b, i)
	if code == 0 {
		return
	}
	deadline := d.waitsUntil(time.Unix(0, s.Since))
	switch {
	case deadline.After(d.now):
		d.wake(deadline)
	case code == codeBusy:
		d.moveBounded(b, i, Skipped, codeBusy)
	default:
		d.moveBounded(b, i, Expired, codeDeadline)
	}
}

// offerBatch offers to the current batch, and reports whether none of its targets is
// pending or in flight any more.
func (d *decision) offerBatch() (done bool) {
	b := d.at
	if b == len(d.counts) || d.out.Batches[b].EndedAt != nil {
		return false
	}
	busy := d.blocked[codeBusy]
	for i := d.first[b]; i < d.first[b+1]; i++ {
		s := &d.targets[i]
		if s.State != Pending || d.step.Reasons[i] == 0 {
			continue
		}
		if s.Online {
			d.offer(b, i)
		} else {
			d.hold(b, i)
		}
	}
	left, inFlight := d.counts[b][Pending], d.counts[b].inFlight()
	if d.out.Batches[b].StartedAt == nil && (inFlight > 0 || left > 0 && left == d.blocked[codeBusy]-busy) {
		d.out.Batches[b].StartedAt = d.moment()
	}
	return left == 0 && inFlight == 0
}

// hold holds the offer for an agent that is away.
func (d *decision) hold(b, i int) {
	d.moveBounded(b, i, Held, codeAway)
	d.step.Reasons[i] = codeAway
}

// offer offers to a target if every limit allows it. Otherwise it returns the reason.
func (d *decision) offer(b, i int) Code {
	code := d.blockReason(i)
	d.step.Reasons[i] = code
	d.blocked[code]++
	if code != 0 {
		return code
	}
	d.step.Offer = append(d.step.Offer, int32(i))
	d.recount(b, i, Offered)
	d.countInFlight(i)
	d.room.take(&d.targets[i])
	return 0
}

// blockReason returns what prevents an offer to a target, the most specific reason
// first; 0 if nothing does.
func (d *decision) blockReason(i int) Code {
	s := &d.targets[i]
	if s.Busy {
		return codeBusy
	}
	for k := range d.labelLimits() {
		group, n := int(s.Groups[k]), 0
		if group < 0 {
			continue
		}
		if group < len(d.inGroup[k]) {
			n = int(d.inGroup[k][group])
		}
		if n >= d.plan.Limits.Per[k].Max {
			return codeLabelLimit
		}
	}
	if d.inFlight >= MaxParallel(d.plan) {
		return codeParallel
	}
	if !d.room.has(s) {
		return codeExposure
	}
	return 0
}

// BlockReason returns what prevents an offer to a waiting target that is due for one,
// given the targets in flight; 0 if nothing does.
func BlockReason(p *fleet.Plan, inFlight []Target, s *Target, room *Room) Code {
	d := &decision{plan: p, targets: append(slices.Clip(inFlight), *s), room: newRoomLeft(room)}
	for i := range inFlight {
		d.countInFlight(i)
	}
	return d.blockReason(len(inFlight))
}

// setReasons sets the reason of targets that are not due for an offer. Batches after
// the next one wait for earlier batches, whatever else applies.
func (d *decision) setReasons() {
	code, next := d.closed, d.at
	if len(d.gates) > 0 {
		code, next = CodeOf(d.gates[0].Code), d.at+1
	}
	if d.closed != 0 {
		d.setReason(0, d.first[min(d.at+1, len(d.counts))], d.closed)
	}
	if code != 0 && next < len(d.counts) {
		d.setReason(d.first[next], d.first[next+1], code)
	}
}

// setReason sets the reason of the waiting targets in a range. Targets whose agent is
// away keep theirs, since they would wait in any case.
func (d *decision) setReason(from, to int, code Code) {
	for i, old := range d.step.Reasons[from:to] {
		if old != 0 && old != codeAway {
			d.step.Reasons[from+i] = code
		}
	}
}

// stayPaused does a round of a paused rollout. Upgrades in flight end, and a pause
// becomes a gate if their results cross one.
func (d *decision) stayPaused() {
	d.out.PauseAsked, d.out.RunningSince = nil, nil
	d.noteEnds()
	if d.at < len(d.counts) {
		d.ended(d.at)
	}
	if given := d.given.Stop; given == nil || !withdraws(given.Kind) {
		if s := d.failed(); s.kind != "" {
			d.stop(s)
			return
		}
	} else if n := d.withdraw(); n > 0 {
		// They were being offered when the rollout stopped, or a crash prevented their
		// withdrawal. The stop has counted them.
		again := *given
		again.Withdrawn = max(again.Withdrawn, n)
		d.out.Stop = &again
	}
	d.out.Waiting = d.waitsPaused()
}

// cancel ends targets that have not begun.
func (d *decision) cancel() {
	d.out.PauseAsked, d.out.RunningSince = nil, nil
	withdrawn := d.withdraw()
	for b := range d.counts {
		if d.counts[b].waiting() == 0 {
			continue
		}
		for i := d.first[b]; i < d.first[b+1]; i++ {
			if s := d.targets[i].State; (s == Pending || s == Held) && !d.moveBounded(b, i, Cancelled, codeOperator) {
				break
			}
		}
	}
	if d.given.CancelledNow != nil {
		d.judgeNone()
	}
	switch {
	case withdrawn > 0:
		d.more = true // the next round knows which hosts have to confirm that
		d.out.Waiting = d.waits()
	case d.total.waiting() > 0 || d.inFlight > 0:
		d.out.Waiting = d.waits()
	case !d.goesBack() && !d.unconfirmed():
		d.end(fleet.RolloutCancelled)
	}
}

// judgeNone ends the targets that run the version without a judgement of their health. If their
// watchers roll them back, that corrects it.
func (d *decision) judgeNone() {
	for b := range d.counts {
		for i := d.first[b]; i < d.first[b+1] && d.counts[b][Verifying] > 0; i++ {
			if d.targets[i].State != Verifying {
				continue
			}
			if !d.moveBounded(b, i, Succeeded, codeUnchecked) {
				return
			}
			d.inFlight--
		}
	}
}

// unconfirmed reports whether the rollout waits only for hosts to confirm that they do not carry out
// what was withdrawn from them.
func (d *decision) unconfirmed() bool {
	until := d.world.CancelDeadline
	if !until.After(d.now) {
		return false
	}
	d.wake(until)
	d.out.Waiting = []fleet.Wait{{Code: fleet.WhyUnconfirmed, Text: fmt.Sprintf("%s not confirmed that an offer was withdrawn, and may still carry it out",
		Count(d.world.Unconfirmed, "host has", "hosts have")), Until: &until}}
	return true
}

// goesBack reports whether the rollout waits only for the result of a watcher's
// rollback.
func (d *decision) goesBack() bool {
	until := d.world.RollbackDeadline
	if !until.After(d.now) {
		return false
	}
	d.wake(until)
	d.out.Waiting = []fleet.Wait{{Code: fleet.WhyGoingBack, Text: "a watcher is restoring the previous version, and has not reported the result yet", Until: &until}}
	return true
}

// watched reports whether the rollout waits only for hosts that still watch the version.
func (d *decision) watched() bool {
	until := d.world.WatchDeadline
	if !until.After(d.now) {
		return false
	}
	d.wake(until)
	text := "all agents are done, and hosts still watch the new version"
	if d.plan.Component == "" {
		text += ", by default for ten minutes after they began to run it"
	}
	d.out.Waiting = []fleet.Wait{{Code: fleet.WhyWatched, Text: text, Until: &until}}
	return true
}

// EndState returns the state of a rollout that has ended by its counts, which later reports may have
// corrected. What was cancelled, rolled back or undone stays so, and what hosts still do decides
// nothing.
func EndState(r *fleet.Rollout) fleet.RolloutState {
	switch {
	case r.State != fleet.RolloutCompleted && r.State != fleet.RolloutFailed, r.Lockstep != nil, r.Counts.InFlight() > 0:
		return r.State
	case r.Counts.Bad()+r.Counts.Refused > 0:
		return fleet.RolloutFailed
	}
	return fleet.RolloutCompleted
}

func (d *decision) end(state fleet.RolloutState) {
	d.out.State, d.out.EndedAt = state, d.moment()
	d.out.PauseAsked, d.out.RunningSince, d.out.Waiting = nil, nil, nil
}

// withdraw withdraws the offers that no agent has begun.
func (d *decision) withdraw() int {
	for _, i := range d.offered {
		d.recount(d.batchOf(int(i)), int(i), Withdrawn)
	}
	d.step.Withdraw = d.offered
	d.inFlight -= len(d.offered)
	return len(d.offered)
}

// batchOf returns the batch in which newDecision counts the target.
func (d *decision) batchOf(i int) int {
	return sort.Search(len(d.counts)-1, func(b int) bool { return d.first[b+1] > i })
}

// finish sets the state of the rollout after the step.
func (d *decision) finish() Step {
	for b := range d.counts {
		d.out.Batches[b].Counts = d.counts[b].counts()
		d.out.Batches[b].Counts.Refused = d.refused[b]
	}
	d.out.Counts = d.allCounts()
	if d.given.State.Active() {
		d.out.Marks = markEnds(d.given.Marks, &d.out.Counts, d.now)
	}
	if !d.out.State.Active() {
		d.out.Waiting = nil
	}
	if e := d.world.Exposure; e != nil && d.given.State.Active() {
		exposure := e.Exposure
		d.out.Exposure = &exposure
	}
	d.setSince()
	d.step.Changed = changed(d.given, d.out)
	if d.more {
		d.step.Next = d.now
	}
	return d.step
}

// moment returns a copy of now: a pointer into d would keep the targets in memory.
func (d *decision) moment() *time.Time {
	now := d.now
	return &now
}

// wake requests another decision at a later time.
func (d *decision) wake(at time.Time) {
	if at.After(d.now) && (d.step.Next.IsZero() || at.Before(d.step.Next)) {
		d.step.Next = at
	}
}

// SameTime reports whether two times are equal, or both missing.
func SameTime(a, b *time.Time) bool { return a == b || a != nil && b != nil && a.Equal(*b) }
