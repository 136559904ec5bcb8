package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// lockstep upgrades a component that must not run mixed versions. All of its targets reach a phase
// before one of them may begin the next. Up to the phase backup a fault undoes everything. From the
// phase switch on (the commit) the rollout goes through to its end. Both decisions are in the rollout's
// document before an order follows from them, and a document never has both, so no server can act on
// the other one.
type lockstep struct{ Rolling }

func (lockstep) Traits() Traits {
	return Traits{Kind: fleet.LockstepStrategy, Fields: []string{"away", "patience"}, Refused: lockstepRefuses(), Together: true}
}

// lockstepRefuses returns the fields of plans that divide the targets.
func lockstepRefuses() map[string]string {
	return map[string]string{
		"strategy.batch_size":    notInLockstep("there is one batch"),
		"strategy.batch_percent": notInLockstep("there is one batch"),
		"limits.max_parallel":    notInLockstep("all targets go together"),
		"limits.per":             notInLockstep("all targets go together"),
		"failure.count":          notInLockstep("the first failure undoes everything, or comes too late for that"),
		"failure.percent":        notInLockstep("the first failure undoes everything, or comes too late for that"),
		"failure.retries":        notInLockstep("a target cannot try again by itself"),
		"pace.soak":              notInLockstep("there is one batch"),
		"pace.pause_on_success":  notInLockstep("there is one batch"),
		"pace.offer_for":         notInLockstep("targets that are away are refused or excluded (strategy.away)"),
		"pace.wait_for":          notInLockstep("strategy.patience bounds each phase"),
	}
}

func notInLockstep(why string) string {
	return "does not go with lockstep, in which " + why + ": leave it out"
}

func (lockstep) Complete(p *fleet.Plan) {
	st := &p.Strategy
	st.Away = cmp.Or(st.Away, fleet.AwayRefuse)
	st.Patience = cmp.Or(st.Patience, fleet.Duration(fleet.DefaultPatience))
}

func (lockstep) Check(p *fleet.Plan) error {
	st := &p.Strategy
	if p.Component == "" {
		return fleet.FieldError(field("component"), "is missing: lockstep upgrades a component; agents themselves may run mixed versions")
	}
	if st.Away != "" && st.Away != fleet.AwayRefuse && st.Away != fleet.AwayExclude {
		return fleet.FieldError(field("strategy.away"), "is %q, want refuse or exclude", st.Away)
	}
	if d := st.Patience.D(); d != 0 && (d < fleet.MinPatience || d > fleet.MaxPatience) {
		return fleet.FieldError(field("strategy.patience"), "is %s, want %s to %s", Span(st.Patience), short(fleet.MinPatience), short(fleet.MaxPatience))
	}
	if p.LateJoiners == fleet.LateJoin {
		return fleet.FieldError(field("late_joiners"), "does not go with lockstep, in which an agent that comes later would run another version beside the others: leave it out")
	}
	return nil
}

// CheckBreaking needs no canaries: the targets cannot be divided, and their state is copied first.
func (lockstep) CheckBreaking(p *fleet.Plan) error {
	if p.Migration.AcknowledgeStateRisk {
		return nil
	}
	return ruled(ErrStateRisk, field("migration.acknowledge_state_risk"), "is not set: from the phase switch on a rollout in lockstep does not go back, and a breaking migration leaves state that the old version cannot read; say true when that is understood")
}

func (lockstep) Batches(_ *fleet.Plan, members []Member) []Cut { return oneBatch(members) }

func (lockstep) Refusal(command string, r *fleet.Rollout) *fleet.Refusal {
	switch command {
	case CommandPause, CommandPauseNow:
		return checkTogether(r, "pause it")
	case CommandSkip:
		return checkTogether(r, "leave targets out")
	case CommandForce:
		return fleet.Refuse("is in lockstep, and nothing can be forced: its targets are either all ready, or none begins. Mend what it names, then resume it")
	case CommandPromote:
		return fleet.Refuse("is in lockstep, and cannot be promoted: its targets go together, and it waits for no canaries, soak or approval")
	case CommandRetry, CommandRetryTargets:
		return fleet.Refuse("is in lockstep, and no target can try again by itself: make another rollout when this one has ended")
	case CommandRollbackFailed, CommandRollbackAll:
		return fleet.Refuse("is in lockstep, and a rollback would run mixed versions: cancel it before its phase switch, or afterwards make another rollout in lockstep to the earlier version (with force, since it goes down)")
	case CommandCancel:
		if r.State.Active() && r.Lockstep.Committed() {
			return fleet.Refuse("is in the phase %s, and goes through to its end: it is too late to cancel it. Its targets would run different versions", spaced(string(r.Lockstep.Phase)))
		}
	case CommandCancelNow:
		if r.State.Active() && r.Lockstep.Running() {
			return fleet.Refuse("is in lockstep, and holds its hosts until all of them run one version: cancel it without now to undo everything")
		}
	}
	return nil
}

