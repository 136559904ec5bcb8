package watch

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// ask writes a request to roll back the version in home.
func (s *site) ask(home, why string) {
	s.must(handoff.WriteRequest(quickDisk{}, s.top, handoff.Request{ToHome: home, Why: why, At: time.Now()}))
}

func TestRollbackRequest(t *testing.T) {
	inTime(t, "ends the watch of a healthy version", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		begin := time.Now()
		time.AfterFunc(time.Minute, func() { s.ask(s.m.To.Home, "Ann asked: it is too slow.") })
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RolledBack || o.Reason.Code != handoff.ReasonManual || o.Reason.Text != "Ann asked: it is too slow." {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if took := time.Since(begin); took > time.Minute+5*time.Second {
			t.Errorf("took %v, want it followed at once", took)
		}
	})

	inTime(t, "without a text gets a default text", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		s.ask(s.m.To.Home, " ")
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Reason == nil || !strings.Contains(o.Reason.Text, "requested on the host") {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
	})

	inTime(t, "with a long text is truncated", func(t *testing.T, s *site) {
		s.switchAfter(time.Second)
		s.ask(s.m.To.Home, strings.Repeat("ü", maxWhy))
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Reason == nil || len(o.Reason.Text) > maxWhy+len("…") || !strings.HasSuffix(o.Reason.Text, "ü…") {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
	})

	inTime(t, "of another upgrade is ignored, and removed with the marker", func(t *testing.T, s *site) {
		s.ask("data/muster-agent-0.9.0-0a0a0a", "Old.")
		s.switchAfter(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if n := strings.Count(s.lines.String(), "about another upgrade"); n != 1 {
			t.Errorf("said %d times, want once\n%s", n, s.lines)
		}
	})

	inTime(t, "is ignored if damaged", func(t *testing.T, s *site) {
		s.must(os.WriteFile(layout.Path(s.top, layout.RequestFile), make([]byte, 100), 0o600))
		s.switchAfter(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
	})

	inTime(t, "is refused if the previous version is missing", func(t *testing.T, s *site) {
		s.must(os.Remove(filepath.Join(s.top, s.m.From.Home, layout.AgentLink)))
		s.host.home = s.m.To.Home
		s.ask(s.m.To.Home, "Ann asked.")
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if n := strings.Count(s.lines.String(), "is refused"); n != 1 {
			t.Errorf("said %d times, want once\n%s", n, s.lines)
		}
		if p, err := s.previous(); p != nil || err != nil {
			t.Errorf("kept version %+v, %v; want none, its program is missing", p, err)
		}
	})

	inTime(t, "before the switch is the reason if it never comes", func(t *testing.T, s *site) {
		s.pointTo(s.m.From.Home)
		s.ask(s.m.To.Home, "Ann asked.")
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Reason == nil || o.Reason.Code != handoff.ReasonManual {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})
}

func TestRecordOfThePreviousVersion(t *testing.T) {
	kept := func(s *site, in handoff.Install) {
		s.install(in.Home)
		s.must(handoff.WriteVersions(quickDisk{}, s.top, handoff.Versions{OnHost: []handoff.Version{{Install: in, ReplacedAt: time.Now()}}}))
	}
	older := handoff.Install{Identity: thirdID, Home: "data/muster-agent-0.9.0-0a0a0a"}
	read := func(s *site) *handoff.Version {
		p, err := s.previous()
		s.must(err)
		return p
	}

	inTime(t, "is the version before the last commit", func(t *testing.T, s *site) {
		kept(s, older)
		s.switchAfter(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if p := read(s); p == nil || p.Install != s.m.From || s.exists(older.Home) {
			t.Errorf("recorded %+v, and the version before it exists: %v", p, s.exists(older.Home))
		}
	})

	// 0.9 → 1.0 was committed and 1.0 → 1.1 is rolled back: 0.9 stays.
	inTime(t, "stays over an upgrade that is rolled back", func(t *testing.T, s *site) {
		kept(s, older)
		s.crashing()
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if p := read(s); p == nil || p.Install != older || !s.exists(older.Home) {
			t.Errorf("kept %+v, want %+v", p, older)
		}
	})

	// A manual rollback to the previous version is rolled back itself.
	inTime(t, "is removed after a rollback to it that was rolled back", func(t *testing.T, s *site) {
		kept(s, s.m.To)
		s.crashing()
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		if p := read(s); p != nil || s.exists(s.m.To.Home) {
			t.Errorf("kept %+v, want none", p)
		}
	})

	inTime(t, "is removed if its home is missing", func(t *testing.T, s *site) {
		kept(s, older)
		s.must(os.RemoveAll(filepath.Join(s.top, older.Home)))
		s.crashing()
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if p := read(s); p != nil {
			t.Errorf("kept %+v, want none", p)
		}
	})
}

// A commit keeps what was staged meanwhile and what limits allow, and removes the rest.
func TestCommitKeepsStagedVersions(t *testing.T) {
	home := func(s *site, number string, staged bool) handoff.Version {
		v := handoff.Version{Install: handoff.Install{Identity: manifest.Identity{Version: number, Hash: "0a0a0a"}, Home: "data/muster-agent-" + number + "-0a0a0a"}, Bytes: 10}
		s.install(v.Home)
		if staged {
			v.StagedAt = time.Now().Add(-time.Hour)
		} else {
			v.ReplacedAt = time.Now().Add(-time.Hour)
		}
		return v
	}
	run := func(s *site, keep handoff.Limits, want handoff.Result, list ...handoff.Version) []handoff.Version {
		s.t.Helper()
		s.m.Rules.Keep = keep
		s.must(handoff.WriteMarker(quickDisk{}, s.top, s.m))
		s.must(handoff.WriteVersions(quickDisk{}, s.top, handoff.Versions{OnHost: list}))
		if want == handoff.Committed {
			s.switchAfter(time.Second)
		} else {
			s.crashing()
		}
		if o, err := s.run(s.t.Context()); err != nil || o == nil || o.Result != want {
			s.t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		record, err := handoff.ReadVersions(quickDisk{}, s.top)
		s.must(err)
		left := record.OnHost
		for _, v := range list {
			if s.exists(v.Home) != handoff.Holds(left, v.Home) && v.Home != s.m.To.Home {
				s.t.Errorf("%s is there: %v, and recorded are %+v", v.Home, s.exists(v.Home), left)
			}
		}
		return left
	}
	is := func(s *site, left []handoff.Version, want ...handoff.Install) {
		s.t.Helper()
		var got []handoff.Install
		for _, v := range left {
			got = append(got, v.Install)
		}
		if !slices.Equal(got, want) {
			s.t.Errorf("recorded are %+v, want %+v", got, want)
		}
	}

	inTime(t, "within the default limits", func(t *testing.T, s *site) {
		older, next, to := home(s, "0.9.0", false), home(s, "1.2.0", true), handoff.Version{Install: s.m.To, StagedAt: time.Now()}
		left := run(s, handoff.DefaultLimits(), handoff.Committed, older, next, to)
		is(s, left, next.Install, s.m.From)
		if v := left[1]; v.Staged() || v.Bytes != int64(2*len(s.m.From.Home)) || time.Since(v.ReplacedAt) > time.Minute {
			t.Errorf("the version before is recorded as %+v", v)
		}
	})
	inTime(t, "within the marker's limits", func(t *testing.T, s *site) {
		a, b, c, d := home(s, "0.8.0", false), home(s, "0.9.0", false), home(s, "1.2.0", true), home(s, "1.3.0", true)
		is(s, run(s, handoff.Limits{Previous: 2, Staged: 1, Window: handoff.Duration(time.Hour * 24)}, handoff.Committed, a, b, c, d), b.Install, d.Install, s.m.From)
	})
	inTime(t, "and a rollback removes only the new one", func(t *testing.T, s *site) {
		older, next, to := home(s, "0.9.0", false), home(s, "1.2.0", true), handoff.Version{Install: s.m.To, StagedAt: time.Now()}
		is(s, run(s, handoff.DefaultLimits(), handoff.RolledBack, older, to, next), older.Install, next.Install)
		if s.exists(s.m.To.Home) {
			t.Error("the version that was rolled back is still there")
		}
	})
}
