package fleet

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// elasticMetadata is the local metadata of an Elastic Agent on Debian.
func elasticMetadata(version string) json.RawMessage {
	return NestMetadata(json.RawMessage(fmt.Sprintf(`{
		"elastic":{"agent":{"id":"e1","version":%q,"snapshot":false,"build.original":"%s (build: 0098d8 at 2024-11-04 06:23:33 +0000 UTC)","upgradeable":true,"log_level":"info","complete":false,"unprivileged":false}},
		"host":{"architecture":"x86_64","hostname":"db-1","name":"db-1","id":"m1","ip":["10.0.0.1/8"],"mac":["AA-BB"]},
		"os":{"family":"debian","kernel":"6.1.0","platform":"debian","version":"12 (bookworm)","name":"Debian GNU/Linux","full":"Debian GNU/Linux bookworm(12 (bookworm))"}}`, version, version)))
}

func elasticAgent(version string) *Agent {
	return &Agent{ID: "e1", Active: true, Version: version, LocalMetadata: elasticMetadata(version)}
}

func TestMetadataKeysWithDotsAreNestedOnes(t *testing.T) {
	for in, want := range map[string]string{
		`{"elastic":{"agent":{"build.original":"8.15.5","version":"8.15.5"}}}`: `{"elastic":{"agent":{"build":{"original":"8.15.5"},"version":"8.15.5"}}}`,
		`{"host.name":"a","host":{"id":"b"}}`:                                  `{"host":{"name":"a","id":"b"}}`,
		`{"host.name":"a","host":{"name":"b"}}`:                                `{"host":{"name":"b"}}`,
		`{"a.b":{"c":1},"a.b.d":12345678901234567890}`:                         `{"a":{"b":{"c":1,"d":12345678901234567890}}}`,
		`{"a.b":1,"a":2}`:                `{"a":2}`,
		`{"list":[{"x.y":true}]}`:        `{"list":[{"x":{"y":true}}]}`,
		`{".":1,"a.":2,".b":3,"a..b":4}`: `{".":1,"a.":2,".b":3,"a..b":4}`,
		`{"version":"8.15.5"}`:           `{"version":"8.15.5"}`,
		`{"version":1.5,"a":"b"}`:        `{"version":1.5,"a":"b"}`,
		`[{"a.b":1}]`:                    `[{"a.b":1}]`,
	} {
		got := NestMetadata(json.RawMessage(in))
		if !equalJSON(t, got, json.RawMessage(want)) {
			t.Errorf("%s becomes %s, want %s", in, got, want)
		}
		if again := NestMetadata(got); string(again) != string(got) {
			t.Errorf("%s becomes %s, and then %s", in, got, again)
		}
	}
}

func equalJSON(t *testing.T, a, b json.RawMessage) bool {
	t.Helper()
	decode := func(raw json.RawMessage) (v any) {
		dec := json.NewDecoder(strings.NewReader(string(raw)))
		dec.UseNumber()
		if err := dec.Decode(&v); err != nil {
			t.Fatal(err)
		}
		return v
	}
	return reflect.DeepEqual(decode(a), decode(b))
}

func TestMakerAndSystemAreDerivedFromWhatAgentsReport(t *testing.T) {
	for in, want := range map[string]struct {
		maker  Maker
		system string
	}{
		string(elasticMetadata("8.15.5")): {MakerElastic, "linux"},
		`{"elastic":{"agent":{"build":{"original":"8.15.5"}}},"os":{"platform":"windows","family":"windows"}}`: {MakerElastic, "windows"},
		`{"elastic":{"agent":{"build":{"original":"8.15.5"}}},"os":{"platform":"darwin","family":"darwin"}}`:   {MakerElastic, "darwin"},
		`{"elastic":{"agent":{"build":{"original":"8.15.5"}}},"os":{"platform":"amzn","family":"redhat"}}`:     {MakerElastic, "linux"},
		`{"elastic":{"agent":{"build":{"original":"8.15.5"}}},"os":{"platform":"new","family":"debian"}}`:      {MakerElastic, "linux"},
		`{"elastic":{"agent":{"build":{"original":"8.15.5"}}},"os":{"platform":"haiku"}}`:                      {MakerElastic, ""},
		`{"elastic":{"agent":{"build":{"original":"1.1.0-3f2a9c"}}},"os":{"type":"linux","family":"debian"}}`:  {MakerMuster, "linux"},
		`{"elastic":{"agent":{"version":"1.0.0"}},"os":{"type":"plan9"}}`:                                      {MakerMuster, "plan9"},
		``: {MakerMuster, ""},
	} {
		a := Agent{LocalMetadata: json.RawMessage(in)}
		if host := a.Host(); host.Maker != want.maker || host.OS.Type != want.system {
			t.Errorf("%s is %q on %q, want %q on %q", in, host.Maker, host.OS.Type, want.maker, want.system)
		}
	}
}

