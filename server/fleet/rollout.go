package fleet

import (
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Rollout upgrades many agents to a version, in batches. One server at a time works on
// it, holding its lease. Operators change it through Orders and the decisions below;
// Revision guards both.
type Rollout struct {
	ID    string       `json:"id"`
	State RolloutState `json:"state"`
	Plan  Plan         `json:"plan"`
	// Pin is the preview that was started, nil before. On a draft it means that a start
	// was interrupted; starting again completes it.
	Pin *Pin `json:"pin,omitempty"`
	// Previews are the hashes of its stored previews, newest last.
	Previews []string `json:"previews,omitempty"`
	// Policies are the policies of its targets. Each is locked to this rollout while it
	// is active.
	Policies []string `json:"policies,omitempty"`

	// RollbackOf is the rollout whose targets this one rolls back; RolledBackBy is the
	// rollout that rolls this one back.
	RollbackOf   string `json:"rollback_of,omitempty"`
	RolledBackBy string `json:"rolled_back_by,omitempty"`

	// Group is the group that this rollout is a member of, or rolls a member of back.
	Group string `json:"group,omitempty"`

	// Fleet is the declared fleet that this rollout carries out, by name, and SpecHash the
	// rollout hash of its spec; empty: it is an operator's, or another service's.
	Fleet    string `json:"fleet,omitempty"`
	SpecHash string `json:"spec_hash,omitempty"`

	// Generation increases with every operator change and with every stop. Action ids
	// contain it, so that the actions of a stale executor are refused.
	Generation int64 `json:"generation"`
	// Stop is why it is paused.
	Stop *Stop `json:"stop,omitempty"`
	// PauseAsked requests a pause at the end of the current batch.
	PauseAsked *Decision `json:"pause_asked,omitempty"`
	// Approved lets the batches after the canaries proceed. Forced lets it proceed
	// although the threshold was crossed, and forgives the failures up to then.
	Approved *Decision `json:"approved,omitempty"`
	Forced   *Decision `json:"forced,omitempty"`
	// Promoted lets it proceed without what it waits for because of its own progress: the
	// observation of canaries, soak and approval. Windows, freezes and the exposure budget hold.
	Promoted *Decision `json:"promoted,omitempty"`
	// CancelledNow means that it was cancelled at once: it holds none of its hosts any more, and does not
	// judge the health of those that run the version.
	CancelledNow *Decision `json:"cancelled_now,omitempty"`
	Forgiven     int       `json:"forgiven,omitempty"` // failures that no longer count against the threshold
	// Orders are the orders not yet carried out, oldest first.
	Orders []Order `json:"orders,omitempty"`

	// Staging is how far its targets have staged the version, nil before they are asked, and
	// without Plan.Stage.
	Staging *Staging `json:"staging,omitempty"`
	// Lockstep is how far a rollout in lockstep is; nil before its first round, and of other
	// strategies.
	Lockstep *Lockstep `json:"lockstep,omitempty"`

	Batches []Batch `json:"batches,omitempty"`
	Counts  Counts  `json:"counts"`
	// Marks are how many targets had ended, over the last minutes, from which its pace is computed;
	// oldest first. They are only in the store.
	Marks []EndMark `json:"marks,omitempty"`
	// Waiting lists what it waits for, most important first; empty while it makes
	// offers.
	Waiting []Wait `json:"waiting,omitempty"`
	// Exposure is the state of the budget at the last reconciliation, nil before the
	// first.
	Exposure *Exposure `json:"exposure,omitempty"`

	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// Automatic means that the server has created it, because a policy requires a version.
	Automatic bool       `json:"is_automatic,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	StartedBy string     `json:"started_by,omitempty"`
	// RunningSince is nil while it does not run. Deadlines of waits count from it, so
	// that a pause uses up none of their time.
	RunningSince *time.Time `json:"running_since,omitempty"`
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	Revision     int64      `json:"-"`
}

// Staging is how far the targets of a rollout have staged its version. What they have staged
// is in their documents.
type Staging struct {
	// StartedAt is when they were asked, Until how long the first batch waits for them, and
	// EndedAt when it waited no longer.
	StartedAt time.Time  `json:"started_at"`
	Until     time.Time  `json:"until"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Targets is how many were asked: the first ones, without those that joined later.
	Targets int `json:"targets"`
	// Answered have staged it, have failed to, or cannot. Waiting are the other targets
	// that are online.
	Answered int `json:"answered"`
	Waiting  int `json:"waiting"`
}

// RolloutOf returns the rollout that an action belongs to, empty if to none. Its id is that of
// the rollout, with -g, the generation, a dash and a number.
func RolloutOf(actionID string) string {
	head := actionID[:max(0, strings.LastIndexByte(actionID, '-'))]
	return head[:max(0, strings.LastIndex(head, "-g"))]
}

// RolloutState is the state of a rollout.
//
//	draft ─► running ⇄ paused ─► completed | failed | cancelled | rolled_back
//
// Waiting says what a running rollout waits for (soak, window, approval, …).
type RolloutState string

// Values of RolloutState. A rollout that has failures and nothing left to do is failed.
const (
	RolloutDraft      RolloutState = "draft"
	RolloutRunning    RolloutState = "running"
	RolloutPaused     RolloutState = "paused"
	RolloutCancelling RolloutState = "cancelling" // makes no new offers; upgrades in flight end
	RolloutCompleted  RolloutState = "completed"
	RolloutFailed     RolloutState = "failed"
	RolloutCancelled  RolloutState = "cancelled"
	RolloutRolledBack RolloutState = "rolled_back"
)

// Active reports whether the rollout is under way; see Rollout.Holds.
func (s RolloutState) Active() bool {
	return s == RolloutRunning || s == RolloutPaused || s == RolloutCancelling
}

// Ended reports whether the rollout has ended.
func (s RolloutState) Ended() bool { return s != RolloutDraft && !s.Active() }

// Pin identifies the preview that a rollout was started with.
type Pin struct {
	Hash    string    `json:"hash"` // sha256:…
	Targets int       `json:"targets"`
	At      time.Time `json:"at"`
}

// Decision records who decided something, when and why.
type Decision struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Why string    `json:"why,omitempty"`
}

