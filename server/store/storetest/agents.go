package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func agent(id string) fleet.Agent {
	return fleet.Agent{ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", AccessKeyID: "key-" + id, EnrolledAt: base, Version: "1.0.0", Tags: []string{}}
}

// fullAgent has a value in every field.
func fullAgent(id string) fleet.Agent {
	a := agent(id)
	a.PolicyRev, a.EnrollmentID, a.ReplaceTokenHash, a.AccessKeyHash = 4, "enrolment", "aa", "bb"
	a.PolicyCoordinator = new(int64(1))
	a.WatcherKeyID, a.WatcherKeyHash = "watcher", "cc"
	a.UnenrolledAt, a.UnenrolledReason = atPtr(time.Hour), "manual"
	a.UnenrollmentStartedAt = atPtr(time.Minute)
	a.AuditUnenrolledReason, a.AuditUnenrolledTime = "uninstall", atPtr(2*time.Hour)
	a.OrdersEndedAt = atPtr(3 * time.Hour)
	a.Last = fleet.LastSeen{At: atPtr(time.Second + 250*time.Millisecond), Status: "degraded", Message: "half of it runs <&> äöü", ActionSeq: 1 << 40}
	a.LocalMetadata = json.RawMessage(`{"host": {"hostname": "db-1"}, "elastic": {"agent": {"upgradeable": true}}, "n": 12345678901234}`)
	a.UserMetadata = json.RawMessage(`{"rack": "<4>"}`)
	a.Components = json.RawMessage(`[{"id":"logs","status":"HEALTHY"}]`)
	a.ComponentUpgrades = map[string]fleet.ComponentUpgrade{"web": {Upgrade: fleet.Upgrade{UpgradeActionID: "web-act", UpgradeTo: "2.5.0", UpgradeFrom: "2.4.0", UpgradeStartedAt: atPtr(time.Hour), UpgradeStatus: fleet.UpgradeStarted}}}
	a.ComponentActions, a.ComponentsSince = []string{"web-act"}, atPtr(time.Hour)
	a.UnhealthyReason = []string{"output", "other"}
	a.Tags = []string{"prod", "db"}
	a.UpgradeStartedAt, a.UpgradeStatus = atPtr(3*time.Minute), fleet.UpgradeStarted
	a.UpgradeActionID, a.UpgradeTo, a.UpgradeFrom = "act", "1.1.0", "1.0.0"
	a.UpgradeLog = fleet.UpgradeLog{
		UpgradeBy: "ann", UpgradeRollout: &fleet.RolloutRef{ID: "r", Name: "web"}, UpgradeWhy: "it is late", UpgradeEndedAt: atPtr(4 * time.Minute), UpgradeEndText: "It left.",
		UpgradePhases: []fleet.Phase{{State: fleet.ProgressSent, At: at(3 * time.Minute)}, {State: fleet.ProgressScheduled, At: at(4 * time.Minute), Text: "no route"}},
	}
	a.UpgradeRollback, a.UpgradeEndReported, a.UpgradedAt = true, true, atPtr(4*time.Minute)
	a.Undoes = &fleet.UndoneUpgrade{ActionID: "before", From: "0.9.0", To: "1.0.0", StartedAt: atPtr(time.Minute)}
	a.Kept.Rollbacks = []agentapi.Rollback{{Version: "0.9.0", ValidUntil: at(time.Hour)}}
	a.StagedVersions = []string{"1.2.0", "web 2.5.0"}
	a.FailedVersions = []fleet.FailedVersion{{Version: "1.0.5", At: at(8 * time.Minute), ActionID: "earlier", Reason: "it crashed"}}
	a.Diagnostics = []fleet.DiagnosticsRequest{{ActionID: "diagnose", At: at(9 * time.Minute), Until: at(10 * time.Minute)}}
	a.VersionSince, a.HealthySince = atPtr(5*time.Minute), atPtr(6*time.Minute)
	a.LastHealthyVersion, a.UsualGap = "0.9.0", fleet.Duration(90*time.Second)
	a.Bearers = []fleet.Bearer{{MachineID: "machine", BootID: "boot", ProcessID: "process", Hostname: "db-1", Version: "1.0.0", Since: at(time.Minute), Again: at(time.Hour)}}
	a.SharedSince, a.NewHostSince = atPtr(time.Hour), atPtr(2*time.Hour)
	a.Watch = &fleet.Watch{ReceivedAt: at(7 * time.Minute)}
	a.UpgradeDetails = &agentapi.UpgradeDetails{
		TargetVersion: "1.1.0", ActionID: "act", State: agentapi.UpgradeDownloading,
		Metadata: agentapi.UpgradeMetadata{DownloadPercent: 12.5, DownloadRate: 1000, RetryUntil: atPtr(time.Hour)},
	}
	return a
}

// sameAgent compares everything except the revision, including what is not in the JSON.
func sameAgent(t *testing.T, got, want fleet.Agent) {
	t.Helper()
	equal(t, got, want)
	equal(t, got.Last, want.Last)
	equal(t, got.Facts(), want.Facts())
}

func testAgents(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run("fullAgent sets every field", func(t *testing.T) {
		v := reflect.ValueOf(fullAgent("a"))
		for _, v := range []reflect.Value{v, v.FieldByName("Last")} {
			for i := range v.NumField() {
				if name := v.Type().Field(i).Name; v.Field(i).IsZero() && name != "Revision" && v.Type().Field(i).IsExported() {
					t.Errorf("%s is not set", name)
				}
			}
		}
	})

	t.Run("Get returns the stored agent", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		for _, want := range []fleet.Agent{fullAgent("full"), agent("plain"), {ID: "bare", AccessKeyID: "key-bare"}} {
			must(t, agents.Create(ctx, want))
			got := value(agents.Get(ctx, want.ID))(t)
			sameAgent(t, got, want)
			sameAgent(t, value(agents.ByAccessKey(ctx, want.AccessKeyID))(t), want)

			got.Version, got.Tags, got.UpgradeDetails = "1.1.0", nil, nil
			rev := value(agents.Update(ctx, got))(t)
			again := value(agents.Get(ctx, want.ID))(t)
			sameAgent(t, again, got)
			if again.Revision != rev || rev == got.Revision {
				t.Fatalf("revision is %d, Update returned %d, before it was %d", again.Revision, rev, got.Revision)
			}
		}
	})

	t.Run("the store does not share values with its caller", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		mine := fullAgent("a")
		must(t, agents.Create(ctx, mine))
		modify := func(a fleet.Agent) {
			a.Tags[0] = "modified"
			a.LocalMetadata[2] = 'X'
			*a.UpgradeStartedAt = base.Add(-time.Hour)
			*a.Last.At = base.Add(-time.Hour)
			a.UpgradeDetails.ActionID = "modified"
		}
		modify(mine)
		sameAgent(t, value(agents.Get(ctx, "a"))(t), fullAgent("a"))
		modify(value(agents.Get(ctx, "a"))(t))
		sameAgent(t, value(agents.Get(ctx, "a"))(t), fullAgent("a"))
	})

	t.Run("Create refuses an existing id or access key", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		must(t, agents.Create(ctx, agent("a")))
		same := agent("a")
		same.AccessKeyID = "another"
		wantKind(t, agents.Create(ctx, same), fleet.Conflict)
		thief := agent("b")
		thief.AccessKeyID = "key-a"
		wantKind(t, agents.Create(ctx, thief), fleet.Conflict)
		_, err := agents.Get(ctx, "b")
		wantKind(t, err, fleet.NotFound)
		_, err = agents.ByAccessKey(ctx, "another")
		wantKind(t, err, fleet.NotFound)
		sameAgent(t, value(agents.ByAccessKey(ctx, "key-a"))(t), agent("a"))
	})

	t.Run("ByAccessKey finds an agent by its new key, not by its old one", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		must(t, agents.Create(ctx, agent("a")))
		a := value(agents.Get(ctx, "a"))(t)
		a.AccessKeyID = "new"
		value(agents.Update(ctx, a))(t)
		sameAgent(t, value(agents.ByAccessKey(ctx, "new"))(t), a)
		_, err := agents.ByAccessKey(ctx, "key-a")
		wantKind(t, err, fleet.NotFound)
		b := agent("b") // may use the old key
		b.AccessKeyID = "key-a"
		must(t, agents.Create(ctx, b))
	})

	t.Run("a missing agent is NotFound", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		_, err := agents.Get(ctx, "nobody")
		wantKind(t, err, fleet.NotFound)
		_, err = agents.ByAccessKey(ctx, "nothing")
		wantKind(t, err, fleet.NotFound)
		_, err = agents.ByAccessKey(ctx, "")
		wantKind(t, err, fleet.NotFound)
		_, err = agents.Update(ctx, agent("nobody"))
		wantKind(t, err, fleet.NotFound)
		must(t, agents.Delete(ctx, "nobody"))
	})

	t.Run("GetMany returns agents in the requested order without missing ones", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		for _, id := range []string{"a", "b", "c"} {
			must(t, agents.Create(ctx, agent(id)))
		}
		for _, tc := range [][2][]string{
			{{"c", "nobody", "a"}, {"c", "a"}},
			{{"nobody"}, {}},
			{nil, {}},
		} {
			equal(t, ids(value(agents.GetMany(ctx, tc[0]))(t)), tc[1])
		}
	})

	t.Run("Update with an outdated revision is refused", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		must(t, agents.Create(ctx, agent("a")))
		mine := value(agents.Get(ctx, "a"))(t)
		theirs := mine
		theirs.Version = "2.0.0"
		value(agents.Update(ctx, theirs))(t)
		mine.Version = "3.0.0"
		_, err := agents.Update(ctx, mine)
		wantKind(t, err, fleet.Conflict)
		if v := value(agents.Get(ctx, "a"))(t).Version; v != "2.0.0" {
			t.Fatalf("version is %s: the refused change was stored", v)
		}
	})

	t.Run("Update with the revision of a deleted agent does not overwrite its successor", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		must(t, agents.Create(ctx, agent("a")))
		old := value(agents.Get(ctx, "a"))(t)
		must(t, agents.Delete(ctx, "a"))
		must(t, agents.Delete(ctx, "a"))
		_, err := agents.Get(ctx, "a")
		wantKind(t, err, fleet.NotFound)
		_, err = agents.ByAccessKey(ctx, "key-a")
		wantKind(t, err, fleet.NotFound)
		must(t, agents.Create(ctx, agent("a")))
		_, err = agents.Update(ctx, old)
		wantKind(t, err, fleet.Conflict)
	})

	t.Run("UpdateMany returns an error for each agent", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		for _, id := range []string{"a", "b", "c"} {
			must(t, agents.Create(ctx, agent(id)))
		}
		list := value(agents.GetMany(ctx, []string{"a", "b", "c"}))(t)
		value(agents.Update(ctx, list[1]))(t) // makes the revision of b outdated
		for i := range list {
			list[i].Version = "2.0.0"
		}
		errs := value(agents.UpdateMany(ctx, []fleet.Agent{list[0], list[1], agent("nobody"), list[2]}))(t)
		if len(errs) != 4 || errs[0] != nil || errs[3] != nil {
			t.Fatalf("errors are %v", errs)
		}
		wantKind(t, errs[1], fleet.Conflict)
		wantKind(t, errs[2], fleet.NotFound)
		var versions []string
		for _, a := range value(agents.GetMany(ctx, []string{"a", "b", "c"}))(t) {
			versions = append(versions, a.Version)
		}
		equal(t, versions, []string{"2.0.0", "1.0.0", "2.0.0"})
		if errs := value(agents.UpdateMany(ctx, nil))(t); len(errs) != 0 {
			t.Fatalf("UpdateMany without agents returned %v", errs)
		}
	})

	t.Run("queries find agents that UpdateMany has marked", func(t *testing.T) {
		s := cfg.open(t)
		agents := s.Agents()
		for _, id := range []string{"d", "a", "c", "b", "e", "f"} {
			a := agent(id)
			a.LocalMetadata, a.Tags = json.RawMessage(`{"host": {"hostname": "host-`+id+`"}}`), []string{"site=" + id}
			must(t, agents.Create(ctx, a))
		}
		update := func(ids []string, change func(*fleet.Agent)) {
			t.Helper()
			list := value(agents.GetMany(ctx, ids))(t)
			for i := range list {
				change(&list[i])
			}
			must(t, errors.Join(value(agents.UpdateMany(ctx, list))(t)...))
		}
		want := func(query string, ids ...string) {
			t.Helper()
			f := value(kql.Compile(query, fleet.AgentSchema(nil), base))(t)
			cfg.eventually(t, func() error {
				got := []string{}
				err := agents.Each(ctx, store.AgentFilter{Query: f}, func(a fleet.Agent) { got = append(got, a.ID) })
				slices.Sort(got)
				return errors.Join(err, differs(got, append([]string{}, ids...)))
			})
		}
		update([]string{"f", "b", "a", "c"}, func(a *fleet.Agent) { a.BeginUpgrade("act", "2.0.0", at(time.Minute)) })
		want("upgrade_started_at: *", "a", "b", "c", "f")
		want("upgrade_status: started and local_metadata.host.hostname.keyword: host-b and tags: site*", "b")
		// One upgrade ends, one is cancelled, one makes progress, one begins, another field
		// changes, and f stays the same.
		update([]string{"f", "e", "d", "c", "b", "a"}, func(a *fleet.Agent) {
			switch a.ID {
			case "a":
				a.Version = "2.0.0"
				a.ObserveAck("act", "", false, at(2*time.Minute))
			case "b":
				a.CancelUpgrade("act", at(3*time.Minute))
			case "c":
				a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeDownloading, ActionID: "act"}
			case "d":
				a.BeginUpgrade("other", "2.0.0", at(time.Second))
			case "e":
				a.Tags = []string{"site=other"}
			}
		})
		want("upgrade_started_at: *", "c", "d", "f")
		want("upgraded_at: *", "a")
		want("agent.version > 1.5.0", "a")
		want("tags: site=other", "e")
		want("upgrade_details.state: *", "c")
		cfg.eventually(t, func() error {
			got, err := agents.Upgrading(ctx, store.UpgradingSince{}, 9)
			if err != nil {
				return err
			}
			return differs(ids(got), []string{"d", "c", "f"})
		})
	})

	t.Run("an update that reverts an earlier one is stored", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		must(t, agents.Create(ctx, agent("a")))
		a := value(agents.Get(ctx, "a"))(t)
		before := a
		a.PolicyID, a.Tags = "other", []string{"x"}
		a.Revision = value(agents.Update(ctx, a))(t)
		before.Revision = a.Revision // without reading the agent again
		value(agents.Update(ctx, before))(t)
		sameAgent(t, value(agents.Get(ctx, "a"))(t), agent("a"))
		cfg.eventually(t, func() error {
			_, n, err := agents.List(ctx, store.AgentQuery{AgentFilter: store.AgentFilter{PolicyID: "default"}})
			return errors.Join(err, differs(n, 1))
		})
	})

	t.Run("Sorted returns all ids, those without an agent last", func(t *testing.T) {
		agents := cfg.open(t).Agents()
		requested := []string{"c", "a", "b", "nobody"}
		for _, id := range []string{"b", "c", "a"} {
			must(t, agents.Create(ctx, agent(id)))
		}
		got := value(agents.Sorted(ctx, requested))(t)
		if len(got) != 4 || got[3] != "nobody" {
			t.Errorf("the order is %v", got)
		}
		equal(t, slices.Sorted(slices.Values(got)), []string{"a", "b", "c", "nobody"})
		equal(t, requested, []string{"c", "a", "b", "nobody"})
	})

	t.Run("of agents that replace each other at once the last one stays", func(t *testing.T) {
		stores := cfg.openTwice(t)
		const callers = 20
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				a := agent("a")
				a.AccessKeyID, a.Last.ActionSeq = fmt.Sprint("key-", i), 7
				if err := store.CreateOrReplace(ctx, stores[i%2].Agents(), a, func(fleet.Agent) error { return nil }); err != nil {
					t.Errorf("caller %d: %v", i, err)
				}
			})
		}
		all.Wait()
		agents := stores[0].Agents()
		a := value(agents.Get(ctx, "a"))(t)
		if a.Last.ActionSeq != 7 {
			t.Errorf("the agent is %+v", a.Last)
		}
		for i := range callers {
			key := fmt.Sprint("key-", i)
			switch found, err := agents.ByAccessKey(ctx, key); {
			case key == a.AccessKeyID && (err != nil || found.ID != "a"):
				t.Errorf("its key finds %+v, %v", found, err)
			case key != a.AccessKeyID && fleet.KindOf(err) != fleet.NotFound:
				t.Errorf("%s, which was replaced, finds %+v, %v", key, found, err)
			}
		}
		cfg.eventually(t, func() error {
			_, n, err := agents.List(ctx, store.AgentQuery{})
			return errors.Join(err, differs(n, 1))
		})
		refused := fleet.Errorf(fleet.Forbidden, "no")
		if err := store.CreateOrReplace(ctx, agents, agent("a"), func(fleet.Agent) error { return refused }); !errors.Is(err, refused) {
			t.Errorf("a refused replacement returns %v", err)
		}
		sameAgent(t, value(agents.Get(ctx, "a"))(t), a)
	})

	t.Run("concurrent updates from two processes are all stored", func(t *testing.T) {
		stores := cfg.openTwice(t)
		must(t, stores[0].Agents().Create(ctx, agent("a")))
		const writers, each = 8, 10
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for range each {
					if err := countUp(ctx, stores[w%2].Agents(), "a"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		for _, s := range stores {
			if n := value(s.Agents().Get(ctx, "a"))(t).PolicyRev; n != writers*each {
				t.Fatalf("%d of %d changes are stored", n, writers*each)
			}
		}
	})

	t.Run("calls with a cancelled context fail as Unavailable", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err := s.Agents().Get(cancelled, "a")
		wantCanceled(t, err)
		wantCanceled(t, s.Agents().Create(cancelled, agent("b")))
		_, _, err = s.Agents().List(cancelled, store.AgentQuery{Limit: 1})
		wantCanceled(t, err)
		must(t, s.Ping(ctx)) // other callers are not affected
		must(t, s.Agents().Create(ctx, agent("c")))
	})
}