func TestSnapshotOfABuildKeepsItsBuildLast(t *testing.T) {
	for version, want := range map[string]string{"8.15.5": "8.15.5-SNAPSHOT", "8.15.5+build1": "8.15.5-SNAPSHOT+build1", "8.15.5-SNAPSHOT": "8.15.5-SNAPSHOT"} {
		m := HostMetadata{Maker: MakerElastic}
		m.Elastic.Agent.Version, m.Elastic.Agent.Snapshot = version, true
		if got := m.FullVersion(); got != want {
			t.Errorf("%s is %s, want %s", version, got, want)
		}
	}
}

func TestNoAgentIsOfferedAPackageOfTheOtherMakerOrOfAnUnknownSystem(t *testing.T) {
	c := Catalog{
		{Version: "8.16.0", OS: "linux", Arch: "amd64", Maker: MakerElastic},
		{Version: "1.1.0", OS: "linux", Arch: "amd64"},
		{Version: "8.17.0", OS: "windows", Arch: "amd64", Maker: MakerElastic},
	}
	muster := &Agent{ID: "m1", Active: true, Version: "1.0.0", LocalMetadata: json.RawMessage(`{"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"host":{"architecture":"x86_64"},"os":{"type":"linux"}}`)}
	unknown := elasticAgent("8.15.5")
	unknown.LocalMetadata = json.RawMessage(strings.ReplaceAll(string(unknown.LocalMetadata), `"debian"`, `"haiku"`))
	for _, c := range []struct {
		agent   *Agent
		version string
		catalog Catalog
		refusal string
	}{
		{elasticAgent("8.15.5"), "8.16.0", c, ""},
		{muster, "1.1.0", c, ""},
		{elasticAgent("8.15.5"), "8.17.0", c, "no package of version 8.17.0 for linux/x86_64"},
		{elasticAgent("0.9.0"), "1.1.0", c, "is an Elastic Agent, and version 1.1.0 is published for Muster's agents only"},
		{muster, "8.16.0", c, "is Muster's agent, and version 8.16.0 is published for Elastic Agents only"},
		{unknown, "8.16.0", c, `reports no operating system that is known (platform "haiku", family "haiku")`},
	} {
		err := c.agent.CheckUpgrade(UpgradeRequest{Version: c.version}, c.catalog)
		if c.refusal == "" && err != nil || c.refusal != "" && (err == nil || !strings.Contains(err.Error(), c.refusal)) {
			t.Errorf("%s to %s: %v, want %q", c.agent.ID, c.version, err, c.refusal)
		}
	}
	// Where the package comes from elsewhere, the agent chooses it itself.
	if err := unknown.CheckUpgrade(UpgradeRequest{Version: "8.16.0", SourceURI: "https://mirror"}, c); err != nil {
		t.Errorf("with source_uri: %v", err)
	}
}

// A report is what an Elastic Agent says at one moment of its upgrade.
type elasticReport struct {
	version string
	details *agentapi.UpgradeDetails // nil: none
	ack     bool                     // it acknowledges the action, without an error as always
	after   time.Duration            // since the report before
}

