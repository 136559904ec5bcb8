package outage

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// replayInterval is how often the journal is looked at when nothing wakes: after
	// a message that could not be written yet.
	replayInterval = time.Second
	// replayBatch bounds one read of the journal, and what a crash writes twice.
	replayBatch = 512
	// replayParallel is how many agents are written at once: enough for some two
	// thousand messages a second of a store that takes 50 ms. Ten minutes of 19,000
	// agents that are being upgraded, 300,000 messages, take some minutes then; both
	// stores write together what comes together.
	replayParallel = 128
	// replayTries is how often a message is tried that the store, which is there,
	// does not take. Behind it the agent waits for all that is new.
	replayTries = 5
)

func (k *Keeper) signal() {
	select {
	case k.wake <- struct{}{}:
	default: // a round is due anyway
	}
}

// replay writes what is in the journal whenever the store is there, until ctx ends.
func (k *Keeper) replay(ctx context.Context) {
	tick := time.NewTicker(replayInterval)
	defer tick.Stop()
	for {
		if n, _ := k.Journal.Size(); n > 0 && k.Away() == nil {
			k.replayOnce(ctx)
			if left, _ := k.Journal.Size(); left == 0 {
				k.Log.Info("what agents said while the store was away is written", "messages", n)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		case <-tick.C:
		}
	}
}

// replayOnce goes through the journal once, from the oldest message on. An agent
// whose message cannot be written yet is left for the next round, with all that it
// said later; if it is the store that does not answer, everybody is.
func (k *Keeper) replayOnce(ctx context.Context) {
	r := round{keeper: k, stuck: map[string]bool{}}
	for after := int64(0); ctx.Err() == nil && !r.away.Load(); {
		batch, err := k.Journal.Batch(ctx, after, replayBatch)
		if err != nil {
			if ctx.Err() == nil {
				k.Log.Error("what agents said cannot be written", "error", err)
			}
			return
		}
		if len(batch) == 0 {
			return
		}
		after = batch[len(batch)-1].Seq
		// What is written is removed even when the server ends: else it is written
		// again.
		if err := k.Journal.Remove(context.WithoutCancel(ctx), r.write(ctx, batch)); err != nil {
			k.Log.Error("what agents said will be written again", "error", err)
			return
		}
	}
}

// round is one way through the journal.
type round struct {
	keeper *Keeper
	away   atomic.Bool // the store is: nobody need go on

	mu    sync.Mutex
	stuck map[string]bool // agents
	done  []Message
}

// write writes a batch, each agent's messages in order, and returns those that are
// done with.
func (r *round) write(ctx context.Context, batch []Message) []Message {
	r.done = nil
	var order []string
	byAgent := map[string][]Message{}
	for _, m := range batch {
		if _, ok := byAgent[m.AgentID]; !ok {
			order = append(order, m.AgentID)
		}
		byAgent[m.AgentID] = append(byAgent[m.AgentID], m)
	}
	var agents errgroup.Group
	agents.SetLimit(replayParallel)
	for _, id := range order {
		said := byAgent[id]
		// In the order in which it was said, which may not be that in which it was kept;
		// see Arrived.
		slices.SortStableFunc(said, func(a, b Message) int { return a.Received.Compare(b.Received) })
		agents.Go(func() error {
			if r.isStuck(id) {
				return nil
			}
			for _, m := range said {
				if !r.writeOne(ctx, m) {
					return nil
				}
			}
			return nil
		})
	}
	_ = agents.Wait() // none fails
	return r.done
}

func (r *round) isStuck(agentID string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stuck[agentID]
}

// writeOne says whether the message is done with.
func (r *round) writeOne(ctx context.Context, m Message) bool {
	if r.away.Load() || ctx.Err() != nil {
		return false
	}
	k := r.keeper
	err := k.Ask(ctx, func(ctx context.Context) error { return k.writeKept(ctx, m) })
	if away(err) {
		r.away.Store(true)
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		kind := fleet.KindOf(err)
		if k.tries[m.Seq]++; kind != fleet.NotFound && kind != fleet.Invalid && k.tries[m.Seq] < replayTries {
			r.stuck[m.AgentID] = true
			return false
		}
		k.dropped.Add(1)
		k.Log.Warn("a message that was kept is dropped: nothing can come of it", "agent", m.AgentID, "kind", m.Kind, "received", m.Received, "tries", k.tries[m.Seq], "error", err)
	}
	delete(k.tries, m.Seq)
	r.done = append(r.done, m)
	return true
}

// writeKept does for a kept message what is done for a live one, the check of its
// key among it: the host may have enrolled again since.
func (k *Keeper) writeKept(ctx context.Context, m Message) error {
	write := k.Write[m.Kind]
	if write == nil {
		return fleet.Errorf(fleet.Invalid, "this server knows no message of kind %q", m.Kind)
	}
	a, err := k.Agents.Get(ctx, m.AgentID)
	if err != nil {
		return err
	}
	key := a.AccessKeyID
	if m.Kind == Beacon {
		key = a.WatcherKeyID
	}
	if !a.Active || key != m.KeyID {
		return fleet.Errorf(fleet.Invalid, "agent %s has been unenrolled, or enrolled again, since it said this", m.AgentID)
	}
	return write(ctx, a, m)
}
