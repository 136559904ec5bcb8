package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/simagent"
)

// One start of nodes and servers, which takes most of a minute on a busy machine,
// is for all stories. Each leaves everything running.
func TestReplicas(t *testing.T) {
	c := Start(t, Options{Servers: Replicas, Nodes: Nodes})
	for _, story := range []struct {
		name string
		tell func(*testing.T, *Cluster)
	}{
		{"delivery", anActionReachesAgentsAtEveryReplica},
		{"takeover", aRolloutGoesOnAtAnotherReplica},
		{"history", nothingIsLostDoubledOrDisordered},
	} {
		if !t.Run(story.name, func(t *testing.T) { story.tell(t, c) }) {
			return // what it left would fail the next
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// presence is which agents have a check-in open.
type presence struct {
	mu   sync.Mutex
	open map[string]bool
}

func (p *presence) set(agent string, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		p.open = map[string]bool{}
	}
	p.open[agent] = open
}

func (p *presence) count() int {
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

// watch keeps it up to date.
func (p *presence) watch() Watch {
	return Watch{
		Polling: func(agent string) { p.set(agent, true) },
		Answer:  func(a simagent.Answer) { p.set(a.Agent, false) },
	}
}

// allOpen waits until so many agents have a check-in open.
func (p *presence) allOpen(t *testing.T, n int) {
	t.Helper()
	Eventually(t, "every agent polls", func(context.Context) error {
		if open := p.count(); open < n {
			return fmt.Errorf("%d of %d do", open, n)
		}
		return nil
	})
}

// sound waits until everybody has what is for him, and fails the test with what
// is wrong with the history, completed from the store.
func sound(t *testing.T, r *Recorder, complete func(context.Context, History) (History, error)) History {
	t.Helper()
	var h History
	Eventually(t, "the history is sound", func(ctx context.Context) error {
		var err error
		if h, err = complete(ctx, r.History()); err != nil {
			return err
		}
		const most = 20 // one fault may have hundreds of consequences
		found := Check(h)
		var said []error
		for _, v := range found[:min(len(found), most)] {
			said = append(said, errors.New(v.String()))
		}
		if len(found) > most {
			said = append(said, fmt.Errorf("… and %d more", len(found)-most))
		}
		return errors.Join(said...)
	})
	return h
}

// statuses counts what agents were answered besides 200.
func statuses(h History) string {
	counts := map[int]int{}
	for _, r := range h.Refusals {
		counts[r.Status]++
	}
	return fmt.Sprint(counts)
}

// percentile of durations, which are sorted by it.
func percentile(d []time.Duration, p int) time.Duration {
	slices.Sort(d)
	return d[min(len(d)-1, len(d)*p/100)]
}
