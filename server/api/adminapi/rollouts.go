package adminapi

import (
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The operations of the area rollouts.
var (
	ListRollouts = op[None, RolloutList](Call{
		ID: "listRollouts", Method: http.MethodGet, Path: "/api/v1/rollouts",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary: "List rollouts without their batches, newest first",
		Answer:  "The page",
		Params: []Param{
			page,
			perPage,
			{Name: "state", Is: []RolloutState(nil), Doc: "Only rollouts in one of these states"},
			{Name: "kind", Is: []StrategyKind(nil), Doc: "Only rollouts with one of these strategies"},
		},
	})

	CreateRollout = op[CreateRolloutRequest, RolloutItem](Call{
		ID: "createRollout", Method: http.MethodPost, Path: "/api/v1/rollouts",
		Area: AreaRollouts, Permission: "rollouts.write",
		Summary:     "Create a rollout as a draft",
		Description: "The rollout does nothing before it is started. Unknown keys in the plan are refused.",
		Answer:      "The draft",
	})

	GetRollout = op[None, RolloutItem](Call{
		ID: "getRollout", Method: http.MethodGet, Path: "/api/v1/rollouts/{rolloutId}",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary: "Get a rollout",
		Answer:  "The rollout",
	})

	DeleteRollout = op[None, ActionWord](Call{
		ID: "deleteRollout", Method: http.MethodDelete, Path: "/api/v1/rollouts/{rolloutId}",
		Area: AreaRollouts, Permission: "rollouts.write",
		Summary: "Delete a draft",
		Answer:  "Deleted",
		Params: []Param{
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	PreviewRollout = op[None, RolloutPreviewItem](Call{
		ID: "previewRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/preview",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary:     "Preview a draft",
		Description: "Without a body. The preview is stored; pass its hash to start.",
		Answer:      "The preview",
		Unaudited:   true,
		Params: []Param{
			{Name: "max_items", Is: 0, Schema: "minimum=0", Doc: "The most elements of targets and of skipped; counts and causes are of all agents. Default: all"},
		},
	})

	GetRolloutPreview = op[None, RolloutPreviewItem](Call{
		ID: "getRolloutPreview", Method: http.MethodGet, Path: "/api/v1/rollouts/{rolloutId}/previews/{hash}",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary: "Get a stored preview",
		Answer:  "The preview",
		Params: []Param{
			{Name: "hash", In: "path", Example: "sha256:…"},
			{Name: "max_items", Is: 0, Schema: "minimum=0", Doc: "The most elements of targets and of skipped; counts and causes are of all agents. Default: all"},
		},
	})

	ListPreviewConfigs = op[None, ConfigPreviewList](Call{
		ID: "listPreviewConfigs", Method: http.MethodGet, Path: "/api/v1/rollouts/{rolloutId}/previews/{hash}/configs",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary:     "List the configuration that targets of a stored preview would get, in their order",
		Description: "The files are rendered again, and an item has an error if they are others by now. The difference is from what the host has now. Refused with 400 if the server renders no files for the plan, and for agents that are no targets, with the reason.",
		Answer:      "The page",
		Params: []Param{
			{Name: "hash", In: "path", Example: "sha256:…"},
			{Name: "agent", Is: []string(nil), Doc: "Ids of targets; default: all"},
			page,
			{Name: "perPage", Is: 0, Schema: "minimum=1,maximum=100,default=20"},
		},
	})

	StartRollout = op[StartRolloutRequest, RolloutItem](Call{
		ID: "startRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/start",
		Area: AreaRollouts, Permission: "rollouts.start",
		Summary:     "Start a draft exactly as previewed",
		Description: "Refused with 409 and the difference if the fleet has changed since the preview. accept_drift starts the rollout with the fleet as it is now.",
		Answer:      "The rollout that was started",
		Refusal:     &Refusal{Status: http.StatusConflict, Body: DriftRefusal{}, Doc: "The rollout is not a draft, or (with drift) the fleet has changed since the preview"},
	})

	PauseRollout = op[PauseRolloutRequest, RolloutItem](Call{
		ID: "pauseRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/pause",
		Area: AreaRollouts, Permission: "rollouts.control",
		Summary:      "Pause a rollout after the current batch, or at once",
		Description:  "With now, offers that no agent has begun are withdrawn.",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	ResumeRollout = op[WhyRequest, RolloutItem](Call{
		ID: "resumeRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/resume",
		Area: AreaRollouts, Permission: "rollouts.control",
		Summary:      "Resume a paused rollout",
		Description:  "Offers that the pause withdrew are made again. If a gate (threshold, canary, exposure, deadline) paused the rollout, why is required.",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	ForceRollout = op[WhyRequest, RolloutItem](Call{
		ID: "forceRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/force",
		Area: AreaRollouts, Permission: "rollouts.force",
		Summary:      "Continue a rollout and ignore its failure threshold",
		Description:  "Failures so far no longer count, and the threshold no longer pauses the rollout. why is required.",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	ApproveRollout = op[WhyRequest, RolloutItem](Call{
		ID: "approveRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/approve",
		Area: AreaRollouts, Permission: "rollouts.approve",
		Summary:      "Approve a rollout to continue after its canaries",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	PromoteRollout = op[WhyRequest, RolloutItem](Call{
		ID: "promoteRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/promote",
		Area: AreaRollouts, Permission: "rollouts.approve",
		Summary:      "Continue a rollout without observation, soak and approval",
		Description:  "The rollout waits no more for its canaries, their observation and approval, or a soak. If failures paused it, it resumes, and failures so far no longer count; later ones do. A deadline, windows, freezes, the exposure budget and an operator's pause hold. why is required.",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	CancelRollout = op[CancelRolloutRequest, RolloutItem](Call{
		ID: "cancelRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/cancel",
		Area: AreaRollouts, Permission: "rollouts.control",
		Summary:      "Cancel a rollout; upgrades under way still end",
		Description:  "Offers that no agent has begun are withdrawn, and other rollouts may begin on its policies. It has ended when its hosts have said how what was delivered to them ended, half an hour later at the latest. With now it also lets go of the hosts in flight: other orders may take them, and it judges the health of none any more. It can be asked for while the rollout is being cancelled.",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	AdjustRollout = op[AdjustRolloutRequest, RolloutItem](Call{
		ID: "adjustRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/adjust",
		Area: AreaRollouts, Permission: "rollouts.write",
		Summary:     "Give a rollout other limits and rules while it is under way",
		Description: "Each part that is given replaces that of the plan as a whole; the others stay as they are. It takes effect at once, also for targets in flight. A rollout that is paused stays paused.",
		Answer:      "The rollout",
	})

	RetryTargets = op[TargetsRequest, RolloutItem](Call{
		ID: "retryTargets", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/retry",
		Area: AreaRollouts, Permission: "rollouts.control",
		Summary:      "Retry failed, withdrawn and expired targets",
		Description:  "Without agents, all failed targets are retried.",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	SkipTargets = op[TargetsRequest, RolloutItem](Call{
		ID: "skipTargets", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/skip",
		Area: AreaRollouts, Permission: "rollouts.control",
		Summary: "Skip targets",
		Answer:  "The rollout",
	})

	RollbackRollout = op[RollbackRolloutRequest, RolloutItem](Call{
		ID: "rollbackRollout", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/rollback",
		Area: AreaRollouts, Permission: "rollouts.rollback",
		Summary:     "Roll targets back to their last healthy versions, with a new rollout",
		Description: "The new rollout starts at once and has no canaries. Repeating the call returns the same rollout.",
		Answer:      "The new rollout",
	})

	ListTargets = op[None, TargetList](Call{
		ID: "listTargets", Method: http.MethodGet, Path: "/api/v1/rollouts/{rolloutId}/targets",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary: "List the targets of a rollout, in order",
		Answer:  "The page",
		Params: []Param{
			{Name: "state", Is: []TargetState(nil), Doc: "One or more states; default: all"},
			{Name: "batch", Is: 0, Schema: "minimum=0"},
			{Name: "code", Doc: "Only targets with this reason, such as that of a cause"},
			{Name: "agent", Doc: "Only the target that is this agent, by its id"},
			page,
			perPage,
		},
	})

	RetryTarget = op[WhyRequest, RolloutItem](Call{
		ID: "retryTarget", Method: http.MethodPost, Path: "/api/v1/rollouts/{rolloutId}/targets/{agentId}/retry",
		Area: AreaRollouts, Permission: "rollouts.control",
		Summary:      "Retry one target",
		OptionalBody: true,
		Answer:       "The rollout",
	})

	ListAudit = op[None, AuditList](Call{
		ID: "listAudit", Method: http.MethodGet, Path: "/api/v1/rollouts/{rolloutId}/audit",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary:     "List who changed a rollout, how and why, newest first",
		Description: "The steps of the rollout itself have the actor muster.",
		Answer:      "The page",
		Params: []Param{
			page,
			perPage,
		},
	})

	DryRunRollout = op[RolloutPreviewRequest, RolloutPreviewItem](Call{
		ID: "dryRunRollout", Method: http.MethodPost, Path: "/api/v1/rollout_preview",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary:   "Preview a plan; stores nothing",
		Answer:    "The preview",
		Unaudited: true,
		Params: []Param{
			{Name: "max_items", Is: 0, Schema: "minimum=0", Doc: "The most elements of targets and of skipped; counts and causes are of all agents. Default: all"},
		},
	})

	ExplainAgent = op[None, ExplanationItem](Call{
		ID: "explainAgent", Method: http.MethodGet, Path: "/api/v1/agents/{agentId}/why",
		Area: AreaRollouts, Permission: "agents.read",
		Summary: "Explain why an agent runs its version and not that of a rollout",
		Answer:  "The reasons",
		Params: []Param{
			{Name: "component", Doc: "A component of the agent; default: the agent itself"},
			{Name: "rollout", Doc: "Default: the rollout that the agent, or its component, is in, or was in last"},
			{Name: "at", Is: time.Time{}, Doc: "Default: now"},
		},
	})

	GetExposure = op[None, ExposureRuleItem](Call{
		ID: "getExposure", Method: http.MethodGet, Path: "/api/v1/exposure",
		Area: AreaRollouts, Permission: "exposure.read",
		Summary: "Get the fleet-wide exposure budget",
		Answer:  "The rule",
	})

	SetExposure = op[SetExposureRequest, ExposureRuleItem](Call{
		ID: "setExposure", Method: http.MethodPut, Path: "/api/v1/exposure",
		Area: AreaRollouts, Permission: "exposure.write",
		Summary: "Set the fleet-wide exposure budget",
		Answer:  "The rule",
	})

	ListFreezes = op[None, FreezeList](Call{
		ID: "listFreezes", Method: http.MethodGet, Path: "/api/v1/freezes",
		Area: AreaRollouts, Permission: "freezes.read",
		Summary: "List freezes, in which only emergency rollouts offer upgrades",
		Answer:  "The freezes",
	})

	CreateFreeze = op[CreateFreezeRequest, FreezeItem](Call{
		ID: "createFreeze", Method: http.MethodPost, Path: "/api/v1/freezes",
		Area: AreaRollouts, Permission: "freezes.write",
		Summary: "Add a freeze",
		Answer:  "The freeze",
	})

	ChangeFreeze = op[CreateFreezeRequest, FreezeItem](Call{
		ID: "changeFreeze", Method: http.MethodPut, Path: "/api/v1/freezes/{freezeId}",
		Area: AreaRollouts, Permission: "freezes.write",
		Summary: "Change the name and the times of a freeze",
		Answer:  "The freeze",
	})

	DeleteFreeze = op[None, ActionWord](Call{
		ID: "deleteFreeze", Method: http.MethodDelete, Path: "/api/v1/freezes/{freezeId}",
		Area: AreaRollouts, Permission: "freezes.write",
		Summary: "Remove a freeze",
		Answer:  "Removed",
		Params: []Param{
			{Name: "why", Doc: "For the audit trail"},
		},
	})

	ListUpgradeManifests = op[None, UpgradeManifestList](Call{
		ID: "listUpgradeManifests", Method: http.MethodGet, Path: "/api/v1/upgrade_manifests",
		Area: AreaRollouts, Permission: "upgrade_manifests.read",
		Summary: "List upgrade manifests, which plans can name",
		Answer:  "The upgrade manifests",
	})

	GetUpgradeManifest = op[None, UpgradeManifestItem](Call{
		ID: "getUpgradeManifest", Method: http.MethodGet, Path: "/api/v1/upgrade_manifests/{profile}/{upgradeId}",
		Area: AreaRollouts, Permission: "upgrade_manifests.read",
		Summary: "Get an upgrade manifest",
		Answer:  "The upgrade manifest",
	})

	PreviewConfig = op[ConfigPreviewRequest, ConfigPreview](Call{
		ID: "previewConfig", Method: http.MethodPost, Path: "/api/v1/upgrade_manifests/{profile}/{upgradeId}/config_preview",
		Area: AreaRollouts, Permission: "upgrade_manifests.read",
		Summary:   "Preview the configuration files of an upgrade manifest on hosts; changes nothing",
		Answer:    "The preview",
		Unaudited: true,
	})

	GetRolloutGrid = op[None, RolloutGrid](Call{
		ID: "getRolloutGrid", Method: http.MethodGet, Path: "/api/v1/rollouts/{rolloutId}/grid",
		Area: AreaRollouts, Permission: "rollouts.read",
		Summary: "Get all targets of a rollout in a compact form, in the order of the rollout",
		Answer:  "The targets",
	})
)

// ProgressState is how an upgrade stands. Only committed is a success: the host's watcher has accepted
// the version. sent: the order waits for the agent. accepted: the agent has it, and has not begun.
// waiting_for_host: the order or the upgrade waits for an agent that is offline.
type ProgressState = fleet.ProgressState

// RolloutGrid are lists of the same length, one element for each target.
type RolloutGrid struct {
	// That of the rollout
	Generation int64         `json:"generation"`
	AgentIds   []string      `json:"agent_ids"`
	Hostnames  []string      `json:"hostnames"`
	Batches    []int         `json:"batches"`
	States     []TargetState `json:"states"`
	// How each upgrade stands; empty text: it has not begun
	Progress *[]string `json:"progress,omitempty"`
}

// RolloutPace is how fast a rollout goes.
type RolloutPace = plan.Pace

// RolloutCause are targets of a rollout, or agents of an action, that share a reason.
type RolloutCause = plan.Cause

// PreviewCause are agents of a preview that share a reason.
type PreviewCause = fleet.CauseCount

// CreateRolloutRequest is a plan, or from and failed.
type CreateRolloutRequest struct {
	Plan *Plan `json:"plan,omitempty"`
	// Id of a rollout that has ended: the new one has its plan. Needs failed
	From *string `json:"from,omitempty"`
	// With from: only for the targets of that rollout which failed, were rolled back or could not be
	// given the version, whatever failed on their hosts before
	Failed *bool `json:"failed,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver *string `json:"take_over,omitempty"`
	Why      *string `json:"why,omitempty"`
}

// RolloutPreviewRequest is the body of POST /api/v1/rollout_preview.
type RolloutPreviewRequest struct {
	Plan Plan `json:"plan"`
}

// StartRolloutRequest is the body of POST /api/v1/rollouts/{rolloutId}/start.
type StartRolloutRequest struct {
	// Hash of the preview
	Hash string `json:"hash" example:"sha256:…"`
	// Start even if the fleet has changed since the preview
	AcceptDrift *bool `json:"accept_drift,omitempty"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver *string `json:"take_over,omitempty"`
	Why      *string `json:"why,omitempty"`
}

// PauseRolloutRequest is the body of POST /api/v1/rollouts/{rolloutId}/pause.
type PauseRolloutRequest struct {
	// Pause at once and withdraw offers that no agent has begun
	Now *bool   `json:"now,omitempty"`
	Why *string `json:"why,omitempty"`
}

// CancelRolloutRequest is the body of POST /api/v1/rollouts/{rolloutId}/cancel.
type CancelRolloutRequest struct {
	// Let go of the hosts in flight, too
	Now *bool   `json:"now,omitempty"`
	Why *string `json:"why,omitempty"`
}

// AdjustRolloutRequest is the body of POST /api/v1/rollouts/{rolloutId}/adjust.
type AdjustRolloutRequest struct {
	Limits  *Limits      `json:"limits,omitempty"`
	Failure *FailureRule `json:"failure,omitempty"`
	Health  *HealthRule  `json:"health,omitempty"`
	Pace    *Pace        `json:"pace,omitempty"`
	Why     *string      `json:"why,omitempty"`
}

// TargetsRequest is the body of POST /api/v1/rollouts/{rolloutId}/retry.
type TargetsRequest struct {
	Agents *[]string `json:"agents,omitempty" schema:"maxItems=1000"`
	Why    *string   `json:"why,omitempty"`
}

// RollbackRolloutRequest is the body of POST /api/v1/rollouts/{rolloutId}/rollback.
type RollbackRolloutRequest struct {
	Scope RollbackScope `json:"scope"`
	// Name of the Fleet object that the agents belong to: the order suspends the object, and is
	// carried out. Without it such an order is refused with 409 and the code fleet_owned
	TakeOver *string `json:"take_over,omitempty"`
	Why      *string `json:"why,omitempty"`
}

// RollbackScope is which targets go back: failed for those that failed, all also for those that
// succeeded.
type RollbackScope string

// Values of RollbackScope.
const (
	RollbackFailedTargets RollbackScope = "failed"
	RollbackAllTargets    RollbackScope = "all"
)

// Plan is what a rollout does. Absent fields have defaults. A number or duration whose absence means a
// default is refused as 0.
type Plan = fleet.Plan

// PlanLateJoiners is a value of late_joiners of Plan.
type PlanLateJoiners = fleet.LateJoiners

// PlanStage is a value of stage of Plan.
type PlanStage = fleet.StageMode

// Artifact is the package of a version for one platform.
type Artifact = fleet.Artifact

// ArtifactRuntime is a value of runtime of Artifact.
type ArtifactRuntime = fleet.Runtime

// Migration is what the version does to existing state.
type Migration = fleet.Migration

// MigrationType is a value of type of Migration.
type MigrationType = fleet.MigrationType

// Selector selects the agents that match every given field. An empty selector is refused: use all.
type Selector = fleet.Selector

// StrategyKind is a way to divide the targets into batches.
type StrategyKind = fleet.StrategyKind

// Strategy is how the targets are divided into batches.
type Strategy = fleet.Strategy

// StrategyAway is a value of away of Strategy.
type StrategyAway = fleet.AwayMode

// CanaryRule is the first batch, with the kinds canary and rings. It is observed for twice
// health.wait.
type CanaryRule = fleet.CanaryRule

// CanaryRulePick is a value of pick of CanaryRule.
type CanaryRulePick = fleet.CanaryPick

// RingRule is the order of agents, with the kind rings. Lower rings come first.
type RingRule = fleet.RingRule

// Limits are how many targets are upgraded at one time.
type Limits = fleet.Limits

// LabelLimit is the maximum number of agents upgrading at one time for each value of a label.
type LabelLimit = fleet.LabelLimit

// FailureRule is when failures pause a rollout: crossing either threshold does.
type FailureRule = fleet.FailureRule

// HealthRule is when an upgraded target counts as healthy.
type HealthRule = fleet.HealthRule

// Pace is when targets are offered the version.
type Pace = fleet.Pace

// RolloutState is state of a rollout.
type RolloutState = fleet.RolloutState

// Rollout is a rollout.
type Rollout struct {
	fleet.Rollout
	plan.Overview
}

// RolloutItem is the answer of POST /api/v1/rollouts.
type RolloutItem struct {
	Item Rollout `json:"item"`
}

// RolloutList is the answer of GET /api/v1/rollouts.
type RolloutList struct {
	Items   []Rollout `json:"items"`
	Total   int       `json:"total"`
	Page    int       `json:"page"`
	PerPage int       `json:"perPage"`
}

// Pin is the preview that was started; on a draft, of a start that was interrupted: starting again
// completes it.
type Pin = fleet.Pin

// Stop is why the rollout is paused.
type Stop = fleet.Stop

// StopKind is why a rollout stopped. Resuming after threshold, canary, exposure and deadline requires
// a reason.
type StopKind = fleet.StopKind

// Order is an order for targets that is not executed yet.
type Order = fleet.Order

// OrderKind is a value of kind of Order.
type OrderKind = fleet.OrderKind

// BatchKind is the kind of a batch.
type BatchKind = fleet.BatchKind

// Batch is a part of the targets, which are offered the version together.
type Batch = fleet.Batch

// Counts are the numbers of targets in each state; the sum is total.
type Counts = fleet.Counts

// Wait is what somebody or something waits for.
type Wait = fleet.Wait

// TargetState is the state of a target.
type TargetState = fleet.TargetState

// Target is one agent of a rollout.
type Target struct {
	fleet.Target
	Progress ProgressState `json:"progress,omitempty"`
	// What can be ordered for this target now: retry and skip
	Commands []Command `json:"commands,omitempty"`
}

// TargetReached is a value of reached of Target.
type TargetReached = agentapi.LockstepPhase

// TargetChange is a state that a target reached.
type TargetChange = fleet.TargetChange

// TargetList is the answer of GET /api/v1/rollouts/{rolloutId}/targets.
type TargetList struct {
	Items   []Target `json:"items"`
	Total   int      `json:"total"`
	Page    int      `json:"page"`
	PerPage int      `json:"perPage"`
}

// RolloutPreview is what a rollout would do, identified by its hash.
type RolloutPreview struct {
	fleet.Preview
	// Why agents are left out, and remarks on targets, with counts; of all agents, also if targets and
	// skipped have fewer
	Causes []PreviewCause `json:"causes,omitempty"`
	// How many targets there are, also if targets has fewer
	TargetCount int `json:"target_count,omitempty"`
	// How many agents are left out, also if skipped has fewer
	SkippedCount int `json:"skipped_count,omitempty"`
}

// StartRefusal is why a rollout cannot be started.
type StartRefusal = fleet.StartRefusal

// PreviewStaging is what the targets stage before the first batch, of a plan with stage.
type PreviewStaging = fleet.PreviewStaging

// RolloutStaging is how far the targets have staged the version.
type RolloutStaging = fleet.Staging

// RolloutLockstep is how far a rollout in lockstep is. All targets reach a phase before the first
// begins the next. Before the phase switch a failure undoes everything, on every target; from then on
// it goes through to its end.
type RolloutLockstep = fleet.Lockstep

// LockstepPhase is a phase of a rollout in lockstep.
type LockstepPhase = fleet.LockstepPhase

// Undo is why a rollout in lockstep goes back.
type Undo = fleet.Undo

// RolloutPreviewItem is the answer of POST /api/v1/rollouts/{rolloutId}/preview.
type RolloutPreviewItem struct {
	Item RolloutPreview `json:"item"`
}

// PreviewTarget is an agent that a rollout would upgrade.
type PreviewTarget = fleet.PreviewTarget

// SkippedAgent is an agent that a rollout would leave out.
type SkippedAgent = fleet.SkippedAgent

// PreviewBatch is a batch of a preview. Times are estimates that include windows and freezes.
type PreviewBatch = fleet.PreviewBatch

// Coverage is how much of the fleet's variety the canaries cover.
type Coverage = fleet.Coverage

// Cell are agents that share the values of labels.
type Cell = fleet.Cell

// SiteBytes is how much the agents of a site would download.
type SiteBytes = fleet.SiteBytes

// Drift is how the fleet differs from a preview.
type Drift = fleet.Drift

// DriftItem is an agent that differs from a preview.
type DriftItem = fleet.DriftItem

// DriftRefusal is an error. drift, hash and targets are set only if the fleet has changed since the
// preview.
type DriftRefusal struct {
	StatusCode int     `json:"statusCode"`
	Error      string  `json:"error"`
	Message    string  `json:"message"`
	Code       *string `json:"code,omitempty"`
	Drift      *Drift  `json:"drift,omitempty"`
	// Hash of a preview of the current fleet
	Hash *string `json:"hash,omitempty"`
	// Number of targets in a preview of the current fleet
	Targets *int `json:"targets,omitempty"`
}

// AuditEntry is an entry of the audit trail: who did what, when and to what.
type AuditEntry = fleet.AuditEntry

// AuditList is the answer of GET /api/v1/audit.
type AuditList struct {
	Items   []AuditEntry `json:"items"`
	Total   int          `json:"total"`
	Page    int          `json:"page"`
	PerPage int          `json:"perPage"`
}

// Explanation is why an agent runs its version.
type Explanation = explain.Explanation

// Reason is a step of an explanation.
type Reason = explain.Reason

// ExplanationItem is the answer of GET /api/v1/agents/{agentId}/why.
type ExplanationItem struct {
	Item Explanation `json:"item"`
}

// ExposureRule is at most percent of the fleet, and of each value of the labels in per, runs a version
// with fewer than healthy_hours healthy agent-hours.
type ExposureRule = fleet.ExposureRule

// ExposureLabel is a label of which each value has an exposure limit.
type ExposureLabel = fleet.ExposureLabel

// ExposureRuleItem is the answer of GET /api/v1/exposure.
type ExposureRuleItem struct {
	Item ExposureRule `json:"item"`
}

// SetExposureRequest is the body of PUT /api/v1/exposure.
type SetExposureRequest struct {
	Enabled      bool            `json:"enabled"`
	Percent      float64         `json:"percent"`
	HealthyHours float64         `json:"healthy_hours"`
	Per          []ExposureLabel `json:"per,omitempty" schema:"maxItems=4"`
	Why          *string         `json:"why,omitempty"`
}

// Exposure is how much of the exposure budget a version uses.
type Exposure = fleet.Exposure

// ExposureValue is how much of the exposure budget a value of a label uses.
type ExposureValue = fleet.ExposureValue

// Freeze is a time in which no upgrade starts.
type Freeze = fleet.Freeze

// FreezeItem is the answer of POST /api/v1/freezes.
type FreezeItem struct {
	Item Freeze `json:"item"`
}

// FreezeList is the answer of GET /api/v1/freezes.
type FreezeList struct {
	Items []Freeze `json:"items"`
}

// CreateFreezeRequest is the body of POST /api/v1/freezes.
type CreateFreezeRequest struct {
	Name string    `json:"name"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	Why  *string   `json:"why,omitempty"`
}

// UpgradeManifest is a file upgrades/<profile>/<id>.yaml.
type UpgradeManifest = plan.UpgradeManifest

// ConfigTemplate is a configuration file that the server renders for each host.
type ConfigTemplate = fleet.ConfigTemplate

// ConfigPreviewRequest is the body of POST
// /api/v1/upgrade_manifests/{profile}/{upgradeId}/config_preview.
type ConfigPreviewRequest struct {
	Agents          AgentSelection `json:"agents" schema:"ref=AgentSelection"`
	IncludeInactive *bool          `json:"includeInactive,omitempty"`
}

// ConfigPreview is what up to 100 hosts would get.
type ConfigPreview struct {
	Component string `json:"component"`
	Version   string `json:"version"`
	// Content hash of the upgrade manifest
	ContentHash string              `json:"content_hash"`
	Items       []ConfigPreviewItem `json:"items"`
}

// ConfigPreviewList is the answer of GET /api/v1/rollouts/{rolloutId}/previews/{hash}/configs.
type ConfigPreviewList struct {
	Items   []ConfigPreviewItem `json:"items"`
	Total   int                 `json:"total"`
	Page    int                 `json:"page"`
	PerPage int                 `json:"perPage"`
}

// ConfigPreviewItem is the configuration that one host would get.
type ConfigPreviewItem struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	// Identifies the files, as rendered_sha256 of a component and config of a target
	RenderedSha256 *string `json:"rendered_sha256,omitempty"`
	// A unified diff from what the server has rendered for the host before, up to 64 KiB; absent:
	// nothing changes. Files of which the server does not know what the host has are new
	Diff *string `json:"diff,omitempty"`
	// Why the host cannot get the files, with file and line if a template is wrong; then there is no
	// diff
	Error *string `json:"error,omitempty"`
}

// UpgradeManifestItem is the answer of GET /api/v1/upgrade_manifests/{profile}/{upgradeId}.
type UpgradeManifestItem struct {
	Item UpgradeManifest `json:"item"`
}

// UpgradeManifestList is the answer of GET /api/v1/upgrade_manifests.
type UpgradeManifestList struct {
	Items []UpgradeManifest `json:"items"`
}
