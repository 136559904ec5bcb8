package faults

import (
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// A watcher that gives up a good version after every crash leaves a host that is whole and
// told, with the wrong version.
func TestNeedlessRollbackIsABadEnd(t *testing.T) {
	k := sharedKit(t)
	r := k.recorded(t, scenario{name: "retreat", agent: good, watcher: retreats, ends: endNew})
	// The crash comes during the watch, just before the new version is committed: its decision is
	// written into a file that was reserved before the watch.
	i := slices.IndexFunc(r.points, func(p point) bool {
		return p.call.Op == "decision" && p.call.Name == "write" && p.call.Path == path.Join(top, layout.DecisionFile)
	})
	got := runFault(t, r.points[i].afterHalt(), r.expectation, nil, quiet)
	if want := "ended with the old version, want the new"; got.end != endBad || !strings.Contains(strings.Join(got.wrong, "\n"), want) {
		t.Errorf("the needless rollback ends %s: %q", got.end, got.wrong)
	}
}

// Each sabotage of a host that was upgraded well, or of one that was rolled back, is
// noticed.
func TestOracleNotices(t *testing.T) {
	k := sharedKit(t)
	for _, c := range []struct {
		what, scenario string
		sabotage       func(h *host, e *expectation)
		complaint      string
	}{
		{"a second agent", "good_upgrade", func(h *host, _ *expectation) {
			h.newProcess(h.agent.program, 0)
		}, "2 agents run"},
		{"no agent", "good_upgrade", func(h *host, _ *expectation) {
			h.agent.kill()
		}, "0 agents run"},
		{"an agent that answers nobody", "good_upgrade", func(h *host, _ *expectation) {
			h.agent.control.Close()
		}, "does not answer"},
		{"an agent that is not the one a start would run", "good_upgrade", func(h *host, e *expectation) {
			must(t, disk.Point(h.outside(), "test", path.Join(e.old.install.Home, layout.AgentLink), path.Join(top, layout.AgentLink)))
			must(t, disk.WriteFile(h.outside(), "test", path.Join(top, layout.ActiveCommitFile), []byte(e.old.install.Hash+"\n"), 0o644))
			e.end = endOld
		}, "the service manager would start"},
		{"a pointer to nothing", "good_upgrade", func(h *host, _ *expectation) {
			must(t, h.outside().Remove("test", path.Join(top, layout.AgentLink)))
		}, "which is neither version"},
		{"a watcher's link to no program", "good_upgrade", func(h *host, e *expectation) {
			file := path.Join(top, e.new.install.Home, layout.WatcherLink)
			must(t, disk.WriteFile(h.outside(), "test", file, []byte("damaged"), 0o755))
		}, "would start"},
		{"the new version where the old was to stay", "good_upgrade", func(_ *host, e *expectation) {
			e.end = endOld
		}, "ended with the new version, want the old"},
		{"the old version where the new was to stay", "agent_failed", func(_ *host, e *expectation) {
			e.end = endNew
		}, "ended with the old version, want the new"},
		{"another reason", "agent_failed", func(_ *host, e *expectation) {
			e.reasons = []reason{failedIn(agentapi.UpgradeDownloading)}
		}, `the reason is "agent_failed"`},
		{"a staged version that is not recorded", "stage", func(h *host, _ *expectation) {
			must(t, handoff.WriteVersions(h.outside(), top, handoff.Versions{}))
		}, "is there and not recorded"},
		{"a staged version that is gone", "stage", func(h *host, e *expectation) {
			must(t, h.outside().RemoveAll("test", path.Join(top, e.new.install.Home)))
		}, "is not recorded as staged"},
		{"a staged version that is damaged", "stage", func(h *host, e *expectation) {
			must(t, disk.WriteFile(h.outside(), "test", path.Join(top, e.new.install.Home, layout.AgentLink), []byte("damaged"), 0o755))
		}, "is not as in its package"},
		{"the journal of a stage", "stage", func(h *host, _ *expectation) {
			must(t, disk.WriteFile(h.outside(), "test", path.Join(top, layout.StageJournalFile), nil, 0o600))
		}, layout.StageJournalFile + " is still there"},
	} {
		t.Run(c.what, func(t *testing.T) {
			r := k.recorded(t, named(c.scenario))
			w := r.points[len(r.points)-1].snapshot
			w.fs = w.fs.Clone()
			runHost(t, w, quiet, nil, func(h *host) {
				e := r.expectation
				if got := h.converge(e); got.end != e.end {
					t.Fatalf("before it the host ends %s: %q", got.end, got.wrong)
				}
				c.sabotage(h, &e)
				time.Sleep(inspectEvery)
				if got := h.inspect(e, false); got.end != endBad || !strings.Contains(strings.Join(got.wrong, "\n"), c.complaint) {
					t.Errorf("it is not noticed: %s, %q", got.end, got.wrong)
				}
			})
		})
	}
}
