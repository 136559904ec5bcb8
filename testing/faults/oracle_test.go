package faults

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/testing/fakeserver"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// convergeWithin bounds how long a host may take after the power is back:
	// an interrupted upgrade is begun again after minutes, watched, and perhaps
	// rolled back; and the ladder of retries has a step of an hour.
	convergeWithin = 3 * time.Hour
	// lookEvery is the time between two looks, and settleFor how long a host
	// must stay as it was found: longer than a unit's restart delay.
	lookEvery = time.Second
	settleFor = 10 * time.Second
)

// end is how a host came out.
type end string

const (
	endNew end = "new"
	endOld end = "old"
	endBad end = "bad"
)

// expectation is what a story may end as.
type expectation struct {
	action   string
	old, new *release
	// mayKeep: the new version is a good one, and may be what runs in the end.
	mayKeep bool
	// strict: no left-over is tolerated on the disk.
	strict bool
}

// converge waits until the host is as it should be, and stays so. In a bubble.
func (h *host) converge(e expectation) (end, []string) {
	limit := time.Now().Add(convergeWithin)
	for {
		found, wrong := h.look(e, true)
		if len(wrong) == 0 {
			time.Sleep(settleFor)
			again, wrong := h.look(e, true)
			if len(wrong) == 0 && again == found {
				return found, nil
			}
		}
		if time.Now().After(limit) {
			_, wrong = h.look(e, false)
			return endBad, wrong
		}
		time.Sleep(lookEvery)
	}
}

// look says what is wrong with a host; quick stops at the first.
func (h *host) look(e expectation, quick bool) (end, []string) {
	l := looker{h: h, e: e}
	for _, check := range []func(){l.nothingPending, l.pointer, l.runs, l.told, l.acked, l.leftOvers} {
		check()
		if quick && len(l.wrong) > 0 {
			break
		}
	}
	if l.running == e.new {
		return endNew, l.wrong
	}
	return endOld, l.wrong
}

type looker struct {
	h       *host
	e       expectation
	running *release // the one the pointer leads to
	wrong   []string
}

func (l *looker) complain(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *looker) there(name string) bool {
	_, err := l.h.outside().Lstat("look", path.Join(top, name))
	return err == nil
}

// nothingPending: what an upgrade in progress leaves is gone.
func (l *looker) nothingPending() {
	for _, file := range []string{layout.MarkerFile, layout.JournalFile, layout.RequestFile} {
		if l.there(file) {
			l.complain("%s is still there", file)
		}
	}
	l.h.mu.Lock()
	watching := l.h.watcher.alive()
	l.h.mu.Unlock()
	if watching {
		l.complain("a watcher still runs")
	}
}

// pointer: it leads to one of the two versions, which is whole, and the rest of
// the host agrees.
func (l *looker) pointer() {
	home := l.leads(layout.AgentLink)
	for _, r := range []*release{l.e.old, l.e.new} {
		if home == r.install.Home {
			l.running = r
		}
	}
	switch {
	case l.running == nil:
		l.complain("the pointer leads to %q, which is neither version", home)
		return
	case l.running == l.e.new && !l.e.mayKeep:
		l.complain("the pointer leads to the broken version")
	}
	l.whole(l.running)
	switch by := l.leads(layout.WatcherLink); by {
	case l.e.old.install.Home:
		l.whole(l.e.old)
	case l.e.new.install.Home:
		l.whole(l.e.new)
	default:
		l.complain("the watcher's link leads to %q", by)
	}
	commit, err := l.h.outside().ReadFile("look", path.Join(top, layout.ActiveCommitFile))
	if want := l.running.install.Hash + "\n"; err != nil || string(commit) != want {
		l.complain("the active commit is %q (%v), want %q", commit, err, want)
	}
}

func (l *looker) leads(link string) string {
	target, err := l.h.outside().Readlink("look", path.Join(top, link))
	if err != nil {
		return err.Error()
	}
	return path.Dir(target)
}

// whole: every file as it is in the package, and nothing but the agent's state
// beside.
func (l *looker) whole(r *release) {
	tree := l.h.fs.Tree(path.Join(top, r.install.Home))
	maps.DeleteFunc(tree, func(name, _ string) bool { return name == "run" || strings.HasPrefix(name, "run/") })
	if !maps.Equal(tree, r.home) {
		l.complain("%s is not as in its package: %q", r.install.Home, tree)
	}
}

// runs: one agent, of the version the pointer leads to, and it is well.
func (l *looker) runs() {
	if l.running == nil {
		return
	}
	health, err := l.h.health(context.Background())
	switch {
	case err != nil:
		l.complain("no agent answers: %v", err)
	case health.Home != l.running.install.Home:
		l.complain("the agent of %s answers, want %s", health.Home, l.running.install.Home)
	case health.State != probe.Healthy:
		l.complain("the agent is %s: %s", health.State, health.Message)
	}
}

