package storetest

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func testAgentChanges(t *testing.T, cfg Config) {
	ctx := t.Context()
	s := cfg.open(t)
	// No lock is needed: f is called before the write returns.
	var first, second []string
	states := map[string]uint64{}
	if !s.OnAgentChange(func(changes []store.AgentChange) {
		for _, c := range changes {
			first = append(first, c.AgentID)
			states[c.AgentID] = c.State
		}
	}) {
		return // other processes may write the store, too
	}
	s.OnAgentChange(func(changes []store.AgentChange) {
		for _, c := range changes {
			second = append(second, c.AgentID)
		}
	})
	agents := s.Agents()
	get := func(t *testing.T, id string) fleet.Agent { t.Helper(); return value(agents.Get(ctx, id))(t) }
	renamed := func(t *testing.T, id, version string) fleet.Agent {
		t.Helper()
		a := get(t, id)
		a.Version = version
		return a
	}
	touch := func(id string, after time.Duration, status, message string) fleet.Touch {
		return fleet.Touch{AgentID: id, At: at(after), Status: status, Message: message, ActionSeq: int64(after / time.Second)}
	}

	for _, step := range []struct {
		name  string
		write func(t *testing.T) error
		want  []string
	}{
		{"creating an agent", func(*testing.T) error { return agents.Create(ctx, agent("a")) }, []string{"a"}},
		{"creating another", func(*testing.T) error { return agents.Create(ctx, agent("b")) }, []string{"b"}},
		{"updating a document", func(t *testing.T) error {
			_, err := agents.Update(ctx, renamed(t, "a", "2.0.0"))
			return err
		}, []string{"a"}},
		{"updating a document that then has another access key", func(t *testing.T) error {
			a := get(t, "a")
			a.AccessKeyID = "another key"
			_, err := agents.Update(ctx, a)
			return err
		}, []string{"a"}},
		{"updating many documents", func(t *testing.T) error {
			_, err := agents.UpdateMany(ctx, []fleet.Agent{renamed(t, "b", "2.0.0"), renamed(t, "a", "3.0.0")})
			return err
		}, []string{"a", "b"}},
		{"reporting a document", func(t *testing.T) error {
			a := renamed(t, "a", "4.0.0")
			_, err := agents.Report(ctx, store.Report{Agent: &a})
			return err
		}, []string{"a"}},
		{"reporting a status", func(*testing.T) error {
			seen := touch("a", time.Second, "degraded", "disk is slow")
			_, err := agents.Report(ctx, store.Report{Seen: &seen})
			return err
		}, []string{"a"}},
		{"touching with another status", func(*testing.T) error {
			return agents.Touch(ctx, []fleet.Touch{touch("a", 2*time.Second, "online", "disk is slow"), touch("b", 2*time.Second, "error", "no disk")})
		}, []string{"a", "b"}},
		{"touching with another message", func(*testing.T) error {
			return agents.Touch(ctx, []fleet.Touch{touch("a", 3*time.Second, "online", "disk is fast")})
		}, []string{"a"}},
		{"touching with the same status and message", func(*testing.T) error {
			return agents.Touch(ctx, []fleet.Touch{touch("a", 4*time.Second, "online", "disk is fast"), touch("b", 4*time.Second, "", "")})
		}, nil},
		{"touching with a status that is older than the stored one", func(*testing.T) error {
			return agents.Touch(ctx, []fleet.Touch{touch("a", time.Second, "error", "too late")})
		}, nil},
		{"reporting results and events alone", func(*testing.T) error {
			_, err := agents.Report(ctx, store.Report{
				Results: []fleet.Result{{ActionID: "act", AgentID: "a", Timestamp: at(0)}},
				Events:  []fleet.Event{{At: at(0), Type: "one", Subject: "a"}},
			})
			return err
		}, nil},
		{"deleting an agent", func(*testing.T) error { return agents.Delete(ctx, "b") }, []string{"b"}},
	} {
		t.Run(step.name, func(t *testing.T) {
			first, second = nil, nil
			must(t, step.write(t))
			slices.Sort(first)
			slices.Sort(second)
			if got := slices.Compact(first); !slices.Equal(got, step.want) || !slices.Equal(slices.Compact(second), step.want) {
				t.Errorf("reported %v and %v, want %v", first, second, step.want)
			}
		})
	}

	t.Run("a write that succeeds together with one that fails is reported", func(t *testing.T) {
		first = nil
		a, stale := renamed(t, "a", "5.0.0"), renamed(t, "a", "6.0.0")
		errs := value(agents.UpdateMany(ctx, []fleet.Agent{a, stale}))(t)
		if errs[0] != nil || errs[1] == nil || !slices.Contains(first, "a") {
			t.Errorf("errors are %v, reported %v", errs, first)
		}
	})

	t.Run("State is that of the written document if nothing else was written", func(t *testing.T) {
		a := agent("stable")
		a.Active, a.Version, a.LastHealthyVersion = true, "1.0.0", "1.0.0"
		must(t, agents.Create(ctx, a))
		if got := states["stable"]; got != 0 {
			t.Errorf("after Create, State is %d, want 0", got)
		}
		stable := get(t, "stable")
		want := stable.CheckinState()
		stable.BeginUpgrade("act", "2.0.0", at(0))
		value(agents.UpdateMany(ctx, []fleet.Agent{stable}))(t)
		if got := states["stable"]; got == 0 || got != want {
			t.Errorf("after an order, State is %d, want %d", got, want)
		}
		stable = get(t, "stable")
		seen := touch("stable", time.Minute, "degraded", "disk is slow")
		value(agents.Report(ctx, store.Report{Agent: &stable, Seen: &seen}))(t)
		if got := states["stable"]; got != 0 {
			t.Errorf("after a write of document and status, State is %d, want 0", got)
		}
		stable = get(t, "stable")
		stable.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeDownloading}
		value(agents.Update(ctx, stable))(t)
		if got := states["stable"]; got != 0 {
			t.Errorf("State of an agent with CheckinState 0 is %d, want 0", got)
		}
	})
}
