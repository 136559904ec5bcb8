package rollout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/explain"
	"github.com/muster-fleet/muster/server/store/storetest"
)

// A server that is older than the one that started a rollout may not know its strategy, and
// must not treat it as another one.
func TestRolloutOfANewerServerIsLeftAlone(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "lab/b")
	ctx := t.Context()
	known := d.start(forPolicy("lab"), called("known"))
	r := d.rollout(d.start(forPolicy(fleet.DefaultPolicyID)).ID)
	r.Plan.Strategy.Kind = "tides"
	r.Waiting = []fleet.Wait{{Code: "tide", Text: "ebb: 0 of 1 have gone", Since: d.now}}
	storetest.Update(d.t, d.store.Rollouts(), r)
	stored := d.rollout(r.ID)
	for name, command := range map[string]func() error{
		"pause":    func() error { _, err := d.service.Pause(ctx, r.ID, true, kim); return err },
		"resume":   func() error { _, err := d.service.Resume(ctx, r.ID, kim); return err },
		"cancel":   func() error { _, err := d.service.Cancel(ctx, r.ID, kim); return err },
		"skip":     func() error { _, err := d.service.Skip(ctx, r.ID, []string{"a"}, kim); return err },
		"rollback": func() error { _, err := d.service.Rollback(ctx, r.ID, rollout.ScopeAll, kim); return err },
	} {
		t.Run(name, func(t *testing.T) {
			d.wantKind(command(), fleet.Conflict, `the strategy "tides", which this version of Muster does not know`)
		})
	}

	round := d.reconciler(d.store)
	for range 5 {
		round()
	}
	if got := d.rollout(known.ID); got.Counts.Offered != 1 {
		t.Errorf("the other rollout stands at %+v", got.Counts)
	}
	if got := d.rollout(r.ID); got.Revision != stored.Revision {
		t.Errorf("the document was written: %+v", got)
	}
	if got := d.targets(r.ID)[0]; got.State != fleet.TargetPending {
		t.Errorf("its target is %s", got.State)
	}
	lease, err := d.store.Leases().Get(ctx, "rollout/"+r.ID)
	if d.must(err); lease.Owner != "" {
		t.Errorf("%q owns its lease, so that no newer server can work on it", lease.Owner)
	}

	got, err := d.service.Get(ctx, r.ID)
	d.must(err)
	list, _, err := d.service.List(ctx, 0, 0)
	d.must(err)
	listed := list[slices.IndexFunc(list, func(l fleet.Rollout) bool { return l.ID == r.ID })]
	for _, waiting := range [][]fleet.Wait{got.Waiting, listed.Waiting} {
		if len(waiting) != 2 || waiting[0].Code != fleet.WhyNewerServer || !waiting[0].Since.Equal(*r.StartedAt) {
			t.Errorf("it waits for %+v", waiting)
		}
	}
	for _, id := range []string{r.ID, ""} {
		e, err := d.service.Why(ctx, "a", "", id, time.Time{})
		d.must(err)
		if e.Chain[1].Code != fleet.WhyNewerServer || !slices.ContainsFunc(e.Chain[2:], func(l explain.Reason) bool { return l.Code == fleet.WhyNewerServer }) || e.Next == "" {
			t.Errorf("it is explained as %+v", e)
		}
	}
}