// Stop is why a rollout is paused.
type Stop struct {
	Kind StopKind  `json:"kind"`
	Text string    `json:"text"` // a sentence
	By   string    `json:"by"`   // muster, or the operator
	At   time.Time `json:"at"`
	// Withdrawn is how many offers the stop withdrew.
	Withdrawn int `json:"withdrawn"`
	// Batch is the batch in which it happened.
	Batch int `json:"batch"`
}

// StopKind classifies stops by what is needed to resume.
type StopKind string

// Values of StopKind. Resuming after a gate (threshold, canary, exposure, deadline)
// requires a reason.
const (
	StopOperator  StopKind = "operator"
	StopSuccess   StopKind = "success" // pause_on_success
	StopThreshold StopKind = "threshold"
	StopCanary    StopKind = "canary"
	StopExposure  StopKind = "exposure"
	StopDeadline  StopKind = "deadline"
	StopRollback  StopKind = "rollback" // its rollback is under way
	StopVerify    StopKind = "verify"   // not all targets of a rollout in lockstep are ready
)

// Gate reports whether resuming requires a reason.
func (k StopKind) Gate() bool {
	return k == StopThreshold || k == StopCanary || k == StopExposure || k == StopDeadline
}

// Order is a command on targets that the reconciler carries out.
type Order struct {
	ID   string    `json:"id"`
	Kind OrderKind `json:"kind"`
	// Agents are the agents concerned; empty means all that the kind applies to, such
	// as all failed ones for a retry.
	Agents []string `json:"agents,omitempty"`
	Decision
}

// OrderKind is what an order does.
type OrderKind string

// Values of OrderKind.
const (
	OrderRetry    OrderKind = "retry"    // failed, withdrawn or expired → pending
	OrderSkip     OrderKind = "skip"     // pending, held or failed → skipped
	OrderWithdraw OrderKind = "withdraw" // by a stop: takes back offers that have not begun
	OrderReturn   OrderKind = "return"   // by resume, force or promote: withdrawn by a stop → pending, in the same position
	OrderAdjust   OrderKind = "adjust"   // by adjust: what targets have from the plan is determined again
)

// Batch is a stage of a rollout.
type Batch struct {
	Index int       `json:"index"`
	Kind  BatchKind `json:"kind"`
	Ring  int       `json:"ring"` // 0 without rings
	// StartedAt is the time of the first offer, EndedAt when all targets but absent
	// agents were done, and ClearedAt when everything that follows (observation, soak,
	// approval) was.
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	ClearedAt *time.Time `json:"cleared_at,omitempty"`
	Counts    Counts     `json:"counts"`
}

// BatchKind distinguishes canaries from other batches.
type BatchKind string

