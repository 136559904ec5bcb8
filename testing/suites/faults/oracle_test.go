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
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// convergeWithin bounds how long a host may take after a boot: an interrupted upgrade
	// is started again after minutes, watched, and perhaps rolled back, and the backoff
	// reaches an hour.
	convergeWithin = 3 * time.Hour
	// inspectEvery is the time between two inspections, and stableFor how long a host must
	// stay good: longer than a unit's restart delay.
	inspectEvery = time.Second
	stableFor    = 10 * time.Second
)

// end is how a host ended after a fault.
type end string

const (
	endNew end = "new"
	endOld end = "old"
	endBad end = "bad"
)

// expectation is how a scenario must end.
type expectation struct {
	action   string
	old, new *release
	older    *release // is kept beside old; may be nil
	staged   *release // must be staged; may be nil
	end      end
	// reasons are those of an end with the old version, of which the server must be told
	// one.
	reasons []reason
	// failing means that a call to the disk has failed.
	failing bool
	// strict means that no left-over is tolerated on the disk.
	strict bool
}

// converge waits until the host is good and stays so.
func (h *host) converge(e expectation) result {
	limit := time.Now().Add(convergeWithin)
	for {
		found := h.inspect(e, true)
		if found.end != endBad {
			time.Sleep(stableFor)
			if again := h.inspect(e, true); again.end == found.end && again.why == found.why {
				return found
			}
		}
		left := time.Until(limit)
		if left <= 0 {
			found = h.inspect(e, false)
			found.end = endBad
			return found
		}
		// The longer it takes, the less it matters when it ends.
		time.Sleep(max(inspectEvery, (convergeWithin-left)/50).Truncate(inspectEvery))
	}
}

// inspect returns how a host has ended; endBad if anything is wrong. With quick it stops at
// the first finding.
func (h *host) inspect(e expectation, quick bool) result {
	l := inspector{h: h, e: e}
	for _, check := range []func(){l.nothingPending, l.pointer, l.runs, l.reported, l.acked, l.highest, l.keeps, l.recorded, l.leftOvers} {
		check()
		if quick && len(l.wrong) > 0 {
			break
		}
	}
	r := result{end: l.end(), why: l.why, wrong: l.wrong}
	if len(l.wrong) > 0 {
		r.end = endBad
	}
	return r
}

type inspector struct {
	h       *host
	e       expectation
	running *release // the release that the pointer leads to
	why     reason
	wrong   []string
}

func (l *inspector) end() end {
	if l.running == l.e.new {
		return endNew
	}
	return endOld
}

func (l *inspector) complain(format string, args ...any) {
	l.wrong = append(l.wrong, fmt.Sprintf(format, args...))
}

func (l *inspector) exists(name string) bool {
	_, err := l.h.outside().Lstat("look", path.Join(top, name))
	return err == nil
}

// nothingPending checks that no file of an upgrade in progress is left.
func (l *inspector) nothingPending() {
	for _, file := range []string{layout.MarkerFile, layout.JournalFile, layout.StageJournalFile, layout.RequestFile} {
		if l.exists(file) {
			l.complain("%s is still there", file)
		}
	}
	for _, p := range l.h.running() {
		if p.program.kind == "watcher" {
			l.complain("a watcher still runs")
		}
	}
}

