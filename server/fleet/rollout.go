package fleet

import (
	"encoding/json"
	"time"
)

// Rollout moves many agents to a version, in batches. One replica at a time
// works on it, holding its lease; operators change it through Orders and the
// fields beside them, guarded by Revision.
type Rollout struct {
	ID    string       `json:"id"`
	State RolloutState `json:"state"`
	Plan  Plan         `json:"plan"`
	// Pin is the preview that was started, nil before. On a draft it says that a
	// start was interrupted: starting again finishes it.
	Pin *Pin `json:"pin,omitempty"`
	// Previews are the hashes of the previews kept for it, newest last.
	Previews []string `json:"previews,omitempty"`
	// Policies are those of its targets: each is locked to this rollout while it
	// is active.
	Policies []string `json:"policies,omitempty"`

	// RollbackOf is the rollout whose targets this one puts back; RolledBackBy
	// the one that puts these back.
	RollbackOf   string `json:"rollback_of,omitempty"`
	RolledBackBy string `json:"rolled_back_by,omitempty"`

	// Generation grows with everything an operator changes and with every stop.
	// Action ids carry it, so that what a stale executor does is refused.
	Generation int64 `json:"generation"`
	// Stop says why it is paused.
	Stop *Stop `json:"stop,omitempty"`
	// PauseAsked makes it pause when the current batch has ended.
	PauseAsked *Decision `json:"pause_asked,omitempty"`
	// Approved and Forced are the operator's word: on with the batches after the
	// canaries; on although the threshold was crossed, with the failures of that
	// moment forgiven.
	Approved *Decision `json:"approved,omitempty"`
	Forced   *Decision `json:"forced,omitempty"`
	Forgiven int       `json:"forgiven,omitempty"` // failures that no longer count against the threshold
	// Orders are not carried out yet, oldest first.
	Orders []Order `json:"orders,omitempty"`

	Batches []Batch `json:"batches,omitempty"`
	Counts  Counts  `json:"counts"`
	// Waiting is what it waits for, most important first; empty while it offers.
	Waiting []Wait `json:"waiting,omitempty"`
	// Exposure is how the budget stood at the last round, nil before.
	Exposure *Exposure `json:"exposure,omitempty"`

	CreatedAt time.Time  `json:"created_at"`
	CreatedBy string     `json:"created_by"`
	StartedAt *time.Time `json:"started_at,omitempty"`
	StartedBy string     `json:"started_by,omitempty"`
	// RunningSince is nil while it does not run: deadlines of waits count from it,
	// so that a pause uses up none of them.
	RunningSince *time.Time `json:"running_since,omitempty"`
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	Revision     int64      `json:"-"`
}

// RolloutState is where a rollout is.
//
//	draft ─► running ⇄ paused ─► completed | failed | cancelled | rolled_back
//
// What it waits for inside running (soak, window, approval, …) is in Waiting.
type RolloutState string

// The states. A rollout with failures that has nothing left to do is failed.
const (
	RolloutDraft      RolloutState = "draft"
	RolloutRunning    RolloutState = "running"
	RolloutPaused     RolloutState = "paused"
	RolloutCancelling RolloutState = "cancelling" // nothing new; what has begun ends
	RolloutCompleted  RolloutState = "completed"
	RolloutFailed     RolloutState = "failed"
	RolloutCancelled  RolloutState = "cancelled"
	RolloutRolledBack RolloutState = "rolled_back"
)

// Active says whether the rollout holds its policies and agents.
func (s RolloutState) Active() bool {
	return s == RolloutRunning || s == RolloutPaused || s == RolloutCancelling
}

// Over says whether it has ended.
func (s RolloutState) Over() bool { return s != RolloutDraft && !s.Active() }

// Pin is a preview that was presented at the start.
type Pin struct {
	Hash    string    `json:"hash"` // sha256:…
	Targets int       `json:"targets"`
	At      time.Time `json:"at"`
}