// Values of BatchKind.
const (
	BatchCanary  BatchKind = "canary"
	BatchRegular BatchKind = "regular"
	BatchLate    BatchKind = "late" // agents that joined after the start
)

// Counts counts targets by state. The states add up to Total.
type Counts struct {
	Total      int `json:"total"`
	Pending    int `json:"pending"`
	Held       int `json:"held"`
	Offered    int `json:"offered"`
	Upgrading  int `json:"upgrading"`
	Verifying  int `json:"verifying"`
	Succeeded  int `json:"succeeded"`
	Failed     int `json:"failed"`
	RolledBack int `json:"rolled_back"`
	Withdrawn  int `json:"withdrawn"`
	Skipped    int `json:"skipped"`
	Expired    int `json:"expired"`
	Cancelled  int `json:"cancelled"`
	// Refused are those of the skipped that nobody left out: their hosts could not be given the
	// version when their turn came.
	Refused int `json:"refused,omitempty"`
}

// Of returns the counter of a state, nil for an unknown state.
func (c *Counts) Of(s TargetState) *int {
	switch s {
	case TargetPending:
		return &c.Pending
	case TargetHeld:
		return &c.Held
	case TargetOffered:
		return &c.Offered
	case TargetUpgrading:
		return &c.Upgrading
	case TargetVerifying:
		return &c.Verifying
	case TargetSucceeded:
		return &c.Succeeded
	case TargetFailed:
		return &c.Failed
	case TargetRolledBack:
		return &c.RolledBack
	case TargetWithdrawn:
		return &c.Withdrawn
	case TargetSkipped:
		return &c.Skipped
	case TargetExpired:
		return &c.Expired
	case TargetCancelled:
		return &c.Cancelled
	}
	return nil
}

// Add counts one target.
func (c *Counts) Add(s TargetState) {
	c.Total++
	if n := c.Of(s); n != nil {
		*n++
	}
}

// EndMark is how many targets of a rollout had ended at a time.
type EndMark struct {
	At    time.Time `json:"at"`
	Ended int       `json:"ended"`
}

// Ended returns the number of targets that change no more unless an operator acts.
func (c Counts) Ended() int {
	return c.Succeeded + c.Failed + c.RolledBack + c.Withdrawn + c.Skipped + c.Expired + c.Cancelled
}

// InFlight returns the number of targets that are being upgraded, or have an offer.
func (c Counts) InFlight() int { return c.Offered + c.Upgrading + c.Verifying }

// Bad returns the number of targets that failed or were rolled back.
func (c Counts) Bad() int { return c.Failed + c.RolledBack }

// Attempted returns the number of targets that succeeded, failed or were rolled back:
// the denominator of the failure percentage. Agents that never took their offer are not
// included.
func (c Counts) Attempted() int { return c.Succeeded + c.Bad() }

// Target is one agent of a rollout. Its id is rollout:agent.
type Target struct {
	RolloutID string      `json:"rollout_id"`
	AgentID   string      `json:"agent_id"`
	Hostname  string      `json:"hostname"`
	Batch     int         `json:"batch"`
	Order     int         `json:"order"` // its position among all targets
	Ring      int         `json:"ring"`
	State     TargetState `json:"state"`
	// From is the version that ran when the rollout was started, To the one it is to
	// run.
	From string `json:"from"`
	To   string `json:"to"`
	// Rollback marks a return to a version that the host has kept.
	Rollback bool `json:"rollback,omitempty"`
	// Config identifies the configuration files that the server renders for the host; empty:
	// none.
	Config string `json:"config,omitempty"`
	// Observes is how long its host observes the new version of the component before it reports
	// it as installed. The offer orders it, so the host's policy may change meanwhile.
	Observes Duration `json:"observes,omitempty"`
	// Values are the agent's values of the labels in Limits.Per, in the same order.
	Values []string `json:"values,omitempty"`
	Site   string   `json:"site,omitempty"` // the value of the label site
	// Policy is the id of the policy that the agent had when it became a target.
	Policy string `json:"policy,omitempty"`

	ActionID string `json:"action_id,omitempty"` // the current or last offer's
	// ActionIDs are the action ids of all earlier offers.
	ActionIDs []string `json:"action_ids,omitempty"`
	Phase     string   `json:"phase,omitempty"` // as the agent reports it, such as UPG_DOWNLOADING
	// HostPhase is what is done on the host by the report that Phase is from; see HostPhase.
	HostPhase string `json:"host_phase,omitempty"`
	// Reached is the last phase that its host has reached in lockstep by the current offer. Hosts
	// never report less, except right after a start.
	Reached  agentapi.LockstepPhase `json:"reached,omitempty"`
	Attempts int                    `json:"attempts"`
	// Retried: an operator has ordered a retry, so that an earlier failure of the version on the
	// host is no reason to leave it out.
	Retried   bool           `json:"retried,omitempty"`
	Code      ReasonCode     `json:"code,omitempty"` // why it is in this state
	Error     string         `json:"error,omitempty"`
	OfferedAt *time.Time     `json:"offered_at,omitempty"`
	ReachedAt *time.Time     `json:"reached_at,omitempty"` // when the version checked in
	SignAt    *time.Time     `json:"sign_at,omitempty"`    // last sign of life or progress in flight
	ExpiresAt *time.Time     `json:"expires_at,omitempty"` // when an offer held for an absent agent expires
	EndedAt   *time.Time     `json:"ended_at,omitempty"`
	History   []TargetChange `json:"history,omitempty"` // oldest first, at most MaxTargetHistory
	Revision  int64          `json:"-"`
}

