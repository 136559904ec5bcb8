// Package outage keeps agents served while the store is away, slow, read-only or
// red. The handlers and services of agents' messages ask it, each message once:
//
//   - the monitor knows whether the store is there;
//   - what is known of agents, in memory, tells a sound key from a wrong one;
//   - the journal, on this server's disk, takes what agents say, and the replay
//     hands it to the store when that is back, in the order in which it came.
//
// Agents notice nothing: they stay parked and their messages are answered as ever.
package outage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// CallTimeout bounds how long one message waits for the store before it is kept
// instead: ten times what a slow store takes, and well below the half minute after
// which agents hang up.
const CallTimeout = 5 * time.Second

// Kind says what a message is.
type Kind string

// The kinds of messages that are kept. They stand in files: append only.
const (
	Checkin Kind = "checkin" // an agentapi.CheckinRequest
	Ack     Kind = "ack"     // an agentapi.AckEvent
	Beacon  Kind = "beacon"  // an agentapi.Beacon, of the watcher
	Left    Kind = "left"    // the reason of audit/unenroll, a string
)

// Word is what an agent, or its watcher, says.
type Word struct {
	// Agent is as the authentication found it.
	Agent fleet.Agent
	Kind  Kind
	At    time.Time
	// Body is kept as JSON.
	Body any
	// Gist is what makes the word new: one with the gist of the last of its kind
	// need not be kept again. nil: every word is new.
	Gist any
}

// Writer writes a kept message, with the time at which it was received. agent has
// just been read. It fails with NotFound or Invalid if nothing can come of it.
type Writer func(ctx context.Context, agent fleet.Agent, m Message) error

// Keeper brings agents' messages to the store, and keeps them while it is away. A
// nil Keeper keeps nothing: every call goes to the store. Run must be running.
type Keeper struct {
	Agents  store.Agents
	Monitor *Monitor
	Known   *Known
	Journal *Journal
	// Write has for each kind what brings a kept message to the store: the same
	// code that takes a live one in.
	Write map[Kind]Writer
	Log   *slog.Logger
	Now   clock.Clock

	ends    ends
	dropped atomic.Int64
	wake    chan struct{}
	tries   map[int64]int // of the replay alone: by Seq
}

// New makes a keeper with a journal in dir. ping says whether the store takes
// reads and writes, in words for operators. Close must follow.
func New(dir string, maxBytes int64, agents store.Agents, ping func(context.Context) error, log *slog.Logger, now clock.Clock) (*Keeper, error) {
	j, err := OpenJournal(dir, maxBytes, log)
	if err != nil {
		return nil, err
	}
	k := &Keeper{Agents: agents, Known: &Known{}, Journal: j, Log: log, Now: now, wake: make(chan struct{}, 1), tries: map[int64]int{}}
	k.Monitor = &Monitor{Ping: ping, Log: log, Now: now, Back: k.signal}
	return k, nil
}

// Close closes the journal. What is in it stays, for the next process.
func (k *Keeper) Close() error { return k.Journal.Close() }

// Run watches the store and writes what was kept, until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		k.Monitor.Run(ctx)
	}()
	k.replay(ctx)
	<-watched
}

// Away is nil while the store is there, else says why it is not.
func (k *Keeper) Away() error {
	if k == nil {
		return nil
	}
	if s := k.Monitor.State(); s.Away {
		return fleet.Errorf(fleet.Unavailable, "the store has been away since %s: %s", s.Since.Format(time.RFC3339), s.Reason)
	}
	return nil
}

// Ready is nil if the store can be asked for an agent: it is there, and has all
// that the agent said before.
func (k *Keeper) Ready(agentID string) error {
	if err := k.Away(); err != nil || k == nil {
		return err
	}
	if k.Journal.Holds(agentID) {
		return fleet.Errorf(fleet.Unavailable, "what agent %s said while the store was away is being written", agentID)
	}
	return nil
}

// CaughtUp is nil if the store is there and has all that agents told this server.
// Who judges agents by their documents waits for it: an upgrade looks stuck while
// its phases are still in the journal.
func (k *Keeper) CaughtUp() error {
	if err := k.Away(); err != nil || k == nil {
		return err
	}
	if n, _ := k.Journal.Size(); n > 0 {
		return fleet.Errorf(fleet.Unavailable, "catching up: %d messages of agents are being written", n)
	}
	return nil
}

// Degraded says what is wrong, as a sentence without addresses or secrets; empty
// when nothing is.
func (k *Keeper) Degraded() string {
	err := k.CaughtUp()
	if err == nil {
		return ""
	}
	text := err.Error()
	messages, size := k.Journal.Size()
	if k.Away() != nil && messages > 0 {
		text = fmt.Sprintf("%s; %d messages of agents (%d bytes) are kept until it is back", text, messages, size)
	}
	if problem := k.Journal.Problem(); problem != "" {
		text += "; " + problem
	}
	return text
}

// Since is when the store came back last, or the server began to watch it. What an
// agent seems to have been silent before that was not its own silence.
func (k *Keeper) Since() time.Time {
	if k == nil {
		return time.Time{}
	}
	return k.Monitor.State().Since
}

// Dropped counts the kept messages that nothing could come of.
func (k *Keeper) Dropped() int64 { return k.dropped.Load() }

