package simfleet

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// writers is how many agents are written concurrently, so that the store commits them
	// together.
	writers = 2048
	// putAtOnce bounds the documents of one write.
	putAtOnce = 2_000
)

// past is what happened before the fleet is shown.
type past struct {
	now    time.Time
	hosts  []*host
	waves  []*wave
	single []*bulk
}

// bulk is an order of an operator for some hosts, without a rollout.
type bulk struct {
	order
	component string
	agents    []string
	cancelled *time.Time
	takes     func(h *host) bool
}

// order is an order to upgrade.
type order struct {
	actionID string
	at       time.Time
	to       string
	by       fleet.Requester
}

func newPast(o Options, hosts []*host, now time.Time) *past {
	p := &past{now: now, hosts: hosts, waves: newWaves(o, hosts, now)}
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	stopped := ago(6*time.Hour - 4*time.Minute)
	p.single = []*bulk{
		{order: order{"bulk-collector-190", ago(75 * time.Hour), "1.9.0", fleet.Requester{By: "ben", Why: "CHG-4010"}}, component: collectorComponent, takes: func(h *host) bool { return h.hasNewCollector() }},
		{order: order{"bulk-web-320", ago(51 * time.Hour), "3.2.0", fleet.Requester{By: "ann", Why: "CHG-4015: HTTP/3"}}, component: webComponent, takes: func(h *host) bool { return h.hasNewWeb() }},
		{order: order{"bulk-250-by-hand", ago(9 * time.Hour), newest, fleet.Requester{By: "ann", Why: "hosts of the on-call team"}}, takes: func(h *host) bool { return h.story == failed }},
		{order: order{"bulk-250-mistake", ago(6 * time.Hour), newest, fleet.Requester{By: "ann"}}, takes: func(h *host) bool { return h.story == cancelled }, cancelled: &stopped},
	}
	for _, b := range p.single {
		for _, h := range hosts {
			if h.number < waveOf && h.health != enrolling && b.takes(h) && h.enrolled > now.Sub(b.at) {
				b.agents = append(b.agents, h.id)
			}
		}
	}
	return p
}

// written is what one host adds to the store.
type written struct {
	records []fleet.HistoryRecord
	targets []fleet.Target
	results []fleet.Result
}

// write writes it all. Actions come first, so that agents have confirmed them.
func (p *past) write(ctx context.Context, s store.Store) error {
	seq, err := p.writeActions(ctx, s)
	if err != nil {
		return err
	}
	all := make([]written, len(p.hosts))
	errs := make([]error, writers)
	var running sync.WaitGroup
	for w := range writers {
		running.Go(func() {
			for i := w; i < len(p.hosts) && errs[w] == nil; i += writers {
				var a fleet.Agent
				a, all[i] = p.document(p.hosts[i])
				a.Last.ActionSeq = seq
				errs[w] = s.Agents().Create(ctx, a)
			}
		})
	}
	running.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var sum written
	for _, w := range all {
		sum.records = append(sum.records, w.records...)
		sum.targets = append(sum.targets, w.targets...)
		sum.results = append(sum.results, w.results...)
	}
	for part := range slices.Chunk(sum.records, putAtOnce) {
		if err := s.History().Put(ctx, part); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(sum.results, putAtOnce) {
		if _, err := s.Results().Put(ctx, part); err != nil {
			return err
		}
	}
	if err := p.writeRollouts(ctx, s, sum.targets); err != nil {
		return err
	}
	if err := seedTrail(ctx, s, p); err != nil {
		return err
	}
	return seedSamples(ctx, s, p.hosts, p.now)
}

// writeActions writes the actions in the order of their times, and returns the number of the
// last.
func (p *past) writeActions(ctx context.Context, s store.Store) (seq int64, err error) {
	var list []fleet.Action
	for _, w := range p.waves {
		list = append(list, w.actions()...)
	}
	for _, b := range p.single {
		if len(b.agents) > 0 {
			list = append(list, fleet.Action{
				ID: b.actionID, Type: agentapi.ActionUpgrade, Data: upgradeData(b.to, b.component), Agents: b.agents, Actioned: len(b.agents),
				CreatedAt: b.at, CreatedBy: b.by.By, CancelledAt: b.cancelled,
			})
		}
	}
	slices.SortFunc(list, func(a, b fleet.Action) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for _, a := range list {
		if seq, err = s.Actions().Create(ctx, a); err != nil {
			return seq, err
		}
	}
	return seq, nil
}

func (p *past) writeRollouts(ctx context.Context, s store.Store, targets []fleet.Target) error {
	for _, w := range p.waves {
		var of []fleet.Target
		for _, t := range targets {
			if t.RolloutID == w.id {
				of = append(of, t)
			}
		}
		slices.SortFunc(of, func(a, b fleet.Target) int { return a.Place - b.Place })
		if len(of) == 0 {
			continue // a tiny fleet
		}
		if err := s.Rollouts().Create(ctx, w.rollout(of)); err != nil {
			return err
		}
		for part := range slices.Chunk(of, putAtOnce) {
			if err := s.Targets().Create(ctx, part); err != nil {
				return err
			}
		}
	}
	return nil
}