// MaxTargetHistory bounds Target.History. It has room for ten attempts.
const MaxTargetHistory = 50

// TargetChange is one state change of a target.
type TargetChange struct {
	At    time.Time   `json:"at"`
	State TargetState `json:"state"`
	Phase string      `json:"phase,omitempty"`
	Code  ReasonCode  `json:"code,omitempty"`
	Error string      `json:"error,omitempty"`
}

// TargetState is the state of a target.
type TargetState string

// Values of TargetState. An offered target may still be asleep, queued or downloading:
// it has not begun. From Upgrading on, its host is changed.
const (
	TargetPending    TargetState = "pending"
	TargetHeld       TargetState = "held" // the offer waits for an agent that is away, until it expires
	TargetOffered    TargetState = "offered"
	TargetUpgrading  TargetState = "upgrading"
	TargetVerifying  TargetState = "verifying" // runs the version; its health is observed
	TargetSucceeded  TargetState = "succeeded"
	TargetFailed     TargetState = "failed"
	TargetRolledBack TargetState = "rolled_back" // its watcher restored the old version
	TargetWithdrawn  TargetState = "withdrawn"   // the offer was withdrawn before the upgrade began
	TargetSkipped    TargetState = "skipped"
	TargetExpired    TargetState = "expired" // did not take its offer in time
	TargetCancelled  TargetState = "cancelled"
)

// TargetStates lists all states, in the order of a target's life.
var TargetStates = [...]TargetState{
	TargetPending, TargetHeld, TargetOffered, TargetUpgrading, TargetVerifying, TargetSucceeded,
	TargetFailed, TargetRolledBack, TargetWithdrawn, TargetSkipped, TargetExpired, TargetCancelled,
}

// InFlight reports whether the target counts against the limits.
func (s TargetState) InFlight() bool {
	return s == TargetOffered || s == TargetUpgrading || s == TargetVerifying
}

// Ended reports whether the target changes no more unless an operator acts.
func (s TargetState) Ended() bool { return !s.InFlight() && s != TargetPending && s != TargetHeld }

// ReasonCode is why a target is in its state. Append only; the texts are in package
// rollout.
type ReasonCode string

