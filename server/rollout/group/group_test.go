package group_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/group"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storetest"
)

var fourHosts = []string{"db/d1", "db/d2", "app/a1", "app/a2"}

func TestMembersAreUpgradedInOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	p := dbThenApp(fleet.PartialOK)
	p.Members[0].Soak = fleet.Duration(10 * time.Minute)
	g := w.start(p)
	g = w.until(g.ID, func(g fleet.RolloutGroup) bool { return g.Members[0].State == fleet.MemberCompleted })
	if got := w.Versions(); got != "a1=1.0.0 a2=1.0.0 d1=1.1.0 d2=1.1.0" {
		t.Errorf("after the first member they run %s", got)
	}
	st, err := w.groups.Status(t.Context(), g.ID)
	w.must(err)
	if st.Until == nil || !st.Until.Equal(g.Members[0].EndedAt.Add(10*time.Minute)) || !strings.Contains(st.Waiting, "db") || st.Progress[0].Counts.Succeeded != 2 || st.Progress[1].Counts != nil {
		t.Errorf("it waits for %s until %v, progress %+v", st.Waiting, st.Until, st.Progress)
	}
	soaked := *st.Until
	g = w.until(g.ID, func(g fleet.RolloutGroup) bool { return g.Members[1].State == fleet.MemberRunning })
	if w.Now.Before(soaked) {
		t.Errorf("the second began at %s, want not before %s", w.Now, soaked)
	}
	g = w.until(g.ID, over)
	if g.State != fleet.GroupCompleted || w.members(g) != "db=completed app=completed" || g.EndedAt == nil || g.Stop != nil {
		t.Errorf("it ended %s with %s, stopped by %+v", g.State, w.members(g), g.Stop)
	}
	if got := w.Versions(); got != "a1=1.1.0 a2=1.1.0 d1=1.1.0 d2=1.1.0" {
		t.Errorf("they run %s", got)
	}
	for i := range g.Members {
		if r := w.Rollout(g.Members[i].RolloutID); r.ID != group.RolloutID(g.ID, i) || r.Group != g.ID || r.CreatedBy != "group spring" {
			t.Errorf("rollout %d is %s of %s by %s", i, r.ID, r.Group, r.CreatedBy)
		}
	}
	types := slices.DeleteFunc(w.events(g.ID), func(t string) bool { return t == fleet.EventGroupProgress })
	if want := []string{fleet.EventGroupCreated, fleet.EventGroupStarted, fleet.EventGroupCompleted}; !slices.Equal(types, want) {
		t.Errorf("events are %v, want %v", types, want)
	}
	entries, _, err := w.db.Audit().List(t.Context(), store.AuditQuery{Subject: g.ID, Limit: 100})
	w.must(err)
	var trail []string
	for _, e := range slices.Backward(entries) {
		trail = append(trail, e.Actor+" "+e.Verb)
	}
	if want := []string{"kim group.create", "kim group.start", "muster group.end"}; !slices.Equal(trail, want) {
		t.Errorf("the trail is %v, want %v", trail, want)
	}
}

func TestPartialOKKeepsWhatIsDone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	w.Hosts["a1"].Bad, w.Hosts["a2"].Bad = true, true
	g := w.until(w.start(dbThenApp(fleet.PartialOK)).ID, over)
	if g.State != fleet.GroupPartial || w.members(g) != "db=completed app=failed" || g.Stop == nil || g.Stop.Member != "app" || g.Members[1].Error == "" {
		t.Errorf("it ended %s with %s, stopped by %+v", g.State, w.members(g), g.Stop)
	}
	if got := w.Versions(); got != "a1=1.0.0 a2=1.0.0 d1=1.1.0 d2=1.1.0" {
		t.Errorf("they run %s", got)
	}
	if r := w.Rollout(g.Members[1].RolloutID); !r.State.Ended() {
		t.Errorf("the rollout that failed is %s", r.State)
	}
}

func TestRollbackAllPutsBackInReverseOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t, append(fourHosts, "web/w1")...)
	w.Hosts["a2"].Bad = true
	p := dbThenApp(fleet.RollbackAll)
	p.DesiredVersions["web"] = "1.1.0"
	web := p.Members[1]
	web.Name, web.Plan.Select = "web", fleet.Selector{Policies: []string{"web"}}
	p.Members = append(p.Members, web)
	g := w.start(p)
	g = w.until(g.ID, func(g fleet.RolloutGroup) bool { return g.State == fleet.GroupRollingBack })
	if g.RollingBack == nil || g.RollingBack.By != "muster" || !strings.Contains(g.RollingBack.Why, "app") {
		t.Errorf("it is rolled back because of %+v", g.RollingBack)
	}
	g = w.until(g.ID, func(g fleet.RolloutGroup) bool { return g.Members[1].State == fleet.MemberRolledBack })
	if got := w.Versions(); got != "a1=1.0.0 a2=1.0.0 d1=1.1.0 d2=1.1.0 w1=1.0.0" {
		t.Errorf("when the second is back, they run %s", got)
	}
	g = w.until(g.ID, over)
	if g.State != fleet.GroupRolledBack || w.members(g) != "db=rolled_back app=rolled_back web=cancelled" {
		t.Errorf("it ended %s with %s, stopped by %+v", g.State, w.members(g), g.Stop)
	}
	if got := w.Versions(); got != "a1=1.0.0 a2=1.0.0 d1=1.0.0 d2=1.0.0 w1=1.0.0" {
		t.Errorf("they run %s", got)
	}
	if _, n, err := w.db.PolicyLocks().List(t.Context(), 0, 0); err != nil || n != 0 {
		t.Errorf("%d policies are still locked, %v", n, err)
	}
	if _, err := w.db.Rollouts().Get(t.Context(), group.RolloutID(g.ID, 2)); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the third member has a rollout: %v", err)
	}
}

func TestManualPolicyAsksAnOperator(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer   func(w *world, g fleet.RolloutGroup) error
		end      fleet.GroupState
		want     string
		upgraded int
	}{
		"resume": {func(w *world, g fleet.RolloutGroup) error {
			_, err := w.groups.Resume(w.t.Context(), g.ID, rollout.Request{Actor: "kim"})
			w.wantError(err, fleet.Invalid, "", "body.why", "is missing")
			_, err = w.groups.Resume(w.t.Context(), g.ID, kim)
			return err
		}, fleet.GroupPartial, "db=failed app=completed", 4},
		"skip": {func(w *world, g fleet.RolloutGroup) error {
			_, err := w.groups.Skip(w.t.Context(), g.ID, "db", kim)
			return err
		}, fleet.GroupPartial, "db=skipped app=completed", 2},
		"roll back": {func(w *world, g fleet.RolloutGroup) error {
			_, err := w.groups.Rollback(w.t.Context(), g.ID, kim)
			return err
		}, fleet.GroupRolledBack, "db=failed app=cancelled", 0},
		"cancel": {func(w *world, g fleet.RolloutGroup) error {
			_, err := w.groups.Cancel(w.t.Context(), g.ID, kim)
			return err
		}, fleet.GroupCancelled, "db=failed app=cancelled", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, append(fourHosts, "db/d3")...)
			for _, id := range []string{"d1", "d2", "d3"} {
				w.Hosts[id].Bad = true
			}
			g := w.start(dbThenApp(fleet.ManualPolicy))
			g = w.until(g.ID, paused)
			if g.Stop.Kind != fleet.GroupStopFailure || g.Stop.Member != "db" {
				t.Fatalf("it stopped by %+v", g.Stop)
			}
			for _, h := range w.Hosts {
				h.Bad = false // only the first was offered the version
			}
			w.must(c.answer(w, g))
			g = w.until(g.ID, over)
			if g.State != c.end || w.members(g) != c.want {
				t.Errorf("it ended %s with %s, stopped by %+v", g.State, w.members(g), g.Stop)
			}
			if got := strings.Count(w.Versions(), "1.1.0"); got != c.upgraded {
				t.Errorf("%d hosts are upgraded, want %d", got, c.upgraded)
			}
		})
	}
}

func TestPausedGroupPausesItsRollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	g := w.start(dbThenApp(fleet.PartialOK))
	w.must(w.turn())
	_, err := w.groups.Pause(t.Context(), g.ID, true, kim)
	w.must(err)
	for range 60 {
		w.must(w.turn())
	}
	r := w.Rollout(group.RolloutID(g.ID, 0))
	if g = w.group(g.ID); g.State != fleet.GroupPaused || r.State != fleet.RolloutPaused || r.Stop.By != "kim" {
		t.Errorf("after ten minutes the group is %s and its rollout %s by %+v", g.State, r.State, r.Stop)
	}
	_, err = w.groups.Resume(t.Context(), g.ID, kim)
	w.must(err)
	if g = w.until(g.ID, over); g.State != fleet.GroupCompleted || g.Resume != nil {
		t.Errorf("resumed, it ended %s: %s", g.State, w.members(g))
	}
}