func TestUpgradesOfElasticAgentsEndAsTheyReportThem(t *testing.T) {
	phase := func(s agentapi.UpgradeState, m ...agentapi.UpgradeMetadata) *agentapi.UpgradeDetails {
		d := &agentapi.UpgradeDetails{ActionID: "x1", TargetVersion: "8.16.0", State: s}
		if len(m) > 0 {
			d.Metadata = m[0]
		}
		return d
	}
	const old, target = "8.15.5", "8.16.0"
	for name, c := range map[string]struct {
		reports []elasticReport
		status  UpgradeStatus
		done    bool   // it succeeded
		err     string // of its result
	}{
		"an acknowledgement alone": {[]elasticReport{
			{version: old, details: phase(agentapi.UpgradeDownloading)}, {version: old, ack: true, details: phase(agentapi.UpgradeDownloading)},
		}, UpgradeStarted, false, ""},
		"the new version runs and its watch ends": {[]elasticReport{
			{version: old, details: phase(agentapi.UpgradeExtracting)}, {version: target, ack: true, details: phase(agentapi.UpgradeWatching)}, {version: target},
		}, UpgradeNone, true, ""},
		"the download fails minutes after the acknowledgement": {[]elasticReport{
			{version: old, details: phase(agentapi.UpgradeDownloading)},
			{version: old, ack: true, details: phase(agentapi.UpgradeDownloading), after: 3 * time.Minute},
			{version: old, details: phase(agentapi.UpgradeFailed, agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "404"})},
		}, UpgradeFailed, false, "404"},
		"a failure stays one after its details are gone": {[]elasticReport{
			{version: old, details: phase(agentapi.UpgradeFailed, agentapi.UpgradeMetadata{ErrorMsg: "404"}), ack: true}, {version: old}, {version: old},
		}, UpgradeFailed, false, "404"},
		"a rollback without a reason": {[]elasticReport{
			{version: old, details: phase(agentapi.UpgradeExtracting)}, {version: old, details: phase(agentapi.UpgradeRollback), ack: true},
		}, UpgradeRolledBack, false, "the agent rolled back from 8.16.0 and gave no reason"},
		"a rollback stays one after its details are gone": {[]elasticReport{
			{version: target, details: phase(agentapi.UpgradeWatching), ack: true}, {version: old, details: phase(agentapi.UpgradeRollback)}, {version: old},
		}, UpgradeRolledBack, false, "the agent rolled back from 8.16.0 and gave no reason"},
		"a rollback that is never reported": {[]elasticReport{
			{version: target, details: phase(agentapi.UpgradeWatching), ack: true}, {version: old, after: 9 * time.Minute},
		}, UpgradeRolledBack, false, "the agent runs 8.15.5 again and has reported no reason"},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			a := elasticAgent(old)
			a.BeginUpgrade("x1", target, now)
			var results []Result
			for _, r := range c.reports {
				now = now.Add(30*time.Second + r.after)
				if r.ack {
					a.ObserveAck("x1", "", false, now)
				}
				a.ObserveUpgrade(r.version, r.details, now)
				a.LocalMetadata = elasticMetadata(r.version)
				results = append(results, a.UpgradeResults("", now)...)
			}
			if a.UpgradeStatus != c.status || (a.UpgradedAt != nil) != c.done {
				t.Errorf("status %q, upgraded at %v; want %q, done %v", a.UpgradeStatus, a.UpgradedAt, c.status, c.done)
			}
			var failed string
			for _, r := range results {
				if r.Error != "" && failed == "" {
					failed = r.Error
				}
			}
			if failed != c.err {
				t.Errorf("the result says %q, want %q", failed, c.err)
			}
		})
	}
}

