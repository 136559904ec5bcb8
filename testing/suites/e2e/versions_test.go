package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/watcher/probe"
)

// A version is staged, its only source goes away, and the host switches to it and back.
func TestStagedVersionIsSwitchedToWithoutItsSource(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	ctx, h := t.Context(), w.Hosts[0]
	says := func(want string, args ...string) {
		t.Helper()
		if out, err := h.CLI(ctx, args...); err != nil || !strings.Contains(out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant %q in it", args, err, out, want)
		}
	}
	refuses := func(want string, args ...string) {
		t.Helper()
		if out, err := h.CLI(ctx, args...); err == nil || !strings.Contains(err.Error()+out, want) {
			t.Errorf("muster-agent %s: %v\n%s\nwant a refusal with %q", args, err, out, want)
		}
	}
	listed := func(want ...string) {
		t.Helper()
		out, err := h.CLI(ctx, "versions", "list", "-o", "json")
		check(t, err)
		var list []probe.Version
		check(t, json.Unmarshal([]byte(out), &list))
		var got []string
		for _, v := range list {
			got = append(got, v.Version+" "+string(v.State))
			if v.Problem != "" || v.State != probe.VersionRunning && v.Bytes == 0 {
				t.Errorf("version %+v", v)
			}
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("the host has %q, want %q", got, want)
		}
	}

	refuses("version 1.1.0 is neither staged nor kept on this host: stage it first with `muster-agent versions stage 1.1.0`", "versions", "switch", "1.1.0")
	refuses("muster package push", "versions", "stage", "1.1.0")
	w.Publish("1.1.0", w.Programs.Agent)
	says("Version 1.1.0 is on this host", "versions", "stage", "1.1.0")
	says("Version 1.1.0 is staged here already.", "versions", "stage", "1.1.0")
	says("staged 1.1.0: ready", "status")
	listed("1.0.0 running", "1.1.0 staged")
	w.onDisk(h, "1.0.0")
	if left, err := filepath.Glob(filepath.Join(layout.Path(h.Top, layout.DownloadsDir), "*")); err != nil || len(left) > 0 {
		t.Errorf("downloads: %v, %v", left, err)
	}

	check(t, w.Server.Stop())
	says("Version 1.1.0 runs now.", "versions", "switch", "1.1.0")
	w.onDisk(h, "1.1.0")
	listed("1.1.0 running", "1.0.0 previous")
	says("Version 1.0.0 runs now.", "versions", "switch", "1.0.0")
	w.onDisk(h, "1.0.0")
	refuses("version 1.0.0 is the one that runs: switch to another one before you remove it", "versions", "remove", "1.0.0")
	says("Removed version 1.1.0.", "versions", "remove", "1.1.0")
	listed("1.0.0 running")
	if left, err := filepath.Glob(layout.Path(h.Top, layout.Home("1.1.0-*"))); err != nil || len(left) > 0 {
		t.Errorf("after the removal: %v, %v", left, err)
	}

	check(t, w.Server.Start(ctx))
	w.Wait(h, "is known to run 1.0.0, and reports no upgrade", func(a adminapi.Agent) bool {
		return a.Agent.Version == "1.0.0" && a.UpgradeDetails == nil && a.Status == fleet.StatusOnline
	})
}

// The server has two hosts stage a version of the agent and one of a component, and then switches
// them: nothing is downloaded, so that it takes as long as a restart.
func TestFleetStagesVersionsAndSwitchesToThem(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01", "web-02")
	w.components([]string{"web"}, []string{"1.0.0", "1.1.0"}, "1.2.0")
	ids := []string{w.Hosts[0].ID, w.Hosts[1].ID}
	muster := func(args ...string) string {
		t.Helper()
		out, err := w.Server.CLI(t.Context(), args...)
		check(t, err)
		return out
	}
	muster(append([]string{"components", "upgrade", "web", "--version", "1.0.0"}, ids...)...)
	for _, h := range w.Hosts {
		w.Wait(h, "runs web 1.0.0", func(a adminapi.Agent) bool { return text(web(a).Version) == "1.0.0" && web(a).UpgradeStartedAt == nil })
	}
	w.Publish("1.1.0", w.Programs.Agent)
	muster(append([]string{"agents", "stage", "--component", "web", "--version", "1.1.0", "--wait"}, ids...)...)
	muster(append([]string{"agents", "stage", "--version", "1.1.0", "--wait"}, ids...)...)
	for _, h := range w.Hosts {
		w.onDisk(h, "1.0.0")
		a := w.Wait(h, "reports what it has staged", func(a adminapi.Agent) bool { return a.StagedVersions != nil && len(*a.StagedVersions) == 2 })
		if got := strings.Join(*a.StagedVersions, ", "); got != "1.1.0, web 1.1.0" || text(web(a).Version) != "1.0.0" {
			t.Errorf("staged are %s, and web is %s", got, text(web(a).Version))
		}
	}
	if out := muster("agents", "list", "--kuery", `staged_versions: "web 1.1.0" and staged_versions: 1.1.0`); !strings.Contains(out, "web-01") || !strings.Contains(out, "web-02") {
		t.Errorf("the query finds\n%s", out)
	}

	muster(append([]string{"components", "upgrade", "web", "--version", "1.1.0"}, ids...)...)
	w.Upgrade("1.1.0", w.Hosts...)
	for _, h := range w.Hosts {
		w.upgraded(h, "1.1.0")
		a := w.Wait(h, "runs web 1.1.0, and has nothing staged", func(a adminapi.Agent) bool {
			return text(web(a).Version) == "1.1.0" && web(a).UpgradeStartedAt == nil && a.StagedVersions != nil && len(*a.StagedVersions) == 0
		})
		if a.Status != fleet.StatusOnline {
			t.Errorf("%s is %s", h.Name, a.Status)
		}
	}
	// A rollout does both by itself.
	w.Publish("1.2.0", w.Programs.Agent)
	r := w.rollOut(w.plan("1.2.0", "select: {all: true}\nstage: ahead\nstrategy: {kind: rolling, batch_size: 1}\nhealth: {wait: 1s}\n"), 0)
	if st := r.Staging; st == nil || st.Targets != 2 || st.Answered != 2 || st.EndedAt == nil {
		t.Errorf("its staging is %+v", st)
	}
	for _, h := range w.Hosts {
		w.upgraded(h, "1.2.0")
	}
	for _, h := range w.Hosts {
		if phases := w.seen(h); slices.Contains(phases, string(agentapi.UpgradeDownloading)) {
			t.Errorf("%s went through %v", h.Name, phases)
		}
	}
}
