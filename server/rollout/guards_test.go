package rollout_test

import (
	"context"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func upgradeOf(version string, ids ...string) action.UpgradeOrder {
	return action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: version}, AgentIDs: ids, Actor: "kim"}
}

// The guard rails of rollouts hold for upgrades that are ordered without one: by the
// button, by `muster agents upgrade`, by bulk_upgrade, and for scheduled ones.
func TestFreezesBindEveryOrder(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	ctx, actions := t.Context(), d.service.Actions
	_, err := d.service.CreateFreeze(ctx, fleet.Freeze{ID: "yule", Name: "Christmas", From: d.now.Add(time.Hour), To: d.now.Add(48 * time.Hour)}, kim)
	d.must(err)

	early, err := actions.Upgrade(ctx, upgradeOf("1.2.0", "a"))
	d.must(err)
	if !early.Expiration.Equal(d.now.Add(time.Hour)) {
		t.Errorf("an order for hosts that may be away expires at %v, want the beginning of the freeze", early.Expiration)
	}
	scheduled := upgradeOf("1.2.0", "b")
	in := func(h int) *time.Time { at := d.now.Add(time.Duration(h) * time.Hour); return &at }
	scheduled.StartTime = in(24)
	_, err = actions.Upgrade(ctx, scheduled)
	d.wantKind(err, fleet.Conflict, "“Christmas”")
	scheduled.StartTime, scheduled.RolloutSeconds = in(0), 7200 // the last of them would begin in the freeze
	_, err = actions.Upgrade(ctx, scheduled)
	d.wantKind(err, fleet.Conflict, "“Christmas”")

	d.later(2 * time.Hour)
	single := upgradeOf("1.2.0", "b")
	single.Single = true
	for _, o := range []action.UpgradeOrder{upgradeOf("1.2.0", "b"), single} {
		_, err := actions.Upgrade(ctx, o)
		d.wantKind(err, fleet.Conflict, "“Christmas”")
		if err := actions.EachVerdict(ctx, o, func(action.Verdict) {}); err == nil {
			t.Error("a preview would not name the freeze")
		}
	}
	if b, err := d.store.Agents().Get(ctx, "b"); err != nil || b.Upgrading() {
		t.Errorf("a refused order has marked the agent: %v", err)
	}

	over := upgradeOf("1.2.0", "b")
	over.OverrideExposure, over.Why = true, "tested elsewhere"
	_, err = actions.Upgrade(ctx, over)
	d.wantKind(err, fleet.Conflict, "“Christmas”")
	over = upgradeOf("1.2.0", "b")
	over.OverrideFreeze = true
	_, err = actions.Upgrade(ctx, over)
	d.wantKind(err, fleet.Invalid, "body.why")
	over.Why = "the hole is being exploited"
	made, err := actions.Upgrade(ctx, over)
	d.must(err)
	if !made.Expiration.Equal(d.now.Add(fleet.DefaultExpiration)) {
		t.Errorf("an order that overrides the freeze expires at %v", made.Expiration)
	}
}

// Hosts have a scheduled upgrade and begin it without asking the server, so a freeze that
// is added later has to cancel it.
func TestNewFreezeCancelsScheduledUpgrades(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c")
	ctx, actions := t.Context(), d.service.Actions
	at := func(h int) *time.Time { at := d.now.Add(time.Duration(h) * time.Hour); return &at }
	order := func(id string, h int, override bool) fleet.Action {
		o := upgradeOf("1.2.0", id)
		o.StartTime, o.OverrideFreeze, o.Why = at(h), override, "announced to customers"
		a, err := actions.Upgrade(ctx, o)
		d.must(err)
		return a
	}
	within, after, meant := order("a", 24, false), order("b", 72, false), order("c", 24, true)
	_, err := d.service.CreateFreeze(ctx, fleet.Freeze{Name: "Christmas", From: *at(1), To: *at(48)}, kim)
	d.must(err)
	for _, c := range []struct {
		action    fleet.Action
		cancelled bool
	}{{within, true}, {after, false}, {meant, false}} {
		a, err := d.store.Actions().Get(ctx, c.action.ID)
		d.must(err)
		if got := a.CancelledAt != nil; got != c.cancelled {
			t.Errorf("the upgrade that begins %v is cancelled: %t, want %t", a.StartTime, got, c.cancelled)
		}
	}
}

