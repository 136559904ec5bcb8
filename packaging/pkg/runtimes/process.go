package runtimes

import (
	"cmp"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

const (
	// defaultStopTimeout is what most programs need to end their requests, and the default of
	// Docker's engine.
	defaultStopTimeout = 10 * time.Second
	// maxStopTimeout leaves 10 s to kill what does not end, or to the engine: the step that
	// stops a component has a minute.
	maxStopTimeout = 50 * time.Second
)

// RunVariable is the environment variable with which the runtime process finds what a program
// has started.
const RunVariable = "MUSTER_COMPONENT_RUN"

// signalNames returns those that a program may handle, and that neither stop it without an
// end nor leave a core file unasked.
func signalNames() []string { return []string{"TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "WINCH"} }

// Process are the settings of the runtime process: the agent runs a program itself.
type Process struct {
	// Program is a file of the package, since the publishers sign only those.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	// Env is the environment beside what every component gets.
	Env map[string]string `json:"env"`
	// WorkingDir is absolute or in the home; empty: the home.
	WorkingDir string `json:"working_dir"`
	// User and Group are names or numbers; empty: the agent's.
	User  string `json:"user"`
	Group string `json:"group"`
	// StopSignal and ReloadSignal are named with or without SIG in the manifest, and without
	// it once they are decoded.
	StopSignal   string `json:"stop_signal"`
	ReloadSignal string `json:"reload_signal"`
	// StopTimeout is how long the program may take to end before it is killed, such as 10s.
	StopTimeout string `json:"stop_timeout"`

	// StopAfter is StopTimeout or its default.
	StopAfter time.Duration `json:"-"`
}

func (s *Process) needs() []need { return []need{{"program", s.Program, true}} }

func (s *Process) complete(*manifest.Component) error {
	var p problems
	s.StopSignal = cmp.Or(strings.TrimPrefix(s.StopSignal, "SIG"), "TERM")
	s.ReloadSignal = cmp.Or(strings.TrimPrefix(s.ReloadSignal, "SIG"), "HUP")
	if !inPackage(s.Program) {
		p.add("program", "is %q, want a file of the package such as bin/server", s.Program)
	}
	if s.WorkingDir != "" && !path.IsAbs(s.WorkingDir) && !inPackage(s.WorkingDir) {
		p.add("working_dir", "is %q, want a folder of the package or an absolute path", s.WorkingDir)
	}
	for _, arg := range s.Args {
		if strings.Contains(arg, "\x00") {
			p.add("args", "has a zero byte in %q", arg)
		}
	}
	for name, value := range s.Env {
		if name == "" || name == RunVariable || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			p.add("env", "cannot have %q with the value %q", name, value)
		}
	}
	for field, signal := range map[string]string{"stop_signal": s.StopSignal, "reload_signal": s.ReloadSignal} {
		if !slices.Contains(signalNames(), signal) {
			p.add(field, "is %q, want one of %s", signal, strings.Join(signalNames(), ", "))
		}
	}
	s.StopAfter = defaultStopTimeout
	if s.StopTimeout != "" {
		var err error
		if s.StopAfter, err = time.ParseDuration(s.StopTimeout); err != nil || s.StopAfter <= 0 || s.StopAfter > maxStopTimeout {
			p.add("stop_timeout", "is %q, want a time such as 10s, at most %s", s.StopTimeout, maxStopTimeout)
		}
	}
	return p.join()
}
