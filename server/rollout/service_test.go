package rollout_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/preview"
	"github.com/muster-fleet/muster/server/store"
)

func TestARolloutIsPreviewedAndStarted(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c", "lab/d", "lab/e")
	d.change("e", func(a *fleet.Agent) { a.Version = "1.2.0" })
	r := d.create()
	pre := d.preview(r)
	if len(pre.Targets) != 4 || len(pre.Skipped) != 1 || pre.RolloutID != r.ID || len(pre.Batches) != 2 {
		t.Fatalf("the preview has %d targets, %d skipped, %d batches", len(pre.Targets), len(pre.Skipped), len(pre.Batches))
	}
	if len(d.locks()) != 0 || len(d.targets(r.ID)) != 0 {
		t.Error("a preview has begun something")
	}
	r, err := d.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
	d.must(err)
	if got := d.agents(r.ID); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("selected were a to d, targets are %v", got)
	}
	for i, target := range d.targets(r.ID) {
		p := pre.Targets[i]
		if target.AgentID != p.AgentID || target.Place != i || target.Batch != p.Batch || target.State != fleet.TargetPending || target.From != "1.1.0" || target.To != "1.2.0" || target.Code == "" {
			t.Errorf("target %d is %+v, previewed was %+v", i, target, p)
		}
	}
	want := fleet.Counts{Total: 4, Pending: 4}
	if r.State != fleet.RolloutRunning || r.Counts != want || len(r.Batches) != 2 || r.Batches[0].Counts != (fleet.Counts{Total: 2, Pending: 2}) || r.StartedBy != "kim" || r.Pin.Hash != pre.Hash {
		t.Errorf("the rollout is %+v", r)
	}
	if got := d.locks(); !slices.Equal(got, []string{"default=" + r.ID, "lab=" + r.ID}) {
		t.Errorf("locks are %v", got)
	}
	for _, want := range pre.Targets {
		if got, err := d.service.TargetsOf(t.Context(), r.ID, want.AgentID); err != nil || len(got) != 1 || got[0].Policy != want.Policy || got[0].Policy == "" || got[0].Site != want.Site {
			t.Errorf("the target of %+v is %+v, %v", want, got, err)
		}
	}
	if got := d.trail(r.ID); !slices.Equal(got, []string{"rollout.create", "rollout.start"}) {
		t.Errorf("the trail is %v", got)
	}
	if got := d.events(); !slices.Equal(got, []string{fleet.EventRolloutCreated, fleet.EventRolloutStarted}) || d.signals != 1 {
		t.Errorf("events are %v, %d signals", got, d.signals)
	}

	t.Run("starting it again changes nothing", func(t *testing.T) {
		before := d.rollout(r.ID)
		again, err := d.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
		d.must(err)
		if again.ID != r.ID || d.rollout(r.ID).Revision != before.Revision || len(d.trail(r.ID)) != 2 {
			t.Errorf("it became %+v", again)
		}
	})
	t.Run("starting it with another hash is refused", func(t *testing.T) {
		_, err := d.service.Start(t.Context(), r.ID, "sha256:other", false, kim)
		d.wantKind(err, fleet.Conflict, "was started with preview "+pre.Hash)
	})
	t.Run("it is neither previewed nor deleted any more", func(t *testing.T) {
		_, err := d.service.Preview(t.Context(), r.ID)
		d.wantKind(err, fleet.Conflict, "only drafts are previewed")
		d.wantKind(d.service.Delete(t.Context(), r.ID, kim), fleet.Conflict, "cancel it")
	})
	t.Run("another rollout on one of its policies is refused by name", func(t *testing.T) {
		_, err := d.service.Create(t.Context(), springPlan(called("summer"), forPolicy("lab")), kim)
		d.wantKind(err, fleet.Conflict, `rollout "spring" (`+r.ID+`) is active on policy lab`)
		var refusal *fleet.Error
		if !errors.As(err, &refusal) || refusal.Code != "rollout_policy_locked" {
			t.Errorf("its code is %v", refusal)
		}
	})
	t.Run("a dry run says whom it has", func(t *testing.T) {
		dry, err := d.service.DryRun(t.Context(), springPlan(forPolicy("lab")))
		d.must(err)
		if len(dry.Targets) != 0 || !slices.ContainsFunc(dry.Skipped, func(s fleet.SkippedAgent) bool {
			return s.Code == fleet.WhyLocked && strings.Contains(s.Text, "spring")
		}) {
			t.Errorf("the dry run is %+v", dry)
		}
	})
}