// An Elastic Agent reports a rollback that was ordered as ROLLBACK of the rollback's own action,
// before it goes back and after.
func TestOrderedRollbackOfAnElasticAgentIsDoneWhenItsVersionRuns(t *testing.T) {
	const from, to = "9.5.2", "9.5.0"
	details := func(action, target string, s agentapi.UpgradeState, reason string) *agentapi.UpgradeDetails {
		return &agentapi.UpgradeDetails{ActionID: action, TargetVersion: target, State: s, Metadata: agentapi.UpgradeMetadata{Reason: reason}}
	}
	const reason = "manual rollback requested to version " + to
	for name, c := range map[string]struct {
		watched bool // the upgrade to from is being watched when the rollback is ordered
		reports []elasticReport
		status  UpgradeStatus
		done    bool
		results []string // errors of the results, by action
	}{
		"after the watch": {false, []elasticReport{
			{version: from, details: details("back", to, agentapi.UpgradeRequested, "")},
			{version: from, details: details("back", from, agentapi.UpgradeRequested, ""), ack: true},
			{version: from, details: details("back", from, agentapi.UpgradeRollback, reason)},
			{version: to, details: details("back", from, agentapi.UpgradeRollback, reason)},
			{version: to, details: details("back", from, agentapi.UpgradeRollback, reason)},
			{version: to},
		}, UpgradeNone, true, []string{"back: "}},
		"after the watch, seen only at the end": {false, []elasticReport{
			{version: to, details: details("back", from, agentapi.UpgradeRollback, reason)},
		}, UpgradeNone, true, []string{"back: "}},
		"delivered again to the version that it is for": {false, []elasticReport{
			{version: to, details: details("back", from, agentapi.UpgradeRollback, reason)},
			{version: to, details: details("back", to, agentapi.UpgradeRollback, ""), ack: true},
		}, UpgradeNone, true, []string{"back: "}},
		"during the watch": {true, []elasticReport{
			{version: from, details: details("up", from, agentapi.UpgradeWatching, ""), ack: true},
			{version: from, details: details("up", from, agentapi.UpgradeRollback, reason)},
			{version: to, details: details("up", from, agentapi.UpgradeRollback, reason)},
			{version: to, details: details("back", to, agentapi.UpgradeRollback, ""), ack: true},
		}, UpgradeNone, true, []string{"back: ", "up: " + reason}},
		"reported as failed by the version that it is for": {false, []elasticReport{
			{version: from, details: details("back", from, agentapi.UpgradeFailed, "the watcher did not answer")},
			{version: to, details: details("back", from, agentapi.UpgradeFailed, "the watcher did not answer")},
		}, UpgradeNone, true, []string{"back: the watcher did not answer", "back: "}},
		"not yet there": {false, []elasticReport{
			{version: from, details: details("back", from, agentapi.UpgradeRollback, reason)},
		}, UpgradeStarted, false, nil},
		"it keeps no such version": {false, []elasticReport{
			{version: from, details: details("back", to, agentapi.UpgradeFailed, "no rollbacks available"), ack: true},
		}, UpgradeFailed, false, []string{"back: no rollbacks available"}},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
			a := elasticAgent(to)
			a.BeginUpgrade("up", from, now)
			a.ObserveUpgrade(from, details("up", from, agentapi.UpgradeWatching, ""), now)
			if !c.watched {
				a.ObserveUpgrade(from, nil, now)
			}
			a.LocalMetadata = elasticMetadata(from)
			a.BeginRollback("back", to, now)
			var results []string
			for _, r := range c.reports {
				now = now.Add(30 * time.Second)
				if r.ack {
					a.ObserveAck("back", "", false, now)
				}
				d := r.details
				if d != nil {
					d = MakerElastic.Details(*d)
				}
				if a.ObserveUpgrade(r.version, d, now) {
					for _, r := range a.UpgradeResults("", now) {
						results = append(results, r.ActionID+": "+r.Error)
					}
				}
				a.LocalMetadata = elasticMetadata(r.version)
			}
			if a.UpgradeStatus != c.status || (a.UpgradedAt != nil) != c.done {
				t.Errorf("status %q, upgraded at %v; want %q, done %v", a.UpgradeStatus, a.UpgradedAt, c.status, c.done)
			}
			if len(a.FailedVersions) > 0 {
				t.Errorf("failed are %+v", a.FailedVersions)
			}
			if !slices.Equal(results, c.results) {
				t.Errorf("the results are %q, want %q", results, c.results)
			}
			if d := a.UpgradeDetails; c.done && d != nil || d != nil && d.TargetVersion != to {
				t.Errorf("the details are %+v", d)
			}
		})
	}
}

