package systemd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/agent/services"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// These tests run in a machine with a real systemd.

const (
	// versionVariable makes this program that of a component.
	versionVariable = "MUSTER_TEST_VERSION"
	brokenVariable  = "MUSTER_TEST_BROKEN"
	// top is the agent's folder in the machine.
	top = "/opt/muster"
	// patience bounds every wait, at many times its usual time.
	patience = time.Minute
)

func TestMain(m *testing.M) {
	if version := os.Getenv(versionVariable); version != "" {
		os.Exit(runtimetest.Program(version, os.Getenv(brokenVariable) != ""))
	}
	status := m.Run()
	if err := machine.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		status = 1
	}
	os.Exit(status)
}

// machine is that of all tests here.
var machine nspawn.Inside

// inMachine reports whether the test runs in the machine. Outside it runs the test there,
// with the rights that the agent's unit leaves to the agent, and with the given environment.
func inMachine(t testing.TB, environment ...string) bool {
	t.Helper()
	start := []string{"sh", "-c", prepare + `exec systemd-run --quiet --wait --pipe --collect "$@"`, "sh"}
	return machine.Test(t, slices.Concat(start, sandbox(), []string{"env"}, environment)...)
}

// phaseVariable says which part of a test runs, before or after the power of the machine is
// cut.
const phaseVariable = "MUSTER_TEST_PHASE"

// phases runs one part of a test in the machine, cuts its power, boots it, and runs another.
func phases(t *testing.T, before, after string) {
	t.Helper()
	m := machine.Machine(t)
	inMachine(t, phaseVariable+"="+before)
	check(t, m.PowerCut())
	check(t, m.Boot(t.Context()))
	inMachine(t, phaseVariable+"="+after)
	if t.Failed() { // nobody knows what the next one would find
		t.Fatalf("%s, and after a power cut %s", before, after)
	}
}

// prepare makes the agent's folder, and masks the generators, which find nothing in the
// machine and take most of the time of a reload, of which there are hundreds here.
const prepare = `set -e
mkdir -p ` + top + ` /etc/systemd/system-generators
for g in /usr/lib/systemd/system-generators/*; do ln -sf /dev/null /etc/systemd/system-generators/${g##*/}; done
`

// inMachineAsRoot is inMachine with all rights, for tests that change the host.
func inMachineAsRoot(t testing.TB) bool {
	t.Helper()
	return machine.Test(t)
}

// sandbox returns options of systemd-run, for the settings of the agent's unit that take
// rights from the agent.
func sandbox() []string {
	var out []string
	for line := range strings.Lines(services.AgentSystemd(layout.Roots{Top: top})) {
		name, _, _ := strings.Cut(line, "=")
		for _, prefix := range []string{"Protect", "Private", "Restrict", "ReadWritePaths", "NoNewPrivileges", "SystemCall", "Lock"} {
			if strings.HasPrefix(name, prefix) {
				out = append(out, "--property="+strings.TrimSpace(line))
			}
		}
	}
	return out
}

// component makes releases of one component in the machine.
type component struct {
	t    testing.TB
	name string
	// unit is the text of the unit, "" if the host has it.
	unit string
}

// The program of a version says what it does, so that a story needs no other files.
const (
	runsForEver = "exec sleep infinity"
	endsAtOnce  = "echo cannot bind; exit 3"
)

const plainUnit = `[Unit]
Description=A component

[Service]
Type=exec
ExecStart={{current}}/bin/program
ExecReload=sh -c 'kill -HUP $MAINPID'
Restart=always
RestartSec=100ms

[Install]
WantedBy=multi-user.target
`

func (c component) release(version, script string) *runtime.Release {
	c.t.Helper()
	r := &runtime.Release{Name: c.name, Dir: filepath.Join(top, "components", c.name)}
	r.Home = filepath.Join(r.Dir, "data", c.name+"-"+version+"-abcdef")
	r.Identity = manifest.Identity{Version: version, Hash: "abcdef"}
	r.Component = manifest.Component{Name: c.name, Runtime: "systemd", Settings: map[string]any{"unit": c.name + ".service"}}
	write(c.t, filepath.Join(r.Home, "bin", "program"), "#!/bin/sh\n"+script+"\n", 0o755)
	if c.unit != "" {
		r.Component.Settings["unit_file"] = "component.service"
		write(c.t, filepath.Join(r.Home, "component.service"), c.unit, 0o644)
	}
	return r
}

func write(t testing.TB, path, text string, perm os.FileMode) {
	t.Helper()
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, []byte(text)) {
		return // perhaps it runs
	}
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(text), perm))
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func newAdapter() *Adapter { return New(Options{Disk: disk.OS{}, Agent: "muster-agent"}) }
