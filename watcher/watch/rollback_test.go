package watch

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

func (s *site) crashing() {
	s.host.lives[s.m.To.Home] = life{dies: 50 * time.Millisecond}
	s.switchAfter(time.Second)
}

func TestRollback(t *testing.T) {
	inTime(t, "the reason has what the host shows of the version", func(t *testing.T, s *site) {
		s.crashing()
		s.host.diagnosis = Diagnosis{Output: "panic: oops", Own: &handoff.Reason{Code: handoff.ReasonSettings, Text: "The settings of the host are not valid: agent.yml: line 3."}}
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RolledBack || o.Reason.Code != handoff.ReasonSettings {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		for _, want := range []string{"ended 3 times", `Its last output: "panic: oops"`, "agent.yml: line 3"} {
			if !strings.Contains(o.Reason.Text, want) {
				t.Errorf("reason %q lacks %q", o.Reason.Text, want)
			}
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})

	inTime(t, "a previous version that is missing is not pointed to", func(t *testing.T, s *site) {
		s.crashing()
		s.must(os.Remove(filepath.Join(s.top, s.m.From.Home, layout.AgentLink)))
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RollbackFailed || o.Reason.Code != handoff.ReasonCrashLoop {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		if !strings.Contains(o.Reason.Text, "muster-agent-1.0.0-9be1f0/muster-agent is missing") {
			t.Errorf("reason %q does not name the missing file", o.Reason.Text)
		}
		if s.leads(layout.AgentLink) != s.m.To.Home || !s.exists(s.m.To.Home) || s.exists(layout.MarkerFile) {
			t.Error("want the pointer and the version it leads to left, and the marker gone")
		}
	})

	inTime(t, "a previous version that does not start keeps both on the disk", func(t *testing.T, s *site) {
		s.crashing()
		s.host.lives[s.m.From.Home] = life{dies: 100 * time.Millisecond}
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RollbackFailed {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		if !strings.Contains(o.Reason.Text, "did not start: no answer within 1m0s") {
			t.Errorf("reason %q does not say how long it was waited for", o.Reason.Text)
		}
		if s.leads(layout.AgentLink) != s.m.From.Home || !s.exists(s.m.To.Home) || s.exists(layout.MarkerFile) {
			t.Error("want the pointer at the previous version, both homes there, and the marker gone")
		}
		if s.host.restarts < 3 || s.host.restarts > 6 {
			t.Errorf("ordered %d starts, want one each 15 s of the minute", s.host.restarts)
		}
	})

	inTime(t, "a version that the previous one never made way for stays on the disk", func(t *testing.T, s *site) {
		// The pointer leads to the new version, and nothing restarts the agent.
		o, err := s.run(t.Context())
		if err != nil || o == nil || o.Result != handoff.RolledBack || o.Reason.Code != handoff.ReasonNotStarted {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		if s.leads(layout.AgentLink) != s.m.From.Home || !s.exists(s.m.To.Home) || s.exists(layout.MarkerFile) {
			t.Error("want the pointer at the previous version, the home of the new one there, and the marker gone")
		}
	})

	inTime(t, "a service manager that refuses at first is asked again", func(t *testing.T, s *site) {
		s.crashing()
		s.host.refuse = errors.New("start request repeated too quickly")
		time.AfterFunc(25*time.Second, func() {
			s.host.mu.Lock()
			defer s.host.mu.Unlock()
			s.host.refuse = nil
		})
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
	})

	inTime(t, "a slow previous version is not restarted while it starts", func(t *testing.T, s *site) {
		s.crashing()
		ready := s.host.lives[s.m.From.Home]
		s.host.lives[s.m.From.Home] = life{health: func(age time.Duration) (probe.Health, error) {
			if s.host.restarts > 0 && age < 50*time.Second {
				return probe.Health{}, errors.New("starting")
			}
			return ready.health(age)
		}}
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		if s.host.restarts != 1 {
			t.Errorf("ordered %d starts, want one", s.host.restarts)
		}
	})

	inTime(t, "a previous version without a watcher keeps the new one's", func(t *testing.T, s *site) {
		s.crashing()
		s.must(os.Remove(filepath.Join(s.top, s.m.From.Home, layout.WatcherLink)))
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.RolledBack {
			t.Fatalf("outcome %+v, %v", o, err)
		}
		if s.leads(layout.WatcherLink) != s.m.To.Home || !s.exists(s.m.To.Home+"/"+layout.WatcherLink) {
			t.Error("the watcher link leads nowhere")
		}
	})

	inTime(t, "a decision about another upgrade is ignored", func(t *testing.T, s *site) {
		other := s.m
		other.CreatedAt = s.m.CreatedAt.Add(-time.Hour)
		s.watch().writeDecision(handoff.Decide(other, handoff.RolledBack, &handoff.Reason{Code: handoff.ReasonManual, Text: "Old."}))
		s.switchAfter(time.Second)
		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v", o, err)
		}
	})
}

func TestCommitCleansUp(t *testing.T) {
	inTime(t, "a host with earlier upgrades", func(t *testing.T, s *site) {
		write := func(name string, age time.Duration) {
			t.Helper()
			path := filepath.Join(s.top, name)
			s.must(os.MkdirAll(filepath.Dir(path), 0o700))
			s.must(os.WriteFile(path, []byte("x"), 0o600))
			at := s.m.CreatedAt.Add(-age)
			s.must(os.Chtimes(path, at, at))
		}
		s.install("data/muster-agent-0.8.0-080808")
		s.install("data/muster-agent-0.9.0-0a0a0a")
		s.must(disk.Point(quickDisk{}, "test", "data/muster-agent-0.9.0-0a0a0a/"+layout.WatcherLink, layout.Path(s.top, layout.WatcherLink)))
		write("data/.unpack-muster-agent-1.2.0-dddddd/half", time.Hour)
		write("data/downloads/muster-agent-1.1.0-linux-amd64.tar.gz", -time.Minute)
		write("data/downloads/muster-agent-1.1.0-linux-amd64.tar.gz.sha512", -time.Minute)
		write("data/downloads/muster-agent-0.7.0-linux-amd64.tar.gz.part", time.Hour)
		write("data/downloads/muster-agent-1.2.0-linux-amd64.tar.gz.part", -time.Minute)
		write("data/downloads/muster-agent-1.1.0-rc.1-linux-amd64.tar.gz", -time.Minute)
		write("data/other/file", time.Hour)
		s.install("data/elastic-agent-0.6.0-060606") // a package may map its home to another name
		write("data/elastic-agent-0.6.0-060606/"+layout.DigestsFile, time.Hour)
		write("data/drop/"+layout.DigestsFile, time.Hour)
		write("data/agent.log", time.Hour)
		s.switchAfter(time.Second)

		if o, err := s.run(t.Context()); err != nil || o == nil || o.Result != handoff.Committed {
			t.Fatalf("outcome %+v, %v\n%s", o, err, s.lines)
		}
		var left []string
		for _, dir := range []string{"data", "data/downloads"} {
			entries, err := os.ReadDir(filepath.Join(s.top, dir))
			s.must(err)
			for _, e := range entries {
				left = append(left, dir+"/"+e.Name())
			}
		}
		want := []string{
			"data/active.commit", "data/agent.log", "data/downloads", "data/drop",
			"data/muster-agent-0.9.0-0a0a0a", // the watcher link leads to it
			"data/muster-agent-1.0.0-9be1f0", "data/muster-agent-1.1.0-3f2a9c",
			"data/other", "data/upgrade-outcome", "data/versions",
			"data/downloads/muster-agent-1.1.0-rc.1-linux-amd64.tar.gz",
			"data/downloads/muster-agent-1.2.0-linux-amd64.tar.gz.part", // for an upgrade that waits
		}
		if !slices.Equal(left, want) {
			t.Errorf("left:\n%s\nwant:\n%s", strings.Join(left, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Removing the running version cannot be repaired.
func TestHomeInUseIsNeverRemoved(t *testing.T) {
	s := newSite(t)
	w := s.watch()
	s.host.home = s.m.From.Home
	for _, home := range []string{s.m.To.Home, s.m.From.Home} { // the pointer's, the process's
		if err := w.removeHome(home); err != nil || !s.exists(home) {
			t.Errorf("%s: %v, still there %v; want it left", home, err, s.exists(home))
		}
	}
	for _, home := range []string{"data", "", "data/a/b", "../data"} {
		if err := w.removeHome(home); err == nil {
			t.Errorf("removing %q was not refused", home)
		}
	}
	s.must(os.Remove(layout.Path(s.top, layout.AgentLink)))
	s.must(os.Symlink(filepath.Join(s.top, s.m.To.Home, layout.AgentLink), layout.Path(s.top, layout.AgentLink)))
	s.must(os.Remove(layout.Path(s.top, layout.WatcherLink)))
	if err := w.removeHome(s.m.To.Home); err != nil || !s.exists(s.m.To.Home) {
		t.Errorf("a home an absolute pointer leads to was removed (%v)", err)
	}
}
