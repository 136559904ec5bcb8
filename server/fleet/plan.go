package fleet

import "time"

// Plan is an operator's specification of a rollout. Once the rollout is started, only Limits,
// Failure, Health and Pace may change; the pinned preview keeps the hash of the plan as it was
// started. Absent values mean the defaults below.
//
// Each number and duration has a tag zero. Where zero stands for an absent value, a zero that
// somebody wrote is refused: who asks for no wait must not get the default. See CheckGiven.
type Plan struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`

	// Component is the component that the rollout upgrades, or installs for the first time;
	// empty: the agents themselves.
	Component string `json:"component,omitempty"`

	// Profile and UpgradeID name an upgrade manifest (upgrades/<profile>/<id>.yaml),
	// which provides version, artifacts and migration. Without them the plan does.
	Profile      string `json:"profile,omitempty"`
	UpgradeID    string `json:"upgrade_id,omitempty"`
	ManifestHash string `json:"manifest_hash,omitempty"` // sha256:… of the manifest's raw bytes

	// Version is the full version to reach. A rollback has none: each of its targets
	// goes back to its own version.
	Version string `json:"version,omitempty"`
	// SourceVersion limits the rollout to agents that run this version; empty: any.
	SourceVersion string `json:"source_version,omitempty"`
	// Artifacts pin what is installed, one for each platform. If absent, they are taken
	// from the published packages when the rollout is created.
	Artifacts []Artifact `json:"artifacts,omitempty"`
	SourceURI string     `json:"source_uri,omitempty"`
	Force     bool       `json:"force,omitempty"` // UpgradeRequest.Force
	// RetryFailed includes the hosts on which the version failed before (UpgradeRequest.Retry).
	RetryFailed bool `json:"retry_failed,omitempty"`

	// Variables are for the templates of the component's configuration files: over those of
	// the policy, below the upgrade manifest's overrides.
	Variables map[string]string `json:"variables,omitempty"`

	Migration Migration `json:"migration,omitzero"`
	Select    Selector  `json:"select,omitzero"`
	// LateJoiners decides whether agents that match Select only after the start join:
	// ignore (the default) or join.
	LateJoiners LateJoiners `json:"late_joiners,omitempty"`
	// Stage decides whether all targets install the version beside the one that runs before
	// the first is offered it: ahead. Default: each downloads it when it is upgraded.
	Stage StageMode `json:"stage,omitempty"`

	Strategy Strategy    `json:"strategy"`
	Limits   Limits      `json:"limits,omitzero"`
	Failure  FailureRule `json:"failure,omitzero"`
	Health   HealthRule  `json:"health,omitzero"`
	Pace     Pace        `json:"pace,omitzero"`

	// ServerDefaults are the fields whose values are the server's defaults (rollouts.defaults in
	// its configuration), such as limits.max_parallel. The server writes it.
	ServerDefaults []string `json:"server_defaults,omitempty"`
}

// Artifact pins the bytes for one platform.
type Artifact struct {
	OS   string `json:"os,omitempty"` // empty: any
	Arch string `json:"arch,omitempty"`
	// Runtime is how it is run: self (an agent's own package, the default), or process,
	// systemd or docker for a component.
	Runtime Runtime `json:"runtime,omitempty"`
	URL     string  `json:"url,omitempty"`
	// Checksum is sha256:… or sha512:… and hex; for docker the image's digest.
	Checksum string `json:"checksum"`
	Size     int64  `json:"size,omitempty" zero:"allowed"` // bytes; 0: not known
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
	Type                 MigrationType `json:"type,omitempty"` // empty: none
	RecoveryPlan         string        `json:"recovery_plan,omitempty"`
	AcknowledgeStateRisk bool          `json:"acknowledge_state_risk,omitempty"`
}

// Selector chooses the agents that match every part given. A selector without any part
// is refused: empty never means all.
type Selector struct {
	All bool `json:"all,omitempty"` // the whole fleet, chosen explicitly
	// Kuery is a query in KQL. Unlike a listing of agents it includes inactive agents,
	// as the other parts do, and leaves out only the unenrolled. It is evaluated when
	// the rollout is previewed and started, and whenever late joiners are searched for.
	Kuery    string              `json:"kuery,omitempty"`
	Agents   []string            `json:"agents,omitempty"`
	Policies []string            `json:"policies,omitempty"`
	Labels   map[string][]string `json:"labels,omitempty"`  // label → one of these values; see Agent.Label
	Exclude  map[string][]string `json:"exclude,omitempty"` // label → none of these values
	// ExcludeAgents are left out by id.
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

// Values of StrategyKind.
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
	Kind StrategyKind `json:"kind"`
	// BatchSize or BatchPercent (of all targets, rounded up) is the size of a batch;
	// without either it is DefaultBatchPercent.
	BatchSize    int     `json:"batch_size,omitempty" zero:"refused"`
	BatchPercent float64 `json:"batch_percent,omitempty" zero:"refused"`

	Canary *CanaryRule `json:"canary,omitempty"` // for canary, and optionally for rings
	Rings  *RingRule   `json:"rings,omitempty"`  // for rings

	// For all_at_once, where a date cannot be moved:
	ForceContinue  bool       `json:"force_continue,omitempty"`  // failures never stop it
	SkipValidation bool       `json:"skip_validation,omitempty"` // reaching the version is enough
	Deadline       *time.Time `json:"deadline,omitempty"`        // nothing is offered after it

	// For lockstep:
	Away     AwayMode `json:"away,omitempty"`                    // empty: refuse
	Patience Duration `json:"patience,omitempty" zero:"refused"` // how long a phase may take; 0: DefaultPatience
}

// CanaryRule chooses the first batch, which is observed for twice Health.Wait.
type CanaryRule struct {
	Size    int     `json:"size,omitempty" zero:"refused"` // or
	Percent float64 `json:"percent,omitempty" zero:"refused"`
	// Pick is random (the default; the same for the same plan and fleet) or stratified:
	// the fewest agents that cover the cells of Over.
	Pick     CanaryPick `json:"pick,omitempty"`
	Over     []string   `json:"over,omitempty"`     // labels; empty: os, arch, version
	Approval bool       `json:"approval,omitempty"` // an operator must approve the rest; breaking migrations imply it
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
	By      string `json:"by,omitempty"`                     // label whose value is the ring; empty: ring
	Default int    `json:"default,omitempty" zero:"allowed"` // ring of agents without one
	Only    []int  `json:"only,omitempty" zero:"allowed"`    // rings of this rollout; empty: all
	Force   bool   `json:"force,omitempty"`                  // even if lower rings do not run this version
}

// Limits bound how many agents are upgraded at one time.
type Limits struct {
	MaxParallel int          `json:"max_parallel,omitempty" zero:"refused"` // 0: DefaultMaxParallel
	Per         []LabelLimit `json:"per,omitempty"`                         // at most MaxLabelLimits
}

// LabelLimit is a disruption budget: for each value of a label, it bounds how many
// agents with that value are upgraded at one time.
type LabelLimit struct {
	Label string `json:"label"`
	Max   int    `json:"max" zero:"required"`
}

// FailureRule pauses a rollout when either bound is crossed: Count failures, or Percent
// of the targets attempted.
type FailureRule struct {
	Count   *int     `json:"count,omitempty" zero:"allowed"`   // pause at this many; nil with nil Percent: DefaultFailureCount
	Percent *float64 `json:"percent,omitempty" zero:"allowed"` // pause above it
	Retries int      `json:"retries,omitempty" zero:"allowed"` // of a target that failed without harm, such as a stale one
}

// HealthRule defines when an upgraded agent counts as healthy.
type HealthRule struct {
	Wait        Duration `json:"wait,omitempty" zero:"refused"`         // 0: DefaultHealthWait
	StaleAfter  Duration `json:"stale_after,omitempty" zero:"refused"`  // 0: DefaultStaleAfter
	SilentAfter Duration `json:"silent_after,omitempty" zero:"refused"` // floor of an agent's usual gap; 0: DefaultSilentAfter
	MaxCrashes  int      `json:"max_crashes,omitempty" zero:"refused"`  // this many ends of its process are a crash loop; 0: DefaultMaxCrashes
}

// Pace defines when offers are made, and how fast.
type Pace struct {
	Soak           Duration `json:"soak,omitempty" zero:"allowed"` // between a batch's end and the next
	PauseOnSuccess bool     `json:"pause_on_success,omitempty"`
	Windows        []Window `json:"windows,omitempty"` // offers only inside one; none: always
	// OfferFor is how long an offer waits for an agent that is away; 0: DefaultOfferFor.
	OfferFor Duration `json:"offer_for,omitempty" zero:"refused"`
	// WaitFor bounds every other wait: a batch in flight, an approval. 0: DefaultWaitFor.
	WaitFor Duration `json:"wait_for,omitempty" zero:"refused"`
	// Emergency skips soak, windows, freezes and observation; limits, failure rule and
	// exposure budget still apply.
	Emergency bool `json:"emergency,omitempty"`
}

// Window is a span of local time on some weekdays. If To is at or before From, the
// window ends on the next day.
type Window struct {
	Days []string `json:"days,omitempty"` // mon … sun; empty: every day
	From string   `json:"from"`           // 22:00
	To   string   `json:"to"`             // 04:00
	Zone string   `json:"zone,omitempty"` // such as Europe/Berlin; empty: UTC
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
