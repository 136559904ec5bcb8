package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

const (
	historyAgents = 18
	// groupSize is how many agents an upgrade is for, besides those of one.
	groupSize = 6
	// callsPerPhase is how many successful calls are awaited before, between and after
	// the faults.
	callsPerPhase = 15
	// maxCalls bounds the calls of one writer.
	maxCalls = 400
	// afterUnknown is the pause after a call without an answer: the server may be dead.
	afterUnknown = 200 * time.Millisecond
	// cancelAmong is among how many of the last actions one is chosen to be cancelled.
	cancelAmong = 4
)

// Operators write at all servers continuously while a server is killed, and then the node
// that has the primary of the actions.
func historyIsConsistentThroughFaults(t *testing.T, c *Cluster) {
	var r Recorder
	f := c.Enrol(t, historyAgents, &r, Watch{})
	w := startWriters(t, c, &r, f.IDs)
	w.done(t, "before the faults")

	victim := c.Servers[Replicas-1]
	check(t, victim.Kill())
	w.done(t, "without "+c.Name(Replicas-1))
	check(t, victim.Start(t.Context()))
	w.done(t, "with all servers again")

	node := c.Primary(t, "actions")
	check(t, node.Kill())
	killed := time.Now()
	w.done(t, "without node "+node.Name)
	t.Logf("%d calls were done within %s of the death of the primary", callsPerPhase, time.Since(killed).Round(time.Millisecond))
	check(t, node.Start(t.Context()))
	w.done(t, "with all nodes again")

	w.end(t)
	h := waitConsistent(t, &r, c.Complete)
	outcomes, cancelled, refused := map[string]int{}, 0, 0
	for _, o := range h.Ops {
		outcomes[o.Outcome.String()]++
	}
	for _, a := range h.Actions {
		if refused += len(a.Refused); a.Cancelled {
			cancelled++
		}
	}
	t.Logf("%d calls: %v; %d actions, %d of them cancelled, %d refusals; %d answers and %d acknowledgements, agents were otherwise answered %s",
		len(h.Ops), outcomes, len(h.Actions), cancelled, refused, len(h.Answers), len(h.Acks), statuses(h))
	if outcomes["done"] == 0 || cancelled == 0 || refused == 0 {
		t.Error("the writers made no successful, cancelled or refused call")
	}
	countsAgree(t, c, &r, h)
}

// countsAgree checks that each server shows the counts of the actions in the store.
func countsAgree(t *testing.T, c *Cluster, r *Recorder, h History) {
	t.Helper()
	const perPage = 1_000 // the API's maximum
	for i := range Replicas {
		o := c.Operator(t, i, r)
		Eventually(t, c.Name(i)+" counts as the store does", func(ctx context.Context) error {
			items := map[string]adminapi.ActionStatus{}
			for page := range 2 {
				var list adminapi.ActionStatusList
				if _, err := o.Call(ctx, http.MethodGet, fmt.Sprintf("/api/fleet/agents/action_status?errorSize=0&page=%d&perPage=%d", page, perPage), nil, &list); err != nil {
					return err
				}
				for _, item := range list.Items {
					items[item.ActionId] = item
				}
			}
			for _, a := range h.Actions {
				item, ok := items[a.ID]
				if a.Cancels == "" && (!ok || item.NbAgentsAck != a.Acked || item.NbAgentsFailed != a.Failed) {
					return fmt.Errorf("for %s it shows %d acknowledged and %d failed, the store has %d and %d", a.ID, item.NbAgentsAck, item.NbAgentsFailed, a.Acked, a.Failed)
				}
			}
			return nil
		})
	}
}

// writers are operators that write continuously, one at each server.
type writers struct {
	recorder  *Recorder
	operators []*Operator
	agents    []string
	stop      chan struct{}
	running   sync.WaitGroup

	mu     sync.Mutex
	made   []string // actions, the latest last
	unsure []string // actions with a cancel of unknown outcome
}

func startWriters(t *testing.T, c *Cluster, r *Recorder, agents []string) *writers {
	w := &writers{recorder: r, agents: agents, stop: make(chan struct{})}
	for i := range Replicas {
		o := c.Operator(t, i, r)
		w.operators = append(w.operators, o)
		w.running.Go(func() { w.write(t.Context(), o, rand.New(rand.NewPCG(uint64(i), 1))) })
	}
	return w
}

func (w *writers) write(ctx context.Context, o *Operator, luck *rand.Rand) {
	for i := range maxCalls {
		select {
		case <-w.stop:
			return
		case <-ctx.Done():
			return
		default:
		}
		if op := w.call(ctx, o, luck, fmt.Sprintf("%s-%d", o.Server, i)); op.Outcome == Unknown {
			time.Sleep(afterUnknown)
		}
	}
}

// call makes one random call.
func (w *writers) call(ctx context.Context, o *Operator, luck *rand.Rand, name string) Op {
	what := luck.IntN(10)
	if id := w.recent(luck); what < 2 && id != "" {
		op, _ := o.Cancel(ctx, id)
		if op.Outcome == Unknown {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.unsure = append(w.unsure, id)
		}
		return op
	}
	var op Op
	if what < 4 {
		op, _ = o.UpgradeOne(ctx, name, w.agents[luck.IntN(len(w.agents))])
	} else {
		var group []string
		for _, i := range luck.Perm(len(w.agents))[:groupSize] {
			group = append(group, w.agents[i])
		}
		op, _ = o.Upgrade(ctx, name, group, what < 8)
	}
	if op.Outcome == Done {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.made = append(w.made, op.ActionID)
	}
	return op
}

// recent returns one of the last actions, or "" if there is none.
func (w *writers) recent(luck *rand.Rand) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	last := w.made[max(0, len(w.made)-cancelAmong):]
	if len(last) == 0 {
		return ""
	}
	return last[luck.IntN(len(last))]
}

// done waits until callsPerPhase more calls have succeeded.
func (w *writers) done(t *testing.T, when string) {
	t.Helper()
	isDone := func(o Op) bool { return o.Outcome == Done }
	want := w.recorder.Count(isDone) + callsPerPhase
	Eventually(t, fmt.Sprintf("%d calls are done %s", callsPerPhase, when), func(context.Context) error {
		if n := w.recorder.Count(isDone); n < want {
			return fmt.Errorf("%d are", n-want+callsPerPhase)
		}
		return nil
	})
}

// end stops the writers, and repeats cancels of unknown outcome until they are answered,
// as an operator does.
func (w *writers) end(t *testing.T) {
	t.Helper()
	close(w.stop)
	w.running.Wait()
	slices.Sort(w.unsure)
	for i, id := range slices.Compact(w.unsure) {
		o := w.operators[i%len(w.operators)]
		Eventually(t, "the cancel of "+id+" is answered", func(ctx context.Context) error {
			op, err := o.Cancel(ctx, id)
			if op.Outcome == Unknown {
				return err
			}
			return nil
		})
	}
}