// A server before this rule recorded the success as a rollback of the target.
func TestOrderedRollbackThatWasRecordedAsFailedIsCorrected(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	a := elasticAgent("9.5.2")
	a.BeginRollback("back", "9.5.0", now)
	d := &agentapi.UpgradeDetails{ActionID: "back", TargetVersion: "9.5.2", State: agentapi.UpgradeRollback}
	a.Version, a.UpgradeDetails, a.UpgradeEndReported = "9.5.0", d, true
	a.endBadly(UpgradeRolledBack)
	a.FailedVersions = []FailedVersion{{Version: "9.4.0", ActionID: "other"}, {Version: "9.5.0", ActionID: "back"}}
	if !a.ObserveUpgrade("9.5.0", d, now) {
		t.Error("nothing changed")
	}
	if a.UpgradedAt == nil || a.UpgradeStatus != UpgradeNone || len(a.FailedVersions) != 1 || a.FailedVersions[0].Version != "9.4.0" {
		t.Errorf("status %q, upgraded at %v, failed %+v", a.UpgradeStatus, a.UpgradedAt, a.FailedVersions)
	}
	if a.ObserveUpgrade("9.5.0", d, now.Add(time.Minute)) {
		t.Error("the same report changed it again")
	}
}

// A rollback that somebody asked for on the host is no failure of the version.
func TestRollbackAskedForOnTheHostOfAnElasticAgentCondemnsNoVersion(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	a := elasticAgent("9.5.0")
	a.BeginUpgrade("up", "9.5.2", now)
	a.ObserveUpgrade("9.5.2", &agentapi.UpgradeDetails{ActionID: "up", TargetVersion: "9.5.2", State: agentapi.UpgradeWatching}, now)
	a.ObserveUpgrade("9.5.0", MakerElastic.Details(agentapi.UpgradeDetails{
		ActionID: "up", TargetVersion: "9.5.2", State: agentapi.UpgradeRollback,
		Metadata: agentapi.UpgradeMetadata{Reason: "manual rollback requested to version 9.5.0"},
	}), now)
	if a.UpgradeStatus != UpgradeRolledBack || len(a.FailedVersions) > 0 {
		t.Errorf("status %q, failed %+v", a.UpgradeStatus, a.FailedVersions)
	}
}

// An agent reports nothing during a poll. So the first report of an upgrade that was started on the
// host, to a version that never checks in, is that of its rollback.
func TestUpgradeStartedOnTheHostIsKnownByTheReportOfItsEnd(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	ended := func(target string) *agentapi.UpgradeDetails {
		return &agentapi.UpgradeDetails{TargetVersion: target, State: agentapi.UpgradeRollback, Metadata: agentapi.UpgradeMetadata{Reason: "watch failed"}}
	}
	for name, c := range map[string]struct {
		before func(a *Agent)
		failed string // empty: nothing failed
	}{
		"the first upgrade": {func(*Agent) {}, "9.5.4"},
		"after one that ended in the same way": {func(a *Agent) {
			a.ObserveUpgrade("9.5.2", ended("9.5.3"), now)
		}, "9.5.3 9.5.4"},
		"after an order that succeeded": {func(a *Agent) {
			a.BeginUpgrade("up", "9.5.2", now)
			a.ObserveUpgrade("9.5.2", nil, now)
		}, "9.5.4"},
		"after an order that failed, before which it may have been": {func(a *Agent) {
			a.BeginUpgrade("up", "9.5.3", now)
			a.ObserveAck("up", "no space", false, now)
		}, ""},
		"while an order is under way": {func(a *Agent) {
			a.BeginUpgrade("up", "9.5.3", now)
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := elasticAgent("9.5.2")
			c.before(a)
			at := now.Add(time.Minute)
			a.ObserveUpgrade("9.5.2", ended("9.5.4"), at)
			var failed []string
			for _, f := range a.FailedVersions {
				failed = append(failed, f.Version)
			}
			if got := strings.Join(failed, " "); got != c.failed {
				t.Errorf("failed are %q, want %q", got, c.failed)
			}
			p, _ := a.ProgressAt(at)
			if c.failed != "" && (p.State != ProgressRolledBack || p.Version != "9.5.4" || p.Reason != "watch failed" || a.UpgradeFrom != "9.5.2") {
				t.Errorf("the progress is %+v, from %q", p, a.UpgradeFrom)
			}
			if a.ObserveUpgrade("9.5.2", ended("9.5.4"), at.Add(time.Minute)) {
				t.Error("the same report changed it again")
			}
		})
	}
}

