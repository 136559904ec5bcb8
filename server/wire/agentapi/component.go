package agentapi

import (
	"fmt"
	"time"
)

// Components of agents: workloads that an agent runs, and upgrades as it upgrades itself.
// A policy declares them, an UPGRADE with ComponentData installs or upgrades one, and the
// check-in reports them. Elastic's agents and Fleet Server have none of this.

// MaxComponents bounds the components of a policy, and so what an agent runs, and reports in
// each check-in.
const MaxComponents = 50

// PolicyComponent is a component in the policy that a POLICY_CHANGE delivers, in the list
// "components". What code runs, and how, is in the component's package, which its
// publishers sign.
type PolicyComponent struct {
	// That of the component in its package
	Name string `json:"name" example:"web-server"`
	// How it is run, as in its package: process, systemd, docker
	Runtime string `json:"runtime" example:"systemd"`
	// The full version that the agents are to run
	Version  string            `json:"version,omitempty" example:"2.4.0"` // an agent changes its version only by an UPGRADE
	Artifact ComponentArtifact `json:"artifact,omitzero"`
	// The server may render configuration files. The package has to allow it too
	ServerConfig bool `json:"server_config,omitempty"`
	// The hosts of the policy must not run mixed versions: each runs only the version that is in
	// force, which rollouts in lockstep change
	Lockstep bool              `json:"lockstep,omitempty"`
	InForce  *ComponentInForce `json:"in_force,omitempty"` // nil: no version is in force yet, and each host runs what it has
	Health   ComponentHealth   `json:"health,omitzero"`
}

// ComponentInForce is the version of a component that all hosts of a policy run, which the server
// sets in policies with Lockstep.
type ComponentInForce struct {
	Version string `json:"version" example:"2.4.0"` // full
	// A rollout in lockstep is under way and has not decided yet: what does not run is not started
	Changing bool `json:"changing,omitempty"` // what runs goes on
}

// ComponentArtifact pins what is installed. The package is the one with the component's name.
type ComponentArtifact struct {
	// The image of a container, by digest, as in the package: a package that names another one is not
	// installed. Absent: any
	Image string `json:"image,omitempty" example:"registry.example.com/web@sha256:…"` // a host goes back to one that it keeps
}

// ComponentHealth is how an agent observes a component after an upgrade. Zero values mean
// the agent's defaults.
type ComponentHealth struct {
	// How long
	WaitSeconds int `json:"wait_seconds,omitempty" schema:"minimum=0,maximum=3600"` // see Wait
	// How many restarts in that time are tolerated
	MaxRestarts *int `json:"max_restarts,omitempty" schema:"minimum=0,maximum=100"`
	// Besides those of the package
	Checks []ComponentCheck `json:"checks,omitempty" schema:"maxItems=20"`
}

// How long an agent observes a new version of a component. The server derives from it until when
// to expect the agent's verdict.
const (
	// DefaultComponentWait shows most crashes at the start, and lasts for a load balancer's
	// checks.
	DefaultComponentWait = time.Minute
	// MaxComponentWait is the longest observation after an upgrade. Its component counts as
	// being upgraded that long, and no further version can follow.
	MaxComponentWait = time.Hour
	// MaxComponentRestarts catches mistakes: a component that restarts more often never settles.
	MaxComponentRestarts = 100
	// ComponentWaitSlack is how much longer than the wait the observation may take: one round
	// of checks, each with its timeout.
	ComponentWaitSlack = 2 * time.Minute
)

// Wait returns how long a new version is observed.
func (h ComponentHealth) Wait() time.Duration {
	if h.WaitSeconds > 0 {
		return time.Duration(h.WaitSeconds) * time.Second
	}
	return DefaultComponentWait
}

// Check returns the first field that a host does not accept, such as checks[1].timeout_seconds, and what
// is wrong with it; no error: it accepts all. most and longest bound the checks and their time-outs, and
// valid returns what else is wrong with one.
func (h ComponentHealth) Check(most int, longest time.Duration, valid func(ComponentCheck) error) (field string, err error) {
	switch limit := int(MaxComponentWait / time.Second); {
	case h.WaitSeconds < 0 || h.WaitSeconds > limit:
		return "wait_seconds", fmt.Errorf("is %d, want 0 to %d", h.WaitSeconds, limit)
	case h.MaxRestarts != nil && (*h.MaxRestarts < 0 || *h.MaxRestarts > MaxComponentRestarts):
		return "max_restarts", fmt.Errorf("is %d, want 0 to %d", *h.MaxRestarts, MaxComponentRestarts)
	case len(h.Checks) > most:
		return "checks", fmt.Errorf("are %d, want at most %d", len(h.Checks), most)
	}
	for i, c := range h.Checks {
		field := fmt.Sprintf("checks[%d]", i)
		if limit := int(longest / time.Second); c.TimeoutSeconds < 0 || c.TimeoutSeconds > limit { // before it overflows
			return field + ".timeout_seconds", fmt.Errorf("is %d, want 0 to %d", c.TimeoutSeconds, limit)
		}
		if err := valid(c); err != nil {
			return field, err
		}
	}
	return "", nil
}

