package adminapi

import (
	"net/http"
	"time"
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
		Answer:  "The manifests",
	})

	GetUpgradeManifest = op[None, UpgradeManifestItem](Call{
		ID: "getUpgradeManifest", Method: http.MethodGet, Path: "/api/v1/upgrade_manifests/{profile}/{upgradeId}",
		Area: AreaRollouts, Permission: "upgrade_manifests.read",
		Summary: "Get an upgrade manifest",
		Answer:  "The manifest",
	})

	PreviewConfig = op[ConfigPreviewRequest, ConfigPreview](Call{
		ID: "previewConfig", Method: http.MethodPost, Path: "/api/v1/upgrade_manifests/{profile}/{upgradeId}/config_preview",
		Area: AreaRollouts, Permission: "upgrade_manifests.read",
		Summary:   "Preview the configuration files of a manifest on hosts; changes nothing",
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
type ProgressState string

// Values of ProgressState.
const (
	ProgressScheduled      ProgressState = "scheduled"
	ProgressSent           ProgressState = "sent"
	ProgressAccepted       ProgressState = "accepted"
	ProgressDownloading    ProgressState = "downloading"
	ProgressInstalling     ProgressState = "installing"
	ProgressRestarting     ProgressState = "restarting"
	ProgressWatching       ProgressState = "watching"
	ProgressCommitted      ProgressState = "committed"
	ProgressRolledBack     ProgressState = "rolled_back"
	ProgressFailed         ProgressState = "failed"
	ProgressWaitingForHost ProgressState = "waiting_for_host"
)

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
type RolloutPace struct {
	// Targets that have ended
	Done  int `json:"done"`
	Total int `json:"total"`
	// Targets that ended in a minute, over the last ten; absent while none has
	PerMinute *float32 `json:"per_minute,omitempty"`
	// When all will have ended at this pace and with the waits of the plan; absent while it does not
	// run, or cannot be known
	DoneAbout *time.Time `json:"done_about,omitempty"`
}

// RolloutCause are targets of a rollout, or agents of an action, that share a reason.
type RolloutCause struct {
	Code string `json:"code"`
	// As a sentence
	Text  string      `json:"text"`
	State TargetState `json:"state"`
	Count int         `json:"count"`
	// The error of one of them
	Sample *string `json:"sample,omitempty"`
}

// PreviewCause are agents of a preview that share a reason.
type PreviewCause struct {
	Code string `json:"code" example:"failed_before"`
	// As a sentence without the host's name
	Text  string `json:"text"`
	Count int    `json:"count"`
	// true: they would follow the order, and the text is a remark
	Will bool `json:"will"`
	// Field of the request that includes them anyway; absent: nothing does. An order for agents with
	// take_over is refused as a whole unless the field has the name of their fleet
	Choice *PreviewCauseChoice `json:"choice,omitempty"`
	// Names of up to five of the hosts
	Sample *[]string `json:"sample,omitempty"`
}

// PreviewCauseChoice is a value of choice of PreviewCause.
type PreviewCauseChoice string

// Values of PreviewCauseChoice.
const (
	ChoiceForce           PreviewCauseChoice = "force"
	ChoiceIncludeInactive PreviewCauseChoice = "include_inactive"
	ChoiceTakeOver        PreviewCauseChoice = "take_over"
)

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
type Plan struct {
	Name        string  `json:"name"`
	Description *string `json:"description,omitempty"`
	// The component to upgrade, or to install where no version of it is; default: the agents
	// themselves
	Component *string `json:"component,omitempty" example:"web"`
	// With upgrade_id, names an upgrade manifest that provides version, artifacts and migration
	Profile   *string `json:"profile,omitempty"`
	UpgradeId *string `json:"upgrade_id,omitempty"`
	// sha256:… of the manifest's raw bytes
	ManifestHash *string `json:"manifest_hash,omitempty"`
	Version      *string `json:"version,omitempty" example:"1.1.0"`
	// Only agents that run this version; default: any
	SourceVersion *string `json:"source_version,omitempty"`
	// Packages for each platform; default: the published ones
	Artifacts *[]Artifact `json:"artifacts,omitempty"`
	// URL that hosts download packages from instead of this server
	SourceUri *string `json:"source_uri,omitempty"`
	// Also agents that run a later version, or on whose host this one failed before
	Force *bool `json:"force,omitempty"`
	// Also agents on whose host the version failed before; unlike force it overrides nothing else
	RetryFailed *bool `json:"retry_failed,omitempty"`
	// For the templates of the component's configuration files, as .Vars: over those of the policy,
	// below variable_overrides of the upgrade manifest
	Variables *map[string]string `json:"variables,omitempty" schema:"maxProperties=100" example:"{port: '8443'}"`
	Migration *Migration         `json:"migration,omitempty"`
	Select    *Selector          `json:"select,omitempty"`
	// What happens to agents that match only after the start
	LateJoiners *PlanLateJoiners `json:"late_joiners,omitempty"`
	// ahead: all targets install the version beside the one that runs before the first is upgraded;
	// default: each downloads it when it is upgraded
	Stage    *PlanStage   `json:"stage,omitempty"`
	Strategy Strategy     `json:"strategy"`
	Limits   *Limits      `json:"limits,omitempty"`
	Failure  *FailureRule `json:"failure,omitempty"`
	Health   *HealthRule  `json:"health,omitempty"`
	Pace     *Pace        `json:"pace,omitempty"`
	// Fields whose values are the server's defaults (rollouts.defaults in its configuration). The
	// server writes it
	ServerDefaults *[]string `json:"server_defaults,omitempty" example:"[limits.max_parallel]"`
}

// PlanLateJoiners is a value of late_joiners of Plan.
type PlanLateJoiners string

// Values of PlanLateJoiners.
const (
	LateIgnore PlanLateJoiners = "ignore"
	LateJoin   PlanLateJoiners = "join"
)

// PlanStage is a value of stage of Plan.
type PlanStage string

// Values of PlanStage.
const (
	StageAhead PlanStage = "ahead"
)

// Artifact is the package of a version for one platform.
type Artifact struct {
	// default: any
	Os   *string `json:"os,omitempty"`
	Arch *string `json:"arch,omitempty"`
	// How it is run; self is the agent's own package, the others are for components. Agents may have
	// more
	Runtime *ArtifactRuntime `json:"runtime,omitempty"`
	// With docker: the image as name@sha256:…, with the digest in checksum
	Url      *string `json:"url,omitempty"`
	Checksum string  `json:"checksum" example:"sha512:…"`
	// bytes; absent if unknown
	Size *int64 `json:"size,omitempty"`
}

// ArtifactRuntime is a value of runtime of Artifact.
type ArtifactRuntime string

// Values of ArtifactRuntime.
const (
	RuntimeSelf    ArtifactRuntime = "self"
	RuntimeProcess ArtifactRuntime = "process"
	RuntimeSystemd ArtifactRuntime = "systemd"
	RuntimeDocker  ArtifactRuntime = "docker"
)

// Migration is what the version does to existing state.
type Migration struct {
	Type *MigrationType `json:"type,omitempty"`
	// Required for a breaking migration
	RecoveryPlan *string `json:"recovery_plan,omitempty"`
	// Required for a breaking migration
	AcknowledgeStateRisk *bool `json:"acknowledge_state_risk,omitempty"`
}

// MigrationType is a value of type of Migration.
type MigrationType string

// Values of MigrationType.
const (
	MigrationNone       MigrationType = "none"
	MigrationCompatible MigrationType = "compatible"
	MigrationBreaking   MigrationType = "breaking"
)

// Selector selects the agents that match every given field. An empty selector is refused: use all.
type Selector struct {
	All    *bool     `json:"all,omitempty"`
	Agents *[]string `json:"agents,omitempty"`
	// A query in KQL. Only unenrolled agents are hidden: inactive agents that match are selected too.
	// It is evaluated for the preview, at the start, and for late joiners at least every 5 minutes.
	Kuery    *string   `json:"kuery,omitempty" schema:"maxLength=10000"`
	Policies *[]string `json:"policies,omitempty"`
	// Labels that must have one of these values
	Labels *map[string][]string `json:"labels,omitempty"`
	// Labels that must have none of these values
	Exclude       *map[string][]string `json:"exclude,omitempty"`
	ExcludeAgents *[]string            `json:"exclude_agents,omitempty"`
}

// StrategyKind is a way to divide the targets into batches.
type StrategyKind string

// Values of StrategyKind.
const (
	StrategyRolling   StrategyKind = "rolling"
	StrategyCanary    StrategyKind = "canary"
	StrategyAllAtOnce StrategyKind = "all_at_once"
	StrategyRings     StrategyKind = "rings"
	StrategyLockstep  StrategyKind = "lockstep"
)

// Strategy is how the targets are divided into batches.
type Strategy struct {
	Kind      StrategyKind `json:"kind"`
	BatchSize *int         `json:"batch_size,omitempty" schema:"minimum=1"`
	// Percentage of all targets, rounded up
	BatchPercent *float64    `json:"batch_percent,omitempty"`
	Canary       *CanaryRule `json:"canary,omitempty"`
	Rings        *RingRule   `json:"rings,omitempty"`
	// With all_at_once: failures never pause the rollout
	ForceContinue *bool `json:"force_continue,omitempty"`
	// With all_at_once: running the version is enough, without a health wait
	SkipValidation *bool `json:"skip_validation,omitempty"`
	// With all_at_once: nothing is offered after this time
	Deadline *time.Time `json:"deadline,omitempty"`
	// With lockstep: what happens to targets that are offline before it begins: the rollout pauses and
	// names them (refuse, the default), or they are left out
	Away     *StrategyAway `json:"away,omitempty"`
	Patience *Duration     `json:"patience,omitempty" schema:"ref=Duration"`
}

// StrategyAway is a value of away of Strategy.
type StrategyAway string

// Values of StrategyAway.
const (
	AwayRefuse  StrategyAway = "refuse"
	AwayExclude StrategyAway = "exclude"
)

// CanaryRule is the first batch, which is observed before the others.
type CanaryRule struct {
	Size    *int            `json:"size,omitempty" schema:"minimum=1"`
	Percent *float64        `json:"percent,omitempty"`
	Pick    *CanaryRulePick `json:"pick,omitempty"`
	// Labels whose combinations stratified covers; default: os, arch, version
	Over *[]string `json:"over,omitempty"`
	// The rest waits for an operator's approval
	Approval *bool `json:"approval,omitempty"`
}

// CanaryRulePick is a value of pick of CanaryRule.
type CanaryRulePick string

// Values of CanaryRulePick.
const (
	PickRandom     CanaryRulePick = "random"
	PickStratified CanaryRulePick = "stratified"
)

// RingRule is the order of targets by a label.
type RingRule struct {
	// Label whose value is the ring; default: ring
	By *string `json:"by,omitempty"`
	// Ring of agents without the label
	Default *int `json:"default,omitempty"`
	// Rings of this rollout; default: all
	Only *[]int `json:"only,omitempty"`
	// Upgrade a ring even if lower rings do not run this version
	Force *bool `json:"force,omitempty"`
}

// Limits are how many targets are upgraded at one time.
type Limits struct {
	MaxParallel *int          `json:"max_parallel,omitempty" schema:"minimum=1"`
	Per         *[]LabelLimit `json:"per,omitempty" schema:"maxItems=4"`
}

// LabelLimit is the maximum number of agents upgrading at one time for each value of a label.
type LabelLimit struct {
	Label string `json:"label"`
	Max   int    `json:"max" schema:"minimum=1"`
}

// FailureRule is when failures pause a rollout: crossing either threshold does.
type FailureRule struct {
	Count *int `json:"count,omitempty" schema:"minimum=0"`
	// Percentage of attempted upgrades
	Percent *float64 `json:"percent,omitempty"`
	// Retries of a target that failed without harm
	Retries *int `json:"retries,omitempty" schema:"minimum=0"`
}

// HealthRule is when an upgraded target counts as healthy.
type HealthRule struct {
	Wait        *Duration `json:"wait,omitempty" schema:"ref=Duration"`
	StaleAfter  *Duration `json:"stale_after,omitempty" schema:"ref=Duration"`
	SilentAfter *Duration `json:"silent_after,omitempty" schema:"ref=Duration"`
	MaxCrashes  *int      `json:"max_crashes,omitempty" schema:"minimum=1"`
}

// Pace is when targets are offered the version.
type Pace struct {
	Soak           *Duration `json:"soak,omitempty" schema:"ref=Duration"`
	PauseOnSuccess *bool     `json:"pause_on_success,omitempty"`
	Windows        *[]Window `json:"windows,omitempty"`
	OfferFor       *Duration `json:"offer_for,omitempty" schema:"ref=Duration"`
	WaitFor        *Duration `json:"wait_for,omitempty" schema:"ref=Duration"`
	// Skip soak, windows, freezes and observation
	Emergency *bool `json:"emergency,omitempty"`
}

// RolloutState is state of a rollout.
type RolloutState string

// Values of RolloutState.
const (
	RolloutDraft      RolloutState = "draft"
	RolloutRunning    RolloutState = "running"
	RolloutPaused     RolloutState = "paused"
	RolloutCancelling RolloutState = "cancelling"
	RolloutCompleted  RolloutState = "completed"
	RolloutFailed     RolloutState = "failed"
	RolloutCancelled  RolloutState = "cancelled"
	RolloutRolledBack RolloutState = "rolled_back"
)

// Rollout is a rollout.
type Rollout struct {
	Id    string       `json:"id"`
	State RolloutState `json:"state"`
	Plan  Plan         `json:"plan"`
	Pin   *Pin         `json:"pin,omitempty"`
	// Hashes of the stored previews, newest last
	Previews *[]string `json:"previews,omitempty"`
	// Locked to this rollout while it is active
	Policies *[]string `json:"policies,omitempty"`
	// The rollout whose targets this one rolls back
	RollbackOf   *string `json:"rollback_of,omitempty"`
	RolledBackBy *string `json:"rolled_back_by,omitempty"`
	// The group that this rollout is a member of, or rolls a member of back
	Group *string `json:"group,omitempty"`
	// The declared fleet that this rollout carries out
	Fleet *string `json:"fleet,omitempty"`
	// The rollout hash of the fleet's spec, 64 hex digits
	SpecHash     *string   `json:"spec_hash,omitempty"`
	Generation   int64     `json:"generation"`
	Stop         *Stop     `json:"stop,omitempty"`
	PauseAsked   *Decision `json:"pause_asked,omitempty"`
	Approved     *Decision `json:"approved,omitempty"`
	Forced       *Decision `json:"forced,omitempty"`
	Promoted     *Decision `json:"promoted,omitempty"`
	CancelledNow *Decision `json:"cancelled_now,omitempty"`
	// Failures that no longer count against the threshold
	Forgiven *int `json:"forgiven,omitempty"`
	// Commands on targets that are not executed yet
	Orders   *[]Order         `json:"orders,omitempty"`
	Staging  *RolloutStaging  `json:"staging,omitempty"`
	Lockstep *RolloutLockstep `json:"lockstep,omitempty"`
	Batches  *[]Batch         `json:"batches,omitempty"`
	Counts   Counts           `json:"counts"`
	// Why the rollout waits, most important reason first
	Waiting   *[]Wait   `json:"waiting,omitempty"`
	Exposure  *Exposure `json:"exposure,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
	// The server created it because a policy requires a version
	IsAutomatic *bool      `json:"is_automatic,omitempty"`
	StartedAt   *time.Time `json:"started_at,omitempty"`
	StartedBy   *string    `json:"started_by,omitempty"`
	// Absent while it does not run; deadlines of waits are measured from it
	RunningSince *time.Time `json:"running_since,omitempty"`
	EndedAt      *time.Time `json:"ended_at,omitempty"`
	// What can be ordered now, the primary one first
	Commands *[]Command   `json:"commands,omitempty"`
	Pace     *RolloutPace `json:"pace,omitempty"`
	// Its failures by cause, the most frequent first
	Causes *[]RolloutCause `json:"causes,omitempty"`
	// What would pause it next, as a sentence: 1 of 3 failures
	WouldStop *string `json:"would_stop,omitempty"`
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
type Pin struct {
	Hash    string    `json:"hash"`
	Targets int       `json:"targets"`
	At      time.Time `json:"at"`
}

// Stop is why the rollout is paused.
type Stop struct {
	Kind StopKind `json:"kind"`
	Text string   `json:"text"`
	// muster, or the operator
	By string    `json:"by"`
	At time.Time `json:"at"`
	// Number of offers that were withdrawn
	Withdrawn int `json:"withdrawn"`
	Batch     int `json:"batch"`
}

// StopKind is why a rollout stopped. Resuming after threshold, canary, exposure and deadline requires
// a reason.
type StopKind string

// Values of StopKind.
const (
	StopOperator  StopKind = "operator"
	StopSuccess   StopKind = "success"
	StopThreshold StopKind = "threshold"
	StopCanary    StopKind = "canary"
	StopExposure  StopKind = "exposure"
	StopDeadline  StopKind = "deadline"
	StopRollback  StopKind = "rollback"
	StopVerify    StopKind = "verify"
)

// Order is a command on targets that is not executed yet.
type Order struct {
	Id   string    `json:"id"`
	Kind OrderKind `json:"kind"`
	// default: all targets that the kind applies to; for a retry, all failed targets
	Agents *[]string `json:"agents,omitempty"`
	By     string    `json:"by"`
	At     time.Time `json:"at"`
	Why    *string   `json:"why,omitempty"`
}

// OrderKind is a value of kind of Order.
type OrderKind string

// Values of OrderKind.
const (
	OrderRetry    OrderKind = "retry"
	OrderSkip     OrderKind = "skip"
	OrderWithdraw OrderKind = "withdraw"
	OrderReturn   OrderKind = "return"
	OrderAdjust   OrderKind = "adjust"
)

// BatchKind is the kind of a batch.
type BatchKind string

// Values of BatchKind.
const (
	BatchCanary  BatchKind = "canary"
	BatchRegular BatchKind = "regular"
	BatchLate    BatchKind = "late"
)

// Batch is a part of the targets, which are offered the version together.
type Batch struct {
	Index int       `json:"index"`
	Kind  BatchKind `json:"kind"`
	Ring  int       `json:"ring"`
	// Time of the first offer
	StartedAt *time.Time `json:"started_at,omitempty"`
	// When all targets except offline ones were done
	EndedAt *time.Time `json:"ended_at,omitempty"`
	// When observation, soak and approval were over too
	ClearedAt *time.Time `json:"cleared_at,omitempty"`
	Counts    Counts     `json:"counts"`
}

// Counts are the numbers of targets in each state; the sum is total.
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
	Refused *int `json:"refused,omitempty"`
}

// Wait is what somebody or something waits for.
type Wait struct {
	Code  string    `json:"code" example:"soak"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
	// When it ends by itself, or by its deadline
	Until *time.Time `json:"until,omitempty"`
}

// TargetState is the state of a target.
type TargetState string

// Values of TargetState.
const (
	TargetPending    TargetState = "pending"
	TargetHeld       TargetState = "held"
	TargetOffered    TargetState = "offered"
	TargetUpgrading  TargetState = "upgrading"
	TargetVerifying  TargetState = "verifying"
	TargetSucceeded  TargetState = "succeeded"
	TargetFailed     TargetState = "failed"
	TargetRolledBack TargetState = "rolled_back"
	TargetWithdrawn  TargetState = "withdrawn"
	TargetSkipped    TargetState = "skipped"
	TargetExpired    TargetState = "expired"
	TargetCancelled  TargetState = "cancelled"
)

// Target is one agent of a rollout.
type Target struct {
	RolloutId string `json:"rollout_id"`
	AgentId   string `json:"agent_id"`
	Hostname  string `json:"hostname"`
	Batch     int    `json:"batch"`
	// Position among all targets
	Order int         `json:"order"`
	Ring  int         `json:"ring"`
	State TargetState `json:"state"`
	From  string      `json:"from"`
	To    string      `json:"to"`
	// The host goes back to a previous version that it still has
	Rollback *bool `json:"rollback,omitempty"`
	// Identifies the configuration files that the server renders for the host
	Config *string `json:"config,omitempty"`
	// How long the host observes the new version of the component before it reports it as installed
	Observes *string `json:"observes,omitempty" example:"1m0s"`
	// Values of the labels in limits.per, in that order
	Values *[]string `json:"values,omitempty"`
	Site   *string   `json:"site,omitempty"`
	// The id of the policy that the agent had when it became a target
	Policy    *string   `json:"policy,omitempty"`
	ActionId  *string   `json:"action_id,omitempty"`
	ActionIds *[]string `json:"action_ids,omitempty"`
	Phase     *string   `json:"phase,omitempty" example:"UPG_DOWNLOADING"`
	// What is done on the host, by the report that phase is from
	HostPhase *TargetHostPhase `json:"host_phase,omitempty"`
	// The last phase that the host has reached in lockstep
	Reached  *TargetReached `json:"reached,omitempty"`
	Attempts int            `json:"attempts"`
	// An operator has ordered a retry, which overrides an earlier failure of the version on the host
	Retried *bool `json:"retried,omitempty"`
	// Why the target is in this state
	Code      *string    `json:"code,omitempty" example:"max_parallel"`
	Error     *string    `json:"error,omitempty"`
	OfferedAt *time.Time `json:"offered_at,omitempty"`
	// When the agent checked in with the version
	ReachedAt *time.Time `json:"reached_at,omitempty"`
	// Last check-in, beacon or progress
	SignAt *time.Time `json:"sign_at,omitempty"`
	// When an offer for an offline agent expires
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
	EndedAt   *time.Time `json:"ended_at,omitempty"`
	// Oldest first
	History  *[]TargetChange `json:"history,omitempty"`
	Progress *ProgressState  `json:"progress,omitempty"`
	// What can be ordered for this target now: retry and skip
	Commands *[]Command `json:"commands,omitempty"`
}

// TargetHostPhase is a value of host_phase of Target.
type TargetHostPhase string

// Values of TargetHostPhase.
const (
	TargetPreparing  TargetHostPhase = "preparing"
	TargetStopped    TargetHostPhase = "stopped"
	TargetMutating   TargetHostPhase = "mutating"
	TargetStarting   TargetHostPhase = "starting"
	TargetIsVerified TargetHostPhase = "verifying"
)

// TargetReached is a value of reached of Target.
type TargetReached string

// Values of TargetReached.
const (
	ReachedDrain  TargetReached = "drain"
	ReachedStop   TargetReached = "stop"
	ReachedBackup TargetReached = "backup"
	ReachedSwitch TargetReached = "switch"
	ReachedStart  TargetReached = "start"
)

// TargetChange is a state that a target reached.
type TargetChange struct {
	At    time.Time   `json:"at"`
	State TargetState `json:"state"`
	Phase *string     `json:"phase,omitempty"`
	Code  *string     `json:"code,omitempty"`
	Error *string     `json:"error,omitempty"`
}

// TargetList is the answer of GET /api/v1/rollouts/{rolloutId}/targets.
type TargetList struct {
	Items   []Target `json:"items"`
	Total   int      `json:"total"`
	Page    int      `json:"page"`
	PerPage int      `json:"perPage"`
}

// RolloutPreview is what a rollout would do, identified by its hash.
type RolloutPreview struct {
	Hash string `json:"hash" example:"sha256:…"`
	// Empty if the preview is not stored
	RolloutId string `json:"rollout_id"`
	// The plan's component; absent: the agents themselves
	Component *string   `json:"component,omitempty"`
	At        time.Time `json:"at"`
	// Fields of the plan with the server's default, and their values
	ServerDefaults *[]string       `json:"server_defaults,omitempty" example:"['limits.max_parallel: 50']"`
	Targets        []PreviewTarget `json:"targets"`
	// Agents that match but are left out
	Skipped []SkippedAgent `json:"skipped"`
	// Why agents are left out, and remarks on targets, with counts; of all agents, also if targets and
	// skipped have fewer
	Causes *[]PreviewCause `json:"causes,omitempty"`
	// How many targets there are, also if targets has fewer
	TargetCount *int `json:"target_count,omitempty"`
	// How many agents are left out, also if skipped has fewer
	SkippedCount *int           `json:"skipped_count,omitempty"`
	Batches      []PreviewBatch `json:"batches"`
	Coverage     *Coverage      `json:"coverage,omitempty"`
	Sites        []SiteBytes    `json:"sites"`
	// Number of offline targets, which get an offer that waits for them
	Offline  int             `json:"offline"`
	AtLeast  Duration        `json:"at_least" schema:"ref=Duration"`
	Estimate Duration        `json:"estimate" schema:"ref=Duration"`
	Exposure *Exposure       `json:"exposure,omitempty"`
	Staging  *PreviewStaging `json:"staging,omitempty"`
	// Why a start would be refused now; absent if it would not be
	Refusals *[]StartRefusal `json:"refusals,omitempty"`
	Warnings []string        `json:"warnings"`
}

// StartRefusal is why a rollout cannot be started.
type StartRefusal struct {
	// Code of the error of the start
	Code *string `json:"code,omitempty" example:"rollout_lower_rings"`
	Text string  `json:"text"`
}

// PreviewStaging is what the targets stage before the first batch, of a plan with stage.
type PreviewStaging struct {
	// Targets that have the version
	Staged int `json:"staged"`
	// Targets that would stage it
	Load int `json:"load"`
	// Targets whose agents cannot stage versions; they download when they are upgraded
	Cannot   int      `json:"cannot"`
	Estimate Duration `json:"estimate" schema:"ref=Duration"`
}

// RolloutStaging is how far the targets have staged the version.
type RolloutStaging struct {
	StartedAt time.Time `json:"started_at"`
	// How long the first batch waits for them
	Until   time.Time  `json:"until"`
	EndedAt *time.Time `json:"ended_at,omitempty"`
	// Targets that were asked
	Targets int `json:"targets"`
	// Targets that have staged it, have failed to, or cannot
	Answered int `json:"answered"`
	// Other targets that are online
	Waiting int `json:"waiting"`
}

// RolloutLockstep is how far a rollout in lockstep is. All targets reach a phase before the first
// begins the next. Before the phase switch a failure undoes everything, on every target; from then on
// it goes through to its end.
type RolloutLockstep struct {
	Phase LockstepPhase `json:"phase"`
	Since time.Time     `json:"since"`
	// Targets that go together; absent before the phase drain
	Targets *int `json:"targets,omitempty"`
	// When the phase switch began; absent before
	CommittedAt *time.Time `json:"committed_at,omitempty"`
	Undo        *Undo      `json:"undo,omitempty"`
	// Hosts that were left out because they were offline, at most 50 entries
	Missing *[]string `json:"missing,omitempty"`
	// Hosts that were not ready, or did not go along to the end, at most 50 entries
	Failed *[]string `json:"failed,omitempty"`
}

// LockstepPhase is a phase of a rollout in lockstep.
type LockstepPhase string

// Values of LockstepPhase.
const (
	LockstepVerify      LockstepPhase = "verify"
	LockstepDrain       LockstepPhase = "drain"
	LockstepStop        LockstepPhase = "stop"
	LockstepVerifyAgain LockstepPhase = "verify_again"
	LockstepBackup      LockstepPhase = "backup"
	LockstepSwitch      LockstepPhase = "switch"
	LockstepStart       LockstepPhase = "start"
	LockstepSettle      LockstepPhase = "settle"
	LockstepUndo        LockstepPhase = "undo"
)

// Undo is why a rollout in lockstep goes back.
type Undo struct {
	At  time.Time     `json:"at"`
	In  LockstepPhase `json:"in"`
	Why string        `json:"why"`
}

// RolloutPreviewItem is the answer of POST /api/v1/rollouts/{rolloutId}/preview.
type RolloutPreviewItem struct {
	Item RolloutPreview `json:"item"`
}

// PreviewTarget is an agent that a rollout would upgrade.
type PreviewTarget struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Policy   string `json:"policy"`
	From     string `json:"from"`
	To       string `json:"to"`
	Rollback *bool  `json:"rollback,omitempty"`
	// Identifies the configuration files that the server renders for the host
	Config *string `json:"config,omitempty"`
	// How long the host observes the new version of the component before it reports it as installed
	Observes *string   `json:"observes,omitempty" example:"1m0s"`
	Batch    int       `json:"batch"`
	Ring     int       `json:"ring"`
	Site     *string   `json:"site,omitempty"`
	Values   *[]string `json:"values,omitempty"`
	Online   bool      `json:"online"`
	// Bytes to download
	Bytes int64 `json:"bytes"`
}

// SkippedAgent is an agent that a rollout would leave out.
type SkippedAgent struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Version  string `json:"version"`
	Code     string `json:"code" example:"runs_version"`
	Text     string `json:"text"`
	// Code of the cause in previews, if code says less
	Cause *string `json:"cause,omitempty" example:"running"`
	// force in the plan includes it
	Forceable *bool `json:"forceable,omitempty"`
}

