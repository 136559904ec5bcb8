package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// locationVariable makes a copy of the test program the process to be killed, and tells it
// which store to write to.
const locationVariable = "MUSTER_STORETEST_LOCATION"

func testDurability(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run("writes survive closing and opening", func(t *testing.T) {
		location := cfg.NewLocation(t)
		s, err := cfg.Open(ctx, location)
		must(t, err)
		must(t, s.Agents().Create(ctx, fullAgent("a")))
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Hour), Status: "online"}}))
		seq := value(s.Actions().Create(ctx, upgradeAction("act", "a")))(t)
		must(t, s.Actions().Cancel(ctx, "act", base))
		value(s.Results().Put(ctx, []fleet.Result{result("act", "a", "", time.Second)}))(t)
		must(t, s.Policies().Create(ctx, fleet.Policy{ID: "p"}))
		must(t, s.Events().Append(ctx, []fleet.Event{event(1)}))
		value(s.Settings().GetOrPut(ctx, "key", []byte("v")))(t)
		must(t, s.Rollouts().Create(ctx, rollout("r", fleet.RolloutRunning)))
		must(t, s.Targets().Create(ctx, []fleet.Target{fullTarget("r", "a")}))
		must(t, s.Audit().Append(ctx, []fleet.AuditEntry{auditEntry("e", "r", 0)}))
		targetBefore := value(s.Targets().Get(ctx, "r", "a"))(t)
		before := value(s.Agents().Get(ctx, "a"))(t)
		must(t, s.Close())

		s = cfg.reopen(t, location)
		after := value(s.Agents().Get(ctx, "a"))(t)
		sameAgent(t, after, before)
		if after.Revision != before.Revision {
			t.Fatalf("revision is %d, want %d", after.Revision, before.Revision)
		}
		act := value(s.Actions().Get(ctx, "act"))(t)
		if act.Seq != seq || act.CancelledAt == nil {
			t.Fatalf("the action is %+v", act)
		}
		if next := value(s.Actions().Create(ctx, upgradeAction("next", "a")))(t); next <= seq {
			t.Fatalf("Seq is %d, want one above %d", next, seq)
		}
		value(s.Results().Get(ctx, "act", "a"))(t)
		value(s.Policies().Get(ctx, "p"))(t)
		cfg.eventually(t, func() error {
			list, err := s.Events().After(ctx, 0, 9)
			if err != nil || len(list) != 1 {
				return fmt.Errorf("%d events, want 1: %w", len(list), err)
			}
			return nil
		})
		equal(t, value(s.Rollouts().Get(ctx, "r"))(t), rollout("r", fleet.RolloutRunning))
		if got := value(s.Targets().Get(ctx, "r", "a"))(t); got.Revision != targetBefore.Revision {
			t.Fatalf("revision of the target is %d, want %d", got.Revision, targetBefore.Revision)
		}
		cfg.eventually(t, func() error {
			list, total, err := s.Audit().List(ctx, store.AuditQuery{Subject: "r", Limit: 9})
			if total != 1 || len(list) != 1 {
				err = fmt.Errorf("%d of %d audit entries, want 1: %w", len(list), total, err)
			}
			return err
		})
		if v := value(s.Settings().GetOrPut(ctx, "key", []byte("other")))(t); string(v) != "v" {
			t.Fatalf("the setting is %q", v)
		}
	})

	t.Run("calls after Close fail as Unavailable", func(t *testing.T) {
		s, err := cfg.Open(ctx, cfg.NewLocation(t))
		must(t, err)
		must(t, s.Ping(ctx))
		must(t, s.Close())
		wantKind(t, s.Ping(ctx), fleet.Unavailable)
		wantKind(t, s.Agents().Create(ctx, agent("a")), fleet.Unavailable)
		_, err = s.Agents().Get(ctx, "a")
		wantKind(t, err, fleet.Unavailable)
		_, err = s.Actions().Create(ctx, upgradeAction("act", "a"))
		wantKind(t, err, fleet.Unavailable)
		_, _, err = s.Agents().List(ctx, store.AgentQuery{Limit: 1})
		wantKind(t, err, fleet.Unavailable)
	})

	t.Run("closing during writes loses no write that returned nil", func(t *testing.T) {
		location := cfg.NewLocation(t)
		s, err := cfg.Open(ctx, location)
		must(t, err)
		var mu sync.Mutex
		var written []string
		var all sync.WaitGroup
		begun := make(chan struct{}, 100)
		for w := range 4 {
			all.Go(func() {
				for i := 0; ; i++ {
					id := fmt.Sprintf("w%d-%d", w, i)
					if err := s.Agents().Create(ctx, agent(id)); err != nil {
						wantClosed(t, err)
						return
					}
					mu.Lock()
					written = append(written, id)
					mu.Unlock()
					select {
					case begun <- struct{}{}:
					default:
					}
				}
			})
		}
		for range 20 {
			<-begun
		}
		must(t, s.Close())
		all.Wait()
		list := value(cfg.reopen(t, location).Agents().GetMany(ctx, written))(t)
		if len(list) != len(written) {
			t.Fatalf("%d of %d agents are stored", len(list), len(written))
		}
	})

	t.Run("killing a process during writes loses no write that returned nil", func(t *testing.T) {
		if location := os.Getenv(locationVariable); location != "" {
			writeUntilKilled(t, cfg, location)
			return
		}
		for round := range 3 {
			written, location := killAWriter(t, cfg)
			s := cfg.reopen(t, location)
			for _, id := range written {
				checkWritten(t, s, id)
			}
			if len(written) < 20 {
				t.Fatalf("round %d: only %d writes before the kill", round, len(written))
			}
			// The dead process must not hold a lock that blocks other writers.
			must(t, s.Agents().Create(ctx, agent("after")))
		}
	})
}