func TestRefusedStartPausesTheGroup(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(w *world)
		kind   fleet.GroupStopKind
		says   string
		solve  func(w *world, g fleet.RolloutGroup)
	}{
		"another fleet": {
			func(w *world) { w.Enrol("app", "a3") }, fleet.GroupStopDrift, "the fleet has changed",
			func(w *world, g fleet.RolloutGroup) {},
		},
		"a lock": {
			func(w *world) {
				p := dbThenApp(fleet.PartialOK).Members[1].Plan
				p.Name, p.Version = "other", "1.1.0"
				r, err := w.rollouts.Create(w.t.Context(), p, kim)
				w.must(err)
				pre, err := w.rollouts.Preview(w.t.Context(), r.ID)
				w.must(err)
				_, err = w.rollouts.Start(w.t.Context(), r.ID, pre.Hash, false, kim)
				w.must(err)
				_, err = w.rollouts.Pause(w.t.Context(), r.ID, true, kim)
				w.must(err)
			}, fleet.GroupStopRefused, "other",
			func(w *world, g fleet.RolloutGroup) {
				list, _, err := w.db.Rollouts().List(w.t.Context(), 0, 10)
				w.must(err)
				for _, r := range list {
					if r.Plan.Name == "other" {
						_, err := w.rollouts.Cancel(w.t.Context(), r.ID, kim)
						w.must(err)
					}
				}
				for range 3 {
					w.must(w.turn())
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, fourHosts...)
			g := w.start(dbThenApp(fleet.RollbackAll))
			w.must(w.turn())
			c.change(w)
			g = w.until(g.ID, paused)
			if g.Stop.Kind != c.kind || g.Stop.Member != "app" || !strings.Contains(g.Stop.Text, c.says) || w.members(g) != "db=completed app=pending" {
				t.Fatalf("it stopped by %+v with %s", g.Stop, w.members(g))
			}
			c.solve(w, g)
			_, err := w.groups.Resume(t.Context(), g.ID, kim)
			w.must(err)
			if g = w.until(g.ID, over); g.State != fleet.GroupCompleted {
				t.Errorf("resumed, it ended %s, stopped by %+v", g.State, g.Stop)
			}
		})
	}
}

func TestPlanMayAcceptDriftOfLaterMembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	p := dbThenApp(fleet.RollbackAll)
	p.AcceptDrift = true
	g := w.start(p)
	w.must(w.turn())
	w.Enrol("app", "a3")
	if g = w.until(g.ID, over); g.State != fleet.GroupCompleted || w.Hosts["a3"].Version != "1.1.0" {
		t.Errorf("it ended %s, stopped by %+v; a3 runs %s", g.State, g.Stop, w.Hosts["a3"].Version)
	}
}

// The plans of a group's members are complete once it is created.
func TestServerDefaultsOfAGroupAreThoseOfItsCreation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	w.rollouts.Defaults = plan.Defaults{Limits: fleet.Limits{MaxParallel: 50}}
	g := w.start(dbThenApp(fleet.RollbackAll))
	w.rollouts.Defaults = plan.Defaults{Limits: fleet.Limits{MaxParallel: 3}, Pace: fleet.Pace{WaitFor: fleet.Duration(time.Hour)}}
	if g = w.until(g.ID, over); g.State != fleet.GroupCompleted {
		t.Fatalf("it ended %s, stopped by %+v", g.State, g.Stop)
	}
	for i, m := range g.Plan.Members {
		r, err := w.db.Rollouts().Get(t.Context(), group.RolloutID(g.ID, i))
		w.must(err)
		if r.Plan.Limits.MaxParallel != 50 || r.Plan.Pace.WaitFor.D() != fleet.DefaultWaitFor || !slices.Equal(r.Plan.ServerDefaults, []string{"limits.max_parallel"}) {
			t.Errorf("%s has %+v, %+v by the defaults of %v", m.Name, r.Plan.Limits, r.Plan.Pace, r.Plan.ServerDefaults)
		}
	}
}

func TestStartNeedsTheFleetAsPreviewed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	g, err := w.groups.Create(t.Context(), dbThenApp(fleet.PartialOK), kim)
	w.must(err)
	pre, err := w.groups.Preview(t.Context(), g.ID)
	w.must(err)
	if len(pre.Members) != 2 || pre.Members[0].Targets != 2 || pre.Members[1].Name != "app" || pre.AtLeast != pre.Members[0].AtLeast+pre.Members[1].AtLeast {
		t.Errorf("the preview is %+v", pre)
	}
	w.Enrol("app", "a3")
	_, err = w.groups.Start(t.Context(), g.ID, pre.Hash, false, kim)
	w.wantError(err, fleet.Conflict, group.ErrDrift, "", "changed since the preview, of app")
	g, err = w.groups.Start(t.Context(), g.ID, pre.Hash, true, kim)
	w.must(err)
	if g.State != fleet.GroupRunning || g.Hash == pre.Hash {
		t.Errorf("with the drift accepted it is %s with hash %s", g.State, g.Hash)
	}
	again, err := w.groups.Start(t.Context(), g.ID, g.Hash, false, kim)
	if err != nil || again.Generation != g.Generation {
		t.Errorf("started again, it is %+v, %v", again, err)
	}
}