// PreviewBatch is a batch of a preview. Times are estimates that include windows and freezes.
type PreviewBatch struct {
	Index   int       `json:"index"`
	Kind    BatchKind `json:"kind"`
	Ring    int       `json:"ring"`
	Size    int       `json:"size"`
	Offline int       `json:"offline"`
	StartAt time.Time `json:"start_at"`
	EndAt   time.Time `json:"end_at"`
	// Share of the fleet that runs the version after the batch, 0 to 1
	Share float64 `json:"share"`
}

// Coverage is how much of the fleet's variety the canaries cover.
type Coverage struct {
	Over    []string `json:"over"`
	Cells   int      `json:"cells"`
	Covered int      `json:"covered"`
	// Share of targets whose cell has a canary, 0 to 1
	Agents    float64 `json:"agents"`
	Uncovered []Cell  `json:"uncovered" schema:"maxItems=20"`
}

// Cell are agents that share the values of labels.
type Cell struct {
	Values []string `json:"values"`
	Agents int      `json:"agents"`
}

// SiteBytes is how much the agents of a site would download.
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

// DriftItem is an agent that differs from a preview.
type DriftItem struct {
	AgentId  string `json:"agent_id"`
	Hostname string `json:"hostname"`
	Text     string `json:"text"`
}

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
type AuditEntry struct {
	Id string    `json:"id"`
	At time.Time `json:"at"`
	// Name of the admin key; muster for steps of the rollout itself
	Actor string `json:"actor"`
	Verb  string `json:"verb" example:"rollout.pause"`
	// Id of the rollout
	Subject string  `json:"subject"`
	Why     *string `json:"why,omitempty"`
	Text    string  `json:"text"`
	// What was recorded besides. changes lists the fields that were changed: each has field, before
	// and after, or hidden instead of values that may be a secret
	Data *map[string]any `json:"data,omitempty"`
}