func wantClosed(t *testing.T, err error) {
	if fleet.KindOf(err) != fleet.Unavailable {
		t.Errorf("error is %v (%s), want one of kind %s", err, fleet.KindOf(err), fleet.Unavailable)
	}
}

// writeUntilKilled writes from several goroutines and prints the id of each write that
// returned nil.
func writeUntilKilled(t *testing.T, cfg Config, location string) {
	s, err := cfg.Open(t.Context(), location)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // in case it is not killed
	defer cancel()
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				id := fmt.Sprintf("w%d-%d", w, i)
				if err := writeAll(ctx, s, id); err != nil {
					t.Error(err)
					return
				}
				fmt.Printf("written %s\n", id)
			}
		})
	}
	all.Wait()
}

// writeAll writes a document of each kind.
func writeAll(ctx context.Context, s store.Store, id string) error {
	if err := s.Agents().Create(ctx, agent(id)); err != nil {
		return err
	}
	if _, err := store.UpdateAgent(ctx, s.Agents(), id, func(a *fleet.Agent) bool { a.Version = "2.0.0"; return true }); err != nil {
		return err
	}
	if _, err := s.Actions().Create(ctx, upgradeAction(id, id)); err != nil {
		return err
	}
	if _, err := s.Results().Put(ctx, []fleet.Result{result(id, id, "", 0)}); err != nil {
		return err
	}
	if err := s.Policies().Create(ctx, fleet.Policy{ID: id}); err != nil {
		return err
	}
	if err := s.Rollouts().Create(ctx, rollout(id, fleet.RolloutRunning)); err != nil {
		return err
	}
	if err := s.Targets().Create(ctx, []fleet.Target{target(id, "x", 0), target(id, "y", 1)}); err != nil {
		return err
	}
	list, err := s.Targets().GetMany(ctx, id, []string{"x", "y"})
	if err != nil {
		return err
	}
	for i := range list {
		list[i].State = fleet.TargetOffered
	}
	if _, errs, err := s.Targets().UpdateMany(ctx, list); err != nil || errors.Join(errs...) != nil {
		return errors.Join(append(errs, err)...)
	}
	if err := s.Audit().Append(ctx, []fleet.AuditEntry{auditEntry(id, id, 0)}); err != nil {
		return err
	}
	return s.Agents().Touch(ctx, []fleet.Touch{{AgentID: id, At: base, Status: "online"}})
}

// checkWritten fails the test unless all writes of writeAll are stored.
func checkWritten(t *testing.T, s store.Store, id string) {
	t.Helper()
	ctx := t.Context()
	a := value(s.Agents().Get(ctx, id))(t)
	if a.Version != "2.0.0" || a.Last.Status != "online" {
		t.Fatalf("agent %s is at version %q with status %q", id, a.Version, a.Last.Status)
	}
	value(s.Actions().Get(ctx, id))(t)
	value(s.Results().Get(ctx, id, id))(t)
	value(s.Policies().Get(ctx, id))(t)
	value(s.Rollouts().Get(ctx, id))(t)
	for _, name := range []string{"x", "y"} {
		if v := value(s.Targets().Get(ctx, id, name))(t); v.State != fleet.TargetOffered {
			t.Fatalf("target %s:%s is %s", id, name, v.State)
		}
	}
	list, _, err := s.Audit().List(ctx, store.AuditQuery{Subject: id, Limit: 9})
	must(t, err)
	equal(t, list, []fleet.AuditEntry{auditEntry(id, id, 0)})
}

// killAWriter runs this test in a second process, kills it during its writes and returns the
// ids that it had written.
func killAWriter(t *testing.T, cfg Config) (written []string, location string) {
	t.Helper()
	location = cfg.NewLocation(t)
	self, err := os.Executable()
	must(t, err)
	parts := strings.Split(t.Name(), "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	child := exec.CommandContext(t.Context(), self, "-test.run", strings.Join(parts, "/"), "-test.timeout", "2m") //nolint:gosec // this program
	child.Env = append(os.Environ(), locationVariable+"="+location)
	child.Stderr = os.Stderr
	out, err := child.StdoutPipe()
	must(t, err)
	must(t, child.Start())
	lines := bufio.NewScanner(out)
	var other []string
	for lines.Scan() {
		id, ok := strings.CutPrefix(lines.Text(), "written ")
		if !ok {
			other = append(other, lines.Text())
			continue
		}
		if written = append(written, id); len(written) == 20 {
			must(t, child.Process.Kill())
		}
	}
	if err := child.Wait(); err == nil || errors.Is(err, context.Canceled) {
		t.Fatalf("the writer exited before it was killed, after %d writes: %v\n%s", len(written), err, strings.Join(other, "\n"))
	}
	if len(written) == 0 {
		t.Fatalf("the writer wrote nothing:\n%s", strings.Join(other, "\n"))
	}
	return written, location
}