func wantCanceled(t *testing.T, err error) {
	t.Helper()
	wantKind(t, err, fleet.Unavailable)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v does not wrap context.Canceled", err)
	}
}

func ids(list []fleet.Agent) []string {
	out := []string{}
	for _, a := range list {
		out = append(out, a.ID)
	}
	return out
}

// countUp increments PolicyRev and retries after conflicts.
func countUp(ctx context.Context, agents store.Agents, id string) error {
	const tries = 1000 // more than the conflicts that 80 concurrent changes can cause
	for range tries {
		a, err := agents.Get(ctx, id)
		if err != nil {
			return err
		}
		a.PolicyRev++
		_, err = agents.Update(ctx, a)
		if fleet.KindOf(err) != fleet.Conflict || err == nil {
			return err
		}
	}
	return fmt.Errorf("%d conflicts", tries)
}

func testTouch(t *testing.T, cfg Config) {
	ctx := t.Context()
	lastOf := func(t *testing.T, s store.Store, id string, want fleet.LastSeen) {
		t.Helper()
		equal(t, value(s.Agents().Get(ctx, id))(t).Last, want)
	}

	t.Run("a touch sets the time, and status and message if it has a status", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		lastOf(t, s, "a", fleet.LastSeen{})
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Second), Status: "online", Message: "all well"}}))
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(time.Second), Status: "online", Message: "all well"})
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(2 * time.Second)}}))
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(2 * time.Second), Status: "online", Message: "all well"})
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(3 * time.Second), Status: "error"}}))
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(3 * time.Second), Status: "error"})
	})

	t.Run("a touch older than the stored one is ignored", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		now := fleet.Touch{AgentID: "a", At: at(time.Minute), Status: "online", Message: "new"}
		must(t, s.Agents().Touch(ctx, []fleet.Touch{now}))
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Second), Status: "error", Message: "old"}}))
		must(t, s.Agents().Touch(ctx, []fleet.Touch{now})) // repeated, as after an unclear error
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(time.Minute), Status: "online", Message: "new"})
	})

	t.Run("the later of two touches of an agent in a batch is stored", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		must(t, s.Agents().Touch(ctx, []fleet.Touch{
			{AgentID: "a", At: at(2 * time.Second), Status: "degraded"}, {AgentID: "a", At: at(time.Second), Status: "online"},
		}))
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(2 * time.Second), Status: "degraded"})
	})

	t.Run("touches of unknown agents are ignored", func(t *testing.T) {
		s := cfg.open(t)
		var touches []fleet.Touch
		for i := range 50 {
			id := fmt.Sprintf("agent-%02d", i)
			if i%5 != 0 {
				must(t, s.Agents().Create(ctx, agent(id)))
			}
			touches = append(touches, fleet.Touch{AgentID: id, At: at(time.Duration(i) * time.Second), Status: "online"})
		}
		must(t, s.Agents().Touch(ctx, touches))
		must(t, s.Agents().Touch(ctx, nil))
		for i, touch := range touches {
			a, err := s.Agents().Get(ctx, touch.AgentID)
			if i%5 == 0 {
				wantKind(t, err, fleet.NotFound)
				continue
			}
			must(t, err)
			equal(t, a.Last, fleet.LastSeen{At: &touch.At, Status: "online"})
		}
	})

	t.Run("a touch and an update do not overwrite each other", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		a := value(s.Agents().Get(ctx, "a"))(t)
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Second), Status: "online"}}))
		if rev := value(s.Agents().Get(ctx, "a"))(t).Revision; rev != a.Revision {
			t.Fatalf("a touch changed the revision from %d to %d", a.Revision, rev)
		}
		a.Version = "2.0.0" // in an agent that was read before the touch
		value(s.Agents().Update(ctx, a))(t)
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(time.Second), Status: "online"})
	})

	t.Run("an agent that was deleted and created again can be touched", func(t *testing.T) {
		stores := cfg.openTwice(t)
		s, other := stores[0], stores[1]
		must(t, s.Agents().Create(ctx, agent("a")))
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Minute), Status: "error", ActionSeq: 9}}))
		must(t, other.Agents().Delete(ctx, "a"))
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(2 * time.Minute), Status: "error", ActionSeq: 9}}))
		must(t, other.Agents().Create(ctx, agent("a")))
		lastOf(t, s, "a", fleet.LastSeen{})
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Second), Status: "online", ActionSeq: 5}}))
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(time.Second), Status: "online", ActionSeq: 5})
	})

	t.Run("ActionSeq only grows, whatever the time of the touch", func(t *testing.T) {
		s := cfg.open(t)
		enrolled := agent("a")
		enrolled.Last.ActionSeq = 3
		must(t, s.Agents().Create(ctx, enrolled))
		lastOf(t, s, "a", fleet.LastSeen{ActionSeq: 3})
		for _, step := range []struct {
			name    string
			touches []fleet.Touch
			want    fleet.LastSeen
		}{
			{"only a number, before the first check-in", []fleet.Touch{{ActionSeq: 4}}, fleet.LastSeen{ActionSeq: 4}},
			{"neither time nor number", []fleet.Touch{{Status: "error", Message: "without a time"}}, fleet.LastSeen{ActionSeq: 4}},
			{"a check-in without a number", []fleet.Touch{{At: at(time.Minute), Status: "online"}}, fleet.LastSeen{At: atPtr(time.Minute), Status: "online", ActionSeq: 4}},
			{"a higher number", []fleet.Touch{{At: at(2 * time.Minute), ActionSeq: 6}}, fleet.LastSeen{At: atPtr(2 * time.Minute), Status: "online", ActionSeq: 6}},
			{"a lower number", []fleet.Touch{{At: at(3 * time.Minute), Status: "degraded", ActionSeq: 5}}, fleet.LastSeen{At: atPtr(3 * time.Minute), Status: "degraded", ActionSeq: 6}},
			{"a higher number in an older touch", []fleet.Touch{{At: at(time.Second), Status: "error", ActionSeq: 8}}, fleet.LastSeen{At: atPtr(3 * time.Minute), Status: "degraded", ActionSeq: 8}},
			{"the same again", []fleet.Touch{{At: at(time.Second), Status: "error", ActionSeq: 8}}, fleet.LastSeen{At: atPtr(3 * time.Minute), Status: "degraded", ActionSeq: 8}},
			{"a lower number in an older touch", []fleet.Touch{{At: at(time.Second), ActionSeq: 7}}, fleet.LastSeen{At: atPtr(3 * time.Minute), Status: "degraded", ActionSeq: 8}},
			{
				"several, the oldest with the highest number",
				[]fleet.Touch{{At: at(4 * time.Minute), ActionSeq: 9}, {At: at(time.Minute), ActionSeq: 1 << 40}, {At: at(2 * time.Minute), ActionSeq: 10}},
				fleet.LastSeen{At: atPtr(4 * time.Minute), Status: "degraded", ActionSeq: 1 << 40},
			},
		} {
			for i := range step.touches {
				step.touches[i].AgentID = "a"
			}
			must(t, s.Agents().Touch(ctx, step.touches))
			got := value(s.Agents().Get(ctx, "a"))(t)
			if err := differs(got.Last, step.want); err != nil {
				t.Errorf("%s: %v", step.name, err)
			}
			if again := value(s.Agents().ByAccessKey(ctx, "key-a"))(t); again.Last.ActionSeq != got.Last.ActionSeq {
				t.Errorf("%s: ByAccessKey returns ActionSeq %d", step.name, again.Last.ActionSeq)
			}
		}
	})

	t.Run("a write of the document does not change ActionSeq", func(t *testing.T) {
		s := cfg.open(t)
		must(t, s.Agents().Create(ctx, agent("a")))
		for i, change := range []func(fleet.Agent) error{
			func(a fleet.Agent) error { _, err := s.Agents().Update(ctx, a); return err },
			func(a fleet.Agent) error {
				errs, err := s.Agents().UpdateMany(ctx, []fleet.Agent{a})
				return errors.Join(append(errs, err)...)
			},
			func(a fleet.Agent) error { _, err := s.Agents().Report(ctx, store.Report{Agent: &a}); return err },
			func(a fleet.Agent) error {
				_, err := s.Agents().Report(ctx, store.Report{Agent: &a, Seen: &fleet.Touch{AgentID: "a", ActionSeq: 1}})
				return err
			},
		} {
			a := value(s.Agents().Get(ctx, "a"))(t)
			seq := int64(10 * (i + 1))
			must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at(time.Second), ActionSeq: seq}}))
			a.PolicyRev = seq // in an agent that was read before the touch
			must(t, change(a))
			a = value(s.Agents().Get(ctx, "a"))(t)
			a.Last.ActionSeq = 1000 // must be ignored
			must(t, change(a))
			if a = value(s.Agents().Get(ctx, "a"))(t); a.Last.ActionSeq != seq || a.PolicyRev != seq {
				t.Errorf("change %d: ActionSeq is %d and policy revision %d, want %d", i, a.Last.ActionSeq, a.PolicyRev, seq)
			}
		}
		a := value(s.Agents().Get(ctx, "a"))(t)
		value(s.Agents().Report(ctx, store.Report{Agent: &a, Seen: &fleet.Touch{AgentID: "a", ActionSeq: 77}}))(t)
		lastOf(t, s, "a", fleet.LastSeen{At: atPtr(time.Second), ActionSeq: 77})
	})

	t.Run("concurrent touches and updates from two processes leave the highest ActionSeq", func(t *testing.T) {
		stores := cfg.openTwice(t)
		must(t, stores[0].Agents().Create(ctx, agent("a")))
		const writers, each = 4, 6
		var all sync.WaitGroup
		for w := range writers {
			agents := stores[w%2].Agents()
			all.Go(func() {
				for n := range each {
					// One process sends the higher numbers, the other the later times.
					touch := fleet.Touch{AgentID: "a", At: at(time.Duration(w%2*each+n) * time.Second), ActionSeq: int64((1-w%2)*each + n + 1)}
					if err := agents.Touch(ctx, []fleet.Touch{touch}); err != nil {
						t.Error(err)
						return
					}
				}
			})
			all.Go(func() {
				for range each {
					if err := countUp(ctx, agents, "a"); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		lastOf(t, stores[0], "a", fleet.LastSeen{At: atPtr((2*each - 1) * time.Second), ActionSeq: 2 * each})
		if n := value(stores[1].Agents().Get(ctx, "a"))(t).PolicyRev; n != writers*each {
			t.Errorf("%d of %d changes are stored", n, writers*each)
		}
	})
}