func TestLaterReturnToTheOldVersionIsNoRollback(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	a := elasticAgent("8.15.5")
	a.BeginUpgrade("x1", "8.16.0", now)
	a.ObserveUpgrade("8.16.0", nil, now)
	a.ObserveUpgrade("8.15.5", nil, now.Add(time.Hour)) // somebody has installed it again
	if a.UpgradeStatus != UpgradeNone || a.UpgradedAt == nil || a.Version != "8.15.5" {
		t.Errorf("status %q, upgraded at %v, runs %s", a.UpgradeStatus, a.UpgradedAt, a.Version)
	}
}

func TestAgentsThatReportNoPhasesGetTheTimeOfADownload(t *testing.T) {
	acked := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	for version, grace := range map[string]time.Duration{"8.11.4": unseenGrace, "8.12.0": AckGrace, "8.12.0-SNAPSHOT": AckGrace, "9.1.0": AckGrace} {
		for _, late := range []bool{false, true} {
			a := elasticAgent(version)
			a.BeginUpgrade("x1", "9.2.0", acked)
			now := acked.Add(grace - time.Second)
			if late {
				now = acked.Add(grace + time.Second)
			}
			seen := acked.Add(AckGrace + time.Millisecond)
			a.Last.At = &seen
			if got := a.ReconcileUpgrade(a.UpgradeActionID, &Action{ID: "x1"}, &Result{Timestamp: acked}, now); got != late {
				t.Errorf("%s, %s after the acknowledgement: failed is %v", version, now.Sub(acked), got)
			}
		}
	}
}

func TestDownloadPercentOfElasticAgents(t *testing.T) {
	for in, want := range map[float64]float64{0: 0, 0.25: 25, 1: 100, 1.5: 1.5, 42: 42, 100: 100} {
		d := agentapi.UpgradeDetails{Metadata: agentapi.UpgradeMetadata{DownloadPercent: in}}
		if got := MakerElastic.Details(d).Metadata.DownloadPercent; got != want {
			t.Errorf("%v means %v %%, want %v", in, got, want)
		}
		if got := MakerMuster.Details(d).Metadata.DownloadPercent; got != in {
			t.Errorf("%v of Muster's agent means %v %%", in, got)
		}
	}
}

func TestAgentReportsLateOnlyDuringItsUpgrade(t *testing.T) {
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	begin := func(start time.Time) func(*Agent) { return func(a *Agent) { a.BeginUpgrade("x1", "8.16.0", start) } }
	reports := func(s agentapi.UpgradeState) func(*Agent) {
		return func(a *Agent) { a.UpgradeDetails = &agentapi.UpgradeDetails{State: s} }
	}
	for name, c := range map[string]struct {
		is   func(*Agent)
		want bool
	}{
		"idle": {func(*Agent) {}, false}, "ordered": {begin(now), true}, "scheduled": {begin(now.Add(time.Hour)), false},
		"downloading": {reports(agentapi.UpgradeDownloading), true}, "watched": {reports(agentapi.UpgradeWatching), true},
		"waiting for its start": {reports(agentapi.UpgradeScheduled), false}, "failed": {reports(agentapi.UpgradeFailed), false},
	} {
		a := elasticAgent("8.15.5")
		c.is(a)
		if got := a.ReportsLate(now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
		a.LocalMetadata = json.RawMessage(`{"os":{"type":"linux"}}`)
		if a.ReportsLate(now) {
			t.Errorf("%s: Muster's agent ends its polls itself", name)
		}
	}
}