// checkTogether refuses a command that the phase does not allow.
func checkTogether(r *fleet.Rollout, verb string) *fleet.Refusal {
	switch {
	case !r.Lockstep.Running():
		return nil
	case r.Lockstep.Committed():
		return fleet.Refuse("is in the phase %s, and goes through to its end: it is too late to %s. Its targets would run different versions", spaced(string(r.Lockstep.Phase)), verb)
	case r.Lockstep.Undo != nil:
		return fleet.Refuse("is being undone, it is too late to %s: wait until it has ended", verb)
	}
	return fleet.Refuse("is in the phase %s, and all of its targets wait for each other: it is too late to %s. Cancel it to undo everything", spaced(string(r.Lockstep.Phase)), verb)
}

func (lockstep) Warnings(p *fleet.Plan, pre *fleet.Preview, _ []Member) []string {
	var out []string
	switch {
	case pre.Offline == 0:
	case p.Strategy.Away == fleet.AwayExclude:
		out = append(out, fmt.Sprintf("%d of %d targets are not connected: those that still are not when it begins are left out, and keep their version", pre.Offline, len(pre.Targets)))
	case p.Stage == fleet.StageAhead:
		out = append(out, fmt.Sprintf("%d of %d targets are not connected: it does not begin before they are back, unless the plan leaves them out (strategy.away: exclude)", pre.Offline, len(pre.Targets)))
	}
	return append(out, "from the phase switch on it goes through to its end: a target that fails then stays stopped, and is named")
}

func (lockstep) wouldStop(r *fleet.Rollout) string {
	if r.Lockstep.Committed() {
		return ""
	}
	return "One target that fails undoes everything."
}

func (lockstep) decide(d *decision) {
	if d.given.State.Active() {
		d.lockstep()
	}
}

var (
	codeLockstep = CodeOf(fleet.WhyLockstep)
	codeLeftOut  = CodeOf(fleet.WhyLeftOut)
	codeUndone   = CodeOf(fleet.WhyUndone)
	codeBehind   = CodeOf(fleet.WhyBehind)
	codeSame     = CodeOf(fleet.WhySame)

	codeNotStaged = CodeOf(fleet.WhyNotStaged)
)

// stageNamed is how many hosts the command that stages a version names: more do not fit a line.
const stageNamed = 5

// LockstepWorld is what Decide needs for a rollout in lockstep.
type LockstepWorld struct {
	// Verified: the verdicts of the targets, and Others, were determined in this round.
	Verified bool
	// Others are the names of agents that run another version and are no targets, although they
	// match the selector, or have a policy whose hosts must not run mixed versions.
	Others []string
	// Texts are what the codes of verdicts do not say, by target.
	Texts map[int]string
	// Names are those of the targets' hosts, in their order. Missing names are agent ids.
	Names []string
}

// ReachedNumber returns the number of a phase in Target.Reached.
func ReachedNumber(p agentapi.LockstepPhase) uint8 {
	return uint8(slices.Index(agentapi.LockstepPhases, p) + 1) //nolint:gosec // at most the number of phases
}

