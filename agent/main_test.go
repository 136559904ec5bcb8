package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/terminal"
	"github.com/muster-fleet/muster/testing/flaghelp"
	"github.com/muster-fleet/muster/watcher/probe"
)

func TestFlagHelpHasNoBackQuotes(t *testing.T) { flaghelp.Check(t, newCommand()) }

func TestOutputDoesNotActOnTheTerminal(t *testing.T) {
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"status", "--top", filepath.Join(t.TempDir(), "x\x1b[2J\u202e")})
	if code := execute(t.Context(), root); code != 1 || terminal.Escape(out.String()) != out.String() || !strings.Contains(out.String(), `x\u001b[2J\u202e`) {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}

func TestStatusIsNotZeroWithADegradedServerConnection(t *testing.T) {
	link := func(s probe.State) probe.Fleet { return probe.Fleet{URL: "https://muster:8220", State: s} }
	for name, row := range map[string]struct {
		h    probe.Health
		want bool
	}{
		"both are healthy":                {probe.Health{State: probe.Healthy, Fleet: link(probe.Healthy)}, true},
		"the connection is degraded":      {probe.Health{State: probe.Healthy, Fleet: link(probe.Degraded)}, false},
		"the server was never reached":    {probe.Health{State: probe.Healthy, Fleet: link(probe.Starting)}, false},
		"the agent is degraded":           {probe.Health{State: probe.Degraded, Fleet: link(probe.Healthy)}, false},
		"it is healthy and has no server": {probe.Health{State: probe.Healthy}, true},
	} {
		if got := healthy(row.h); got != row.want {
			t.Errorf("%s: healthy is %v, want %v", name, got, row.want)
		}
	}
}

func TestUpgradeHelpNamesTheWatch(t *testing.T) {
	if help := upgradeCommand().Long; !strings.Contains(help, "ten minutes") {
		t.Errorf("the help is %q", help)
	}
}