// Reasons why a target is not offered the version now.
const (
	WhyDraft        ReasonCode = "draft"         // the rollout has not been started
	WhyBatch        ReasonCode = "later_batch"   // an earlier batch is not done
	WhyParallel     ReasonCode = "max_parallel"  // the limit of parallel upgrades is reached
	WhyLabelLimit   ReasonCode = "label_limit"   // the limit for its site, … is reached
	WhySoak         ReasonCode = "soak"          // the batch before is soaking
	WhyObservation  ReasonCode = "observation"   // the canaries are observed
	WhyApproval     ReasonCode = "approval"      // an operator must approve
	WhyWindow       ReasonCode = "window"        // outside the maintenance windows
	WhyFreeze       ReasonCode = "freeze"        // within a freeze
	WhyPaused       ReasonCode = "paused"        // by an operator, or pause_on_success
	WhyThreshold    ReasonCode = "threshold"     // too many have failed
	WhyCanaryFailed ReasonCode = "canary_failed" // a canary has failed
	WhyExposure     ReasonCode = "exposure"      // the exposure budget is used up
	WhyDeadline     ReasonCode = "deadline"      // the plan's deadline, or that of a wait, has passed
	WhyAway         ReasonCode = "away"          // the agent is not connected; its offer is held
	WhyBusy         ReasonCode = "busy"          // the agent has another upgrade under way
	WhyOver         ReasonCode = "over"          // the rollout has ended
	WhyRollingBack  ReasonCode = "rolling_back"  // the rollout's rollback is under way
	WhyNext         ReasonCode = "next"          // it is offered in the next round
	WhyWatched      ReasonCode = "watched"       // its host still watches the new version
	WhyGoingBack    ReasonCode = "going_back"    // its watcher is still restoring the old version
	WhyUnconfirmed  ReasonCode = "unconfirmed"   // its host has not confirmed that the offer was withdrawn
	WhyNewerServer  ReasonCode = "newer_server"  // only a newer server knows the rollout's strategy
	WhyStaging      ReasonCode = "staging"       // the targets stage the version first
	WhyVerify       ReasonCode = "verify"        // not all targets are ready to go in lockstep
	WhyLockstep     ReasonCode = "lockstep"      // all targets go together, phase by phase
	WhyNotStaged    ReasonCode = "not_staged"    // the host has not staged the version
	WhyNoLockstep   ReasonCode = "no_lockstep"   // the agent cannot upgrade the component in lockstep
)

// Reasons why an agent is not a target, or why a target ended.
const (
	WhySame         ReasonCode = "runs_version"     // runs the version already
	WhyRefused      ReasonCode = "refused"          // CheckUpgrade says why
	WhyFailedBefore ReasonCode = "failed_before"    // the version failed on its host before
	WhyOtherSource  ReasonCode = "other_source"     // does not run Plan.SourceVersion
	WhyRing         ReasonCode = "other_ring"       // in a ring that is not part of this rollout
	WhyLocked       ReasonCode = "locked"           // locked by another rollout
	WhyNoWayBack    ReasonCode = "no_way_back"      // has no last healthy version to go back to
	WhyReported     ReasonCode = "reported_failure" // the agent reported why, in Error
	WhyCompensated  ReasonCode = "rolled_back"      // the watcher restored the old version
	WhyStuck        ReasonCode = "rollback_failed"  // the watcher could not restore it: the host needs manual repair
	WhyStale        ReasonCode = "stale"            // no sign of life for StaleAfter
	WhyNoProgress   ReasonCode = "no_progress"      // alive, but its upgrade has not moved for StallFactor times StaleAfter
	WhyStalled      ReasonCode = "stalled"          // alive, but not healthy within the wait
	WhySilent       ReasonCode = "silent"           // reached the version, then was silent for longer than its usual gap
	WhyCrashLoop    ReasonCode = "crash_loop"       // its process ended MaxCrashes times
	WhyUnhealthy    ReasonCode = "unhealthy"        // a component failed, or the agent reports an error
	WhyGone         ReasonCode = "gone"             // unenrolled
	WhyLostTarget   ReasonCode = "overtaken"        // another version was installed meanwhile
	WhyOperator     ReasonCode = "operator"         // skipped, withdrawn or cancelled by hand
	WhyExpired      ReasonCode = "expired"          // the offer expired
	WhyHealthy      ReasonCode = "healthy"          // succeeded
	WhyUnchecked    ReasonCode = "unchecked"        // succeeded with skip_validation
	WhyNoComponent  ReasonCode = "no_component"     // its policy lists no such component, or it does not report it
	WhyConfig       ReasonCode = "config"           // the configuration for its host cannot be rendered
	WhyConfigNow    ReasonCode = "config_changed"   // the configuration for its host is another one than was previewed
	WhyLeftOut      ReasonCode = "left_out_away"    // was away when the targets were verified
	WhyUndone       ReasonCode = "undone"           // everything was undone
	WhyBehind       ReasonCode = "behind"           // did not go along in time
	WhyInForce      ReasonCode = "in_force"         // another version is in force for its policy
	WhyNeverSeen    ReasonCode = "never_checked_in" // enrolled, and never checked in
)

// Wait is something a rollout waits for.
type Wait struct {
	Code  ReasonCode `json:"code"`
	Text  string     `json:"text"`
	Since time.Time  `json:"since"`
	// Until is when the wait ends by itself, or its deadline; nil: neither.
	Until *time.Time `json:"until,omitempty"`
}