// Verdict returns why a target cannot go in lockstep, and what the code does not say of it; both
// are empty if it can. The catalog has the packages of the component. Of a target that is under
// way only matters whether it is still there and online. link is what is known of its connection.
func Verdict(p *fleet.Plan, state State, a *fleet.Agent, link fleet.Connection, catalog fleet.Catalog, now time.Time) (code fleet.ReasonCode, text string) {
	if Gone(a) != "" || a.UnenrollmentStartedAt != nil {
		return fleet.WhyGone, ""
	}
	s := a.Of(p.Component)
	switch {
	case !s.Reported:
		return fleet.WhyNoComponent, ""
	case Disconnected(a, link, !state.Waits(), now):
		return fleet.WhyAway, ""
	case !state.Waits():
		return "", ""
	case s.Busy():
		return fleet.WhyBusy, ""
	case s.Version == p.Version && p.Profile == "": // with a profile its configuration may change
		return fleet.WhySame, ""
	case s.CheckLockstep() != nil:
		return fleet.WhyNoLockstep, ""
	}
	wish := fleet.UpgradeRequest{Version: p.Version, SourceURI: p.SourceURI, Force: p.Force || s.Version == p.Version, Retry: p.RetryFailed}
	if err := s.CheckUpgrade(wish, catalog); err != nil {
		return RefusalCode(err), err.Error()
	}
	if !s.HasStaged(p.Version) && s.Version != p.Version {
		return fleet.WhyNotStaged, ""
	}
	return "", ""
}

// Disconnected reports whether an agent is away for a rollout in lockstep: before it begins an agent
// whose connection is closed, which shows only by when it was seen if the server does not know its
// connection, and once targets are under way one that is offline. A server that restarts must not undo
// what all targets have stopped for.
func Disconnected(a *fleet.Agent, link fleet.Connection, underWay bool, now time.Time) bool {
	limit := fleet.ConnectedWithin
	switch {
	case underWay:
		limit = fleet.OfflineAfter
	case link == fleet.ConnectionOpen:
		return false
	case link == fleet.ConnectionClosed: // its last check-in may have been answered without a poll
		limit = fleet.ReconnectWithin
	}
	return now.Sub(a.LastActivity()) > limit
}

// Apart reports whether an agent that is no target of a rollout in lockstep runs another version, and
// would have to go together with the targets: it has a policy of theirs whose hosts must not run
// mixed versions, or it matches the selector and was not left out when the rollout was started.
// c is the component in its policy. The caller asks in addition whether the host is held.
func Apart(p *fleet.Plan, c *agentapi.PolicyComponent, s *fleet.Subject, ofTargets, leftOut, away bool, matches func() bool) bool {
	switch {
	case s.Agent.UnenrollmentStartedAt != nil, s.Version == "", s.Version == p.Version:
		return false
	case away && p.Strategy.Away == fleet.AwayExclude:
		return false
	case c.Lockstep && ofTargets:
		return true
	case leftOut, p.SourceVersion != "" && s.Version != p.SourceVersion:
		return false
	}
	return matches()
}

// StageCommand is the command that stages the plan's version on hosts, of which it names a few.
func StageCommand(p *fleet.Plan, hosts []string) string {
	hosts = hosts[:min(len(hosts), stageNamed)]
	return fmt.Sprintf("muster agents stage %s --component %s --version %s --wait", strings.Join(hosts, " "), p.Component, p.Version)
}

// NotReady describes a target that is not ready, by the code and the text of its verdict.
func NotReady(host string, code fleet.ReasonCode, text string) string {
	return fmt.Sprintf("%s (%s)", host, cmp.Or(text, ReasonText(code)))
}

// InForce returns which version is in force for a policy of the targets in a phase of a rollout to
// a version. has is the policy's record; from is what the targets run before, empty if they do not
// run the same version. It is in the store before the first order of the phase exists:
//
//   - Until the commit a host that does not run the component must not start it, whichever version
//     it has: the others may go to the new one.
//   - From the commit on all targets are stopped, so hosts with the new version may run it.
//   - When everything is undone, no host has the new version.
func InForce(l *fleet.Lockstep, to string, has *agentapi.ComponentInForce, from string) *agentapi.ComponentInForce {
	switch {
	case l.Committed():
		return &agentapi.ComponentInForce{Version: to}
	case l.Undo == nil && has != nil:
		return &agentapi.ComponentInForce{Version: has.Version, Changing: true}
	case l.Undo == nil:
		return &agentapi.ComponentInForce{Version: from, Changing: true}
	case has == nil || has.Version == "":
		return nil
	}
	return &agentapi.ComponentInForce{Version: has.Version}
}

