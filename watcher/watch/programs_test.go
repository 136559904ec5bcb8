package watch

import (
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// onWindows makes the disk treat programs as Windows does. The agent runs, and a watcher from home.
func (s *site) onWindows(watcher string) {
	s.disk = simdisk.Windows{Disk: quickDisk{}, Running: func() []string {
		programs := []string{filepath.Join(s.top, watcher, layout.WatcherLink)}
		if home := s.host.runs(); home != "" {
			programs = append(programs, filepath.Join(s.top, home, layout.AgentLink))
		}
		return programs
	}}
}

// The watcher runs from the version that it watches, which Windows does not remove then.
func TestWatchEndsThoughItsOwnProgramCannotBeRemoved(t *testing.T) {
	inTime(t, "a rollback leaves it to the next commit", func(t *testing.T, s *site) {
		s.onWindows(s.m.To.Home)
		s.crashing()
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		bad := s.m.To.Home
		if !s.exists(bad) {
			t.Fatal("the disk has removed a program that runs")
		}

		next := manifest.Identity{Version: "1.2.0", Hash: "0b0b0b0b"}
		s.m.To = handoff.Install{Identity: next, Home: "data/muster-agent-1.2.0-0b0b0b"}
		s.install(s.m.To.Home)
		s.host.lives[s.m.To.Home] = lives(next)
		s.onWindows(s.m.To.Home)
		s.must(handoff.WriteMarker(s.disk, s.top, s.m))
		s.pointTo(s.m.To.Home)
		s.host.become(s.m.To.Home)
		s.host.exits = 0 // another watcher counts
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
		if s.exists(bad) || !s.exists(s.m.From.Home) {
			t.Error("want the bad version removed, and the previous one kept")
		}
	})

	inTime(t, "a commit keeps it", func(t *testing.T, s *site) {
		s.onWindows(s.m.To.Home)
		s.host.become(s.m.To.Home)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		s.wantSettled(handoff.Committed, s.m.To.Home)
	})
}
