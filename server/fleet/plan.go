package fleet

import "time"

// Plan is an operator's specification of a rollout. Once the rollout is started, only Limits,
// Failure, Health and Pace may change; the pinned preview keeps the hash of the plan as it was
// started. Absent values mean the defaults below.
//
// Each number and duration has a tag zero. Where zero stands for an absent value, a zero that
// somebody wrote is refused: who asks for no wait must not get the default. See package strict.
type Plan struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`

	// The component to upgrade, or to install where no version of it is; default: the agents
	// themselves
	Component string `json:"component,omitempty" example:"web"`

	// With upgrade_id, names an upgrade manifest that provides version, artifacts and migration
	Profile   string `json:"profile,omitempty"`
	UpgradeID string `json:"upgrade_id,omitempty"`
	// sha256:… of the upgrade manifest's raw bytes
	UpgradeManifestHash string `json:"manifest_hash,omitempty"`

	// The full version to reach. A rollback has none: each of its targets goes back to its own version
	Version string `json:"version,omitempty" example:"1.1.0"`
	// Only agents that run this version; default: any
	SourceVersion string `json:"source_version,omitempty"`
	// Packages for each platform; default: the published ones
	Artifacts []Artifact `json:"artifacts,omitempty"` // pinned when the rollout is created
	// URL that hosts download packages from instead of this server
	SourceURI string `json:"source_uri,omitempty"`
	// Also agents that run a later version, or on whose host this one failed before
	Force bool `json:"force,omitempty"`
	// Also agents on whose host the version failed before; unlike force it overrides nothing else
	RetryFailed bool `json:"retry_failed,omitempty"`

	// For the templates of the component's configuration files, as .Vars: over those of the policy,
	// below variable_overrides of the upgrade manifest
	Variables map[string]string `json:"variables,omitempty" schema:"maxProperties=100" example:"{port: '8443'}"`

	Migration Migration `json:"migration,omitzero"`
	Select    Selector  `json:"select,omitzero"`
	// What happens to agents that match only after the start
	LateJoiners LateJoiners `json:"late_joiners,omitempty"`
	// ahead: all targets install the version beside the one that runs before the first is upgraded;
	// default: each downloads it when it is upgraded
	Stage StageMode `json:"stage,omitempty"`

	Strategy Strategy    `json:"strategy"`
	Limits   Limits      `json:"limits,omitzero"`
	Failure  FailureRule `json:"failure,omitzero"`
	Health   HealthRule  `json:"health,omitzero"`
	Pace     Pace        `json:"pace,omitzero"`

	// Fields whose values are the server's defaults (rollouts.defaults in its configuration). The
	// server writes it
	ServerDefaults []string `json:"server_defaults,omitempty" example:"[limits.max_parallel]"`
}

// Artifact pins the bytes for one platform.
type Artifact struct {
	// default: any
	OS   string `json:"os,omitempty"`
	Arch string `json:"arch,omitempty"`
	// How it is run; self is the agent's own package, the others are for components. Agents may have
	// more
	Runtime Runtime `json:"runtime,omitempty"`
	// With docker: the image as name@sha256:…, with the digest in checksum
	URL string `json:"url,omitempty"`
	// sha256:… or sha512:… and hex; for docker the digest of the image
	Checksum string `json:"checksum" example:"sha512:…"`
	// bytes; absent if unknown
	Size int64 `json:"size,omitempty" zero:"allowed"`
}

// Runtime is how an artifact is run.
type Runtime string

// Values of Runtime.
const (
	RuntimeSelf    Runtime = "self"
	RuntimeProcess Runtime = "process"
	RuntimeSystemd Runtime = "systemd"
	RuntimeDocker  Runtime = "docker"
)

// What names a version of agents, 1.2.0, or of a component, web 2.4.0.
func What(component, version string) string {
	if component == "" {
		return version
	}
	return component + " " + version
}

// PackageName names a version of agents, version 1.2.0, or of a component, component web in version
// 2.4.0.
func PackageName(component, version string) string {
	if component == "" {
		return "version " + version
	}
	return "component " + component + " in version " + version
}

// PartOf names a component of an agent or a policy, component web of agent a1, or the whole if no
// component is named.
func PartOf(component, whole string) string {
	if component == "" {
		return whole
	}
	return "component " + component + " of " + whole
}

// What names what the plan brings, for a sentence.
func (p *Plan) What(version string) string { return What(p.Component, version) }

// MigrationType is what a version does to the state of the version before it.
type MigrationType string

// Values of MigrationType. They decide how far a rollback can be trusted.
const (
	MigrationNone       MigrationType = "none"       // tier 1: a rollback restores binary and configuration
	MigrationCompatible MigrationType = "compatible" // tier 2: the old version reads what the new one wrote
	MigrationBreaking   MigrationType = "breaking"   // tier 3: the old version may be unable to read it
)

// Tier returns what a rollback guarantees: 1 everything, 2 compatible state, 3 neither.
func (t MigrationType) Tier() int {
	switch t {
	case MigrationBreaking:
		return 3
	case MigrationCompatible:
		return 2
	}
	return 1
}

// Migration describes what the new version does to state. A breaking migration requires
// a recovery plan, canaries, an approval, and an acknowledgement of the risk.
type Migration struct {
	Type MigrationType `json:"type,omitempty"` // empty: none
	// Required for a breaking migration
	RecoveryPlan string `json:"recovery_plan,omitempty"`
	// Required for a breaking migration
	AcknowledgeStateRisk bool `json:"acknowledge_state_risk,omitempty"`
}

// Selector chooses the agents that match every part given. A selector without any part
// is refused: empty never means all.
type Selector struct {
	// All agents
	All bool `json:"all,omitempty"`
	// A query in KQL, such as policy_id:edge and local_metadata.os.platform:linux. Only unenrolled
	// agents are hidden: inactive agents that match are selected too. It is evaluated for the preview,
	// at the start, and for late joiners at least every 5 minutes.
	Kuery string `json:"kuery,omitempty" schema:"maxLength=10000"`
	// Ids of agents
	Agents []string `json:"agents,omitempty"`
	// Ids of policies, one of which the agent must have
	Policies []string `json:"policies,omitempty"`
	// Labels of agents, with values one of which the agent must have
	Labels map[string][]string `json:"labels,omitempty"`
	// Labels of agents, with values none of which the agent may have
	Exclude map[string][]string `json:"exclude,omitempty"`
	// Ids of agents that are left out
	ExcludeAgents []string `json:"exclude_agents,omitempty"`
}

// StageMode is when a rollout has its targets install the version.
type StageMode string

// StageAhead is before the first target is upgraded.
const StageAhead StageMode = "ahead"

// LateJoiners is what happens to agents that match only after the start.
type LateJoiners string

// Values of LateJoiners.
const (
	LateIgnore LateJoiners = "ignore"
	LateJoin   LateJoiners = "join"
)

// StrategyKind is the shape of a rollout.
type StrategyKind string

// Strategies that are named outside their own file. Package plan has the list of all.
const (
	Rolling   StrategyKind = "rolling"
	Canary    StrategyKind = "canary"
	AllAtOnce StrategyKind = "all_at_once"
	Rings     StrategyKind = "rings"
	// LockstepStrategy upgrades a component on all targets as one: no two run at different
	// versions.
	LockstepStrategy StrategyKind = "lockstep"
)

// Strategy divides the targets into batches.
type Strategy struct {
	// rolling: batch after batch (the default of an object of kind Fleet); canary: a first batch is
	// observed, and may need approval; rings: agents in the order of a label; all_at_once: a single
	// batch; lockstep: a component on all agents as one
	Kind StrategyKind `json:"kind"`
	// The size of a batch; default: 10 % of all targets
	BatchSize int `json:"batch_size,omitempty" zero:"refused" schema:"minimum=1"` // DefaultBatchPercent
	// Percentage of all targets, rounded up
	BatchPercent float64 `json:"batch_percent,omitempty" zero:"refused"`

	Canary *CanaryRule `json:"canary,omitempty"` // for canary, and optionally for rings
	Rings  *RingRule   `json:"rings,omitempty"`  // for rings

	// With all_at_once: failures never pause the rollout
	ForceContinue bool `json:"force_continue,omitempty"`
	// With all_at_once: running the version is enough, without a health wait
	SkipValidation bool `json:"skip_validation,omitempty"`
	// With all_at_once: nothing is offered after this time
	Deadline *time.Time `json:"deadline,omitempty"`

	// With lockstep: what happens to targets that are offline before it begins: the rollout pauses and
	// names them (refuse, the default), or they are left out
	Away AwayMode `json:"away,omitempty"`
	// With lockstep: how long a phase may take, as a Go duration
	Patience Duration `json:"patience,omitempty" zero:"refused" example:"10m0s"` // 0: DefaultPatience
}

// CanaryRule chooses the first batch, which is observed for twice Health.Wait.
type CanaryRule struct {
	// Number of canaries; default: 10, unless percent is given
	Size int `json:"size,omitempty" zero:"refused" schema:"minimum=1"`
	// Canaries as a percentage of all agents
	Percent float64 `json:"percent,omitempty" zero:"refused"`
	// How canaries are chosen: random (the default; the same for the same plan and fleet), or
	// stratified: the fewest agents that cover the combinations of over
	Pick CanaryPick `json:"pick,omitempty"`
	// Labels whose combinations stratified covers; default: os, arch, version
	Over []string `json:"over,omitempty"`
	// The rest waits for an operator's approval
	Approval bool `json:"approval,omitempty"`
}

// CanaryPick is how canaries are chosen.
type CanaryPick string

// Values of CanaryPick.
const (
	PickRandom     CanaryPick = "random"
	PickStratified CanaryPick = "stratified"
)

// RingRule orders agents by a number they carry. Lower rings come first.
type RingRule struct {
	// Label whose value is the number of the ring; default: ring
	By string `json:"by,omitempty"`
	// Ring of agents without the label
	Default int `json:"default,omitempty" zero:"allowed"`
	// Rings that take part; default: all
	Only []int `json:"only,omitempty" zero:"allowed"`
	// Upgrade a ring even if lower rings do not run this version
	Force bool `json:"force,omitempty"`
}

// Limits bound how many agents are upgraded at one time.
type Limits struct {
	// The most agents that are upgraded at one time; default: 500
	MaxParallel int `json:"max_parallel,omitempty" zero:"refused" schema:"minimum=1"` // 0: DefaultMaxParallel
	// Bounds for each value of a label, such as the site
	Per []LabelLimit `json:"per,omitempty" schema:"maxItems=4"` // at most MaxLabelLimits
}

// LabelLimit is a disruption budget: for each value of a label, it bounds how many
// agents with that value are upgraded at one time.
type LabelLimit struct {
	// Name of the label
	Label string `json:"label" example:"site"`
	// Number of agents for each of its values
	Max int `json:"max" zero:"required" schema:"minimum=1"`
}

// FailureRule pauses a rollout when either bound is crossed: Count failures, or Percent
// of the targets attempted.
type FailureRule struct {
	// Pause at this many failed agents; default without percent: 3
	Count *int `json:"count,omitempty" zero:"allowed" schema:"minimum=0"` // DefaultFailureCount
	// Pause above this percentage of the upgrades attempted
	Percent *float64 `json:"percent,omitempty" zero:"allowed"`
	// How often an agent that failed without harm is tried again; default: 0
	Retries int `json:"retries,omitempty" zero:"allowed" schema:"minimum=0"`
}

// HealthRule defines when an upgraded agent counts as healthy.
type HealthRule struct {
	// How long an agent must run the version and be healthy, as a Go duration; default: 10m0s
	Wait Duration `json:"wait,omitempty" zero:"refused" example:"10m0s"` // 0: DefaultHealthWait
	// How long an upgrade may show no sign of life; default: 5m0s. One that does not move is given up
	// after three times as long
	StaleAfter Duration `json:"stale_after,omitempty" zero:"refused" example:"5m0s"` // 0: DefaultStaleAfter
	// How long an agent may be silent, or longer if it usually is; default: 2m0s
	SilentAfter Duration `json:"silent_after,omitempty" zero:"refused" example:"2m0s"` // 0: DefaultSilentAfter
	// How many ends of its process are a crash loop; default: 3
	MaxCrashes int `json:"max_crashes,omitempty" zero:"refused" schema:"minimum=1"` // 0: DefaultMaxCrashes
}

// Pace defines when offers are made, and how fast.
type Pace struct {
	// Time between the end of a batch and the next, as a Go duration; default: 0s
	Soak Duration `json:"soak,omitempty" zero:"allowed" example:"1h0m0s"`
	// Pause after each batch that succeeded
	PauseOnSuccess bool `json:"pause_on_success,omitempty"`
	// Periods in which offers are made; default: always
	Windows []Window `json:"windows,omitempty"`
	// How long an offer waits for an agent that is offline; default: 168h0m0s
	OfferFor Duration `json:"offer_for,omitempty" zero:"refused" example:"168h0m0s"` // 0: DefaultOfferFor
	// How long every other wait may last, such as that for an approval; default: 168h0m0s
	WaitFor Duration `json:"wait_for,omitempty" zero:"refused" example:"168h0m0s"` // 0: DefaultWaitFor
	// Skip soak, windows, freezes and observation; limits, failure and the exposure budget still hold
	Emergency bool `json:"emergency,omitempty"`
}

// Window is a span of local time on some weekdays. If To is at or before From, the
// window ends on the next day.
type Window struct {
	// mon … sun; default: every day
	Days []string `json:"days,omitempty"`
	// Local time at which it begins
	From string `json:"from" example:"\"22:00\""`
	// Local time at which it ends
	To string `json:"to" example:"04:00"`
	// Time zone; default: UTC
	Zone string `json:"zone,omitempty" example:"Europe/Berlin"`
}

// Defaults of a plan.
const (
	// DefaultBatchPercent makes ten batches: enough to see a bad version in the
	// first, few enough to end on the same day.
	DefaultBatchPercent = 10
	// DefaultMaxParallel is how many agents a server of two cores can serve a package
	// to at a time before the network becomes the bottleneck.
	DefaultMaxParallel = 500
	// DefaultFailureCount pauses at the third failure: one may be the host's fault,
	// three are the version's.
	DefaultFailureCount = 3
	// DefaultWatch is how long hosts watch a new version by default. They do not report
	// their own setting.
	DefaultWatch = 10 * time.Minute
	// DefaultHealthWait outlasts the hosts' own watch.
	DefaultHealthWait = DefaultWatch
	// DefaultStaleAfter is how long a target in flight may show no sign of life before
	// it has failed.
	DefaultStaleAfter = 5 * time.Minute
	// DefaultSilentAfter is four times the interval at which a parked agent's last-seen
	// time is written.
	DefaultSilentAfter = 2 * time.Minute
	// DefaultMaxCrashes is the watcher's own limit.
	DefaultMaxCrashes = 3
	// DefaultOfferFor outlasts a weekend and a day off.
	DefaultOfferFor = 7 * 24 * time.Hour
	// DefaultWaitFor gives an approver a weekend too.
	DefaultWaitFor = 7 * 24 * time.Hour
	// DefaultCanarySize finds a fault that affects one host in ten with a probability
	// of 65 %. A plan for a known fleet can choose a larger size.
	DefaultCanarySize = 10

	// MaxTargets bounds a rollout.
	MaxTargets = 1_000_000
	// MaxBatches keeps a rollout's document small enough to be written at each step. A
	// plan that exceeds it can use larger batches, or two rollouts.
	MaxBatches = 1_000
	// MaxLabelLimits bounds Limits.Per.
	MaxLabelLimits = 4
)