// lockstep does a round of a rollout in lockstep.
func (d *decision) lockstep() {
	l := fleet.Lockstep{Phase: fleet.LockstepVerify, Since: d.now}
	if d.given.Lockstep != nil {
		l = *d.given.Lockstep
	}
	d.out.Lockstep, d.phase = &l, &l
	switch {
	case d.given.State == fleet.RolloutPaused && !l.Running():
		d.out.PauseAsked, d.out.RunningSince = nil, nil
		d.out.Waiting = d.waitsPaused()
	case d.given.State == fleet.RolloutCancelling && !l.Running():
		d.cancel()
	case d.given.State == fleet.RolloutCancelling && l.Undo == nil && !l.Committed():
		d.undo("the rollout was cancelled")
	default:
		if d.given.State == fleet.RolloutPaused { // commands refuse that; a group must not stand still
			d.out.State, d.out.Stop = fleet.RolloutRunning, nil
		}
		d.inPhase()
	}
	for i, code := range d.step.Reasons {
		if code == codeBatch || code == codeNext {
			d.step.Reasons[i] = codeLockstep
		}
	}
}

// inPhase does what the phase requires. A round enters at most one phase, which is then written.
func (d *decision) inPhase() {
	if d.out.RunningSince == nil {
		d.out.RunningSince = d.moment()
	}
	d.out.Waiting = nil
	switch d.phase.Phase {
	case fleet.LockstepVerify:
		d.verifyTargets()
	case fleet.LockstepDrain:
		d.offerAll()
		d.barrier(agentapi.LockstepDrain, fleet.LockstepStop)
	case fleet.LockstepStop:
		d.barrier(agentapi.LockstepStop, fleet.LockstepVerifyAgain)
	case fleet.LockstepVerifyAgain:
		d.verifyAgain()
	case fleet.LockstepBackup:
		d.barrier(agentapi.LockstepBackup, fleet.LockstepSwitch)
	case fleet.LockstepSwitch:
		d.forward(agentapi.LockstepSwitch, fleet.LockstepStart)
	case fleet.LockstepStart:
		d.forward(agentapi.LockstepStart, fleet.LockstepSettle)
	case fleet.LockstepSettle:
		d.settle()
	case fleet.LockstepUndo:
		d.goBack()
	}
}

// enter begins a phase. The next round, which the document's write precedes, gives its orders.
func (d *decision) enter(p fleet.LockstepPhase) {
	d.phase.Phase, d.phase.Since, d.more = p, d.now, true
	if p == fleet.LockstepSwitch {
		d.phase.CommittedAt = d.moment()
	}
	d.out.Waiting = []fleet.Wait{{Code: fleet.WhyLockstep, Since: d.now, Text: fmt.Sprintf("%s go together: %s begins", Count(d.phase.Targets, "target", "targets"), PhaseText(p))}}
}

// undo begins to undo everything. It must not be called once the rollout is committed.
func (d *decision) undo(why string) {
	d.phase.Undo = &fleet.Undo{At: d.now, In: d.phase.Phase, Why: why}
	d.enter(fleet.LockstepUndo)
	d.out.PauseAsked = nil
	d.out.Waiting[0].Text = "everything is undone: " + why
}

