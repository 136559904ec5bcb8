package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/testing/kit/flaghelp"
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

func TestStatusSaysWhatHasFailedAndSinceWhen(t *testing.T) {
	now := time.Date(2026, 3, 10, 12, 0, 0, 0, time.UTC)
	h := probe.Health{
		State: probe.Failed, Message: "the agent cannot write its queue",
		Checks: []probe.Check{
			{Name: "queue", Problem: "the agent cannot write its queue", Since: now.Add(-time.Minute), AtFault: true},
			{Name: "runtime docker", Problem: "the agent cannot ask the runtime docker", Since: now.Add(-time.Hour)},
		},
		Workloads: []probe.Workload{
			{Name: "db", State: probe.Healthy},
			{Name: "web", State: probe.Failed, Message: "it does not run: exit status 4", FailedSince: now.Add(-90 * time.Second)},
		},
	}
	var out strings.Builder
	if err := printHealth(&out, h, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"check queue: failed  for 1m0s: the agent cannot write its queue\n", "check runtime docker: degraded  for 1h0m0s: the agent cannot ask",
		"component db: healthy\n", "component web: failed  for 1m30s: it does not run: exit status 4\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the status is\n%s\nwant %q in it", out.String(), want)
		}
	}
}

func TestUpgradeHelpNamesTheWatch(t *testing.T) {
	if help := upgradeSubcommand().Long; !strings.Contains(help, "ten minutes") {
		t.Errorf("the help is %q", help)
	}
}

func TestUpgradeOfAComponentIsSaidInWords(t *testing.T) {
	for _, test := range []struct {
		upgrade    probe.Upgrade
		list, says string
	}{
		{
			probe.Upgrade{TargetVersion: "1.2.0", State: "UPG_FAILED", Message: "crash loop"},
			"to 1.2.0, failed", "to 1.2.0, failed: crash loop",
		},
		{
			probe.Upgrade{TargetVersion: "1.2.0", State: "UPG_DOWNLOADING", Phase: "PREPARING", Percent: 40, BytesPerSecond: 3e6},
			"to 1.2.0, downloading (preparing)", "to 1.2.0, downloading (preparing), 40 % at 3.0 MB/s",
		},
		{
			probe.Upgrade{TargetVersion: "1.2.0", State: "UPG_WATCHING", Phase: "VERIFYING", Message: "observed for another 40s"},
			"to 1.2.0, watching (verifying)", "to 1.2.0, watching (verifying): observed for another 40s",
		},
	} {
		var out bytes.Buffer
		printWorkload(&out, probe.Workload{Name: "web", Upgrade: &test.upgrade})
		if got := workloadUpgrade(&test.upgrade); got != test.list || !strings.Contains(out.String(), "upgrade\t"+test.says+"\n") {
			t.Errorf("a list says %q, want %q, and the status\n%s, want %q", got, test.list, out.String(), test.says)
		}
	}
	if got := workloadUpgrade(nil); got != "" {
		t.Errorf("without an upgrade a list says %q", got)
	}
}

// The agent that upgrades to this version, and a watcher, tell by the exit status what the host has to
// mend.
func TestCheckStartNamesFileAndLine(t *testing.T) {
	for text, row := range map[string]struct {
		code int
		says string
	}{
		"":                           {0, ""},
		"log: {level: debug}\n":      {0, ""},
		"log:\n\tlevel: debug\n":     {probe.ExitSettings, "agent.yml: line 2: "},
		"log: {}\ncolour: red\n":     {probe.ExitSettings, "agent.yml: line 2: key colour is not known"},
		"upgrade: {keep: {staged: 0": {probe.ExitSettings, "agent.yml: line 1: "},
	} {
		top := t.TempDir()
		if err := os.WriteFile(filepath.Join(top, layout.ConfigFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, out := runCommandLine(t, probe.CheckStartCommand, "--top", top)
		if code != row.code || !strings.Contains(out, row.says) || row.says == "" && out != "" {
			t.Errorf("%q: exits with %d, says %q; want %d, %q", text, code, out, row.code, row.says)
		}
	}
	top := t.TempDir()
	if err := os.WriteFile(filepath.Join(top, layout.IdentityFile), []byte("torn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out := runCommandLine(t, probe.CheckStartCommand, "--top", top); code != probe.ExitSettings || !strings.Contains(out, "enrol this host again") {
		t.Errorf("a damaged identity: exits with %d, says %q", code, out)
	}
}

// A clock that was set back makes no negative durations.
func TestElapsedIsNeverNegative(t *testing.T) {
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	for since, want := range map[time.Duration]string{-time.Hour: "1h0m0s", 0: "0s", 2 * time.Hour: "0s"} {
		if got := elapsed(now.Add(since), now); got != want {
			t.Errorf("%s: %s, want %s", since, got, want)
		}
	}
}