// AuditList is the answer of GET /api/v1/audit.
type AuditList struct {
	Items   []AuditEntry `json:"items"`
	Total   int          `json:"total"`
	Page    int          `json:"page"`
	PerPage int          `json:"perPage"`
}

// Explanation is why an agent runs its version.
type Explanation struct {
	AgentId string    `json:"agent_id"`
	At      time.Time `json:"at"`
	// Absent if no rollout is concerned
	RolloutId   *string `json:"rollout_id,omitempty"`
	RolloutName *string `json:"rollout_name,omitempty"`
	// The answer in one sentence
	Summary string `json:"summary"`
	// The reasons, broadest first
	Chain []Reason `json:"chain"`
	// What will change the situation, or what to do
	Next *string `json:"next,omitempty"`
}

// Reason is a step of an explanation.
type Reason struct {
	Code  string     `json:"code" example:"soak"`
	Text  string     `json:"text"`
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"`
}

// ExplanationItem is the answer of GET /api/v1/agents/{agentId}/why.
type ExplanationItem struct {
	Item Explanation `json:"item"`
}

// ExposureRule is at most percent of the fleet, and of each value of the labels in per, runs a version
// with fewer than healthy_hours healthy agent-hours.
type ExposureRule struct {
	Id           string           `json:"id"`
	Enabled      bool             `json:"enabled"`
	Percent      float64          `json:"percent"`
	HealthyHours float64          `json:"healthy_hours"`
	Per          *[]ExposureLabel `json:"per,omitempty"`
	UpdatedAt    time.Time        `json:"updated_at"`
	UpdatedBy    string           `json:"updated_by"`
}