func TestRefusedPlansCreateNothing(t *testing.T) {
	d := newHarness(t)
	d.enrol("a")
	for _, c := range []struct {
		change func(*fleet.Plan)
		field  string
	}{
		{func(p *fleet.Plan) { p.Name = "" }, "body.plan.name"},
		{func(p *fleet.Plan) { p.Select = fleet.Selector{} }, "body.plan.select"},
		{func(p *fleet.Plan) { p.Strategy.Kind = "slowly" }, "body.plan.strategy.kind"},
	} {
		for name, try := range map[string]func() error{
			"create":  func() error { _, err := d.service.Create(t.Context(), springPlan(c.change), kim); return err },
			"dry run": func() error { _, err := d.service.DryRun(t.Context(), springPlan(c.change)); return err },
		} {
			var refusal *fleet.Error
			if err := try(); !errors.As(err, &refusal) || refusal.Field != c.field {
				t.Errorf("%s: %v, want field %s", name, err, c.field)
			}
		}
	}
	_, err := d.service.Create(t.Context(), springPlan(func(p *fleet.Plan) { p.Profile, p.UpgradeID = "web", "spring" }), kim)
	d.wantKind(err, fleet.NotFound, "web/spring")
	_, err = d.service.Create(t.Context(), springPlan(), rollout.Request{Actor: "kim", Why: strings.Repeat("because ", 1000)})
	d.wantKind(err, fleet.Invalid, "body.why")
	if _, n, err := d.service.List(t.Context(), 0, 10); err != nil || n != 0 {
		t.Errorf("there are %d rollouts, %v", n, err)
	}
}

func TestDriftIsShownAndRefused(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b", "c")
	r := d.create()
	pre := d.preview(r)
	d.enrol("late")
	d.change("b", func(a *fleet.Agent) { a.Active = false })
	_, err := d.service.Start(t.Context(), r.ID, pre.Hash, false, kim)
	var drift *rollout.DriftError
	if !errors.As(err, &drift) {
		t.Fatalf("the start said %v", err)
	}
	d.wantKind(err, fleet.Conflict, "1 agent came, 1 went")
	if len(drift.Drift.Added) != 1 || drift.Drift.Added[0].AgentID != "late" || len(drift.Drift.Removed) != 1 || drift.Drift.Removed[0].AgentID != "b" {
		t.Errorf("drift is %+v", drift.Drift)
	}
	if got := d.rollout(r.ID); got.State != fleet.RolloutDraft || got.Pin != nil || len(d.locks()) != 0 || len(d.targets(r.ID)) != 0 {
		t.Errorf("a refused start left %+v", got)
	}
	t.Run("the preview of now can be started", func(t *testing.T) {
		got, err := d.service.GetPreview(t.Context(), drift.Now.Hash)
		d.must(err)
		if len(got.Targets) != 3 {
			t.Errorf("it has %d targets", len(got.Targets))
		}
	})
	t.Run("accepted drift starts as the fleet is now", func(t *testing.T) {
		for range 2 { // the response to the first may be lost
			started, err := d.service.Start(t.Context(), r.ID, pre.Hash, true, kim)
			d.must(err)
			if started.Pin.Hash != drift.Now.Hash || !slices.Equal(d.agents(r.ID), []string{"a", "c", "late"}) {
				t.Errorf("it has %v, pinned %s", d.agents(r.ID), started.Pin.Hash)
			}
		}
	})
}

func TestInvalidStartIsRefused(t *testing.T) {
	d := newHarness(t)
	d.enrol("a", "b")
	r := d.create()
	_, err := d.service.Start(t.Context(), r.ID, "", false, kim)
	d.wantKind(err, fleet.Invalid, "body.hash")
	_, err = d.service.Start(t.Context(), r.ID, "sha256:guessed", false, kim)
	d.wantKind(err, fleet.NotFound, "preview the rollout again")
	_, err = d.service.Start(t.Context(), "nobody", "sha256:x", false, kim)
	d.wantKind(err, fleet.NotFound, "there is no rollout nobody")
	for _, id := range []string{"a", "b"} {
		d.change(id, func(a *fleet.Agent) { a.Version = "1.2.0" })
	}
	_, err = d.service.Start(t.Context(), r.ID, d.preview(r).Hash, false, kim)
	d.wantKind(err, fleet.Conflict, "2 because it runs the version already")
}