// told: the server's last word is of the version that runs, and says what became
// of the upgrade.
func (l *looker) told() {
	checkins := l.h.server.Checkins()
	if l.running == nil || len(checkins) == 0 {
		l.complain("the server has heard nothing")
		return
	}
	last := checkins[len(checkins)-1]
	version := l.running.install.Version
	if last.UserAgent != gateway.UserAgent(version) || last.Status != "online" {
		l.complain("the server last heard %s, %s, want version %s online", last.UserAgent, last.Status, version)
	}
	d := last.UpgradeDetails
	switch {
	case l.running == l.e.new && d != nil:
		l.complain("the new version runs and the server is told of %+v", *d)
	case l.running == l.e.old && d == nil:
		l.complain("the old version runs and the server is not told why")
	case l.running == l.e.old && (d.ActionID != l.e.action || d.TargetVersion != l.e.new.install.Version || !d.State.Ended() || d.Metadata.ErrorMsg == ""):
		l.complain("the old version runs and the server is told %+v", *d)
	}
}

// acked: the action has its result. A success that the new version told before it
// was rolled back is taken back by the report of the rollback.
func (l *looker) acked() {
	var results []agentapi.AckEvent
	for _, a := range l.h.server.Acks() {
		if a.ActionID == l.e.action {
			results = append(results, a)
		}
	}
	if len(results) == 0 {
		l.complain("the action has no result")
		return
	}
	last := results[len(results)-1]
	failed := slices.ContainsFunc(results, func(a agentapi.AckEvent) bool { return a.Error != "" })
	switch {
	case l.running == l.e.new && failed:
		l.complain("the new version runs, and the server was told that the upgrade failed: %q", last.Error)
	case l.running == l.e.old && last.Error == "" && !l.rollbackTold():
		l.complain("the old version runs, and the server was told %q", last.Message)
	}
}

func (l *looker) rollbackTold() bool {
	last := lastOf(l.h.server.Checkins())
	return last.UpgradeDetails != nil && last.UpgradeDetails.State == agentapi.UpgradeRollback
}

func lastOf(c []fakeserver.Checkin) fakeserver.Checkin {
	if len(c) == 0 {
		return fakeserver.Checkin{}
	}
	return c[len(c)-1]
}

// known are the files in the data folder that mean nothing pending.
var known = []string{
	path.Base(layout.ActiveCommitFile), path.Base(layout.DownloadsDir), path.Base(layout.OutcomeFile),
	path.Base(layout.FailureFile), path.Base(layout.FailedVersionsFile), path.Base(layout.PreviousFile),
}

// inert are those that mean something only beside what is gone.
var inert = []string{
	path.Base(layout.MarkerFile) + layout.PreviousSuffix, path.Base(layout.JournalFile) + layout.PreviousSuffix, path.Base(layout.RequestFile) + layout.PreviousSuffix,
	path.Base(layout.DecisionFile), path.Base(layout.DecisionFile) + layout.PreviousSuffix,
}

// leftOvers: of what a fault left, only that may stay which is never taken for
// something, and which the next upgrade removes:
//
//   - temporary files (.new): the next write of that file begins by removing them
//   - staging folders: the next commit, or unpacking, removes them
//   - downloads, whole or partial: the next attempt uses them or a commit removes them
//   - a copy (.prev) without its record, which counts as no record
//   - a decision without its marker: it is bound to that marker, and read only
//     while there is one
//
// A versioned home under its own name is whole or absent, whoever left it. After a
// further upgrade (strict) nothing of this stays.
func (l *looker) leftOvers() {
	d := l.h.outside()
	for _, folder := range []string{top, path.Join(top, layout.DataDir)} {
		entries, err := d.ReadDir("look", folder)
		if err != nil {
			l.complain("%v", err)
		}
		for _, e := range entries {
			if why := l.odd(folder, e); why != "" {
				l.complain("%s in %s: %s", e.Name(), folder, why)
			}
		}
	}
}

func (l *looker) odd(folder string, e fs.DirEntry) string {
	n := e.Name()
	switch {
	case strings.HasSuffix(n, layout.NewSuffix), strings.HasPrefix(n, layout.StagingPrefix):
		if l.e.strict {
			return "a left-over that the next upgrade did not remove"
		}
		return ""
	case folder == top:
		if !slices.Contains([]string{layout.AgentLink, layout.WatcherLink, layout.DataDir, layout.IdentityFile, layout.ConfigFile}, n) {
			return "unknown"
		}
		return ""
	case !l.e.strict && slices.Contains(inert, n):
		return ""
	case slices.Contains(known, strings.TrimSuffix(n, layout.PreviousSuffix)):
		if n == path.Base(layout.DownloadsDir) && l.e.strict {
			return l.oddDownloads()
		}
		return ""
	}
	for _, r := range []*release{l.e.old, l.e.new} {
		if path.Join(layout.DataDir, n) == r.install.Home {
			before := len(l.wrong)
			l.whole(r)
			if len(l.wrong) > before {
				return "a home that is not whole"
			}
			return ""
		}
	}
	return "unknown"
}

func (l *looker) oddDownloads() string {
	entries, err := l.h.outside().ReadDir("look", path.Join(top, layout.DownloadsDir))
	if err != nil || len(entries) > 0 {
		return fmt.Sprintf("%d downloads are left", len(entries))
	}
	return ""
}