// Preview is what a rollout would do. Hash pins it, and is its id.
type Preview struct {
	Hash      string    `json:"hash"`
	RolloutID string    `json:"rollout_id"`
	Component string    `json:"component,omitempty"` // the plan's
	At        time.Time `json:"at"`
	// ServerDefaults are the fields of the plan with the server's default, and their values, such
	// as “limits.max_parallel: 50”.
	ServerDefaults []string `json:"server_defaults,omitempty"`
	// Targets are in order of upgrade. Skipped are agents that match but are left out.
	Targets  []PreviewTarget `json:"targets"`
	Skipped  []SkippedAgent  `json:"skipped"`
	Batches  []PreviewBatch  `json:"batches"`
	Coverage *Coverage       `json:"coverage,omitempty"` // of canaries
	Sites    []SiteBytes     `json:"sites"`
	Offline  int             `json:"offline"` // targets that are away, whose offers would be held
	// AtLeast is the shortest time the rollout can take; Estimate is based on the
	// durations of past upgrades in this fleet.
	AtLeast  Duration  `json:"at_least"`
	Estimate Duration  `json:"estimate"`
	Exposure *Exposure `json:"exposure,omitempty"`
	// Staging is what comes before the first batch, nil without Plan.Stage.
	Staging *PreviewStaging `json:"staging,omitempty"`
	// Refusals are why a start would be refused now, the one that a start returns first; empty:
	// it would not be.
	Refusals []StartRefusal `json:"refusals,omitempty"`
	// Warnings are sentences about, for example, batches larger than max_parallel,
	// canaries that leave cells uncovered, and hosts that could not roll back.
	Warnings []string `json:"warnings"`
	Revision int64    `json:"-"`
}

// StartRefusal is a reason for which a start would be refused.
type StartRefusal struct {
	// Code is that of the error, such as rollout_lower_rings; empty if it has none.
	Code string `json:"code,omitempty"`
	Text string `json:"text"`
}

// Err returns the error of a start.
func (r StartRefusal) Err() error {
	e := Errorf(Conflict, "%s", r.Text)
	e.Code = r.Code
	return e
}

// Refuse adds the error of something that would refuse a start. It returns other errors.
func (p *Preview) Refuse(err error) error {
	var refused *Error
	if err == nil || !errors.As(err, &refused) || refused.Kind == Internal || refused.Kind == Unavailable {
		return err
	}
	p.Refusals = append(p.Refusals, StartRefusal{refused.Code, refused.Message})
	return nil
}

// PreviewStaging is what the targets of a rollout would stage.
type PreviewStaging struct {
	Staged int `json:"staged"` // have the version
	Load   int `json:"load"`   // would stage it
	// Cannot are targets whose agents cannot stage versions. They download when they are upgraded.
	Cannot int `json:"cannot"`
	// Estimate is how long it takes, at the pace of past upgrades; it is part of that of the
	// preview.
	Estimate Duration `json:"estimate"`
}

