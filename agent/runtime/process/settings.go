package process

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
)

const (
	// defaultStopTimeout is what most programs need to end their requests.
	defaultStopTimeout = 10 * time.Second
	// maxStopTimeout leaves 10 s to kill what does not end: the step that stops a component
	// has a minute.
	maxStopTimeout = 50 * time.Second

	defaultStopSignal   = "TERM"
	defaultReloadSignal = "HUP"
)

// signalNames are those that a program may handle, and that neither stop it without an end
// nor leave a core file unasked.
var signalNames = []string{"TERM", "INT", "QUIT", "HUP", "USR1", "USR2", "WINCH"}

// settings are those of the manifest.
type settings struct {
	// Program is a file of the package, since the publishers sign only those.
	Program string   `json:"program"`
	Args    []string `json:"args"`
	// Env is the environment beside what every component gets; see environment.
	Env map[string]string `json:"env"`
	// WorkingDir is absolute or in the home; empty: the home.
	WorkingDir string `json:"working_dir"`
	// User and Group are names or numbers; empty: the agent's.
	User  string `json:"user"`
	Group string `json:"group"`
	// StopSignal and ReloadSignal are named with or without SIG.
	StopSignal   string `json:"stop_signal"`
	ReloadSignal string `json:"reload_signal"`
	// StopTimeout is how long the program may take to end before it is killed, such as 10s.
	StopTimeout string `json:"stop_timeout"`

	stopTimeout time.Duration
}

// decode returns the settings of a release with their defaults.
func decode(r *runtime.Release) (settings, error) {
	var s settings
	if err := r.DecodeSettings(&s); err != nil {
		return settings{}, err
	}
	s.StopSignal = cmp.Or(strings.TrimPrefix(s.StopSignal, "SIG"), defaultStopSignal)
	s.ReloadSignal = cmp.Or(strings.TrimPrefix(s.ReloadSignal, "SIG"), defaultReloadSignal)
	s.stopTimeout = defaultStopTimeout
	var errs []error
	bad := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("settings of component %s: %s %s", r.Name, field, fmt.Sprintf(format, args...)))
	}
	if !inHome(s.Program) {
		bad("program", "is %q, want a file of the package such as bin/server", s.Program)
	}
	if s.WorkingDir != "" && !filepath.IsAbs(s.WorkingDir) && !inHome(s.WorkingDir) {
		bad("working_dir", "is %q, want a folder of the package or an absolute path", s.WorkingDir)
	}
	for _, arg := range s.Args {
		if strings.Contains(arg, "\x00") {
			bad("args", "has a zero byte in %q", arg)
		}
	}
	for name, value := range s.Env {
		if name == "" || name == runVariable || strings.ContainsAny(name, "=\x00") || strings.Contains(value, "\x00") {
			bad("env", "cannot have %q with the value %q", name, value)
		}
	}
	for field, signal := range map[string]string{"stop_signal": s.StopSignal, "reload_signal": s.ReloadSignal} {
		if !slices.Contains(signalNames, signal) {
			bad(field, "is %q, want one of %s", signal, strings.Join(signalNames, ", "))
		}
	}
	if s.StopTimeout != "" {
		var err error
		if s.stopTimeout, err = time.ParseDuration(s.StopTimeout); err != nil || s.stopTimeout <= 0 || s.stopTimeout > maxStopTimeout {
			bad("stop_timeout", "is %q, want a time such as 10s, at most %s", s.StopTimeout, maxStopTimeout)
		}
	}
	return s, errors.Join(errs...)
}

// inHome reports whether name is a file below a home, in its shortest form.
func inHome(name string) bool {
	return name != "." && path.Clean(name) == name && filepath.IsLocal(filepath.FromSlash(name)) && !strings.ContainsAny(name, "\x00\\")
}

// workingDir returns the absolute working directory.
func (s settings) workingDir(home string) string {
	if filepath.IsAbs(s.WorkingDir) {
		return s.WorkingDir
	}
	return filepath.Join(home, filepath.FromSlash(s.WorkingDir))
}