func TestLowerRingsComeFirst(t *testing.T) {
	d := newHarness(t)
	for i := range 25 {
		id := fmt.Sprintf("low-%02d", i)
		d.enrol(id)
		d.change(id, func(a *fleet.Agent) { a.Tags = []string{"ring=0"} })
	}
	d.enrol("high")
	d.change("high", func(a *fleet.Agent) { a.Tags = []string{"ring=1"} })
	rings := func(rule fleet.RingRule) func(*fleet.Plan) {
		return func(p *fleet.Plan) {
			p.Name = fmt.Sprint(rule)
			p.Strategy = fleet.Strategy{Kind: fleet.Rings, BatchSize: 5, Rings: &rule}
		}
	}
	r := d.create(rings(fleet.RingRule{Only: []int{1}}))
	_, err := d.service.Start(t.Context(), r.ID, d.preview(r).Hash, false, kim)
	d.wantKind(err, fleet.Conflict, "25 agents of lower rings do not run 1.2.0 yet")
	if names := strings.Count(err.Error(), "host-low"); names != 20 || !strings.Contains(err.Error(), "and 5 more") {
		t.Errorf("%d hosts are named: %v", names, err)
	}
	forced := d.start(rings(fleet.RingRule{Only: []int{1}, Force: true}))
	if got := d.agents(forced.ID); !slices.Equal(got, []string{"high"}) {
		t.Errorf("targets are %v", got)
	}
}

func TestPreviewIsDeletedWithItsLastRollout(t *testing.T) {
	d := newHarness(t)
	d.enrol("a")
	r := d.create()
	var hashes []string
	for i := range 7 {
		hashes = append(hashes, d.preview(r).Hash)
		d.enrol(fmt.Sprint("more-", i))
	}
	if n := d.previews(); n != 5 {
		t.Errorf("%d previews are kept, want 5", n)
	}
	_, err := d.service.GetPreview(t.Context(), hashes[1])
	d.wantKind(err, fleet.NotFound, "is not kept")
	_, err = d.service.Start(t.Context(), r.ID, hashes[1], false, kim)
	d.wantKind(err, fleet.NotFound, "preview the rollout again")

	t.Run("the same preview again is one", func(t *testing.T) {
		first := d.preview(r)
		d.later(time.Minute)
		second := d.preview(r)
		kept, err := d.service.GetPreview(t.Context(), first.Hash)
		d.must(err)
		if first.Hash != second.Hash || !kept.At.Equal(second.At) || d.previews() != 5 {
			t.Errorf("%d previews, that of %s", d.previews(), kept.At)
		}
	})
	other := d.create(called("the same by another name"))
	if got := d.preview(other); got.Hash != d.preview(r).Hash {
		t.Fatal("a name changes the hash")
	}
	t.Run("a deleted draft leaves none behind, and takes none from others", func(t *testing.T) {
		d.must(d.service.Delete(t.Context(), other.ID, kim))
		_, err := d.service.Get(t.Context(), other.ID)
		d.wantKind(err, fleet.NotFound, "there is no rollout")
		if got := d.trail(other.ID); !slices.Equal(got, []string{"rollout.create", "rollout.delete"}) {
			t.Errorf("its trail is %v", got)
		}
		if n := d.previews(); n != 5 {
			t.Errorf("%d previews are left", n)
		}
	})
	t.Run("a start keeps the pinned one alone", func(t *testing.T) {
		started, err := d.service.Start(t.Context(), r.ID, d.preview(r).Hash, false, kim)
		d.must(err)
		if _, err := d.service.GetPreview(t.Context(), started.Pin.Hash); err != nil || d.previews() != 1 {
			t.Errorf("%d previews are left, %v", d.previews(), err)
		}
	})
}