// pointer checks that the pointer leads to one of the two versions, that its home is
// complete, and that the rest of the host agrees.
func (l *inspector) pointer() {
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
	case l.end() != l.e.end:
		l.complain("the host ended with the %s version, want the %s", l.end(), l.e.end)
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

func (l *inspector) leads(link string) string {
	target, err := l.h.outside().Readlink("look", path.Join(top, link))
	if err != nil {
		return err.Error()
	}
	return path.Dir(target)
}

// whole checks that a home has every file of the package, and besides only the agent's
// state.
func (l *inspector) whole(r *release) {
	tree := l.h.fs.Tree(path.Join(top, r.install.Home))
	maps.DeleteFunc(tree, func(name, _ string) bool { return name == "run" || strings.HasPrefix(name, "run/") })
	if !maps.Equal(tree, r.home) {
		l.complain("%s is not as in its package: %q", r.install.Home, tree)
	}
}

// runs checks that exactly one agent runs, that it is the program that the service manager
// would start now, and that it answers and is healthy. The watcher's link must lead to a
// program too.
func (l *inspector) runs() {
	if l.running == nil {
		return
	}
	var agents []*process
	for _, p := range l.h.running() {
		if p.program.kind == "agent" {
			agents = append(agents, p)
		}
	}
	if len(agents) != 1 {
		l.complain("%d agents run, want one: %v", len(agents), agents)
		return
	}
	starts, err := l.h.load(layout.AgentLink)
	switch {
	case err != nil:
		l.complain("the service manager could not start the agent: %v", err)
	case starts != agents[0].program:
		l.complain("%+v runs, and the service manager would start %+v", agents[0].program, starts)
	case starts.version != l.running.install.Version || starts.home != l.running.install.Home:
		l.complain("%+v runs, want version %s in %s", starts, l.running.install.Version, l.running.install.Home)
	}
	if w, err := l.h.load(layout.WatcherLink); err != nil || w.kind != "watcher" {
		l.complain("the next upgrade would start %+v as its watcher: %v", w, err)
	}
	health, err := agents[0].health(context.Background())
	switch {
	case err != nil:
		l.complain("the agent does not answer: %v", err)
	case health.Home != l.running.install.Home:
		l.complain("the agent of %s answers, want %s", health.Home, l.running.install.Home)
	case health.State != probe.Healthy:
		l.complain("the agent is %s: %s", health.State, health.Message)
	}
}

// reported checks that the last check-in is of the running version and has the result of
// the upgrade.
func (l *inspector) reported() {
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
	case l.e.action == "" && d != nil:
		l.complain("no upgrade was ordered, and the agent reports %+v", *d)
	case l.e.action == "":
	case l.running == l.e.new && d != nil:
		l.complain("the new version runs and the server is told of %+v", *d)
	case l.running == l.e.old && d == nil && slices.Contains(l.e.reasons, agentapi.Cancelled):
		l.why = agentapi.Cancelled // before it began; see acked
	case l.running == l.e.old && d == nil:
		l.complain("the old version runs and the server is not told why")
	case l.running == l.e.old && (d.ActionID != l.e.action || d.TargetVersion != l.e.new.install.Version || !d.State.Ended() || d.Metadata.ErrorMsg == ""):
		l.complain("the old version runs and the server is told %+v", *d)
	case l.running == l.e.old:
		l.why = reason(d.Metadata.ReasonCode)
		if d.State == agentapi.UpgradeFailed {
			l.why = failedIn(d.Metadata.FailedState)
		}
		if !slices.Contains(l.e.reasons, l.why) {
			l.complain("the reason is %q, want one of %q: %s", l.why, l.e.reasons, d.Metadata.ErrorMsg)
		}
	}
}

// acked checks that the action has its result. The report of a rollback overrides an
// earlier success.
func (l *inspector) acked() {
	if l.e.action == "" {
		return
	}
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
	case l.running == l.e.old && last.Error == "" && !l.rollbackReported():
		l.complain("the old version runs, and the server was told %q", last.Message)
	}
}

// keeps checks that the host can be rolled back to the version before the one that runs.
func (l *inspector) keeps() {
	want := l.e.old
	if l.running == l.e.old {
		want = l.e.older
	}
	if want == nil {
		return
	}
	v, err := handoff.ReadVersions(l.h.outside(), top)
	if err != nil || !slices.ContainsFunc(v.Kept(), func(v handoff.Version) bool { return v.Install == want.install }) {
		l.complain("the host keeps %+v (%v), want %s", v, err, want.install.Home)
	}
	l.whole(want)
}

// recorded checks that every version in the record is there, known and whole, and where one must
// be staged, that it is, and that no version is there that is not in the record.
func (l *inspector) recorded() {
	record, err := handoff.ReadVersions(l.h.outside(), top)
	list := record.OnHost
	if err != nil {
		l.complain("the versions on the host cannot be read: %v", err)
	}
	known := []*release{l.e.old, l.e.new, l.e.older, l.e.staged}
	for _, v := range list {
		i := slices.IndexFunc(known, func(r *release) bool { return r != nil && r.install == v.Install })
		if i < 0 {
			l.complain("the unknown version %+v is recorded", v)
			continue
		}
		l.whole(known[i])
	}
	if l.e.staged == nil || l.running == nil {
		return
	}
	if !slices.ContainsFunc(list, func(v handoff.Version) bool { return v.Install == l.e.staged.install && v.Staged() }) {
		l.complain("%s is not recorded as staged: %+v", l.e.staged.install, list)
	}
	for _, r := range known {
		if r != nil && r != l.running && l.exists(r.install.Home) && !handoff.Holds(list, r.install.Home) {
			l.complain("%s is there and not recorded", r.install.Home)
		}
	}
}