// verifyTargets begins the phase drain if all targets are ready, and nothing forbids to begin now.
// Otherwise it pauses, with the list of those that are not.
func (d *decision) verifyTargets() {
	d.checkOpen()
	if d.stages() {
		d.pauseAsAsked()
		return
	}
	if d.pauseAsAsked(); !d.running() {
		return
	}
	if d.total.waiting() == 0 {
		d.endLockstep(fleet.RolloutCompleted)
		return
	}
	if !d.world.Lockstep.Verified {
		d.out.Waiting = []fleet.Wait{{Code: fleet.WhyVerify, Since: d.phase.Since, Text: "it is verified that all targets are ready"}}
		return
	}
	var away, same, faults []int
	for i := range d.targets {
		switch t := &d.targets[i]; {
		case !t.State.Waits() || t.Verdict == 0:
		case t.Verdict == codeSame:
			same = append(same, i)
		case t.Verdict == codeAway && d.plan.Strategy.Away == fleet.AwayExclude:
			away = append(away, i)
		default:
			faults = append(faults, i)
		}
	}
	if len(same) > 0 { // somebody else has upgraded them since the start
		for _, i := range same {
			d.move(d.batchOf(i), i, Skipped, codeSame)
		}
		d.more = true
		return
	}
	ready := d.total.waiting() - len(away)
	if len(faults) > 0 || len(d.world.Lockstep.Others) > 0 || ready == 0 {
		d.refuseToBegin(away, faults)
		return
	}
	d.phase.Failed = nil
	if d.closed != 0 {
		d.setReason(0, len(d.targets), d.closed)
		d.out.Waiting = []fleet.Wait{{Code: d.closed.Name(), Text: d.closeText, Until: d.opens}}
		return
	}
	for i := range d.targets {
		if t := &d.targets[i]; t.State.Waits() && t.Verdict == 0 {
			if !d.room.has(t) {
				d.wake(d.now.Add(exposureInterval))
				d.out.Waiting = []fleet.Wait{{Code: fleet.WhyExposure, Text: exposureText(&d.world.Exposure.Exposure, nil)}}
				return
			}
			d.room.take(t)
		}
	}
	for _, i := range away {
		d.move(d.batchOf(i), i, Skipped, codeLeftOut)
	}
	d.phase.Missing, d.phase.Targets = atMost(d.names(away), len(away)), ready
	if len(d.out.Batches) > 0 {
		d.out.Batches[0].StartedAt = d.moment()
	}
	d.enter(fleet.LockstepDrain)
}

// refuseToBegin pauses the rollout, which names the targets that are not ready.
func (d *decision) refuseToBegin(away, faults []int) {
	list, all := d.faults(faults), len(faults)
	text := fmt.Sprintf("%d of %s not ready: ", len(faults), Count(d.total.waiting(), "target is", "targets are"))
	switch {
	case len(faults) > 0:
	case len(d.world.Lockstep.Others) > 0:
		text = "other agents run another version, and match the plan or have a policy whose hosts must not run mixed versions, so another rollout is needed: "
		list, all = d.world.Lockstep.Others, len(d.world.Lockstep.Others)
	default:
		text = "all targets are away: "
		list, all = d.names(away), len(away)
	}
	if which := slices.DeleteFunc(slices.Clone(faults), func(i int) bool { return d.targets[i].Verdict != codeNotStaged }); len(which) > 0 {
		text = fmt.Sprintf("stage the version first (`%s`): %s", StageCommand(d.plan, d.names(which)), text)
	}
	d.phase.Failed = atMost(list, all)
	d.stop(stopped{kind: fleet.StopVerify, text: text + Few(list, all)})
	for _, i := range faults {
		d.step.Reasons[i] = d.targets[i].Verdict
	}
}

// offerAll offers the version to all targets at once. One whose offer did not reach its agent is
// offered it again, until the patience is over.
func (d *decision) offerAll() {
	for i := range d.targets {
		t := &d.targets[i]
		switch {
		case !t.State.Waits() || d.lostAny():
		case t.Busy:
			d.step.Reasons[i] = codeBusy
		default:
			d.step.Offer = append(d.step.Offer, int32(i))
			d.step.Reasons[i] = 0
			d.recount(d.batchOf(i), i, Offered)
		}
	}
}

// lostAny reports whether a target has fallen out since the phase drain began.
func (d *decision) lostAny() bool {
	return d.total.waiting()+d.total[Offered]+d.total[Upgrading] < d.phase.Targets
}

// lost returns the targets that have fallen out, or went ahead of the others.
func (d *decision) lost() []int {
	var began int64
	if len(d.out.Batches) > 0 && d.out.Batches[0].StartedAt != nil {
		began = d.out.Batches[0].StartedAt.UnixNano()
	}
	var which []int
	for i := range d.targets {
		t := &d.targets[i]
		switch {
		case t.State.Waits(), t.State == Offered, t.State == Upgrading, t.Code == codeLeftOut, t.Since < began:
		default:
			which = append(which, i)
		}
	}
	return which
}

// barrier enters the next phase once all targets have reached a phase, and undoes everything if
// one cannot any more.
func (d *decision) barrier(reach agentapi.LockstepPhase, next fleet.LockstepPhase) {
	if d.undoneByFault() {
		return
	}
	behind := d.behind(reach)
	if len(behind) == 0 {
		d.enter(next)
		return
	}
	d.waitFor(behind, func(text string) { d.undo(text) })
}

