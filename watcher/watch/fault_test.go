package watch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// faultDisk calls hooks before and after every operation that changes the disk.
type faultDisk struct {
	disk.Disk
	// before may return an error, which the operation then returns without being
	// executed. Both may panic, which simulates a watcher killed at that moment.
	before func(call, op, path string) error
	after  func(call, op, path string)
}

func (d faultDisk) do(call, op, path string, act func() error) error {
	if d.before != nil {
		if err := d.before(call, op, path); err != nil {
			return &disk.Error{Op: op, Err: &fs.PathError{Op: call, Path: path, Err: err}}
		}
	}
	err := act()
	if d.after != nil {
		d.after(call, op, path)
	}
	return err
}

func (d faultDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (f disk.File, err error) {
	if flag&(os.O_WRONLY|os.O_RDWR) == 0 {
		return d.Disk.OpenFile(op, path, flag, perm)
	}
	call := "open"
	if flag&os.O_CREATE == 0 {
		call = "overwrite" // which needs no free space
	}
	err = d.do(call, op, path, func() error { f, err = d.Disk.OpenFile(op, path, flag, perm); return err })
	return f, err
}

func (d faultDisk) Rename(op, from, to string) error {
	return d.do("rename", op, to, func() error { return d.Disk.Rename(op, from, to) })
}

func (d faultDisk) Remove(op, path string) error {
	return d.do("remove", op, path, func() error { return d.Disk.Remove(op, path) })
}

// RemoveAll may also fail in the middle, when the program is removed and the rest exists.
func (d faultDisk) RemoveAll(op, path string) error {
	err := d.do("remove program", op, path, func() error {
		return d.Disk.Remove(op, layout.Path(path, layout.AgentLink))
	})
	return errors.Join(err, d.do("remove all", op, path, func() error { return d.Disk.RemoveAll(op, path) }))
}

func (d faultDisk) Symlink(op, target, link string) error {
	return d.do("symlink", op, link, func() error { return d.Disk.Symlink(op, target, link) })
}

func (d faultDisk) SyncDir(op, path string) error {
	return d.do("sync", op, path, func() error { return d.Disk.SyncDir(op, path) })
}

// ending is one way in which a watch ends.
type ending struct {
	name    string
	prepare func(s *site)
	result  handoff.Result
	reason  handoff.ReasonCode
}

func (e ending) home(s *site) string {
	if e.result == handoff.Committed {
		return s.m.To.Home
	}
	return s.m.From.Home
}

var endings = []ending{
	{
		name: "commit", result: handoff.Committed,
		prepare: func(s *site) {
			s.m.Rules.Grace = handoff.Duration(20 * time.Second)
			s.must(handoff.WriteMarker(quickDisk{}, s.top, s.m))
			s.install("data/muster-agent-0.9.0-0a0a0a")
			// A previous version of an earlier upgrade, and a request that is still there.
			s.must(handoff.WriteVersions(quickDisk{}, s.top, handoff.Versions{OnHost: []handoff.Version{{Install: handoff.Install{Identity: thirdID, Home: "data/muster-agent-0.9.0-0a0a0a"}, ReplacedAt: time.Now()}}}))
			s.ask("data/muster-agent-0.8.0-080808", "Old.")
			s.switchAfter(time.Second)
		},
	},
	{
		name: "rollback", result: handoff.RolledBack, reason: handoff.ReasonCrashLoop,
		prepare: func(s *site) {
			s.host.lives[s.m.To.Home] = life{dies: 50 * time.Millisecond}
			s.switchAfter(time.Second)
		},
	},
	{
		// The upgrade is a manual rollback to the previous version, and is rolled back
		// on request: the request and the record of the previous version are removed.
		name: "request", result: handoff.RolledBack, reason: handoff.ReasonManual,
		prepare: func(s *site) {
			s.must(handoff.WriteVersions(quickDisk{}, s.top, handoff.Versions{OnHost: []handoff.Version{{Install: s.m.To, ReplacedAt: time.Now()}}}))
			s.ask(s.m.To.Home, "Ann asked.")
			s.host.home = s.m.To.Home
		},
	},
	{
		name: "rollback below a prefix", result: handoff.RolledBack, reason: handoff.ReasonCrashLoop,
		prepare: func(s *site) {
			s.useSystem()
			s.host.lives[s.m.To.Home] = life{dies: 50 * time.Millisecond}
			s.switchAfter(time.Second)
		},
	},
	{
		name: "commit below a prefix", result: handoff.Committed,
		prepare: func(s *site) {
			s.useSystem()
			s.m.Rules.Grace = handoff.Duration(20 * time.Second)
			s.must(handoff.WriteMarker(quickDisk{}, s.top, s.m))
			s.install("data/muster-agent-0.9.0-0a0a0a")
			s.switchAfter(time.Second)
		},
	},
}

// operations lists the changes a watch makes to the disk, in order.
func operations(t *testing.T, e ending) []string {
	var ops []string
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		e.prepare(s)
		s.disk = faultDisk{Disk: quickDisk{}, before: func(call, op, path string) error {
			rel, _ := filepath.Rel(s.top, path)
			if !filepath.IsLocal(rel) {
				rel = filepath.Base(path) // beside the configuration
			}
			ops = append(ops, fmt.Sprintf("%s: %s %s", op, call, rel))
			return nil
		}}
		if _, err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wantSettled(e.result, e.home(s))
	})
	return ops
}

