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
	Pin   *Pin         `json:"pin,omitempty"` // nil before the start
	// Hashes of the stored previews, newest last
	Previews []string `json:"previews,omitempty"`
	// Locked to this rollout while it is active
	Policies []string `json:"policies,omitempty"`

	// The rollout whose targets this one rolls back
	RollbackOf   string `json:"rollback_of,omitempty"`
	RolledBackBy string `json:"rolled_back_by,omitempty"`

	// The group that this rollout is a member of, or rolls a member of back
	Group string `json:"group,omitempty"`

	// The declared fleet that this rollout carries out
	Fleet string `json:"fleet,omitempty"`
	// The rollout hash of the fleet's spec, 64 hex digits
	SpecHash string `json:"spec_hash,omitempty"`

	// Increases with every change by an operator and with every stop
	Generation   int64     `json:"generation"`              // action ids contain it, so that the actions of a stale executor are refused
	Stop         *Stop     `json:"stop,omitempty"`          // nil: it is not paused
	PauseAsked   *Decision `json:"pause_asked,omitempty"`   // a pause at the end of the current batch
	Approved     *Decision `json:"approved,omitempty"`      // the batches after the canaries may proceed
	Forced       *Decision `json:"forced,omitempty"`        // it may proceed although the threshold was crossed; failures up to then are forgiven
	Promoted     *Decision `json:"promoted,omitempty"`      // it waits no longer for its own progress: observation, soak and approval
	CancelledNow *Decision `json:"cancelled_now,omitempty"` // it holds none of its hosts any more, and does not judge their health
	// Failures that no longer count against the threshold
	Forgiven int `json:"forgiven,omitempty"`
	// Orders for targets that are not executed yet
	Orders []Order `json:"orders,omitempty"`

	Staging  *Staging  `json:"staging,omitempty"`  // nil before the targets are asked, and without Plan.Stage
	Lockstep *Lockstep `json:"lockstep,omitempty"` // nil before the first round, and of other strategies

	Batches []Batch `json:"batches,omitempty"`
	Counts  Counts  `json:"counts"`
	// Marks are how many targets had ended, over the last minutes, from which its pace is computed;
	// oldest first. They are only in the store.
	Marks []EndMark `json:"marks,omitempty" schema:"-"`
	// Why the rollout waits, most important reason first
	Waiting  []Wait    `json:"waiting,omitempty"`
	Exposure *Exposure `json:"exposure,omitempty"` // at the last reconciliation, nil before the first

	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// The server created it because a policy requires a version
	Automatic bool       `json:"is_automatic,omitempty"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	StartedBy string     `json:"started_by,omitempty"`
	// Absent while it does not run; deadlines of waits are measured from it
	RunningSince *time.Time `json:"running_since,omitempty"` // so that a pause uses up none of their time
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	Revision     int64      `json:"-"`
}

// Staging is how far the targets of a rollout have staged its version. What they have staged
// is in their documents.
type Staging struct {
	// When the targets were asked
	StartedAt time.Time `json:"started_at"`
	// How long the first batch waits for them
	Until   time.Time  `json:"until"`
	EndedAt *time.Time `json:"ended_at,omitempty"`
	// Targets that were asked
	Targets int `json:"targets"` // without those that joined later
	// Targets that have staged it, have failed to, or cannot
	Answered int `json:"answered"`
	// Other targets that are online
	Waiting int `json:"waiting"`
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
	// Name of the admin key
	By string `json:"by"`
	// When it was done
	At time.Time `json:"at"`
	// The operator's reason
	Why string `json:"why,omitempty"`
}

// Stop is why a rollout is paused.
type Stop struct {
	Kind StopKind `json:"kind"`
	Text string   `json:"text"` // a sentence
	// muster, or the operator
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Number of offers that were withdrawn
	Withdrawn int `json:"withdrawn"`
	// The batch in which it happened
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

// Order is what an operator asks of targets; the reconciler carries it out.
type Order struct {
	ID   string    `json:"id"`
	Kind OrderKind `json:"kind"`
	// default: all targets that the kind applies to; for a retry, all failed targets
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

// Batch is a part of the targets of a rollout, which are upgraded together.
type Batch struct {
	Index int       `json:"index"`
	Kind  BatchKind `json:"kind"`
	Ring  int       `json:"ring"` // 0 without rings
	// Time of the first offer
	StartedAt *time.Time `json:"started_at,omitempty"`
	// When all targets except offline ones were done
	EndedAt *time.Time `json:"ended_at,omitempty"`
	// When observation, soak and approval were over too
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
	// Those of the skipped that nobody left out: their hosts could not be given the version, so the
	// rollout has failed
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
	RolloutID string `json:"rollout_id"`
	AgentID   string `json:"agent_id"`
	Hostname  string `json:"hostname"`
	Batch     int    `json:"batch"`
	// Position among all targets
	Place int         `json:"order"`
	Ring  int         `json:"ring"`
	State TargetState `json:"state"`
	// The version that ran when the rollout was started
	From string `json:"from"`
	To   string `json:"to"`
	// The host goes back to a previous version that it still has
	Rollback bool `json:"rollback,omitempty"`
	// Identifies the configuration files that the server renders for the host
	Config string `json:"config,omitempty"`
	// How long the host observes the new version of the component before it reports it as installed
	Observes Duration `json:"observes,omitempty" example:"1m0s"` // the offer orders it, so the policy may change meanwhile
	// Values of the labels in limits.per, in that order
	Values []string `json:"values,omitempty"`
	Site   string   `json:"site,omitempty"` // the value of the label site
	// The id of the policy that the agent had when it became a target
	Policy string `json:"policy,omitempty"`

	ActionID string `json:"action_id,omitempty"` // the current or last offer's
	// Action ids of all earlier offers
	ActionIDs []string `json:"action_ids,omitempty"`
	Phase     string   `json:"phase,omitempty" example:"UPG_DOWNLOADING"` // as the agent reports it, such as UPG_DOWNLOADING
	// What is done on the host, by the report that phase is from
	HostPhase string `json:"host_phase,omitempty" schema:"enum=preparing|stopped|mutating|starting|verifying"` // see func HostPhase
	// The last phase that the host has reached in lockstep
	Reached  agentapi.LockstepPhase `json:"reached,omitempty"` // by the current offer; hosts never report less, except right after a start
	Attempts int                    `json:"attempts"`
	// An operator has ordered a retry, which overrides an earlier failure of the version on the host
	Retried bool `json:"retried,omitempty"`
	// Why the target is in this state
	Code      ReasonCode `json:"code,omitempty" example:"max_parallel"`
	Error     string     `json:"error,omitempty"`
	OfferedAt *time.Time `json:"offered_at,omitempty"`
	// When the agent checked in with the version
	ReachedAt *time.Time `json:"reached_at,omitempty"`
	// Last check-in, beacon or progress
	SignAt *time.Time `json:"sign_at,omitempty"`
	// When an offer for an offline agent expires
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Oldest first
	History  []TargetChange `json:"history,omitempty"` // at most MaxTargetHistory
	Revision int64          `json:"-"`
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

// TargetStates lists all states, in the sequence of a target's life.
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
	Code  ReasonCode `json:"code" example:"soak"`
	Text  string     `json:"text"`
	Since time.Time  `json:"since"`
	// When it ends by itself, or by its deadline
	Until *time.Time `json:"until,omitempty"`
}

// Preview is what a rollout would do. Hash pins it, and is its id.
type Preview struct {
	Hash string `json:"hash" example:"sha256:…"`
	// Empty if the preview is not stored
	RolloutID string `json:"rollout_id"`
	// The plan's component; absent: the agents themselves
	Component string    `json:"component,omitempty"`
	At        time.Time `json:"at"`
	// Fields of the plan with the server's default, and their values
	ServerDefaults []string `json:"server_defaults,omitempty" example:"['limits.max_parallel: 50']"`
	// In order of upgrade
	Targets []PreviewTarget `json:"targets"`
	// Agents that match but are left out
	Skipped  []SkippedAgent `json:"skipped"`
	Batches  []PreviewBatch `json:"batches"`
	Coverage *Coverage      `json:"coverage,omitempty"` // of canaries
	Sites    []SiteBytes    `json:"sites"`
	// Number of offline targets, which get an offer that waits for them
	Offline int `json:"offline"`
	// The shortest time that the rollout can take
	AtLeast Duration `json:"at_least"`
	// Based on the durations of past upgrades in this fleet
	Estimate Duration        `json:"estimate"`
	Exposure *Exposure       `json:"exposure,omitempty"`
	Staging  *PreviewStaging `json:"staging,omitempty"` // before the first batch, nil without Plan.Stage
	// Why a start would be refused now; absent if it would not be
	Refusals []StartRefusal `json:"refusals,omitempty"` // first the one that a start returns
	// Sentences, such as of canaries that leave cells uncovered, and of hosts that could not roll back
	Warnings []string `json:"warnings"`
	Revision int64    `json:"-"`
}

// StartRefusal is a reason for which a start would be refused.
type StartRefusal struct {
	// Code of the error of the start
	Code string `json:"code,omitempty" example:"rollout_lower_rings"`
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
	// Targets that have the version
	Staged int `json:"staged"`
	// Targets that would stage it
	Load int `json:"load"`
	// Targets whose agents cannot stage versions; they download when they are upgraded
	Cannot   int      `json:"cannot"`
	Estimate Duration `json:"estimate"` // at the pace of past upgrades; it is part of that of the preview
}

// PreviewTarget is one agent as it would be upgraded.
type PreviewTarget struct {
	AgentID  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Policy   string `json:"policy"`
	From     string `json:"from"`
	To       string `json:"to"`
	Rollback bool   `json:"rollback,omitempty"`
	// Identifies the configuration files that the server renders for the host
	Config string `json:"config,omitempty"`
	// How long the host observes the new version of the component before it reports it as installed
	Observes Duration `json:"observes,omitempty" example:"1m0s"`
	Batch    int      `json:"batch"`
	Ring     int      `json:"ring"`
	Site     string   `json:"site,omitempty"`
	Values   []string `json:"values,omitempty"`
	Online   bool     `json:"online"`
	// Bytes to download
	Bytes int64 `json:"bytes"`
}

// SkippedAgent is an agent that matches the selector and is left out.
type SkippedAgent struct {
	AgentID  string     `json:"agent_id"`
	Hostname string     `json:"hostname"`
	Version  string     `json:"version"`
	Code     ReasonCode `json:"code" example:"runs_version"`
	Text     string     `json:"text"`
	// Code of the cause in previews, if code says less
	Cause Cause `json:"cause,omitempty" example:"running"`
	// force in the plan includes it
	Forceable bool `json:"forceable,omitempty"`
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
	// Share of the fleet that runs the version after the batch, 0 to 1
	Share float64 `json:"share"`
}

// Coverage is the part of the fleet's variety that the canaries represent.
type Coverage struct {
	Over    []string `json:"over"`
	Cells   int      `json:"cells"`
	Covered int      `json:"covered"`
	// Share of targets whose cell has a canary, 0 to 1
	Agents float64 `json:"agents"`
	// Cells without a canary, largest first
	Uncovered []Cell `json:"uncovered" schema:"maxItems=20"`
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
	Version string `json:"version"`
	// Number of agents in the fleet
	Fleet int `json:"fleet"`
	// Number of agents that run the version or were offered it
	Exposed int `json:"exposed"`
	// Number of agents that may run the version
	Limit        int            `json:"limit"` // Fleet once HealthyHours is reached
	HealthyHours float64        `json:"healthy_hours"`
	NeededHours  float64        `json:"needed_hours"`
	Tightest     *ExposureValue `json:"tightest,omitempty"` // the value nearest to its limit, nil without labels
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

// Covers reports whether the freeze is in force at some moment from a time up to another, both
// included.
func (f *Freeze) Covers(from, to time.Time) bool { return !f.From.After(to) && f.To.After(from) }

// Lease records which server works on something. Its id is that of the subject, such as
// rollout/<id>. A server takes a lease over when Revision has not changed for the
// lease's duration by its own clock, so clocks need not agree.
type Lease struct {
	ID       string `json:"id"`
	Owner    string `json:"holder"`
	Beat     int64  `json:"beat"` // increases with each renewal
	Revision int64  `json:"-"`
}

// PolicyLock records which rollout locks the agents of a policy, or one component of them.
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
	ID string    `json:"id"` // chosen by the writer: an entry is written once
	At time.Time `json:"at"`
	// Name of the admin key; muster for steps of the rollout itself
	Actor string `json:"actor"`
	Verb  string `json:"verb" example:"rollout.pause"` // rollout.pause
	// Id of the rollout
	Subject string `json:"subject"`
	Why     string `json:"why,omitempty"`
	Text    string `json:"text"` // a sentence
	// What was recorded besides. changes lists the fields that were changed: each has field, before
	// and after, or hidden instead of values that may be a secret
	Data json.RawMessage `json:"data,omitempty" schema:"object"`
}

// Incident is a condition that needs a person.
type Incident struct {
	ID        string        `json:"id"` // of what it is about, so that one cause opens one incident
	Category  IncidentKind  `json:"category"`
	Severity  string        `json:"severity" schema:"enum=critical|warning"`
	State     IncidentState `json:"state"`
	Title     string        `json:"title"`
	Text      string        `json:"text"`
	RolloutID string        `json:"rollout_id,omitempty"`
	AgentID   string        `json:"agent_id,omitempty"`
	Hostname  string        `json:"hostname,omitempty"`
	// The component that it is about, of the agent or, with version, of several hosts; absent: the
	// agent itself
	Component string `json:"component,omitempty"`
	// The version from which hosts were rolled back
	Version string `json:"version,omitempty"`
	// Recovery plan of the rollout, if state may be unreadable
	RecoveryPlan string    `json:"recovery_plan,omitempty"`
	OpenedAt     time.Time `json:"opened_at"`
	Acked        *Decision `json:"acked,omitempty"`
	Resolved     *Decision `json:"resolved,omitempty"`
	// How often the incident was opened
	Count    int   `json:"count"`
	Revision int64 `json:"-"`
}

// IncidentNext is where to look next. Besides it there are the pages of the incident's rollout and agent.
type IncidentNext struct {
	// The command line to run
	Command string `json:"command" example:"muster rollouts status 7f3c"`
	// Finds the hosts of an incident about a version, which are still as it left them
	Kuery string `json:"kuery,omitempty"`
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
	Body      json.RawMessage `json:"body" schema:"object"`
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