// undoneByFault undoes everything if a target has fallen out.
func (d *decision) undoneByFault() bool {
	if !d.lostAny() {
		return false
	}
	d.undo(fmt.Sprintf("a target has fallen out in the phase %s: %s", d.phase.Phase, d.list(d.lost(), d.faults)))
	return true
}

// behind returns the targets under way that have not reached a phase.
func (d *decision) behind(reach agentapi.LockstepPhase) []int {
	need := ReachedNumber(reach)
	var which []int
	for i := range d.targets {
		if t := &d.targets[i]; t.State.Waits() || (t.State == Offered || t.State == Upgrading) && t.Reached < need {
			which = append(which, i)
		}
	}
	return which
}

// waitFor waits for targets until the patience is over, and then calls over with a sentence.
func (d *decision) waitFor(behind []int, over func(text string)) {
	patience := d.plan.Strategy.PhaseTime()
	until := d.phase.Since.Add(patience)
	if !until.After(d.now) {
		over(fmt.Sprintf("%s not done with the phase %s within %s: %s",
			Count(len(behind), "target is", "targets are"), d.phase.Phase, short(patience), d.list(behind, d.names)))
		return
	}
	d.wake(until)
	d.out.Waiting = []fleet.Wait{{
		Code: fleet.WhyLockstep, Since: d.phase.Since, Until: &until,
		Text: fmt.Sprintf("%s: %d of %s", PhaseText(d.phase.Phase), d.phase.Targets-len(behind), Count(d.phase.Targets, "target has done it", "targets have done it")),
	}}
}

// verifyAgain begins the phase backup if the targets are still the same and online: their set
// may have changed while they were drained and stopped.
func (d *decision) verifyAgain() {
	if d.undoneByFault() {
		return
	}
	if !d.world.Lockstep.Verified {
		d.waitFor(nil, func(string) { d.undo("the targets could not be verified again in time") })
		return
	}
	var faults []int
	for i := range d.targets {
		if t := &d.targets[i]; t.State.InFlight() && t.Verdict != 0 {
			faults = append(faults, i)
		}
	}
	switch others := d.world.Lockstep.Others; {
	case len(faults) > 0:
		d.undo("targets were lost while all were stopped: " + d.list(faults, d.faults))
	case len(others) > 0:
		d.undo("other agents came that would run another version: " + Few(others, len(others)))
	default:
		d.enter(fleet.LockstepBackup)
	}
}

// forward enters the next phase once no target is behind, or the patience is over: from the commit
// on nothing stops a rollout in lockstep.
func (d *decision) forward(reach agentapi.LockstepPhase, next fleet.LockstepPhase) {
	behind := d.behind(reach)
	if len(behind) == 0 {
		d.enter(next)
		return
	}
	d.waitFor(behind, func(string) { d.enter(next) })
}

// settle ends the rollout once the health of all targets is judged. Targets that do not go along
// in time fail; their orders wait for them.
func (d *decision) settle() {
	d.giveUp()
	switch {
	case d.total.inFlight() > 0:
		if d.out.Waiting == nil {
			d.out.Waiting = []fleet.Wait{{Code: fleet.WhyLockstep, Since: d.phase.Since, Text: fmt.Sprintf("%s its health", Count(d.total.inFlight(), "target shows", "targets show"))}}
		}
	case d.more || d.goesBack() || d.watched():
	case d.total.bad()+d.total[Withdrawn] > 0:
		d.endLockstep(fleet.RolloutFailed)
	default:
		d.endLockstep(fleet.RolloutCompleted)
	}
}

// giveUp fails the targets under way that have not reported the end when the patience is over.
func (d *decision) giveUp() {
	var behind []int
	for i := range d.targets {
		if s := d.targets[i].State; s == Offered || s == Upgrading {
			behind = append(behind, i)
		}
	}
	if len(behind) == 0 {
		return
	}
	d.waitFor(behind, func(string) {
		for _, i := range behind {
			d.move(d.batchOf(i), i, Failed, codeBehind)
		}
	})
}

