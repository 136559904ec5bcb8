// Package handoff defines the files through which the agent, which switches a host to a
// new version, and the watcher, which decides on that version, communicate.
//
// Each file has one writer at a time, so no lock is needed. The agent writes the marker once,
// before it moves the pointer, and the watcher removes it at the end. The watcher writes the
// outcome; the agent reads it, reports it to the server, and removes it when the next
// upgrade begins. The versions on the host are recorded by the watcher while there is a marker,
// and otherwise by the agent.
package handoff

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// MarkerVersion is the version of the marker's format. A watcher refuses a newer one
// (see [ReadMarker]), and prints the one it understands with --marker-version. It is raised
// for what a watcher must not ignore.
const MarkerVersion = 1

// recordVersion is the version of the other formats here.
const recordVersion = 1

// Install is one version on the host.
type Install struct {
	manifest.Identity
	// Home is the versioned home relative to the top folder, slash-separated:
	// data/muster-agent-1.1.0-3f2a9c.
	Home string `json:"home"`
}

// Marker describes an upgrade that is being watched.
type Marker struct {
	// ActionID is the server's id of the UPGRADE action, empty for an upgrade that
	// was requested on the host.
	ActionID string  `json:"action_id,omitempty"`
	From     Install `json:"from"`
	To       Install `json:"to"`
	// Archive is trust.Expectation.Archive of the archive that To was unpacked from. It is
	// empty after a rollback on the host, which unpacks nothing.
	Archive   string    `json:"archive,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	Rules     Rules     `json:"rules"`
	Restart   Restart   `json:"restart"`
	// Before is how From saw itself and its host, with which To is compared.
	Before Before `json:"before,omitzero"`
}

// Before is how a version saw itself and its host right before the host was switched to another one, which
// is not to blame for what failed already.
type Before struct {
	// Failing are the names of the agent's checks of itself that failed.
	Failing []string `json:"failing,omitempty"`
	// Healthy are the installed versions of the components that were healthy, by the components' names.
	Healthy map[string]string `json:"healthy,omitempty"`
}

// Rules are the watcher's settings. They are fixed when the upgrade begins, so that the new
// version cannot change them.
type Rules struct {
	// Interval is the time between two health samples.
	Interval Duration `json:"interval"`
	// Grace is how long the new version is watched before it is committed.
	Grace Duration `json:"grace"`
	// FailedFor is how long the agent may report FAILED, or not answer on its
	// control socket.
	FailedFor Duration `json:"failed_for"`
	// MaxCrashes is how many times the agent's process may end during the watch;
	// one more rolls back.
	MaxCrashes int `json:"max_crashes"`
	// Checks are those of the package's manifest.
	Checks []manifest.Check `json:"checks,omitempty"`
	// Keep bounds the versions that stay when the new one is committed.
	Keep Limits `json:"keep"`
}

// Defaults of the rules.
const (
	// DefaultInterval takes three samples in DefaultFailedFor.
	DefaultInterval = 10 * time.Second
	// DefaultGrace is long enough for a slow start, a policy and some polls, and short
	// enough that an operator still follows the rollout.
	DefaultGrace = 10 * time.Minute
	// DefaultFailedFor is three samples at the default interval, so that a single bad
	// sample never rolls back.
	DefaultFailedFor = 30 * time.Second
	// DefaultMaxCrashes allows for an operator's kill and one crash by chance.
	DefaultMaxCrashes = 2
)

// DefaultRules returns the rules of an agent with an empty configuration.
func DefaultRules() Rules {
	return Rules{
		Interval:   Duration(DefaultInterval),
		Grace:      Duration(DefaultGrace),
		FailedFor:  Duration(DefaultFailedFor),
		MaxCrashes: DefaultMaxCrashes,
		Keep:       DefaultLimits(),
	}
}

// Restart describes how the agent is started after the pointer has moved back.
type Restart struct {
	// Service is the name of the agent's service. If it is empty no service manager
	// supervises the agent, and the watcher starts <top>/muster-agent itself,
	// detached.
	Service string `json:"service,omitempty"`
}

// Result is how a watch ended.
type Result string

const (
	Committed      Result = "committed"       // the new version stays
	RolledBack     Result = "rolled_back"     // the previous version runs again
	RollbackFailed Result = "rollback_failed" // neither version runs
)

// Outcome is the result of a watch, for the agent.
type Outcome struct {
	ActionID string    `json:"action_id,omitempty"`
	From     Install   `json:"from"`
	To       Install   `json:"to"`
	Archive  string    `json:"archive,omitempty"` // as in the marker
	Result   Result    `json:"result"`
	Reason   *Reason   `json:"reason,omitempty"` // nil when committed
	At       time.Time `json:"at"`
}

// Reason is why a version was rolled back.
type Reason struct {
	Code ReasonCode `json:"code"`
	// Text is a full sentence for people, with the figures of the decision.
	Text string `json:"text"`
}

// ReasonCode is append-only: servers and dashboards group by it.
type ReasonCode string

const (
	ReasonCrashLoop       ReasonCode = "crash_loop"       // the process ended too often
	ReasonAgentFailed     ReasonCode = "agent_failed"     // it reported FAILED, for too long
	ReasonComponentFailed ReasonCode = "component_failed" // a component reported FAILED, for too long
	ReasonControlLost     ReasonCode = "control_lost"     // runs, but does not answer its control socket
	ReasonWrongVersion    ReasonCode = "wrong_version"    // another version than the new one answers
	ReasonNotStarted      ReasonCode = "not_started"      // it never ran at all
	ReasonManual          ReasonCode = "manual"           // an operator requested it
	ReasonCheckFailed     ReasonCode = "check_failed"     // a check of the package failed, for too long
	ReasonCheckinLost     ReasonCode = "checkin_lost"     // it no longer reaches its server, but the watcher does
	ReasonSettings        ReasonCode = "settings"         // it did not run, since the host's settings are not valid
	ReasonUnwritable      ReasonCode = "unwritable"       // it did not run well, and the host cannot write to its disk
)

// WriteMarker stores the marker of the host under top.
func WriteMarker(d disk.Disk, top string, m Marker) error {
	if err := m.validate(); err != nil {
		return fmt.Errorf("write upgrade marker: %w", err)
	}
	return disk.WriteRecord(d, "upgrade marker", layout.Path(top, layout.MarkerFile), "marker", MarkerVersion, m)
}

// ReadMarker returns the marker, or nil if no upgrade is being watched. For an invalid marker
// it returns nil and an error: callers log the error and continue, and neither refuse to
// start nor roll back.
func ReadMarker(d disk.Disk, top string) (*Marker, error) {
	m, err := disk.FindRecord[Marker](d, "upgrade marker", layout.Path(top, layout.MarkerFile), "marker", MarkerVersion)
	if err == nil && m != nil {
		err = m.validate()
	}
	if err != nil {
		return nil, err
	}
	return m, nil
}

// RemoveMarker removes the marker, which ends the watch.
func RemoveMarker(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "upgrade marker", layout.Path(top, layout.MarkerFile))
}

// WriteOutcome stores the outcome. It must be written before the marker is removed, so that
// a crash between the two does not lose it.
func WriteOutcome(d disk.Disk, top string, o Outcome) error {
	return disk.WriteRecord(d, "upgrade outcome", layout.Path(top, layout.OutcomeFile), "outcome", recordVersion, o)
}

// ReadOutcome returns the outcome of the last watch, or nil if there is none. For a damaged
// one it returns nil and an error.
func ReadOutcome(d disk.Disk, top string) (*Outcome, error) {
	return disk.FindRecord[Outcome](d, "upgrade outcome", layout.Path(top, layout.OutcomeFile), "outcome", recordVersion)
}

// RemoveOutcome removes the last outcome.
func RemoveOutcome(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "upgrade outcome", layout.Path(top, layout.OutcomeFile))
}

// Request asks the watcher to roll back, whatever the new version's health. The agent or
// its command line writes it; the watcher removes it together with the marker.
type Request struct {
	// ToHome is the home of the version being watched, so that a request left over
	// from another watch has no effect.
	ToHome string `json:"to_home"`
	// Why is a full sentence: who requested the rollback and why.
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// WriteRequest stores a request for a rollback.
func WriteRequest(d disk.Disk, top string, r Request) error {
	return disk.WriteRecord(d, "rollback request", layout.Path(top, layout.RequestFile), "rollback-request", recordVersion, r)
}

// ReadRequest returns the request, or nil if there is none. For a damaged one it returns
// nil and an error.
func ReadRequest(d disk.Disk, top string) (*Request, error) {
	return disk.FindRecord[Request](d, "rollback request", layout.Path(top, layout.RequestFile), "rollback-request", recordVersion)
}

// RemoveRequest removes the request.
func RemoveRequest(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "rollback request", layout.Path(top, layout.RequestFile))
}

// checkHome checks the name of a home, since the watcher removes homes by their names.
func checkHome(name, home string) error {
	if !layout.IsHome(home) {
		return fmt.Errorf("%s: is %q, want data/<folder>", name, home)
	}
	return nil
}

func (m Marker) validate() error {
	for name, home := range map[string]string{"from.home": m.From.Home, "to.home": m.To.Home} {
		if err := checkHome(name, home); err != nil {
			return err
		}
	}
	if m.From.Home == m.To.Home {
		return fmt.Errorf("from.home, to.home: are both %q", m.From.Home)
	}
	if m.Rules.Interval <= 0 || m.Rules.Grace <= 0 || m.Rules.FailedFor <= 0 || m.Rules.MaxCrashes < 0 {
		return errors.New("rules: every duration must be above zero and max_crashes not below")
	}
	if n := len(m.Rules.Checks); n > manifest.MaxChecks {
		return fmt.Errorf("rules.checks: has %d checks, want at most %d", n, manifest.MaxChecks)
	}
	for i, c := range m.Rules.Checks {
		if err := c.Validate(); err != nil {
			return fmt.Errorf("rules.checks[%d]: %q: %w", i, c.Name, err)
		}
	}
	return nil
}

// Duration is a time.Duration that is encoded as text such as "10m".
type Duration time.Duration

func (d Duration) String() string               { return time.Duration(d).String() }
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err != nil {
		return err
	}
	*d = Duration(v)
	return nil
}