type killed struct{}

// runUntilKilled runs a watch that may be killed in it.
func (s *site) runUntilKilled() (err error) {
	defer func() {
		if r := recover(); r != nil {
			if r != any(killed{}) {
				panic(r)
			}
			err = errors.New("killed")
		}
	}()
	_, err = s.run(s.t.Context())
	return err
}

// A watcher that is killed before or after any change to the disk leaves a pointer that
// leads to a program, and the next watcher reaches the same end for the same reason, with
// and without a power cut.
func TestKillAtAnyDiskCallReachesTheSameEnd(t *testing.T) {
	require.Time(t, "kills the watcher at every call")
	for _, e := range endings {
		ops := operations(t, e)
		if len(ops) < 15 {
			t.Fatalf("%s changes the disk %d times only: %v", e.name, len(ops), ops)
		}
		for n, name := range ops {
			for _, when := range []string{"before", "after"} {
				for _, power := range []string{"on", "cut"} {
					t.Run(fmt.Sprintf("%s/%d %s %s/power %s", e.name, n, when, name, power), func(t *testing.T) {
						synctest.Test(t, func(t *testing.T) { killAt(t, e, n, when, power) })
					})
				}
			}
		}
	}
}

func killAt(t *testing.T, e ending, n int, when, power string) {
	s := newSite(t)
	e.prepare(s)
	count := -1
	s.disk = faultDisk{
		Disk: quickDisk{},
		before: func(string, string, string) error {
			if count++; count == n && when == "before" {
				panic(killed{})
			}
			return nil
		},
		after: func(string, string, string) {
			if count == n && when == "after" {
				panic(killed{})
			}
		},
	}
	if err := s.runUntilKilled(); err == nil {
		t.Fatal("the watcher was not killed")
	}
	if _, err := os.Stat(s.roots().Link(layout.AgentLink)); err != nil {
		t.Fatalf("after the kill the pointer leads nowhere: %v", err)
	}
	if power == "cut" {
		s.host.home = ""
	}
	s.disk = quickDisk{}
	pending := s.exists(layout.MarkerFile)
	if _, err := s.run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if power == "cut" && s.host.runs() == "" && (!pending || e.result == handoff.Committed) {
		// Starting an agent whose watch is decided is left to the host.
		_ = s.host.Start()
	}
	if !pending {
		// Killed after the end: a decision without its marker is left.
		s.must(disk.RemoveRecord(quickDisk{}, "test", layout.Path(s.top, layout.DecisionFile)))
	}
	s.wantSettled(e.result, e.home(s))
	o, err := handoff.ReadOutcome(quickDisk{}, s.top)
	if err != nil || (o.Reason != nil && o.Reason.Code != e.reason) {
		t.Errorf("outcome %+v, %v; want reason %q", o, err, e.reason)
	}
	if e.result == handoff.RolledBack && s.exists(s.m.To.Home) {
		t.Error("the bad version is still on the disk")
	}
	if e.result == handoff.Committed && (s.exists("data/muster-agent-0.9.0-0a0a0a") || !s.exists(s.m.From.Home)) {
		t.Error("not exactly the new and the previous version are on the disk")
	}
}

// The same watcher retries an operation that fails once.
func TestFailedDiskCallIsRetried(t *testing.T) {
	require.Time(t, "lets every call fail")
	for _, e := range endings {
		for n, name := range operations(t, e) {
			t.Run(fmt.Sprintf("%s/%d %s", e.name, n, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newSite(t)
					e.prepare(s)
					count := -1
					s.disk = faultDisk{Disk: quickDisk{}, before: func(string, string, string) error {
						if count++; count == n {
							return syscall.EIO
						}
						return nil
					}}
					if _, err := s.run(t.Context()); err != nil {
						t.Fatalf("%v\n%s", err, s.lines)
					}
					s.must(disk.RemoveRecord(quickDisk{}, "test", layout.Path(s.top, layout.DecisionFile)))
					s.wantSettled(e.result, e.home(s))
				})
			})
		}
	}
}

// On a full disk the good version still runs; the next watcher writes the records when there
// is space again.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t)
		endings[1].prepare(s)
		s.must(handoff.ReserveDecision(quickDisk{}, s.top)) // as the agent does
		begun := time.Now()
		s.disk = faultDisk{Disk: quickDisk{}, before: func(call, _, _ string) error {
			if call == "open" && time.Since(begun) > time.Second { // after the watch has begun
				return syscall.ENOSPC
			}
			return nil
		}}
		if _, err := s.run(t.Context()); !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("error is %v, want that the disk is full", err)
		}
		if s.leads(layout.AgentLink) != s.m.From.Home || s.host.runs() != s.m.From.Home {
			t.Fatalf("the pointer leads to %s and %s runs, want the previous version", s.leads(layout.AgentLink), s.host.runs())
		}
		if !s.exists(layout.MarkerFile) {
			t.Fatal("the marker is gone without an outcome")
		}
		s.disk = quickDisk{}
		if _, err := s.run(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.wantSettled(handoff.RolledBack, s.m.From.Home)
		o, err := handoff.ReadOutcome(quickDisk{}, s.top)
		if err != nil || o.Reason.Code != handoff.ReasonCrashLoop || s.exists(s.m.To.Home) {
			t.Errorf("outcome %+v, %v, home there: %v; want the reason of the first watcher, and the home gone", o.Reason, err, s.exists(s.m.To.Home))
		}
	})
}