// goBack ends the rollout once all targets are where they were before.
func (d *decision) goBack() {
	d.withdraw() // offers that no host has begun; the order to undo reaches the others
	code := codeUndone
	if d.given.State == fleet.RolloutCancelling {
		code = codeOperator
	}
	for i := range d.targets {
		if d.targets[i].State.Waits() {
			d.move(d.batchOf(i), i, Cancelled, code)
		}
	}
	if d.total.inFlight() > 0 {
		d.giveUp()
	}
	if n := d.total.inFlight(); n > 0 {
		w := fleet.Wait{Code: fleet.WhyLockstep, Since: d.phase.Since, Text: fmt.Sprintf("everything is undone (%s); %s not reported that yet", d.phase.Undo.Why, Count(n, "target has", "targets have"))}
		if len(d.out.Waiting) > 0 {
			w.Until = d.out.Waiting[0].Until
		}
		d.out.Waiting = []fleet.Wait{w}
		return
	}
	state := fleet.RolloutFailed
	if d.given.State == fleet.RolloutCancelling {
		state = fleet.RolloutCancelled
	}
	d.endLockstep(state)
}

// endLockstep ends the rollout, and names the targets that failed.
func (d *decision) endLockstep(state fleet.RolloutState) {
	moved := map[int]State{}
	for _, m := range d.step.Moves {
		moved[int(m.Target)] = m.To
	}
	var failed []int
	for i := range d.targets {
		s, ok := moved[i]
		if !ok {
			s = d.targets[i].State
		}
		if s == Failed || (s == RolledBack || s == Withdrawn) && d.phase.Undo == nil {
			failed = append(failed, i)
		}
	}
	d.phase.Failed = atMost(d.names(failed), len(failed))
	if len(d.out.Batches) > 0 && d.out.Batches[0].StartedAt != nil {
		d.out.Batches[0].EndedAt, d.out.Batches[0].ClearedAt = d.moment(), d.moment()
	}
	d.end(state)
}

// names returns the names of the hosts of targets, at most fleet.MaxLockstepNames.
func (d *decision) names(which []int) []string {
	var out []string
	for _, i := range which[:min(len(which), fleet.MaxLockstepNames)] {
		out = append(out, d.name(i))
	}
	return out
}

func (d *decision) name(i int) string {
	if names := d.world.Lockstep.Names; i < len(names) && names[i] != "" {
		return names[i]
	}
	return d.targets[i].AgentID
}

// faults returns what is wrong with targets, each with the name of its host.
func (d *decision) faults(which []int) []string {
	var out []string
	for _, i := range which[:min(len(which), fleet.MaxLockstepNames)] {
		t := &d.targets[i]
		code := t.Verdict
		if !t.State.InFlight() && !t.State.Waits() {
			code = t.Code
		}
		text := d.world.Lockstep.Texts[i]
		if ReasonText(code.Name()) == "" {
			text = "it did not wait for the others"
		}
		out = append(out, NotReady(d.name(i), code.Name(), text))
	}
	return out
}

// atMost returns at most fleet.MaxLockstepNames names for the document, and how many more there
// are.
func atMost(names []string, all int) []string {
	names = slices.Clone(names[:min(len(names), fleet.MaxLockstepNames-1)])
	if n := all - len(names); n > 0 {
		names = append(names, fmt.Sprintf("and %d more", n))
	}
	return names
}

// list lists targets for a sentence.
func (d *decision) list(which []int, describe func([]int) []string) string {
	return Few(describe(which), len(which))
}

// Few lists the first of all names for a sentence, and how many more there are. names may end
// before all do.
func Few(names []string, all int) string {
	const most = 5
	names = names[:min(len(names), most)]
	text := strings.Join(names, ", ")
	if n := all - len(names); n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}

// PhaseText describes a phase of a rollout in lockstep.
func PhaseText(p fleet.LockstepPhase) string {
	switch p {
	case fleet.LockstepVerify:
		return "it is verified that all targets are ready"
	case fleet.LockstepDrain:
		return "the targets finish what they do"
	case fleet.LockstepStop:
		return "the targets are stopped"
	case fleet.LockstepVerifyAgain:
		return "it is verified that the targets are still the same, and online"
	case fleet.LockstepBackup:
		return "the state of the targets is copied"
	case fleet.LockstepSwitch:
		return "the new version is installed, and there is no way back"
	case fleet.LockstepStart:
		return "the new version is started"
	case fleet.LockstepSettle:
		return "the health of the new version is judged"
	case fleet.LockstepUndo:
		return "everything is undone"
	}
	return string(p)
}
