// Package handoff is what the agent, which switches a host to a new version, and
// the watcher, which judges that version, leave each other on the disk. The whole
// format is in this package.
//
// Each file has one writer. The agent writes the marker before it moves the
// pointer, and never again; the watcher removes it when it is done. The watcher
// writes the outcome; the agent reads it, reports it to the server, and removes
// it when the next upgrade begins. So neither ever overwrites what the other
// wrote, and no lock is needed.
package handoff

import (
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/packaging/manifest"
)

// MarkerVersion is the version of the marker's format. A watcher refuses a newer one
// (see [ReadMarker]), and says which it understands with --marker-version.
//
//   - 1: from, to, rules, restart
//   - 2: rules.checks; a watcher that knows only 1 would pass them over
const MarkerVersion = 2

// recordVersion is the version of the other formats here.
const recordVersion = 1

// Install is one version on the host.
type Install struct {
	manifest.Identity
	// Home is the versioned home relative to the top folder, slash-separated:
	// data/muster-agent-1.1.0-3f2a9c.
	Home string `json:"home"`
}

// Marker says that a host is being moved from one version to another.
type Marker struct {
	// ActionID is the server's id of the UPGRADE action; empty for an upgrade
	// asked for on the host itself.
	ActionID  string    `json:"action_id,omitempty"`
	From      Install   `json:"from"`
	To        Install   `json:"to"`
	CreatedAt time.Time `json:"created_at"`
	Rules     Rules     `json:"rules"`
	Restart   Restart   `json:"restart"`
}

// Rules are the watcher's settings, fixed when the upgrade begins so that the
// version under judgement cannot change them.
type Rules struct {
	// Interval is the time between two health samples.
	Interval Duration `json:"interval"`
	// Grace is how long the new version is watched before it is good.
	Grace Duration `json:"grace"`
	// FailedFor is how long a FAILED state, or silence of the control socket,
	// may last.
	FailedFor Duration `json:"failed_for"`
	// MaxCrashes is how many times the agent's process may go away during the
	// watch; one more rolls back.
	MaxCrashes int `json:"max_crashes"`
	// Checks are the package's own, as its manifest has them.
	Checks []manifest.Check `json:"checks,omitempty"`
}

// Defaults, each with its argument.
const (
	// DefaultInterval: three samples fit in the time a service manager waits
	// before it restarts a crashed program.
	DefaultInterval = 10 * time.Second
	// DefaultGrace: long enough for a slow start, a policy and some polls,
	// short enough that an operator still watches the rollout.
	DefaultGrace = 10 * time.Minute
	// DefaultFailedFor: three samples at the default interval, so that one
	// unlucky sample never rolls back.
	DefaultFailedFor = 30 * time.Second
	// DefaultMaxCrashes: one crash may be an operator's kill, two bad luck.
	DefaultMaxCrashes = 2
)

// DefaultRules are the rules of an agent whose configuration says nothing.
func DefaultRules() Rules {
	return Rules{
		Interval:   Duration(DefaultInterval),
		Grace:      Duration(DefaultGrace),
		FailedFor:  Duration(DefaultFailedFor),
		MaxCrashes: DefaultMaxCrashes,
	}
}

// Restart says how the agent is started again after the pointer has moved back.
type Restart struct {
	// Service is the name the agent is installed under with the host's service
	// manager. Empty: nobody supervises the agent, the watcher starts
	// <top>/muster-agent itself, detached.
	Service string `json:"service,omitempty"`
}

// Result is how a watch ended.
type Result string

const (
	Committed      Result = "committed"       // the new version is good and stays
	RolledBack     Result = "rolled_back"     // the previous version runs again
	RollbackFailed Result = "rollback_failed" // neither could be brought to run
)

// Outcome is what the watcher leaves behind.
type Outcome struct {
	ActionID string    `json:"action_id,omitempty"`
	From     Install   `json:"from"`
	To       Install   `json:"to"`
	Result   Result    `json:"result"`
	Reason   *Reason   `json:"reason,omitempty"` // nil when committed
	At       time.Time `json:"at"`
}

// Reason is why a version was not kept.
type Reason struct {
	Code ReasonCode `json:"code"`
	// Text is a full sentence for people, with the figures that decided.
	Text string `json:"text"`
}

// ReasonCode is append-only: servers and dashboards group by it.
type ReasonCode string

