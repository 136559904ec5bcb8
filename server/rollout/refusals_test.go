package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// Whatever refuses a start is in the preview of the same instant, and a preview without a refusal
// can be started.
func TestWhatRefusesAStartIsInThePreview(t *testing.T) {
	require.Time(t, "tries a hundred fleets")
	rapid.Check(t, func(rt *rapid.T) {
		d := newHarness(t)
		enrolled := rapid.IntRange(0, 3).Draw(rt, "agents")
		for i := range enrolled {
			policy := rapid.SampledFrom([]string{"default", "lab"}).Draw(rt, "policy")
			id := fmt.Sprint("a", i)
			d.enrol(policy + "/" + id)
			d.change(id, func(a *fleet.Agent) {
				a.Version = rapid.SampledFrom([]string{"1.0.0", "1.1.0", "1.2.0"}).Draw(rt, "version")
				a.Tags = []string{"ring=" + rapid.SampledFrom([]string{"0", "1"}).Draw(rt, "ring")}
			})
		}
		r := d.create(func(p *fleet.Plan) {
			if rapid.Bool().Draw(rt, "rings") {
				p.Strategy = fleet.Strategy{Kind: fleet.Rings, Rings: &fleet.RingRule{Only: []int{rapid.IntRange(0, 1).Draw(rt, "only")}, Force: rapid.Bool().Draw(rt, "force")}}
			}
		})
		switch rapid.SampledFrom([]string{"free", "being started", "active"}).Draw(rt, "lock") {
		case "being started": // its locks are taken, and it is a draft yet
			other := d.create(called("other"))
			d.must(d.store.PolicyLocks().Create(t.Context(), fleet.PolicyLock{PolicyID: "lab", RolloutID: other.ID, At: d.now}))
		case "active":
			d.enrol("lab/held")
			if other := d.create(called("other"), forPolicy("lab")); len(d.preview(other).Refusals) == 0 {
				_, err := d.service.Start(t.Context(), other.ID, d.preview(other).Hash, false, kim)
				d.must(err)
			}
		}
		pre := d.preview(r)
		_, err := d.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
		switch {
		case (err != nil) != (len(pre.Refusals) > 0):
			rt.Fatalf("the start says %v, the preview has %+v", err, pre.Refusals)
		case err != nil && !strings.Contains(err.Error(), pre.Refusals[0].Text):
			rt.Errorf("the start says %v, the preview %q first", err, pre.Refusals[0].Text)
		}
	})
}

// A dry run has, in addition, what refuses to create the draft.
func TestWhatRefusesADraftIsInTheDryRun(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "lab/b")
	d.start(called("first"), forPolicy("lab"))
	_, refused := d.service.Create(t.Context(), springPlan(), kim)
	d.wantKind(refused, fleet.Conflict, "is active on policy lab")
	dry, err := d.service.DryRun(t.Context(), springPlan())
	d.must(err)
	if !slices.ContainsFunc(dry.Refusals, func(r fleet.StartRefusal) bool { return r.Text == refused.Error() && r.Code == "rollout_policy_locked" }) {
		t.Errorf("the dry run has %+v, the draft is refused with %v", dry.Refusals, refused)
	}
}