func TestPolicyIsLockedByOneRollout(t *testing.T) {
	d := newHarness(t)
	d.enrol("p1/a", "p2/b", "p3/c")
	// Each needs two of the three policies, and all were drafted while these were free.
	var drafts []fleet.Rollout
	for i, policies := range [][]string{{"p1", "p2"}, {"p2", "p3"}, {"p3", "p1"}} {
		drafts = append(drafts, d.create(called(fmt.Sprint("r", i)), forPolicy(policies...)))
	}
	hashes := make([]string, len(drafts))
	for i, r := range drafts {
		hashes[i] = d.preview(r).Hash
	}
	errs := make([]error, len(drafts))
	var starting sync.WaitGroup
	for i, r := range drafts {
		starting.Go(func() { _, errs[i] = d.service.Start(t.Context(), r.ID, hashes[i], false, kim) })
	}
	starting.Wait()
	var started []string
	for i, err := range errs {
		switch r := d.rollout(drafts[i].ID); {
		case err == nil && r.State == fleet.RolloutRunning:
			started = append(started, r.ID)
		case err == nil || fleet.KindOf(err) != fleet.Conflict || r.State != fleet.RolloutDraft:
			t.Errorf("rollout %d is %s, its start said %v", i, r.State, err)
		}
	}
	locks := d.locks()
	if len(started) > 1 {
		t.Fatalf("%v started", started)
	}
	for _, id := range started {
		if len(locks) != 2 || !strings.HasSuffix(locks[0], id) || !strings.HasSuffix(locks[1], id) {
			t.Errorf("started is %s, locks are %v", id, locks)
		}
	}
	if len(started) == 0 && len(locks) != 0 {
		t.Errorf("nobody started, locks are %v", locks)
	}
}

func TestLocksOfEndedRolloutsAreReleased(t *testing.T) {
	d := newHarness(t)
	d.enrol("a")
	dead, other := d.create(called("dead")), d.create(called("other"))
	hash := d.preview(other).Hash
	lock := fleet.PolicyLock{PolicyID: "default", RolloutID: dead.ID, At: d.now}
	d.must(d.store.PolicyLocks().Create(t.Context(), lock))
	_, err := d.service.Start(t.Context(), other.ID, hash, false, kim)
	d.wantKind(err, fleet.Conflict, "is being started on policy default")
	d.later(time.Minute + time.Second)
	_, err = d.service.Start(t.Context(), other.ID, hash, false, kim)
	d.must(err)
	if got := d.locks(); !slices.Equal(got, []string{"default=" + other.ID}) {
		t.Errorf("locks are %v", got)
	}
	d.edit(other.ID, func(r *fleet.Rollout) { r.State, r.EndedAt = fleet.RolloutCompleted, &d.now })
	next := d.start(called("next"))
	if got := d.locks(); !slices.Equal(got, []string{"default=" + next.ID}) {
		t.Errorf("locks are %v", got)
	}
}

func TestAgentsAreLockedToTheirRollout(t *testing.T) {
	d := newHarness(t)
	d.enrol("target", "skipped", "lab/elsewhere")
	d.change("skipped", func(a *fleet.Agent) { a.Version = "1.2.0" })
	agents := func() (all []fleet.Agent) {
		d.must(d.store.Agents().Each(t.Context(), store.AgentFilter{}, func(a fleet.Agent) { all = append(all, a) }))
		return all
	}
	locks := rollout.Locks{Store: d.store}
	if got, err := locks.OfAgents(t.Context(), "", agents()); err != nil || len(got) != 0 {
		t.Errorf("without a rollout, locked are %v, %v", got, err)
	}
	r := d.start(forPolicy("default"))
	got, err := locks.OfAgents(t.Context(), "", agents())
	d.must(err)
	if len(got) != 1 || got["target"] != (preview.LockOwner{ID: r.ID, Name: "spring"}) {
		t.Errorf("locked are %v", got)
	}
	sentences, err := locks.Locked(t.Context(), "", agents())
	d.must(err)
	if !strings.Contains(sentences["target"], "spring") {
		t.Errorf("the sentence is %q", sentences["target"])
	}
	d.end(r.ID, "target", fleet.TargetSkipped)
	if got, err := locks.OfAgents(t.Context(), "", agents()); err != nil || len(got) != 0 {
		t.Errorf("a skipped agent is locked: %v, %v", got, err)
	}
}