const (
	ReasonCrashLoop       ReasonCode = "crash_loop"       // the process went away too often
	ReasonAgentFailed     ReasonCode = "agent_failed"     // it says FAILED, for too long
	ReasonComponentFailed ReasonCode = "component_failed" // a component says FAILED, for too long
	ReasonControlLost     ReasonCode = "control_lost"     // runs, but does not answer its control socket
	ReasonWrongVersion    ReasonCode = "wrong_version"    // another version than the new one answers
	ReasonNotStarted      ReasonCode = "not_started"      // it never ran at all
	ReasonManual          ReasonCode = "manual"           // an operator asked
	ReasonCheckFailed     ReasonCode = "check_failed"     // a check of the package failed, for too long
	ReasonCheckinLost     ReasonCode = "checkin_lost"     // it reaches its server no more, though the watcher does
)

// WriteMarker stores the marker of the host under top.
func WriteMarker(d disk.Disk, top string, m Marker) error {
	if err := m.validate(); err != nil {
		return fmt.Errorf("write upgrade marker: %w", err)
	}
	return disk.WriteRecord(d, "upgrade marker", layout.Path(top, layout.MarkerFile), "marker", MarkerVersion, m)
}

// ReadMarker returns the marker, or nil when no upgrade is pending. A marker that
// cannot be trusted counts as none, with err telling why: callers log it and go
// on, they neither refuse to start nor roll back.
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

// RemoveMarker ends the watch.
func RemoveMarker(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "upgrade marker", layout.Path(top, layout.MarkerFile))
}

// WriteOutcome stores how the watch ended. It is written before the marker is
// removed: a crash between the two repeats the end, it does not lose it.
func WriteOutcome(d disk.Disk, top string, o Outcome) error {
	return disk.WriteRecord(d, "upgrade outcome", layout.Path(top, layout.OutcomeFile), "outcome", recordVersion, o)
}

// ReadOutcome returns the outcome of the last watched upgrade, or nil when there
// is none. A damaged one counts as none, with err telling why.
func ReadOutcome(d disk.Disk, top string) (*Outcome, error) {
	return disk.FindRecord[Outcome](d, "upgrade outcome", layout.Path(top, layout.OutcomeFile), "outcome", recordVersion)
}

// RemoveOutcome forgets the last outcome.
func RemoveOutcome(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "upgrade outcome", layout.Path(top, layout.OutcomeFile))
}

// Previous is the version that was replaced last and is kept on the host for a
// rollback by hand. The watcher writes it when it commits; the agent removes it
// together with the home when its time is over.
type Previous struct {
	Install
	ReplacedBy Install   `json:"replaced_by"`
	ReplacedAt time.Time `json:"replaced_at"`
}

// WritePrevious stores which version is kept.
func WritePrevious(d disk.Disk, top string, p Previous) error {
	return disk.WriteRecord(d, "previous version", layout.Path(top, layout.PreviousFile), "previous", recordVersion, p)
}

// ReadPrevious returns the version that is kept, or nil when there is none. A
// damaged record counts as none, with err telling why.
func ReadPrevious(d disk.Disk, top string) (*Previous, error) {
	p, err := disk.FindRecord[Previous](d, "previous version", layout.Path(top, layout.PreviousFile), "previous", recordVersion)
	if err == nil && p != nil {
		err = checkHome("home", p.Home)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

// RemovePrevious forgets the version that was kept.
func RemovePrevious(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "previous version", layout.Path(top, layout.PreviousFile))
}

// Request asks the watcher to end a watch by going back, whatever the new
// version's health. The agent or its command line writes it; the watcher removes
// it together with the marker.
type Request struct {
	// ToHome is the home of the version under judgement: a request that is left
	// over from another watch asks for nothing.
	ToHome string `json:"to_home"`
	// Why is a full sentence: who asked, and what for.
	Why string    `json:"why"`
	At  time.Time `json:"at"`
}

// WriteRequest asks for a rollback.
func WriteRequest(d disk.Disk, top string, r Request) error {
	return disk.WriteRecord(d, "rollback request", layout.Path(top, layout.RequestFile), "rollback-request", recordVersion, r)
}

// ReadRequest returns the request, or nil when nobody asks. A damaged one counts
// as none, with err telling why.
func ReadRequest(d disk.Disk, top string) (*Request, error) {
	return disk.FindRecord[Request](d, "rollback request", layout.Path(top, layout.RequestFile), "rollback-request", recordVersion)
}

// RemoveRequest takes the request back.
func RemoveRequest(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "rollback request", layout.Path(top, layout.RequestFile))
}

// checkHome: the watcher removes the home of the version that lost.
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

// Duration is a time.Duration that reads and writes as text such as "10m".
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