// Somebody has to know what to wait for, or to change.
func TestGroupSaysWhyAMemberUpgradesNoAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	g, err := w.groups.Create(t.Context(), dbThenApp(fleet.PartialOK), kim)
	w.must(err)
	p := dbThenApp(fleet.PartialOK).Members[0].Plan
	p.Name, p.Version = "other", "1.1.0"
	r, err := w.rollouts.Create(t.Context(), p, kim)
	w.must(err)
	alone, err := w.rollouts.Preview(t.Context(), r.ID)
	w.must(err)
	_, err = w.rollouts.Start(t.Context(), r.ID, alone.Hash, false, kim)
	w.must(err)

	const why = "2 because another rollout has its policy"
	pre, err := w.groups.Preview(t.Context(), g.ID)
	w.must(err)
	if db := pre.Members[0]; db.Targets != 0 || !slices.Contains(db.Warnings, "2 agents match, and all are left out: nobody would be upgraded ("+why+")") {
		t.Errorf("the preview of the member is %+v", db)
	} else if !slices.Contains(db.Warnings, "as things are now, its start would be refused: no agent would be upgraded: "+why) {
		t.Errorf("it does not warn of the refusal: %q", db.Warnings)
	}
	_, err = w.groups.Start(t.Context(), g.ID, pre.Hash, false, kim)
	w.wantError(err, fleet.Conflict, "", "", "member db would upgrade no agent ("+why+"): leave it out")
}

func TestCreationRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	for name, c := range map[string]struct {
		change            func(*fleet.GroupPlan)
		code, field, says string
	}{
		"no name":                {func(p *fleet.GroupPlan) { p.Name = " " }, "", "body.plan.name", "is missing"},
		"no failure policy":      {func(p *fleet.GroupPlan) { p.FailurePolicy = "" }, group.ErrFailurePolicy, "body.plan.failure_policy", "no default"},
		"another failure policy": {func(p *fleet.GroupPlan) { p.FailurePolicy = "hope" }, "", "body.plan.failure_policy", "hope"},
		"lockstep cannot go back": {func(p *fleet.GroupPlan) {
			p.FailurePolicy, p.Members[1].Plan.Component, p.Members[1].Plan.Strategy = fleet.RollbackAll, "web", fleet.Strategy{Kind: fleet.LockstepStrategy}
		}, "", "body.plan.failure_policy", "members[1], app, is in lockstep, which is not rolled back"},
		"no versions":              {func(p *fleet.GroupPlan) { p.DesiredVersions = nil }, group.ErrDesiredVersions, "body.plan.desired_versions", "is empty"},
		"no members":               {func(p *fleet.GroupPlan) { p.Members = nil }, group.ErrOrder, "body.plan.members", "is empty"},
		"a member without version": {func(p *fleet.GroupPlan) { delete(p.DesiredVersions, "app") }, group.ErrOrder, "body.plan.desired_versions", "app"},
		"a version without member": {func(p *fleet.GroupPlan) { p.DesiredVersions["web"] = "1.1.0" }, group.ErrOrder, "body.plan.members", "web"},
		"a member twice":           {func(p *fleet.GroupPlan) { p.Members[1].Name = "db" }, group.ErrDuplicate, "body.plan.members[1].name", "db"},
		"a member without name":    {func(p *fleet.GroupPlan) { p.Members[1].Name = "" }, "", "body.plan.members[1].name", "is missing"},
		"a name to quote":          {func(p *fleet.GroupPlan) { p.Members[1].Name = "my app" }, "", "body.plan.members[1].name", "my app"},
		"two versions":             {func(p *fleet.GroupPlan) { p.Members[1].Plan.Version = "1.0.0" }, "", "body.plan.members[1].plan.version", "desired_versions says 1.1.0"},
		"a long soak":              {func(p *fleet.GroupPlan) { p.Members[0].Soak = fleet.Duration(1000 * time.Hour) }, "", "body.plan.members[0].soak", "720h"},
		"too many members": {func(p *fleet.GroupPlan) {
			for i := range 20 {
				p.Members = append(p.Members, fleet.GroupMemberPlan{Name: fmt.Sprint("m", i)})
			}
		}, "", "body.plan.members", "at most 20"},
		"a plan's own rule": {func(p *fleet.GroupPlan) { p.Members[1].Plan.Select = fleet.Selector{} }, "", "body.plan.members[1].plan.select", "is empty"},
		"no package":        {func(p *fleet.GroupPlan) { p.DesiredVersions["db"] = "9.9.9" }, "rollout_checksum_missing", "body.plan.members[0].plan.artifacts", "9.9.9"},
	} {
		p := dbThenApp(fleet.PartialOK)
		c.change(&p)
		_, err := w.groups.Create(t.Context(), p, kim)
		t.Run(name, func(t *testing.T) { w.t = t; w.wantError(err, fleet.Invalid, c.code, c.field, c.says) })
	}
	w.t = t
	if _, n, err := w.groups.List(t.Context(), 0, 10); err != nil || n != 0 {
		t.Errorf("refused plans left %d groups, %v", n, err)
	}
}

func TestCommandsOfOtherStatesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	ctx := t.Context()
	g, err := w.groups.Create(ctx, dbThenApp(fleet.PartialOK), kim)
	w.must(err)
	for verb, do := range map[string]func() error{
		"pause":         func() error { _, err := w.groups.Pause(ctx, g.ID, false, kim); return err },
		"resume":        func() error { _, err := w.groups.Resume(ctx, g.ID, kim); return err },
		"cancel":        func() error { _, err := w.groups.Cancel(ctx, g.ID, kim); return err },
		"roll back":     func() error { _, err := w.groups.Rollback(ctx, g.ID, kim); return err },
		"skip a member": func() error { _, err := w.groups.Skip(ctx, g.ID, "db", kim); return err },
	} {
		w.wantError(do(), fleet.Conflict, "", "", "nothing to "+verb)
	}
	_, err = w.groups.Skip(ctx, g.ID, "web", kim)
	w.wantError(err, fleet.Invalid, "", "body.member", "no member")
	_, err = w.groups.Get(ctx, "none")
	w.wantError(err, fleet.NotFound, "", "", "muster groups list")
	w.must(w.groups.Delete(ctx, g.ID, kim))
	if _, err := w.groups.Get(ctx, g.ID); fleet.KindOf(err) != fleet.NotFound {
		t.Errorf("the deleted draft is there: %v", err)
	}
	g = w.until(w.start(dbThenApp(fleet.PartialOK)).ID, over)
	_, err = w.groups.Pause(ctx, g.ID, false, kim)
	w.wantError(err, fleet.Conflict, "", "", "has ended (completed)")
	w.wantError(w.groups.Delete(ctx, g.ID, kim), fleet.Conflict, "", "", "kept as a record")

	// A group that has ended can still be rolled back.
	_, err = w.groups.Rollback(ctx, g.ID, kim)
	w.must(err)
	if g = w.until(g.ID, over); g.State != fleet.GroupRolledBack || strings.Contains(w.Versions(), "1.1.0") {
		t.Errorf("it is %s, and hosts run %s", g.State, w.Versions())
	}
}

// A report that corrects a rollout after the end of its group changes what the group says.
func TestReportAfterTheEndOfAGroupCorrectsIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, fourHosts...)
	g := w.until(w.start(dbThenApp(fleet.ManualPolicy)).ID, over)
	if g.State != fleet.GroupCompleted {
		t.Fatalf("it ended %s", g.State)
	}
	r, err := w.db.Rollouts().Get(t.Context(), group.RolloutID(g.ID, 1))
	w.must(err)
	r.State, r.Counts.Succeeded, r.Counts.RolledBack = fleet.RolloutFailed, 1, 1 // as package reconcile corrects it
	storetest.Update(w.t, w.db.Rollouts(), r)
	for range 6 {
		w.must(w.turn())
	}
	next := w.group(g.ID)
	if next.State != fleet.GroupPartial || w.members(next) != "db=completed app=failed" || !next.EndedAt.Equal(*g.EndedAt) {
		t.Errorf("it is %s with %s, ended %v", next.State, w.members(next), next.EndedAt)
	}
	entries, _, err := w.db.Audit().List(t.Context(), store.AuditQuery{Subject: g.ID, Limit: 1})
	w.must(err)
	if len(entries) != 1 || !strings.Contains(entries[0].Text, "followed its members") {
		t.Errorf("the trail ends with %+v", entries)
	}
}