// Decision is who said something, when and why.
type Decision struct {
	By  string    `json:"by"`
	At  time.Time `json:"at"`
	Why string    `json:"why,omitempty"`
}

// Stop is why a rollout is paused.
type Stop struct {
	Kind StopKind  `json:"kind"`
	Text string    `json:"text"` // a sentence
	By   string    `json:"by"`   // muster, or who asked
	At   time.Time `json:"at"`
	// Withdrawn is how many offers were taken back then.
	Withdrawn int `json:"withdrawn"`
	// Batch it happened in.
	Batch int `json:"batch"`
}

// StopKind sorts stops by what is needed to go on.
type StopKind string

// The kinds. To resume after a gate (threshold, canary, exposure, deadline)
// needs a reason.
const (
	StopOperator  StopKind = "operator"
	StopSuccess   StopKind = "success" // pause_on_success
	StopThreshold StopKind = "threshold"
	StopCanary    StopKind = "canary"
	StopExposure  StopKind = "exposure"
	StopDeadline  StopKind = "deadline"
	StopRollback  StopKind = "rollback" // its rollback is under way
)

// Gate says whether going on needs a reason.
func (k StopKind) Gate() bool {
	return k == StopThreshold || k == StopCanary || k == StopExposure || k == StopDeadline
}

// Order is a command on targets that the reconciler carries out.
type Order struct {
	ID   string    `json:"id"`
	Kind OrderKind `json:"kind"`
	// Agents it is for; empty: all that its kind is for, of a retry all that failed.
	Agents []string `json:"agents,omitempty"`
	Decision
}

// OrderKind is what an order does.
type OrderKind string

// The orders.
const (
	OrderRetry    OrderKind = "retry"    // failed, withdrawn or expired → pending
	OrderSkip     OrderKind = "skip"     // not begun, or failed → skipped
	OrderWithdraw OrderKind = "withdraw" // a stop: take back what has not begun
	OrderReturn   OrderKind = "return"   // resume or force: withdrawn by a stop → pending, in their place
)