// ComponentCheck is a check in a policy. A policy has no exec checks: what runs on a host is
// signed by the publishers.
type ComponentCheck struct {
	Name string `json:"name"`
	// A URL on the host, which has to answer with a 2xx status; agents report that status and nothing
	// else of the answer
	HTTP string `json:"http,omitempty" example:"http://127.0.0.1:8080/health"`
	// host:port, which has to accept a connection
	TCP string `json:"tcp,omitempty" example:"127.0.0.1:8080"`
	// The check asks another address than the host's loopback ones (127.0.0.1, ::1, localhost), which
	// checks.allow in the agent.yml of each host has to list. Otherwise such a check is refused
	Remote bool `json:"remote,omitempty"` // for operators; a host goes by its own configuration
	// Of one attempt; default: 5
	TimeoutSeconds int `json:"timeout_seconds,omitempty" schema:"minimum=0,maximum=60"`
	// How many attempts in a row have to fail; default: 3
	Threshold int `json:"threshold,omitempty" schema:"minimum=0"`
}

// ComponentData is the part of UpgradeData that makes an UPGRADE that of a component.
// UpgradeData has its version, source and force. It has no instructions: the agent knows
// the steps.
type ComponentData struct {
	Name string `json:"name"`
	// UpgradeID identifies what is to be done: an agent that has done it does not do it
	// again, whatever action asks.
	UpgradeID string `json:"upgrade_id"`
	Runtime   string `json:"runtime"`
	// Checksum pins the artifact: sha512:<hex> of the package, or sha256:<hex>, the digest
	// of the image. Empty: whatever the publishers have signed under the version's name.
	Checksum string `json:"checksum,omitempty"`
	Size     int64  `json:"size,omitempty"` // bytes; 0: not known
	Image    string `json:"image,omitempty"`
	// Files are the configuration files that the server has rendered for the agent, all of
	// them. None: the package's own are written.
	Files []RenderedFile `json:"files,omitempty"`
	// Migration is what the version does to the component's state: none, compatible or
	// breaking; empty: none.
	Migration string          `json:"migration,omitempty"`
	Health    ComponentHealth `json:"health,omitzero"`
	// Lockstep is nil unless the component is upgraded in lockstep with others.
	Lockstep *LockstepData `json:"lockstep,omitempty"`
}

// RenderedFile is a configuration file for one agent.
type RenderedFile struct {
	Path    string `json:"path"`
	SHA256  string `json:"sha256"` // of Content, hexadecimal
	Content string `json:"content"`
	Mode    string `json:"mode,omitempty"` // octal; empty: 0644
	Owner   string `json:"owner,omitempty"`
	Group   string `json:"group,omitempty"`
}

// ComponentReport is what Muster's agents report of a component beside the fields that all
// agents have; see Component.
type ComponentReport struct {
	Name    string `json:"name,omitempty"`
	Runtime string `json:"runtime,omitempty"`
	// Version is the full version that is installed, empty: none. Hash is its build's.
	Version string `json:"version,omitempty"`
	Hash    string `json:"hash,omitempty"`
	// Image is the image of a container.
	Image string `json:"image,omitempty"`
	// ConfigSHA256 identifies the configuration files that are written, all together.
	ConfigSHA256 string `json:"config_sha256,omitempty"`
	// RenderedSHA256 identifies those of them that the server has rendered; empty if none.
	RenderedSHA256 string `json:"rendered_sha256,omitempty"`
	// LastHealthyVersion is the last version that ended its observation as healthy.
	LastHealthyVersion string `json:"last_healthy_version,omitempty"`
	// Rollbacks are the versions that the host has kept.
	Rollbacks []string `json:"rollbacks,omitempty"`
	// RollbackProblems are what some of them lack.
	RollbackProblems []RollbackProblem `json:"rollback_problems,omitempty"`
	// Restarts counts those that nobody asked for, since Since, when the version started.
	Restarts int        `json:"restarts,omitempty"`
	Since    *time.Time `json:"since,omitempty"`
	// Lockstep means that the agent can upgrade the component in lockstep: it knows PROCEED,
	// and what it has stopped stays stopped when the host boots.
	Lockstep bool `json:"lockstep,omitempty"`
	// StartWithheld means that the component is not started, or was stopped, since another version is in
	// force, or the host does not know yet which one is; see PolicyComponent.InForce.
	StartWithheld bool `json:"held,omitempty"`
	// UpgradeDetails are those of the component's upgrade, as UpgradeDetails of the
	// check-in are those of the agent's.
	UpgradeDetails *UpgradeDetails `json:"upgrade_details,omitempty"`
}

// RollbackProblem says what a version lacks that the host has kept, such as an image that somebody has
// removed. Going back to the version fetches it again, if its source still has it.
type RollbackProblem struct {
	Version string `json:"version" example:"2.3.0"`
	Reason  string `json:"reason"`
}

// Phases of a component's upgrade, in UpgradeDetails.Metadata.Phase. The states of
// UpgradeDetails are the agent's: REQUESTED, SCHEDULED, DOWNLOADING, REPLACING, RESTARTING,
// WATCHING, ROLLBACK, FAILED.
const (
	PhasePreparing = "PREPARING"
	PhaseStopped   = "STOPPED"
	PhaseMutating  = "MUTATING"
	PhaseStarting  = "STARTING"
	PhaseVerifying = "VERIFYING"
)

// FailedRollback begins the error of an upgrade that failed and could not be undone, and is
// the reason code of its details. The agent does nothing more with the component until an
// operator acts.
const FailedRollback = "FAILED_ROLLBACK"
