package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// ServerUpgradeID is the id of the only ServerUpgrade of a store: the one under way, or the
// last one.
const ServerUpgradeID = "current"

// ServerPhase is how far an upgrade of the servers has come.
type ServerPhase string

// The phases in their order. Until ServerMigrate the upgrade is undone as a whole if
// something fails; from there on it only goes forward.
const (
	// ServerCheck: each server checks that the version is installed on its machine.
	ServerCheck ServerPhase = "check"
	// ServerHold: the servers refuse orders of operators, and still serve agents.
	ServerHold ServerPhase = "hold"
	// ServerStop: each server answers its parked agents and closes its listeners.
	ServerStop ServerPhase = "stop"
	// ServerRecheck is ServerCheck again, since servers may have come meanwhile.
	ServerRecheck ServerPhase = "check_again"
	// ServerBackup: one server backs up the store.
	ServerBackup ServerPhase = "backup"
	// ServerMigrate: one server brings the schema of the store to that of the version.
	ServerMigrate ServerPhase = "migrate"
	// ServerSwitch: each server moves its pointer and runs the version, without listeners.
	ServerSwitch ServerPhase = "switch"
	// ServerStart: each server serves.
	ServerStart ServerPhase = "start"
	// ServerVerify: each server checks itself, and the agents come back.
	ServerVerify ServerPhase = "verify"
	// ServerDone: the upgrade has ended, and all servers run the version.
	ServerDone ServerPhase = "done"
	// ServerUndo: each server serves again, in the version that it had.
	ServerUndo ServerPhase = "undo"
	// ServerUndone: the upgrade has ended, and nothing has been changed.
	ServerUndone ServerPhase = "undone"
)

var serverPhases = []ServerPhase{
	ServerCheck, ServerHold, ServerStop, ServerRecheck, ServerBackup, ServerMigrate, ServerSwitch, ServerStart, ServerVerify, ServerDone, ServerUndo, ServerUndone,
}

// AtLeast reports whether the phase is q or comes after it. A phase that only a
// newer Muster knows is after all others.
func (p ServerPhase) AtLeast(q ServerPhase) bool { return p.rank() >= q.rank() }

func (p ServerPhase) rank() int {
	if p == "" {
		return -1
	}
	if i := slices.Index(serverPhases, p); i >= 0 {
		return i
	}
	return len(serverPhases)
}

// Ended reports whether the upgrade has ended.
func (p ServerPhase) Ended() bool { return p == ServerDone || p == ServerUndone }

// Committed reports whether the schema of the store may have changed, so that the upgrade
// only goes forward.
func (p ServerPhase) Committed() bool { return p.AtLeast(ServerMigrate) && !p.AtLeast(ServerUndo) }

// ServerUpgrade is an upgrade of all servers of the installation to one version. Every
// server follows it, and the one that owns its lease moves it from phase to phase.
type ServerUpgrade struct {
	ID string `json:"id"`
	// Run is unique to the upgrade.
	Run       string      `json:"run"`
	From      string      `json:"from"`
	To        string      `json:"to"`
	Phase     ServerPhase `json:"phase"`
	Since     time.Time   `json:"since"` // of the phase
	StartedAt time.Time   `json:"started_at"`
	Actor     string      `json:"actor"`
	// Intended is when the upgrade began to change how the servers behave; nil before.
	Intended *time.Time `json:"intended_at,omitempty"`
	// WithoutBackup means that the operator has a backup of the store.
	WithoutBackup bool `json:"without_backup,omitempty"`
	// Backup says where the store was backed up to, empty if it was not yet.
	Backup string `json:"backup,omitempty"`
	// Problem is what hinders the upgrade, or why it was undone.
	Problem string            `json:"problem,omitempty"`
	Servers []UpgradingServer `json:"servers"`
	// EndedAt is nil while it is under way.
	EndedAt  *time.Time `json:"ended_at,omitempty"`
	Revision int64      `json:"-"`
}

// UpgradingServer is what a server reports of its part in a ServerUpgrade.
type UpgradingServer struct {
	ID      string `json:"id"`
	Host    string `json:"host"`
	Version string `json:"version"`
	// Reached is the last phase that the server has carried out; empty if it has none.
	Reached ServerPhase `json:"reached,omitempty"`
	// Problem is why it cannot carry out the current one.
	Problem string `json:"problem,omitempty"`
	// StoppedAt is when it began to close its listeners, and ServedAt when it served again.
	StoppedAt *time.Time `json:"stopped_at,omitempty"`
	ServedAt  *time.Time `json:"served_at,omitempty"`
	// Before is how many agents were parked while no server had stopped, and After how many are
	// since it serves again.
	Before int `json:"agents_before"`
	After  int `json:"agents_after"`
}

// Server returns a server's part, nil if it has none.
func (u *ServerUpgrade) Server(id string) *UpgradingServer {
	for i := range u.Servers {
		if u.Servers[i].ID == id {
			return &u.Servers[i]
		}
	}
	return nil
}

// Missing returns the hosts of the servers that have not reached a phase.
func (u *ServerUpgrade) Missing(p ServerPhase) []string {
	var out []string
	for i := range u.Servers {
		if s := &u.Servers[i]; !s.Reached.AtLeast(p) {
			out = append(out, s.Host)
		}
	}
	slices.Sort(out)
	return out
}

// Problems returns what the servers report as hindering them, as one text.
func (u *ServerUpgrade) Problems() string {
	var out []string
	for i := range u.Servers {
		if s := &u.Servers[i]; s.Problem != "" {
			out = append(out, fmt.Sprintf("server on %s: %s", s.Host, s.Problem))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

// Agents returns how many agents were parked before the servers stopped, and how many are
// since they serve again.
func (u *ServerUpgrade) Agents() (before, after int) {
	for i := range u.Servers {
		before += u.Servers[i].Before
		after += u.Servers[i].After
	}
	return before, after
}

// Downtime returns the time from when the first server stopped until the last one served
// again; ok is false if that has not happened. Some server may have served for a part of it.
func (u *ServerUpgrade) Downtime() (d time.Duration, ok bool) {
	var first, last *time.Time
	for i := range u.Servers {
		s := &u.Servers[i]
		if s.StoppedAt != nil && (first == nil || s.StoppedAt.Before(*first)) {
			first = s.StoppedAt
		}
		if s.StoppedAt != nil && s.ServedAt == nil {
			return 0, false
		}
		if s.ServedAt != nil && (last == nil || s.ServedAt.After(*last)) {
			last = s.ServedAt
		}
	}
	if first == nil || last == nil {
		return 0, false
	}
	return max(0, last.Sub(*first)), true // each server has a clock of its own
}

// Took returns how long the upgrade took; ok is false before its end. One server may have begun it
// and another, whose clock differs, may have ended it.
func (u *ServerUpgrade) Took() (d time.Duration, ok bool) {
	if u.EndedAt == nil {
		return 0, false
	}
	return max(0, u.EndedAt.Sub(u.StartedAt)), true
}