func TestExposureBudgetBindsEveryOrder(t *testing.T) {
	d := newHarness(t)
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	d.enrol(names...)
	ctx, actions := t.Context(), d.service.Actions
	_, err := d.service.SetExposure(ctx, fleet.ExposureRule{Enabled: true, Percent: 30, HealthyHours: 24}, kim)
	d.must(err)
	_, err = actions.Upgrade(ctx, upgradeOf("1.2.0", names...))
	d.wantKind(err, fleet.Conflict, "room for 3 of the 10 agents")
	_, err = actions.Upgrade(ctx, upgradeOf("1.2.0", "a", "b"))
	d.must(err)
	// Two are being upgraded and do not run it yet. They count, or one order after the
	// other would pass.
	_, err = actions.Upgrade(ctx, upgradeOf("1.2.0", "c", "d"))
	d.wantKind(err, fleet.Conflict, "room for 1 of the 2 agents")
	over := upgradeOf("1.2.0", "c", "d")
	over.OverrideFreeze, over.Why = true, "tested elsewhere"
	_, err = actions.Upgrade(ctx, over)
	d.wantKind(err, fleet.Conflict, "room for 1 of the 2 agents")
	over = upgradeOf("1.2.0", "c", "d")
	over.OverrideExposure, over.Why = true, "tested elsewhere"
	_, err = actions.Upgrade(ctx, over)
	d.must(err)
}

// An order for a fleet reads half a gigabyte of documents in each pass.
func TestOrderReadsItsAgentsOnceToJudgeThem(t *testing.T) {
	d := newHarness(t)
	names := []string{"a", "b", "c"}
	d.enrol(names...)
	ctx, reads := t.Context(), 0
	_, err := d.service.SetExposure(ctx, fleet.ExposureRule{Enabled: true, Percent: 100, HealthyHours: 24}, kim)
	d.must(err)
	actions := d.serve(store.Intercept(d.store, func(_ context.Context, c store.Call, do func() error) error {
		if c.Kind.Name == store.KindAgents.Name && !c.Writes() && c.Method != "Census" && c.Method != "Upgrading" { // those of the budget
			reads++
		}
		return do()
	})).Actions
	actions.Owners = noOwners{}
	seen := 0
	d.must(actions.EachVerdict(ctx, upgradeOf("1.2.0", names...), func(action.Verdict) { seen++ }))
	if seen != 3 || reads != 1 {
		t.Errorf("a preview has shown %d agents in %d reads, want 3 in 1", seen, reads)
	}
	reads = 0
	_, err = actions.Upgrade(ctx, upgradeOf("1.2.0", names...))
	d.must(err)
	if reads != 3 {
		t.Errorf("an order has made %d reads of its agents, want 3: to judge them, to order their ids, and to mark them", reads)
	}
}

// noOwners are declared fleets that no agent belongs to.
type noOwners struct{ action.Owners }

func (noOwners) Of(context.Context, string) (func(*fleet.Agent) string, error) {
	return func(*fleet.Agent) string { return "" }, nil
}

// A rollback is never held up: a fleet that is half rolled back is worse than either
// version.
func TestGuardRailsDoNotHoldUpRollbacks(t *testing.T) {
	d := newHarness(t)
	d.enrol("a")
	d.change("a", func(a *fleet.Agent) {
		a.Kept.Rollbacks = append(a.Kept.Rollbacks, agentapi.Rollback{Version: "1.0.0", ValidUntil: d.now.Add(time.Hour)})
	})
	_, err := d.service.CreateFreeze(t.Context(), fleet.Freeze{Name: "Christmas", From: d.now, To: d.now.Add(48 * time.Hour)}, kim)
	d.must(err)
	if made, err := d.service.Actions.Rollback(t.Context(), action.RollbackOrder{AgentIDs: []string{"a"}, Actor: "kim"}); err != nil || len(made) != 1 {
		t.Errorf("rolling back during a freeze returns %v, %v", made, err)
	}
}