// Batch is a stage of a rollout.
type Batch struct {
	Index int       `json:"index"`
	Kind  BatchKind `json:"kind"`
	Ring  int       `json:"ring"` // 0 without rings
	// StartedAt is the first offer; EndedAt when all but absent agents were done;
	// ClearedAt when everything after it (observation, soak, approval) was.
	StartedAt *time.Time `json:"started_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	ClearedAt *time.Time `json:"cleared_at,omitempty"`
	Counts    Counts     `json:"counts"`
}

// BatchKind tells canaries from the rest.
type BatchKind string

// The kinds of batches.
const (
	BatchCanary  BatchKind = "canary"
	BatchRegular BatchKind = "regular"
	BatchLate    BatchKind = "late" // agents that joined after the start
)

// Counts are targets by state. They add up to Total.
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
}

// Of returns the counter of a state, nil for none that is known.
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

// InFlight are the targets that are being upgraded, or were asked to.
func (c Counts) InFlight() int { return c.Offered + c.Upgrading + c.Verifying }

// Bad are the targets that ended badly.
func (c Counts) Bad() int { return c.Failed + c.RolledBack }

// Attempted are the targets that ended, well or badly: the denominator of the
// failure percentage. Agents that never took the offer are not in it.
func (c Counts) Attempted() int { return c.Succeeded + c.Bad() }

// Target is one agent of a rollout. Its id is rollout:agent.
type Target struct {
	RolloutID string      `json:"rollout_id"`
	AgentID   string      `json:"agent_id"`
	Hostname  string      `json:"hostname"`
	Batch     int         `json:"batch"`
	Order     int         `json:"order"` // its place among all targets
	Ring      int         `json:"ring"`
	State     TargetState `json:"state"`
	// From ran when it was pinned, To is what it shall run.
	From string `json:"from"`
	To   string `json:"to"`
	// Rollback says that the host is asked to go back to what it has kept.
	Rollback bool `json:"rollback,omitempty"`
	// Values are the agent's values of the labels in Limits.Per, in that order.
	Values []string `json:"values,omitempty"`
	Site   string   `json:"site,omitempty"` // value of the label site

	ActionID string `json:"action_id,omitempty"` // of its current or last offer
	// ActionIDs are those of all its offers before.
	ActionIDs []string       `json:"action_ids,omitempty"`
	Phase     string         `json:"phase,omitempty"` // as the agent tells it, such as UPG_DOWNLOADING
	Attempts  int            `json:"attempts"`
	Code      ReasonCode     `json:"code,omitempty"` // why it is in this state
	Error     string         `json:"error,omitempty"`
	OfferedAt *time.Time     `json:"offered_at,omitempty"`
	ReachedAt *time.Time     `json:"reached_at,omitempty"` // the version checked in
	SignAt    *time.Time     `json:"sign_at,omitempty"`    // last sign of life or progress in flight
	ExpiresAt *time.Time     `json:"expires_at,omitempty"` // of an offer held for an agent that is away
	EndedAt   *time.Time     `json:"ended_at,omitempty"`
	History   []TargetChange `json:"history,omitempty"` // oldest first, at most MaxTargetHistory
	Revision  int64          `json:"-"`
}

// MaxTargetHistory bounds Target.History: ten attempts and more.
const MaxTargetHistory = 50

// TargetChange is one step in a target's life.
type TargetChange struct {
	At    time.Time   `json:"at"`
	State TargetState `json:"state"`
	Phase string      `json:"phase,omitempty"`
	Code  ReasonCode  `json:"code,omitempty"`
	Error string      `json:"error,omitempty"`
}

// TargetState is where a target is.
type TargetState string

// The states. Offered targets may still be asleep, queued or downloading: they
// have not begun. From Upgrading on the host is changed.
const (
	TargetPending    TargetState = "pending"
	TargetHeld       TargetState = "held" // its turn came while it was away: the offer waits, and expires
	TargetOffered    TargetState = "offered"
	TargetUpgrading  TargetState = "upgrading"
	TargetVerifying  TargetState = "verifying" // runs the version; health is being watched
	TargetSucceeded  TargetState = "succeeded"
	TargetFailed     TargetState = "failed"
	TargetRolledBack TargetState = "rolled_back" // its watcher put the old version back
	TargetWithdrawn  TargetState = "withdrawn"   // the offer was taken back before it began
	TargetSkipped    TargetState = "skipped"
	TargetExpired    TargetState = "expired" // never came for its offer
	TargetCancelled  TargetState = "cancelled"
)

// InFlight says whether the target counts against the limits.
func (s TargetState) InFlight() bool {
	return s == TargetOffered || s == TargetUpgrading || s == TargetVerifying
}

// Over says whether nothing more will come of it by itself.
func (s TargetState) Over() bool { return !s.InFlight() && s != TargetPending && s != TargetHeld }

// ReasonCode is why a target stands where it stands. Append only; the texts are
// in package rollout.
type ReasonCode string

// Why a target is not offered the version now.
const (
	WhyDraft        ReasonCode = "draft"         // the rollout has not been started
	WhyBatch        ReasonCode = "later_batch"   // an earlier batch is not done
	WhyParallel     ReasonCode = "max_parallel"  // as many as may are being upgraded
	WhyLabelLimit   ReasonCode = "label_limit"   // as many of its site, … as may
	WhySoak         ReasonCode = "soak"          // the batch before is left to show its health
	WhyObservation  ReasonCode = "observation"   // the canaries are
	WhyApproval     ReasonCode = "approval"      // an operator must approve
	WhyWindow       ReasonCode = "window"        // outside the maintenance windows
	WhyFreeze       ReasonCode = "freeze"        // the freeze calendar
	WhyPaused       ReasonCode = "paused"        // an operator, or pause_on_success
	WhyThreshold    ReasonCode = "threshold"     // too many have failed
	WhyCanaryFailed ReasonCode = "canary_failed" // a canary did
	WhyExposure     ReasonCode = "exposure"      // the fleet-wide budget
	WhyDeadline     ReasonCode = "deadline"      // the plan's deadline, or that of a wait, has passed
	WhyAway         ReasonCode = "away"          // the agent is not connected; its offer is held
	WhyBusy         ReasonCode = "busy"          // the agent has another upgrade under way
	WhyOver         ReasonCode = "over"          // the rollout has ended
	WhyRollingBack  ReasonCode = "rolling_back"  // the rollout's rollback is under way
	WhyNext         ReasonCode = "next"          // it comes in the next round
	WhyGoingBack    ReasonCode = "going_back"    // a watcher has not said yet whether it could put the old version back
)

// Why a target was not taken in, or ended.
const (
	WhySame        ReasonCode = "runs_version"     // it runs the version already
	WhyRefused     ReasonCode = "refused"          // CheckUpgrade says why
	WhyOtherSource ReasonCode = "other_source"     // it does not run Plan.SourceVersion
	WhyRing        ReasonCode = "other_ring"       // it is in a ring that is not part of this
	WhyLocked      ReasonCode = "locked"           // another rollout has it
	WhyNoWayBack   ReasonCode = "no_way_back"      // a rollback knows no last healthy version for it
	WhyReported    ReasonCode = "reported_failure" // the agent said why in Error
	WhyCompensated ReasonCode = "rolled_back"      // the watcher put the old version back
	WhyStuck       ReasonCode = "rollback_failed"  // it could not: the host needs a visit
	WhyStale       ReasonCode = "stale"            // no sign for StaleAfter
	WhyStalled     ReasonCode = "stalled"          // signs of life, but no health within the wait
	WhySilent      ReasonCode = "silent"           // reached the version, then fell silent for longer than it usually does
	WhyCrashLoop   ReasonCode = "crash_loop"       //
	WhyUnhealthy   ReasonCode = "unhealthy"        // a component failed, or the agent says error
	WhyGone        ReasonCode = "gone"             // unenrolled
	WhyLostTarget  ReasonCode = "overtaken"        // somebody else moved it to another version
	WhyOperator    ReasonCode = "operator"         // skipped, withdrawn or cancelled by hand
	WhyExpired     ReasonCode = "expired"          // the offer waited as long as it may
	WhyHealthy     ReasonCode = "healthy"          // succeeded
	WhyUnchecked   ReasonCode = "unchecked"        // succeeded with skip_validation
)

// Wait is something a rollout waits for.
type Wait struct {
	Code  ReasonCode `json:"code"`
	Text  string     `json:"text"`
	Since time.Time  `json:"since"`
	// Until is when it ends by itself, or by its deadline; nil: neither.
	Until *time.Time `json:"until,omitempty"`
}

// Preview is what a rollout would do, pinned by Hash. Its id is the hash.
type Preview struct {
	Hash      string    `json:"hash"`
	RolloutID string    `json:"rollout_id"`
	At        time.Time `json:"at"`
	// Targets in order, and the agents that match but are left out.
	Targets  []PreviewTarget `json:"targets"`
	Skipped  []SkippedAgent  `json:"skipped"`
	Batches  []PreviewBatch  `json:"batches"`
	Coverage *Coverage       `json:"coverage,omitempty"` // of canaries
	Sites    []SiteBytes     `json:"sites"`
	Offline  int             `json:"offline"` // targets that are away: they hold an offer
	// Seconds the whole takes at least, and as estimated from how long upgrades
	// of this fleet have taken.
	AtLeast  Duration  `json:"at_least"`
	Estimate Duration  `json:"estimate"`
	Exposure *Exposure `json:"exposure,omitempty"`
	// Warnings are sentences: batches larger than max_parallel, canaries that
	// leave cells uncovered, hosts that could not go back.
	Warnings []string `json:"warnings"`
	Revision int64    `json:"-"`
}

// PreviewTarget is one agent as it would be upgraded.
type PreviewTarget struct {
	AgentID  string   `json:"agent_id"`
	Hostname string   `json:"hostname"`
	Policy   string   `json:"policy"`
	From     string   `json:"from"`
	To       string   `json:"to"`
	Rollback bool     `json:"rollback,omitempty"`
	Batch    int      `json:"batch"`
	Ring     int      `json:"ring"`
	Site     string   `json:"site,omitempty"`
	Values   []string `json:"values,omitempty"`
	Online   bool     `json:"online"`
	Bytes    int64    `json:"bytes"` // to download
}

// SkippedAgent matches the selector and is left out.
type SkippedAgent struct {
	AgentID  string     `json:"agent_id"`
	Hostname string     `json:"hostname"`
	Version  string     `json:"version"`
	Code     ReasonCode `json:"code"`
	Text     string     `json:"text"`
}

// PreviewBatch is one batch of a preview. Times count from the start.
type PreviewBatch struct {
	Index   int       `json:"index"`
	Kind    BatchKind `json:"kind"`
	Ring    int       `json:"ring"`
	Size    int       `json:"size"`
	Offline int       `json:"offline"`
	StartAt time.Time `json:"start_at"` // estimated, with windows and freezes
	EndAt   time.Time `json:"end_at"`
	Share   float64   `json:"share"` // of the fleet that runs the version after it, 0 to 1
}

// Coverage is how much of the fleet's variety the canaries stand for.
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

// SiteBytes is what the agents of a site download.
type SiteBytes struct {
	Site   string `json:"site"`
	Agents int    `json:"agents"`
	Bytes  int64  `json:"bytes"`
}

// Drift is how the fleet differs from a preview.
type Drift struct {
	Added   []DriftItem `json:"added"`
	Removed []DriftItem `json:"removed"`
	Changed []DriftItem `json:"changed"`
}

// None says that nothing differs.
func (d Drift) None() bool { return len(d.Added)+len(d.Removed)+len(d.Changed) == 0 }

// DriftItem is one agent that differs, with what differs as a sentence.
type DriftItem struct {
	AgentID  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Text     string `json:"text"`
}

// ExposureRule is the fleet-wide budget, outside any plan: no more than Percent
// of the fleet, and of the agents of each value of the labels in Per, runs, or
// has been offered, a version that has had fewer than HealthyHours agent-hours
// of health.
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

// ExposureRuleID is the id of the one rule there is.
const ExposureRuleID = "fleet"

// ExposureLabel bounds the exposure within each value of a label.
type ExposureLabel struct {
	Label   string  `json:"label"`
	Percent float64 `json:"percent"`
}

// Exposure is how a version stands against the rule.
type Exposure struct {
	Version      string  `json:"version"`
	Fleet        int     `json:"fleet"`   // agents that count
	Exposed      int     `json:"exposed"` // that run it, or were offered it
	Limit        int     `json:"limit"`   // that may; Fleet once HealthyHours is reached
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

// Freeze keeps all rollouts but emergencies from offering anything.
type Freeze struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	Revision  int64     `json:"-"`
}

// Lease says which replica works on a thing. Its id is the thing's, such as
// rollout/<id>. A replica takes one over when Revision has not moved for as long
// as the lease lasts by its own clock, so clocks need not agree.
type Lease struct {
	ID       string `json:"id"`
	Holder   string `json:"holder"`
	Beat     int64  `json:"beat"` // grows with each renewal
	Revision int64  `json:"-"`
}

// PolicyLock says which rollout has a policy. Its id is the policy's.
type PolicyLock struct {
	PolicyID  string    `json:"policy_id"`
	RolloutID string    `json:"rollout_id"`
	At        time.Time `json:"at"`
	Revision  int64     `json:"-"`
}

// AuditEntry is who did what, and why. The reconciler's own steps are entries of
// the actor muster.
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

// Incident is something that needs a person.
type Incident struct {
	// ID is made of category, rollout and agent, so that one cause makes one.
	ID        string        `json:"id"`
	Category  IncidentKind  `json:"category"`
	Severity  string        `json:"severity"` // critical or warning
	State     IncidentState `json:"state"`
	Title     string        `json:"title"`
	Text      string        `json:"text"`
	RolloutID string        `json:"rollout_id,omitempty"`
	AgentID   string        `json:"agent_id,omitempty"`
	Hostname  string        `json:"hostname,omitempty"`
	// RecoveryPlan is the plan's, where state may be unreadable.
	RecoveryPlan string    `json:"recovery_plan,omitempty"`
	OpenedAt     time.Time `json:"opened_at"`
	Acked        *Decision `json:"acked,omitempty"`
	Resolved     *Decision `json:"resolved,omitempty"`
	Count        int       `json:"count"` // how often it was opened
	Revision     int64     `json:"-"`
}

// IncidentKind is the category of an incident.
type IncidentKind string

// The categories.
const (
	IncidentUpgradeFailed  IncidentKind = "upgrade_failed"          // upgrade and putting back failed
	IncidentRollbackFailed IncidentKind = "upgrade_rollback_failed" // a rollout's rollback failed on this agent
	IncidentStalled        IncidentKind = "upgrade_stalled"         // alive, but not healthy within the wait
)

// IncidentState is where an incident is.
type IncidentState string

// The states.
const (
	IncidentOpen     IncidentState = "open"
	IncidentAcked    IncidentState = "acknowledged"
	IncidentResolved IncidentState = "resolved"
)

// Webhook is an address that hears of rollouts.
type Webhook struct {
	ID   string `json:"id"`
	Name string `json:"name"`
	URL  string `json:"url"`
	// Secret signs what is sent; it is stored as given, for the receiver has the same.
	Secret    string    `json:"secret"`
	Events    []string  `json:"events,omitempty"` // event types; empty: all rollout events
	Disabled  bool      `json:"disabled,omitempty"`
	After     int64     `json:"after"` // sequence number of the last event dealt with
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	Revision  int64     `json:"-"`
}

// DeadLetter is a notification that could not be delivered. Its id is
// webhook:event sequence number.
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

// Events of rollouts. The subject is the rollout, or the agent for those of one.
const (
	EventRolloutCreated   = "rollout.created"
	EventRolloutStarted   = "rollout.started"
	EventRolloutProgress  = "rollout.progress" // counts, batch, what it waits for
	EventRolloutPaused    = "rollout.paused"
	EventRolloutResumed   = "rollout.resumed"
	EventRolloutCompleted = "rollout.completed"
	EventRolloutFailed    = "rollout.failed"
	EventRolloutCancelled = "rollout.cancelled"
	EventRollbackStarted  = "rollout.rollback_initiated"
	EventRollbackDone     = "rollout.rollback_completed"
	// Of one agent of a rollout.
	EventTargetStarted   = "agent.upgrade_started"
	EventTargetCompleted = "agent.upgrade_completed"
	EventTargetPhase     = "agent.upgrade_phase_changed"
	EventIncident        = "incident.changed"
)

// Census is what the exposure budget and the presence of targets need of every
// agent. Stores can read it without the documents.
type Census struct {
	ID           string
	PolicyID     string
	Active       bool
	Version      string
	VersionSince time.Time // when this version first checked in
	// HealthySince is since when it has said without a break that it is well;
	// zero: it does not.
	HealthySince time.Time
	LastCheckin  *time.Time
	Labels       string // as EncodeLabels makes it
}
