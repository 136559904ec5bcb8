package component

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	op = "component"

	stateFile    = "state"
	stateKind    = "component"
	stateVersion = 1

	journalFile    = "journal"
	journalKind    = "component-upgrade"
	journalVersion = 1

	// maxCompleted bounds the upgrades that are remembered as done. A server sends an
	// unconfirmed action again within days, not after hundreds of others.
	maxCompleted = 100
	// maxBackups is how many backups stay for whoever investigates: those of the last
	// upgrades, whether they failed or not.
	maxBackups = 3
)

// state is the record of one component on disk.
type state struct {
	Runtime string `json:"runtime,omitempty"`
	// Installed is nil if no version is.
	Installed *primitive.Installed `json:"installed,omitempty"`
	// Versions are those besides the installed one. A version is committed once it has ended its
	// observation well, and LastHealthy is the last such one.
	handoff.Versions
	LastHealthy string `json:"last_healthy,omitempty"`
	// Completed are the upgrades that are done, oldest first.
	Completed []completed `json:"completed,omitempty"`
	// Report is the failure that is reported until the next upgrade begins.
	Report *agentapi.UpgradeDetails `json:"report,omitempty"`
	// Broken is why an upgrade that failed could not be undone. Until an operator acts the
	// agent does nothing with the component.
	Broken string `json:"broken,omitempty"`
	// Withheld is why the installed version is not started though it is to run; empty: it is. Released
	// is what was in force when an operator let it run nevertheless.
	Withheld string                     `json:"held,omitempty"`
	Released *agentapi.ComponentInForce `json:"released,omitempty"`
	// Undrain means that it was drained when its start was withheld, so that its hook undrain is run once it
	// runs again.
	Undrain bool `json:"undrain,omitempty"`
	// History are the last upgrades, for people on the host, oldest first.
	History []probe.WorkloadEvent `json:"history,omitempty"`
}

type completed struct {
	ID      string    `json:"id"`
	Version string    `json:"version"`
	At      time.Time `json:"at"`
	// Error is why the version is not healthy that stays; empty: it is.
	Error string `json:"error,omitempty"`
}

// maxHistory bounds the history: a year of monthly upgrades, with some failures.
const maxHistory = 20

func statePath(dir string) string { return filepath.Join(dir, stateFile) }

func readState(d disk.Disk, dir string) (state, error) {
	s, err := disk.FindRecord[state](d, op, statePath(dir), stateKind, stateVersion)
	if err != nil || s == nil {
		return state{}, err
	}
	return *s, nil
}

func (s *state) save(d disk.Disk, dir string) error {
	return disk.WriteRecord(d, op, statePath(dir), stateKind, stateVersion, s)
}

func journalOf(d disk.Disk, dir string) steps.File {
	return steps.File{Disk: d, Op: op, Path: filepath.Join(dir, journalFile), Kind: journalKind, Version: journalVersion}
}

func (s *state) clone() state {
	c := *s
	c.Completed, c.History = slices.Clone(s.Completed), slices.Clone(s.History)
	return c
}

// isCompleted reports whether an upgrade is done.
func (s *state) isCompleted(id string) bool { return s.doneBy(id) != nil }

func (s *state) doneBy(id string) *completed {
	i := slices.IndexFunc(s.Completed, func(c completed) bool { return c.ID == id })
	if i < 0 {
		return nil
	}
	return &s.Completed[i]
}

// install records that a version stays, healthy or not. bytes is the size of the one before.
func (s *state) install(j *primitive.Journal, problem string, bytes int64, limits handoff.Limits, now time.Time) {
	to := j.To
	if s.Installed != nil && s.Installed.Home != to.Home {
		was := besides(*s.Installed)
		was.Bytes, was.ReplacedAt = bytes, now
		s.Add(was)
	}
	s.Remove(to.Home)
	s.Runtime, s.Installed = j.Desired.Runtime, &to
	s.Completed = bounded(append(s.Completed, completed{j.Desired.ID, to.FullVersion(), now, problem}), maxCompleted)
	s.Report, s.Broken, s.Withheld = nil, "", ""
	if problem != "" {
		s.fail(j, problem, true, now)
	} else {
		s.succeed(j, now)
	}
	s.Trim(limits, now)
}

// succeed records that a version that stays is healthy.
func (s *state) succeed(j *primitive.Journal, now time.Time) {
	s.LastHealthy = j.To.FullVersion()
	s.Commit(j.To.Identity)
	s.record(j, "", now)
}

// has reports whether a home is that of a version which stays on the host.
func (s *state) has(home string) bool {
	return s.Installed != nil && s.Installed.Home == home || handoff.Holds(s.OnHost, home)
}

// fail records that a version has failed here. Only a version that was started is bad by
// itself; what failed before may have other reasons.
func (s *state) fail(j *primitive.Journal, why string, started bool, now time.Time) {
	if started && j.To.Home != "" && !samePlace(j) {
		s.Fail(handoff.FailedVersion{Identity: j.To.Identity, Archive: j.To.Archive, Reason: why, At: now})
	}
	s.record(j, why, now)
}

// samePlace reports whether only configuration was to change: the version itself is good.
func samePlace(j *primitive.Journal) bool { return j.From != nil && j.From.Home == j.To.Home }

func (s *state) record(j *primitive.Journal, why string, now time.Time) {
	e := probe.WorkloadEvent{At: now, ID: j.Desired.ID, To: j.Desired.Version, Error: why}
	if j.From != nil {
		e.From = j.From.FullVersion()
	}
	s.History = bounded(append(s.History, e), maxHistory)
}

func bounded[T any](list []T, n int) []T { return list[max(0, len(list)-n):] }

// allow returns an error if the version of r must not be installed; see [request.Request.Allow]. The
// installed one may always get another configuration.
func (s *state) allow(r request.Request, publishers *trust.Expectation) error {
	if i := s.Installed; i != nil && i.FullVersion() == r.Version && i.Archive == publishers.Archive {
		return nil
	}
	return r.Allow(s.Versions, "", *publishers, func(kept handoff.Version) bool { return kept.Archive == publishers.Archive })
}

func (s *state) installed() string {
	if s.Installed == nil {
		return ""
	}
	return s.Installed.FullVersion()
}

// failedRollback begins the error of an upgrade that could not be undone.
func failedRollback(why, undo error) string {
	return fmt.Sprintf("%s: %s; the upgrade had failed: %s", agentapi.FailedRollback, strings.TrimSpace(undo.Error()), why)
}