// Ask does a call of the store for a message, within CallTimeout. What it fails
// with makes the monitor look.
func (k *Keeper) Ask(ctx context.Context, call func(context.Context) error) error {
	if k == nil {
		return call(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	err := call(bounded)
	if ctx.Err() == nil { // else it is the client that has gone
		k.Failed(err)
	}
	return asUnavailable(err)
}

// AskShared is Ask for a call that need not end when its client hangs up. Those of the
// same second share their end: a timer and a context of its own are a fifth of what an
// acknowledgement allocates.
func (k *Keeper) AskShared(ctx context.Context, call func(context.Context) error) error {
	if k == nil {
		return call(ctx)
	}
	err := call(sharing{ctx, k.ends.next()})
	k.Failed(err)
	return asUnavailable(err)
}

// asUnavailable says of a call that failed because of the store that it did.
func asUnavailable(err error) error {
	if away(err) && fleet.KindOf(err) != fleet.Unavailable {
		return fleet.Errorf(fleet.Unavailable, "the store did not answer in time: %w", err)
	}
	return err
}

// Failed makes the monitor look, if err says that the store is away.
func (k *Keeper) Failed(err error) {
	if k != nil && away(err) {
		k.Monitor.Failed()
	}
}

// away says whether a call failed because of the store, so that it may succeed
// later.
func away(err error) bool {
	return err != nil && (fleet.KindOf(err) == fleet.Unavailable || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled))
}

type arrivedKey struct{}

// arrival is a context with a time: with context.WithValue the time is one more object
// of each request.
type arrival struct {
	context.Context //nolint:containedctx // it is one
	at              time.Time
}

func (a *arrival) Value(key any) any {
	if key == (arrivedKey{}) {
		return a
	}
	return a.Context.Value(key)
}

// Arrived notes in the context of a request when it came. Requests of one agent
// that wait for a store which hangs are let go in any order, each some seconds
// later; what they said is written in the order in which they came.
func Arrived(ctx context.Context, at time.Time) context.Context { return &arrival{ctx, at} }

func arrived(ctx context.Context, otherwise time.Time) time.Time {
	if a, ok := ctx.Value(arrivedKey{}).(*arrival); ok {
		return a.at
	}
	return otherwise
}

// Take brings a word to the store through write, or keeps it: then it is durable
// and will be written, in the order in which the agent said it. An error of kind
// Unavailable says that neither was possible; others are write's.
func (k *Keeper) Take(ctx context.Context, w Word, write func(context.Context) error) (kept bool, err error) {
	if k == nil {
		return false, write(ctx)
	}
	gist := gistOf(w.Gist)
	// A document from memory has no revision: nothing can be written over it.
	if err = k.Ready(w.Agent.ID); err == nil && w.Agent.Revision != 0 {
		if err = k.Ask(ctx, write); !away(err) {
			if err == nil {
				k.Known.said(w.Agent.ID, w.Kind, gist)
			}
			return false, err
		}
	}
	if k.Known.repeats(w.Agent.ID, w.Kind, gist) {
		return true, nil
	}
	if err := k.keep(ctx, w); err != nil {
		return false, err
	}
	k.Known.said(w.Agent.ID, w.Kind, gist)
	return true, nil
}

// keep makes a word durable here. A client that hangs up does not stop that: it
// may be an upgrade's phase, which nobody says twice.
func (k *Keeper) keep(ctx context.Context, w Word) error {
	body, err := json.Marshal(w.Body)
	if err != nil {
		return err
	}
	key := w.Agent.AccessKeyID
	if w.Kind == Beacon {
		key = w.Agent.WatcherKeyID
	}
	m := Message{AgentID: w.Agent.ID, KeyID: key, Kind: w.Kind, Received: arrived(ctx, w.At), Body: body}
	if err := k.Journal.Add(context.WithoutCancel(ctx), m); err != nil {
		return err
	}
	k.signal()
	return nil
}

// ByAccessKey finds the agent with a key: in the store, or in memory while that is
// away. One from memory has no more than its keys, and no Revision.
func (k *Keeper) ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error) {
	return find(ctx, k, func(ctx context.Context) (fleet.Agent, error) { return k.Agents.ByAccessKey(ctx, keyID) },
		k.Known.Note, func() (fleet.Agent, bool) { return k.Known.byAccessKey(keyID) })
}

// ByWatcherKey finds the agent of an id for its watcher, as ByAccessKey does. In
// memory another key than the watcher's is no proof of a wrong one: the host may
// have enrolled again at another server.
func (k *Keeper) ByWatcherKey(ctx context.Context, id, keyID string) (fleet.Agent, error) {
	return find(ctx, k, func(ctx context.Context) (fleet.Agent, error) { return k.Agents.Get(ctx, id) },
		k.Known.Note, func() (fleet.Agent, bool) {
			a, ok := k.Known.byID(id)
			return a, ok && a.WatcherKeyID == keyID
		})
}

// Package finds a published package, as ByAccessKey does: agents in the middle of
// an upgrade go on.
func (k *Keeper) Package(ctx context.Context, packages store.Collection[fleet.Package], file string) (fleet.Package, error) {
	if k == nil {
		return packages.Get(ctx, file)
	}
	return find(ctx, k, func(ctx context.Context) (fleet.Package, error) { return packages.Get(ctx, file) },
		k.Known.notePackage, func() (fleet.Package, bool) { return k.Known.byFile(file) })
}

// find asks the store, and what is known while the store is away. Unavailable says
// that nobody knows.
func find[T any](ctx context.Context, k *Keeper, ask func(context.Context) (T, error), note func(T), known func() (T, bool)) (v T, err error) {
	if err = k.Away(); err == nil {
		err = k.Ask(ctx, func(ctx context.Context) (err error) {
			v, err = ask(ctx)
			return err
		})
	}
	switch {
	case err == nil:
		note(v)
		return v, nil
	case away(err):
		if v, ok := known(); ok {
			return v, nil
		}
	}
	var none T
	return none, err
}
