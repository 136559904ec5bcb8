package reconcile_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/fleettest"
	"github.com/muster-fleet/muster/server/rollout/reconcile"
)

// servers runs several loops on one store, in the virtual time of a synctest bubble.
type servers struct {
	*world
	running sync.WaitGroup
}

func (r *servers) run(m *fleettest.Mortal) (loop *reconcile.Reconciler, stop func()) {
	p := r.processAt(m, nil)
	ctx, cancel := context.WithCancel(context.Background())
	r.running.Go(func() { p.loop.Run(ctx) })
	return p.loop, cancel
}

// bubble returns a world whose clock is the bubble's.
func bubble(t *testing.T, agents int) *servers {
	w := newWorld(t, 0)
	w.now = time.Now().UTC()
	for i := range agents {
		w.enrol("agent-" + string(rune('a'+i)))
	}
	return &servers{world: w}
}

// offeredWithin waits for offers to n agents, and returns how long that took.
func (r *servers) offeredWithin(id string, n int, limit time.Duration) time.Duration {
	r.t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if c := r.rollout(id).Counts; c.InFlight() >= n {
			return time.Since(began)
		}
		if took := time.Since(began); took > limit {
			r.t.Fatalf("after %s the rollout stands at %+v", took, r.rollout(id).Counts)
		}
	}
}

func TestReplicasShareRollouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubble(t, 4)
		first, second := fleettest.NewMortal(r.store, 0, false), fleettest.NewMortal(r.store, 0, false)
		_, stop1 := r.run(first)
		_, stop2 := r.run(second)
		defer r.running.Wait()
		defer stop2()
		defer stop1()
		time.Sleep(5 * time.Second)

		r.now = time.Now().UTC()
		r.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 2 }))
		r.offeredWithin("r", 2, reconcile.RoundInterval+100*time.Millisecond) // without a signal
		lease, err := r.store.Leases().Get(t.Context(), "rollout/r")
		r.must(err)
		owner, other := first, second
		if second.Writes() > 0 {
			owner, other = second, first
		}
		if other.Writes() != 0 || owner.Writes() == 0 {
			t.Errorf("the owner made %d writes, the other %d", owner.Writes(), other.Writes())
		}

		// The owner dies with its lease; meanwhile an operator gives an order.
		owner.Kill()
		died := time.Now()
		r.change("r", func(r *fleet.Rollout) {
			r.Orders = append(r.Orders, fleet.Order{ID: "o", Kind: fleet.OrderWithdraw})
			r.State, r.Stop = fleet.RolloutPaused, &fleet.Stop{Kind: fleet.StopOperator, Text: "lunch", At: time.Now().UTC()}
		})
		for len(r.rollout("r").Orders) > 0 {
			if time.Since(died) > 10*time.Second {
				t.Fatal("nobody took over within 10 s")
			}
			time.Sleep(100 * time.Millisecond)
		}
		t.Logf("taken over after %s", time.Since(died))
		now, err := r.store.Leases().Get(t.Context(), "rollout/r")
		r.must(err)
		if now.Owner == lease.Owner {
			t.Errorf("the lease is still held by %s", now.Owner)
		}
		if c := r.rollout("r").Counts; c.Withdrawn != 2 {
			t.Errorf("the order was carried out as %+v", c)
		}
	})
}

func TestRunReleasesLeasesWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubble(t, 4)
		_, stop1 := r.run(fleettest.NewMortal(r.store, 0, false))
		r.now = time.Now().UTC()
		r.start("r", rolling(func(p *fleet.Plan) { p.Strategy.BatchSize = 2 }))
		r.offeredWithin("r", 2, 2*time.Second)
		stop1()
		r.running.Wait()
		second := fleettest.NewMortal(r.store, 0, false)
		_, stop2 := r.run(second)
		defer r.running.Wait()
		defer stop2()
		time.Sleep(1500 * time.Millisecond)
		lease, err := r.store.Leases().Get(t.Context(), "rollout/r")
		r.must(err)
		if lease.Owner == "" {
			t.Error("nobody has taken the lease that was given back")
		}
		r.change("r", func(r *fleet.Rollout) { r.State = fleet.RolloutCancelling })
		time.Sleep(3 * time.Second)
		if o := r.rollout("r"); o.State != fleet.RolloutCancelled {
			t.Errorf("it is %s with %+v", o.State, o.Counts)
		}
	})
}

func TestSignalStartsARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := bubble(t, 2)
		loop, stop := r.run(fleettest.NewMortal(r.store, 0, false))
		defer r.running.Wait()
		defer stop()
		time.Sleep(10*time.Second + 300*time.Millisecond) // between two rounds
		r.now = time.Now().UTC()
		r.start("r", rolling(nil))
		loop.Signal()
		if took := r.offeredWithin("r", 2, time.Second); took > 300*time.Millisecond {
			t.Errorf("the first offer came after %s", took)
		}
	})
}