func (l *inspector) rollbackReported() bool {
	last := lastOf(l.h.server.Checkins())
	return last.UpgradeDetails != nil && last.UpgradeDetails.State == agentapi.UpgradeRollback
}

func lastOf(c []fakeserver.Checkin) fakeserver.Checkin {
	if len(c) == 0 {
		return fakeserver.Checkin{}
	}
	return c[len(c)-1]
}

// highest checks that a committed version is remembered, so that no server can move the host
// below it.
func (l *inspector) highest() {
	d := l.h.outside()
	o, err := handoff.ReadOutcome(d, top)
	if err != nil || o == nil || o.Result != handoff.Committed {
		return
	}
	v, err := handoff.ReadVersions(d, top)
	for _, i := range []handoff.Install{o.From, o.To} {
		raised := v
		if raised.Raise(i.FullVersion()); v.Highest == "" || raised.Highest != v.Highest {
			l.complain("%s was committed, and the highest version is %q (%v)", i.FullVersion(), v.Highest, err)
		}
	}
}

// known are the files of the data folder that do not mean a pending upgrade.
var known = []string{
	path.Base(layout.ActiveCommitFile), path.Base(layout.DownloadsDir), path.Base(layout.OutcomeFile),
	path.Base(layout.FailureFile), path.Base(layout.TrustDir), path.Base(layout.VersionsFile),
}

// writeCheck is the file with which preflight checks that it may write.
const writeCheck = ".muster-write-check"

// inert are files without effect once the file they belong to is gone.
var inert = []string{
	path.Base(layout.MarkerFile) + layout.PreviousSuffix, path.Base(layout.JournalFile) + layout.PreviousSuffix, path.Base(layout.StageJournalFile) + layout.PreviousSuffix, path.Base(layout.RequestFile) + layout.PreviousSuffix,
	path.Base(layout.DecisionFile), path.Base(layout.DecisionFile) + layout.PreviousSuffix,
}

// leftOvers checks that a fault left only files without effect, which the next upgrade
// removes:
//
//   - temporary files (.new): the next write of that file begins by removing them
//   - staging folders: the next commit, or unpacking, removes them
//   - downloads, whole or partial: the next attempt uses them or a commit removes them
//   - the file with which preflight checks its rights, which the next preflight removes
//   - after a call that failed, a home that the commit did not remove: the next commit does
//   - a copy (.prev) without its record, which counts as no record
//   - a decision without its marker: it is bound to that marker, and read only
//     while there is one
//
// A versioned home under its own name is complete or absent. After a further upgrade
// (strict) none of these may be left.
func (l *inspector) leftOvers() {
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

func (l *inspector) odd(folder string, e fs.DirEntry) string {
	n := e.Name()
	switch {
	case strings.HasSuffix(n, layout.NewSuffix), strings.HasPrefix(n, layout.StagingPrefix):
		if l.e.strict {
			return "a left-over that the next upgrade did not remove"
		}
		return ""
	case folder == top && n == writeCheck && !l.e.strict:
		return ""
	case folder == top:
		if !slices.Contains([]string{layout.AgentLink, layout.WatcherLink, layout.DataDir, layout.IdentityFile, layout.ConfigFile}, n) {
			return "unknown"
		}
		return ""
	case !l.e.strict && slices.Contains(inert, n):
		return ""
	case l.e.failing && l.e.older != nil && path.Join(layout.DataDir, n) == l.e.older.install.Home:
		return ""
	case slices.Contains(known, strings.TrimSuffix(n, layout.PreviousSuffix)):
		if n == path.Base(layout.DownloadsDir) && l.e.strict {
			return l.oddDownloads()
		}
		return ""
	}
	homes := []*release{l.e.old, l.e.new}
	if l.e.staged != nil {
		homes = append(homes, l.e.staged)
	}
	if l.e.older != nil && l.running == l.e.old {
		homes = append(homes, l.e.older)
	}
	for _, r := range homes {
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

func (l *inspector) oddDownloads() string {
	entries, err := l.h.outside().ReadDir("look", path.Join(top, layout.DownloadsDir))
	if err != nil || len(entries) > 0 {
		return fmt.Sprintf("%d downloads are left", len(entries))
	}
	return ""
}
