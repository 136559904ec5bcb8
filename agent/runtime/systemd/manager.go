package systemd

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
)

// manager is systemd, over D-Bus or through systemctl.
type manager interface {
	show(ctx context.Context, unit string) (state, error)
	// job starts, stops or reloads a unit and returns the result of systemd's job. If ctx
	// ends before the job, the job stays.
	job(ctx context.Context, verb, unit string) (result string, err error)
	// resetFailed forgets the failures of a unit.
	resetFailed(ctx context.Context, unit string) error
	// reload has systemd read all units again.
	reload(ctx context.Context) error

	// link makes a unit file known, enable also has it started at boot as the file says.
	// disable removes all links to a unit.
	link(ctx context.Context, file string) error
	enable(ctx context.Context, file string) error
	disable(ctx context.Context, unit string) error

	close()
}

// foreign is the load state of another unit with the name of the component's.
const foreign = "foreign"

// done is the result of a job that succeeded.
const done = "done"

// state has the properties of a unit that are used here, under shorter names.
type state struct {
	names       []string
	load        string // loaded, not-found, masked, error, bad-setting; or foreign
	loadError   string
	file        string
	changed     bool // on disk since systemd has read it
	active, sub string
	job         bool // systemd is about to do something
	result      string
	pid         int
	restarts    int
	started     time.Time // the main process
	exitCode    int       // of waitid(2): exited, killed, dumped
	exitStatus  int       // exit status or signal
	unmet       bool      // a condition did not hold
	canReload   bool
}

// Values of exitCode.
const (
	exited = 1
	killed = 2
	dumped = 3
)

// stopped reports whether nothing of the unit runs or is about to.
func (s state) stopped() bool {
	return (s.active == "inactive" || s.active == "failed") && !s.job
}

// waits reports whether the unit has ended and systemd will start it again.
func (s state) waits() bool {
	return s.active == "activating" && strings.HasPrefix(s.sub, "auto-restart")
}

func (s state) status() runtime.Status {
	out := runtime.Status{Restarts: s.restarts}
	switch s.active {
	case "active", "reloading", "refreshing":
		out.Running, out.Ready = true, true
	case "activating", "deactivating":
		out.Waits = s.waits()
		out.Running = !out.Waits
	}
	// One that ended otherwise is failed, and not inactive.
	out.Stopped = s.active == "inactive" && (s.load == "loaded" || s.load == "masked") && !s.unmet
	if out.Waits {
		out.Ended = s.end()
	}
	if out.Running {
		out.PID, out.Since = s.pid, s.started
	}
	if !out.Ready {
		out.Message = s.why()
	}
	return out
}

// why says why the unit does not run.
func (s state) why() string {
	switch {
	case s.load == "not-found" && s.active != "active":
		return "the unit does not exist"
	case s.load == foreign:
		return "the host has another unit of that name in " + s.file
	case s.load == "masked":
		return "the unit is masked"
	case s.load != "loaded" && s.load != "not-found":
		return fmt.Sprintf("systemd cannot load the unit (%s): %s", s.load, s.loadError)
	case s.active == "failed":
		return "it has failed: " + s.end()
	case s.waits():
		return "it has ended, and systemd will start it again: " + s.end()
	case s.active == "activating" || s.active == "deactivating":
		return fmt.Sprintf("it is %s (%s)", s.active, s.sub)
	case s.unmet:
		return "a condition of the unit does not hold, see systemctl status"
	case s.active == "inactive" && !s.started.IsZero():
		return "it has ended: " + s.end()
	case s.active == "inactive":
		return "it is stopped"
	}
	return fmt.Sprintf("it is %s (%s)", s.active, s.sub)
}

// end says how the main process ended.
func (s state) end() string {
	switch {
	case s.result == "start-limit-hit":
		return "it was started too often (start-limit-hit)"
	case s.exitCode == exited && s.exitStatus >= 200 && s.exitStatus <= 243:
		// A program may use these numbers as well.
		return fmt.Sprintf("%s, exit status %d, with which systemd says that it could not execute the program as the unit asks", s.result, s.exitStatus)
	case s.exitCode == exited:
		return fmt.Sprintf("%s, exit status %d", s.result, s.exitStatus)
	case s.exitCode == killed || s.exitCode == dumped:
		return fmt.Sprintf("%s, signal %d", s.result, s.exitStatus)
	}
	return s.result
}
