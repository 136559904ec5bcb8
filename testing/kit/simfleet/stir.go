package simfleet

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// beatEvery is how often hosts that only look alive are seen: often enough that none goes
	// offline.
	beatEvery = 90 * time.Second
	// lookEvery is how often the people of the fleet look what to do next.
	lookEvery = 5 * time.Second
	// stirEvery is how often something small happens on a host.
	stirEvery = 25 * time.Second
	// unwell is how long a host stays degraded or away.
	unwell = 8 * time.Minute
)

// beat lets the hosts that are no agents look alive until ctx ends.
func (f *Fleet) beat(ctx context.Context) {
	gone := map[*host]time.Time{} // until when
	rng := rand.New(rand.NewPCG(f.options.Seed, 1))
	every(ctx, beatEvery, func() {
		now := time.Now().UTC()
		if h := f.hosts[rng.IntN(len(f.hosts))]; len(gone) < 1+len(f.hosts)/500 {
			gone[h] = now.Add(unwell)
		}
		var touches []fleet.Touch
		for _, h := range f.hosts {
			if now.Before(gone[h]) {
				continue
			}
			delete(gone, h)
			if !h.live && h.health <= failing {
				touches = append(touches, fleet.Touch{AgentID: h.id, At: now.Add(-time.Duration(h.number%60) * time.Second)})
			}
		}
		if err := f.store.Agents().Touch(ctx, touches); err != nil && ctx.Err() == nil {
			f.say("hosts were not seen: %v", err)
		}
	})
}

// stir lets agents be degraded for a while, one after the other.
func (f *Fleet) stir(ctx context.Context) {
	until := map[*agent]time.Time{}
	rng := rand.New(rand.NewPCG(f.options.Seed, 2))
	every(ctx, stirEvery, func() {
		for l, t := range until {
			if time.Now().After(t) {
				delete(until, l)
				l.complain("")
			}
		}
		// Not those of rollouts, which would stop.
		if l := f.agents[rng.IntN(len(f.agents))]; len(until) < 2 && l.role.policy == "edge" && l.health == healthy {
			until[l] = time.Now().Add(unwell)
			l.complain(l.complaint())
		}
	})
}

// complain makes an agent report that it is degraded, or well again.
func (l *agent) complain(text string) {
	l.mu.Lock()
	l.complains = text
	l.mu.Unlock()
	l.sim.Renew()
}

// every calls do until ctx ends.
func every(ctx context.Context, d time.Duration, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			do()
		}
	}
}

// look lets people go on: the group begins when its first hosts are free, and the next version
// of the web servers follows the one before, so that there is always something to watch.
func (f *Fleet) look(ctx context.Context) {
	next := 1
	grouped := false
	every(ctx, lookEvery, func() {
		active, err := f.activeRollouts(ctx)
		if err == nil && !active["CI workers to "+newest] && !grouped {
			grouped = true
			err = f.startGroup(ctx)
		}
		web := false
		for name := range active {
			web = web || strings.HasPrefix(name, webTitle)
		}
		if err == nil && !web {
			version := fmt.Sprintf("2.5.%d", next)
			next++
			if err = f.publish(ctx, "", version); err == nil {
				err = f.rollout(ctx, "ann", "the next release", f.webPlan(version), true)
			}
		}
		if err != nil && ctx.Err() == nil {
			f.say("nobody goes on: %v", err)
		}
	})
}

// activeRollouts returns the names of the rollouts that are not over.
func (f *Fleet) activeRollouts(ctx context.Context) (map[string]bool, error) {
	var list struct {
		Items []struct {
			Plan struct{ Name string }
		}
	}
	err := f.api(ctx, admin, http.MethodGet, "/api/v1/rollouts?perPage=100&state=running&state=paused&state=cancelling", nil, &list)
	names := map[string]bool{}
	for _, r := range list.Items {
		names[r.Plan.Name] = true
	}
	return names, err
}

// startGroup starts the group of rollouts.
func (f *Fleet) startGroup(ctx context.Context) error {
	var preview struct {
		Item struct{ Hash string }
	}
	path := "/api/v1/rollout-groups/" + f.group
	if err := f.post(ctx, "ben", path+"/preview", nil, &preview); err != nil {
		return err
	}
	return f.post(ctx, "ben", path+"/start", object{"hash": preview.Item.Hash, "why": "CHG-4050"}, nil)
}