// ExposureLabel is a label of which each value has an exposure limit.
type ExposureLabel struct {
	Label   string  `json:"label"`
	Percent float64 `json:"percent"`
}

// ExposureRuleItem is the answer of GET /api/v1/exposure.
type ExposureRuleItem struct {
	Item ExposureRule `json:"item"`
}

// SetExposureRequest is the body of PUT /api/v1/exposure.
type SetExposureRequest struct {
	Enabled      bool             `json:"enabled"`
	Percent      float64          `json:"percent"`
	HealthyHours float64          `json:"healthy_hours"`
	Per          *[]ExposureLabel `json:"per,omitempty" schema:"maxItems=4"`
	Why          *string          `json:"why,omitempty"`
}

// Exposure is how much of the exposure budget a version uses.
type Exposure struct {
	Version string `json:"version"`
	// Number of agents in the fleet
	Fleet int `json:"fleet"`
	// Number of agents that run the version or were offered it
	Exposed int `json:"exposed"`
	// Number of agents that may run the version
	Limit        int            `json:"limit"`
	HealthyHours float64        `json:"healthy_hours"`
	NeededHours  float64        `json:"needed_hours"`
	Tightest     *ExposureValue `json:"tightest,omitempty"`
}

// ExposureValue is how much of the exposure budget a value of a label uses.
type ExposureValue struct {
	Label   string `json:"label"`
	Value   string `json:"value"`
	Fleet   int    `json:"fleet"`
	Exposed int    `json:"exposed"`
	Limit   int    `json:"limit"`
}

