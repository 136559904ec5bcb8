package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// All scenarios share one start of nodes and servers, which takes most of a minute on a
// busy machine. Each leaves everything running.
func TestReplicas(t *testing.T) {
	c := Start(t, Options{Servers: Replicas, Nodes: Nodes})
	for _, scenario := range []struct {
		name string
		run  func(*testing.T, *Cluster)
	}{
		{"delivery", actionReachesAgentsAtEveryReplica},
		{"takeover", rolloutContinuesAtAnotherReplica},
		{"history", historyIsConsistentThroughFaults},
	} {
		if !t.Run(scenario.name, func(t *testing.T) { scenario.run(t, c) }) {
			return // the state it left would fail the next one
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openPolls are the agents that have an open check-in.
type openPolls struct {
	mu   sync.Mutex
	open map[string]bool
}

func (p *openPolls) set(agent string, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]bool{}
	}
	p.open[agent] = open
}

func (p *openPolls) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, open := range p.open {
		if open {
			n++
		}
	}
	return n
}

// watch returns the callbacks that keep p up to date.
func (p *openPolls) watch() Watch {
	return Watch{
		Polling: func(agent string) { p.set(agent, true) },
		Answer:  func(a simagent.Answer) { p.set(a.Agent, false) },
	}
}

// allOpen waits until n agents have an open check-in.
func (p *openPolls) allOpen(t *testing.T, n int) {
	t.Helper()
	Eventually(t, "every agent polls", func(context.Context) error {
		if open := p.count(); open < n {
			return fmt.Errorf("%d of %d do", open, n)
		}
		return nil
	})
}

// waitConsistent waits until the history, completed from the store, has no violations, and
// otherwise fails with the violations.
func waitConsistent(t *testing.T, r *Recorder, complete func(context.Context, History) (History, error)) History {
	t.Helper()
	var h History
	Eventually(t, "the history is consistent", func(ctx context.Context) error {
		var err error
		if h, err = complete(ctx, r.History()); err != nil {
			return err
		}
		const most = 20 // one fault may have hundreds of consequences
		found := Check(h)
		var errs []error
		for _, v := range found[:min(len(found), most)] {
			errs = append(errs, errors.New(v.String()))
		}
		if len(found) > most {
			errs = append(errs, fmt.Errorf("… and %d more", len(found)-most))
		}
		return errors.Join(errs...)
	})
	return h
}

// statuses counts the answers to agents other than 200.
func statuses(h History) string {
	counts := map[int]int{}
	for _, r := range h.Refusals {
		counts[r.Status]++
	}
	return fmt.Sprint(counts)
}

// percentile returns a percentile of d, and sorts d.
func percentile(d []time.Duration, p int) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*p/100)]
}