// PreviewTarget is one agent as it would be upgraded.
type PreviewTarget struct {
	AgentID  string   `json:"agent_id"`
	Hostname string   `json:"hostname"`
	Policy   string   `json:"policy"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Rollback bool     `json:"rollback,omitempty"`
	Config   string   `json:"config,omitempty"`   // as in Target
	Observes Duration `json:"observes,omitempty"` // as in Target
	Batch    int      `json:"batch"`
	Ring     int      `json:"ring"`
	Site     string   `json:"site,omitempty"`
	Values   []string `json:"values,omitempty"`
	Online   bool     `json:"online"`
	Bytes    int64    `json:"bytes"` // to download
}

// SkippedAgent is an agent that matches the selector and is left out.
type SkippedAgent struct {
	AgentID  string     `json:"agent_id"`
	Hostname string     `json:"hostname"`
	Version  string     `json:"version"`
	Code     ReasonCode `json:"code"`
	Text     string     `json:"text"`
	// Cause is why the agent cannot be upgraded, if Code says less. Forceable means that a plan
	// with force includes it.
	Cause     Cause `json:"cause,omitempty"`
	Forceable bool  `json:"forceable,omitempty"`
}

// PreviewBatch is one batch of a preview. Its times assume a start at once.
type PreviewBatch struct {
	Index   int       `json:"index"`
	Kind    BatchKind `json:"kind"`
	Ring    int       `json:"ring"`
	Size    int       `json:"size"`
	Offline int       `json:"offline"`
	StartAt time.Time `json:"start_at"` // estimated, with windows and freezes
	EndAt   time.Time `json:"end_at"`
	Share   float64   `json:"share"` // of the fleet that runs the version after this batch, 0 to 1
}

// Coverage is the part of the fleet's variety that the canaries represent.
type Coverage struct {
	Over    []string `json:"over"`
	Cells   int      `json:"cells"`
	Covered int      `json:"covered"`
	// Agents is the share of targets whose cell has a canary, 0 to 1.
	Agents float64 `json:"agents"`
	// Uncovered are cells without a canary, largest first, at most 20.
	Uncovered []Cell `json:"uncovered"`
}

// Cell is one combination of label values.
type Cell struct {
	Values []string `json:"values"`
	Agents int      `json:"agents"`
}

// SiteBytes is the amount that the agents of a site download.
type SiteBytes struct {
	Site   string `json:"site"`
	Agents int    `json:"agents"`
	Bytes  int64  `json:"bytes"`
}

// Drift is the difference between the fleet and a preview.
type Drift struct {
	Added   []DriftItem `json:"added"`
	Removed []DriftItem `json:"removed"`
	Changed []DriftItem `json:"changed"`
}

// None reports whether nothing differs.
func (d Drift) None() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// DriftItem is one agent that differs. Text describes the difference in a sentence.
type DriftItem struct {
	AgentID  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Text     string `json:"text"`
}

// ExposureRule is the fleet-wide exposure budget, which applies to every plan: at most
// Percent of the fleet, and of the agents of each value of the labels in Per, may run,
// or have an offer of, a version with fewer than HealthyHours agent-hours of health.
type ExposureRule struct {
	ID           string          `json:"id"` // ExposureRuleID
	Enabled      bool            `json:"enabled"`
	Percent      float64         `json:"percent"`
	HealthyHours float64         `json:"healthy_hours"`
	Per          []ExposureLabel `json:"per,omitempty"`
	UpdatedAt    time.Time       `json:"updated_at"`
	UpdatedBy    string          `json:"updated_by"`
	Revision     int64           `json:"-"`
}

// ExposureRuleID is the id of the only rule.
const ExposureRuleID = "fleet"

// ExposureLabel bounds the exposure within each value of a label.
type ExposureLabel struct {
	Label   string  `json:"label"`
	Percent float64 `json:"percent"`
}

// Exposure is the state of a version under the rule.
type Exposure struct {
	Version      string  `json:"version"`
	Fleet        int     `json:"fleet"`   // agents that count
	Exposed      int     `json:"exposed"` // that run it, or were offered it
	Limit        int     `json:"limit"`   // the most that may; Fleet once HealthyHours is reached
	HealthyHours float64 `json:"healthy_hours"`
	NeededHours  float64 `json:"needed_hours"`
	// Tightest is the label value nearest to its limit, nil without labels.
	Tightest *ExposureValue `json:"tightest,omitempty"`
}

// ExposureValue is the exposure within one value of a label.
type ExposureValue struct {
	Label   string `json:"label"`
	Value   string `json:"value"`
	Fleet   int    `json:"fleet"`
	Exposed int    `json:"exposed"`
	Limit   int    `json:"limit"`
}

// Freeze is a period in which only emergency rollouts make offers, and other upgrades need
// an override.
type Freeze struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	Revision  int64     `json:"-"`
}

// Holds reports whether the freeze holds at some moment from a time up to another, both
// included.
func (f *Freeze) Holds(from, to time.Time) bool { return !f.From.After(to) && f.To.After(from) }

// Lease records which server works on something. Its id is that of the subject, such as
// rollout/<id>. A server takes a lease over when Revision has not changed for the
// lease's duration by its own clock, so clocks need not agree.
type Lease struct {
	ID       string `json:"id"`
	Holder   string `json:"holder"`
	Beat     int64  `json:"beat"` // increases with each renewal
	Revision int64  `json:"-"`
}

// PolicyLock records which rollout holds the agents of a policy, or one component of them.
type PolicyLock struct {
	PolicyID string `json:"policy_id"`
	// Component is empty for the agents themselves.
	Component string    `json:"component,omitempty"`
	RolloutID string    `json:"rollout_id"`
	At        time.Time `json:"at"`
	Revision  int64     `json:"-"`
}

// Key returns the lock's id in a store.
func (l *PolicyLock) Key() string { return LockKey(l.PolicyID, l.Component) }

// LockKey returns the id of the lock of a policy's agents, or of one component of them.
// Neither ids of policies nor names of components have a colon.
func LockKey(policyID, component string) string {
	if component == "" {
		return policyID
	}
	return policyID + ":" + component
}

// System is the actor of what the server does by itself, and of what follows from a plan.
const System = "muster"

// AuditEntry records who did what, and why. The server's own steps have the actor System.
type AuditEntry struct {
	ID      string          `json:"id"` // chosen by the writer: an entry is written once
	At      time.Time       `json:"at"`
	Actor   string          `json:"actor"`
	Verb    string          `json:"verb"`    // rollout.pause
	Subject string          `json:"subject"` // rollout id
	Why     string          `json:"why,omitempty"`
	Text    string          `json:"text"` // a sentence
	Data    json.RawMessage `json:"data,omitempty"`
}

// Incident is a condition that needs a person.
type Incident struct {
	// ID is derived from category, rollout and agent, or from category, component and version,
	// so that one cause opens one incident.
	ID        string        `json:"id"`
	Category  IncidentKind  `json:"category"`
	Severity  string        `json:"severity"` // critical or warning
	State     IncidentState `json:"state"`
	Title     string        `json:"title"`
	Text      string        `json:"text"`
	RolloutID string        `json:"rollout_id,omitempty"`
	AgentID   string        `json:"agent_id,omitempty"`
	Hostname  string        `json:"hostname,omitempty"`
	// Component is set if it is about a component of the agent, or about its version.
	Component string `json:"component,omitempty"`
	// Version is set if the incident is about a version.
	Version string `json:"version,omitempty"`
	// RecoveryPlan is copied from the plan if the state may be unreadable.
	RecoveryPlan string    `json:"recovery_plan,omitempty"`
	OpenedAt     time.Time `json:"opened_at"`
	Acked        *Decision `json:"acked,omitempty"`
	Resolved     *Decision `json:"resolved,omitempty"`
	Count        int       `json:"count"` // how often it was opened
	Revision     int64     `json:"-"`
}

// IncidentKind is the category of an incident.
type IncidentKind string

// Values of IncidentKind.
const (
	IncidentUpgradeFailed     IncidentKind = "upgrade_failed"          // both the upgrade and its rollback failed
	IncidentRollbackFailed    IncidentKind = "upgrade_rollback_failed" // a rollout's rollback failed on this agent
	IncidentStalled           IncidentKind = "upgrade_stalled"         // alive, but not healthy within the wait
	IncidentRolloutStopped    IncidentKind = "rollout_stopped"         // a gate paused a rollout, or it failed
	IncidentVersionRolledBack IncidentKind = "version_rolled_back"     // several hosts put the previous version back
	IncidentSharedIdentity    IncidentKind = "shared_identity"         // several hosts check in as one agent
)

// IncidentKinds lists all categories.
var IncidentKinds = []IncidentKind{IncidentUpgradeFailed, IncidentRollbackFailed, IncidentStalled, IncidentRolloutStopped, IncidentVersionRolledBack, IncidentSharedIdentity}

// IncidentState is the state of an incident.
type IncidentState string

// Values of IncidentState.
const (
	IncidentOpen     IncidentState = "open"
	IncidentAcked    IncidentState = "acknowledged"
	IncidentResolved IncidentState = "resolved"
)

// Webhook is an address that receives rollout events.
type Webhook struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	URL  string `json:"url"`
	// Secret signs deliveries. It is stored in the clear, because signing needs it.
	Secret    string    `json:"secret"`
	Events    []string  `json:"events,omitempty"` // event types; empty: all rollout events
	Disabled  bool      `json:"disabled,omitempty"`
	After     int64     `json:"after"` // sequence number of the last event processed
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	Revision  int64     `json:"-"`
}

// DeadLetter is a notification that could not be delivered. Its id is the webhook's id,
// a colon and the event's sequence number.
type DeadLetter struct {
	ID        string          `json:"id"`
	WebhookID string          `json:"webhook_id"`
	Type      string          `json:"type"`
	Body      json.RawMessage `json:"body"`
	Error     string          `json:"error"`
	Attempts  int             `json:"attempts"`
	At        time.Time       `json:"at"`
	Revision  int64           `json:"-"`
}

// Census is the part of an agent that the exposure budget and the availability of
// targets depend on. Stores can read it without the documents.
type Census struct {
	ID           string
	PolicyID     string
	Active       bool
	Version      string
	VersionSince time.Time // when this version first checked in
	// HealthySince is when the agent began to report without a break that it is
	// healthy; zero while it does not.
	HealthySince time.Time
	LastCheckin  *time.Time
	Labels       string // in the form of EncodeLabels
}