// Freeze is a time in which no upgrade starts.
type Freeze struct {
	Id        string    `json:"id"`
	Name      string    `json:"name"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	CreatedAt time.Time `json:"created_at"`
	CreatedBy string    `json:"created_by"`
}

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
type UpgradeManifest struct {
	Profile       string      `json:"profile"`
	Id            string      `json:"id"`
	Description   *string     `json:"description,omitempty"`
	Version       string      `json:"version"`
	SourceVersion *string     `json:"source_version,omitempty"`
	SourceUri     *string     `json:"source_uri,omitempty"`
	Artifacts     *[]Artifact `json:"artifacts,omitempty"`
	Migration     *Migration  `json:"migration,omitempty"`
	// The component that is upgraded; absent: the agents themselves
	Component   *string           `json:"component,omitempty"`
	ConfigFiles *[]ConfigTemplate `json:"config_files,omitempty"`
	// Override the variables of policies
	VariableOverrides *map[string]string `json:"variable_overrides,omitempty"`
	// sha256:… of the file's raw bytes; with templates, of what `sha256sum` prints for the file and
	// them
	ContentHash string `json:"content_hash"`
	// Why plans cannot name the manifest; absent if they can
	Error *string `json:"error,omitempty"`
}

// ConfigTemplate is a configuration file that the server renders for each host.
type ConfigTemplate struct {
	// Absolute, on the host
	Path string `json:"path" example:"/etc/web/web.conf"`
	// The file below the folder of the manifest
	Template string `json:"template" example:"2.0.0/web.conf.tmpl"`
	// Octal; default: 0644
	Mode *string `json:"mode,omitempty" example:"\"0640\""`
	// Name or number; default: the agent's own
	Owner *string `json:"owner,omitempty"`
	Group *string `json:"group,omitempty"`
}

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
	// That of the manifest
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
