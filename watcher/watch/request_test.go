package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// ask leaves a request to go back from the version in home.
func (s *site) ask(home, why string) {
	s.must(handoff.WriteRequest(quickDisk{}, s.top, handoff.Request{ToHome: home, Why: why, At: time.Now()}))
}

func TestARequestToGoBack(t *testing.T) {
	inTime(t, "ends the watch of a healthy version", func(t *testing.T, s *site) {
		s.handOver(time.Second)
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

	inTime(t, "without words gets some", func(t *testing.T, s *site) {
		s.handOver(time.Second)
		s.ask(s.m.To.Home, " ")
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Reason == nil || !strings.Contains(o.Reason.Text, "asked on the host") {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
	})

	inTime(t, "with too many is cut", func(t *testing.T, s *site) {
		s.handOver(time.Second)
		s.ask(s.m.To.Home, strings.Repeat("ü", maxWhy))
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Reason == nil || len(o.Reason.Text) > maxWhy+len("…") || !strings.HasSuffix(o.Reason.Text, "ü…") {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
	})

	inTime(t, "left over from another upgrade asks for nothing and goes with the marker", func(t *testing.T, s *site) {
		s.ask("data/muster-agent-0.9.0-0a0a0a", "Old.")
		s.handOver(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if n := strings.Count(s.lines.String(), "about another upgrade"); n != 1 {
			t.Errorf("said %d times, want once\n%s", n, s.lines)
		}
	})

	inTime(t, "damaged asks for nothing", func(t *testing.T, s *site) {
		s.must(os.WriteFile(layout.Path(s.top, layout.RequestFile), make([]byte, 100), 0o600))
		s.handOver(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
	})

	inTime(t, "is refused where there is nothing to go back to", func(t *testing.T, s *site) {
		s.must(os.Remove(filepath.Join(s.top, s.m.From.Home, layout.AgentLink)))
		s.host.home = s.m.To.Home
		s.ask(s.m.To.Home, "Ann asked.")
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		if n := strings.Count(s.lines.String(), "is refused"); n != 1 {
			t.Errorf("said %d times, want once\n%s", n, s.lines)
		}
		if p, err := handoff.ReadPrevious(quickDisk{}, s.top); p != nil || err != nil {
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

func TestTheVersionThatIsKept(t *testing.T) {
	kept := func(s *site, in handoff.Install) {
		s.install(in.Home)
		s.must(handoff.WritePrevious(quickDisk{}, s.top, handoff.Previous{Install: in, ReplacedBy: s.m.From, ReplacedAt: time.Now()}))
	}
	older := handoff.Install{Identity: thirdID, Home: "data/muster-agent-0.9.0-0a0a0a"}
	read := func(s *site) *handoff.Previous {
		p, err := handoff.ReadPrevious(quickDisk{}, s.top)
		s.must(err)
		return p
	}

	inTime(t, "is the one before the last commit", func(t *testing.T, s *site) {
		kept(s, older)
		s.handOver(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if p := read(s); p == nil || p.Install != s.m.From || s.exists(older.Home) {
			t.Errorf("kept %+v, and the one before it is there: %v", p, s.exists(older.Home))
		}
	})

	// 0.9 → 1.0 was committed, 1.0 → 1.1 is rolled back: 0.9 is still there.
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

	// 1.0 went back by hand to the 1.1 that was kept, and that fails.
	inTime(t, "is forgotten when it was gone back to and failed", func(t *testing.T, s *site) {
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

	inTime(t, "is forgotten when its home is gone otherwise", func(t *testing.T, s *site) {
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
