package presence_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/presence"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

var start = time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)

// others stands for the other processes of a store.
type others struct {
	store.Watched
	mu      sync.Mutex
	changes store.Changes // since the last look
	asked   []int64       // the places that were asked for
	away    bool
}

func (o *others) ChangesElsewhere(_ context.Context, since int64) (store.Changes, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.asked = append(o.asked, since)
	if o.away {
		return store.Changes{}, errors.New("the store is away")
	}
	c := o.changes
	c.Next = since + int64(len(c.Agents))
	if since < 0 {
		c = store.Changes{Lost: true}
	}
	if !c.More {
		o.changes = store.Changes{}
	}
	return c, nil
}

func (o *others) set(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

func registry() *presence.Registry { return presence.New(&others{}, slog.New(slog.DiscardHandler)) }

func word(agent, said string) presence.Word {
	return presence.Word{AgentID: agent, Proof: presence.DigestOf([]byte("proof of " + agent)), Said: presence.DigestOf([]byte(said))}
}

// settled is an agent that is well and has nothing to do.
func settled(id string) fleet.Agent {
	return fleet.Agent{
		ID: id, Active: true, AccessKeyID: "key", PolicyID: "default", EnrolledAt: start, Version: "1.0.0", LastHealthyVersion: "1.0.0",
		LocalMetadata: []byte(`{"host":{"hostname":"host-` + id + `"}}`),
	}
}

// keep does what the check-in service does with an agent nothing is new about.
func keep(r *presence.Registry, w presence.Word, known presence.Known, now time.Time) {
	a := settled(w.AgentID)
	r.Keep(presence.Mark{Word: w, Ticket: r.Ticket(w.AgentID)}, &a, known, now)
}

func TestAWordIsKnownAgain(t *testing.T) {
	r := registry()
	known := presence.Known{After: 7, Wait: 10 * time.Minute}
	keep(r, word("a", "well"), known, start)
	stranger := word("a", "well")
	stranger.Proof = presence.DigestOf([]byte("guess"))
	for _, c := range []struct {
		name string
		word presence.Word
		at   time.Duration
		want bool
	}{
		{"the same", word("a", "well"), time.Minute, true},
		{"another word", word("a", "ill"), time.Minute, false},
		{"another agent", word("b", "well"), time.Minute, false},
		{"another proof", stranger, time.Minute, false},
		// A long silence is for the document.
		{"after a long silence", word("a", "well"), fleet.OfflineAfter, false},
	} {
		got, ok := r.Repeats(c.word, start.Add(c.at))
		if ok != c.want || ok && got != known {
			t.Errorf("%s: known is %+v, %t", c.name, got, ok)
		}
	}
	if !r.Proves("a", word("a", "").Proof) || r.Proves("a", stranger.Proof) || r.Proves("b", word("b", "").Proof) {
		t.Error("proofs are not told apart")
	}
	if host, ok := r.Settled("a", word("a", "").Proof); host != "host-a" || !ok {
		t.Errorf("the host of a settled agent is %q, %t", host, ok)
	}
	if _, ok := r.Settled("a", stranger.Proof); ok {
		t.Error("a stranger's acknowledgement is taken")
	}
	r.Seen("a", start.Add(fleet.OfflineAfter-time.Minute)) // it is parked
	if _, ok := r.Repeats(word("a", "well"), start.Add(fleet.OfflineAfter)); !ok {
		t.Error("an agent that is seen counts as silent")
	}
}

// Whatever is done in whatever order: what is known was learnt after the last
// change of that agent.
func TestNothingIsKnownThatHasChanged(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := registry()
		names := []string{"a", "b", "c"}
		version := map[string]int{}           // of each agent's document
		reading := map[string]presence.Mark{} // who has read and not yet kept
		readAt := map[string]int{}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "agent")
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0: // a check-in reads the agent
				reading[name] = presence.Mark{Word: word(name, "well"), Ticket: r.Ticket(name)}
				readAt[name] = version[name]
			case 1: // and finds nothing new
				if m, ok := reading[name]; ok {
					a := settled(name)
					r.Keep(m, &a, presence.Known{After: int64(readAt[name])}, start)
					delete(reading, name)
				}
			case 2:
				version[name]++
				r.Changed(name)
			}
			for _, name := range names {
				if known, ok := r.Repeats(word(name, "well"), start); ok && known.After != int64(version[name]) {
					t.Fatalf("of agent %s version %d is known, it has %d", name, known.After, version[name])
				}
			}
		}
	})
}

func TestWhatOthersChangeIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &others{}
		r := presence.New(o, slog.New(slog.DiscardHandler))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Run(ctx)
		look := func() { time.Sleep(2 * presence.LookInterval); synctest.Wait() }
		names := []string{"a", "b"}
		want := func(what string, known ...string) {
			t.Helper()
			var got []string
			for _, name := range names {
				if _, ok := r.Repeats(word(name, "well"), time.Now()); ok {
					got = append(got, name)
				}
			}
			if !slices.Equal(got, known) {
				t.Errorf("after %s it knows %q, want %q", what, got, known)
			}
		}
		agent := settled("a")
		same := store.StanceOf(&agent)
		written := func(stance store.Stance) store.Changes {
			return store.Changes{Agents: []store.AgentChange{{AgentID: "a", Stance: stance}}}
		}
		look() // the first has nothing to compare with
		for _, c := range []struct {
			what  string
			set   func()
			known []string
		}{
			{"nothing", func() {}, names},
			{"a write that changed no check-in", func() { o.changes = written(same) }, names},
			{"another document", func() { o.changes = written(same + 1) }, names[1:]},
			{"a removal", func() { o.changes = written(0) }, names[1:]},
			{"another status", func() {
				o.changes = store.Changes{Agents: []store.AgentChange{{AgentID: "a", Kind: store.AgentTold, At: time.Now(), Status: "online"}}}
			}, names[1:]},
			{"a check-in elsewhere that said nothing new", func() {
				o.changes = store.Changes{Agents: []store.AgentChange{{AgentID: "a", Kind: store.AgentTouched, At: time.Now()}}}
			}, names},
			{"writes that cannot be told", func() { o.changes.Lost = true }, nil},
			{"more writes than can be read", func() { o.changes.More = true }, nil},
			{"the store's absence", func() { o.away = true }, nil},
			{"its return", func() { o.away = false }, names},
		} {
			for _, name := range names {
				keep(r, word(name, "well"), presence.Known{}, time.Now())
			}
			o.set(c.set)
			look()
			want(c.what, c.known...)
			o.set(func() { o.changes = store.Changes{} })
		}

		// Who is seen elsewhere is not silent.
		time.Sleep(fleet.OfflineAfter)
		o.set(func() {
			o.changes.Agents = []store.AgentChange{{AgentID: "a", Kind: store.AgentTouched, At: time.Now()}}
		})
		look()
		want("a long silence, and a sign of one of them elsewhere", "a")
		// What it was not told while the store was away comes later.
		o.set(func() { o.away, o.asked = true, nil })
		look()
		at := o.asked[0]
		o.set(func() { o.away, o.asked = false, nil })
		look()
		if o.asked[0] != at {
			t.Errorf("when the store is back it is asked from %d on, want %d", o.asked[0], at)
		}
	})
}

func TestWithoutAWayToLearnOfOthersNothingIsKnown(t *testing.T) {
	var none *presence.Registry
	for name, r := range map[string]*presence.Registry{"none": none, "a store of many": presence.New(nil, slog.New(slog.DiscardHandler))} {
		keep(r, word("a", "well"), presence.Known{}, start)
		r.Seen("a", start)
		if _, ok := r.Repeats(word("a", "well"), start); ok || r.Proves("a", word("a", "").Proof) {
			t.Errorf("%s: something is known", name)
		}
	}
}

func TestEveryWriteOfAnAgentIsHeardOf(t *testing.T) {
	ctx := t.Context()
	path := filepath.Join(t.TempDir(), "muster.db")
	db := sqlitetest.Open(t, path)
	r := presence.New(db, slog.New(slog.DiscardHandler))
	agents := presence.Store{Store: db, Registry: r}.Agents()
	agent := func() fleet.Agent {
		a, err := agents.Get(ctx, "a")
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := settled("a")
	changed := func(change func(*fleet.Agent)) fleet.Agent {
		a := agent()
		change(&a)
		return a
	}
	begin := func(a *fleet.Agent) { a.BeginUpgrade("action", "2.0.0", start) }
	otherKey := func(a *fleet.Agent) { a.AccessKeyID = "another" }
	touch := &fleet.Touch{AgentID: "a", At: start, Status: "degraded"}
	for _, c := range []struct {
		name  string
		write func() error
		known bool // afterwards
	}{
		{"create", func() error { return agents.Create(ctx, a) }, false},
		{"update of what no check-in says", func() error {
			_, err := agents.Update(ctx, changed(func(a *fleet.Agent) { a.Tags = []string{"eu"} }))
			return err
		}, true},
		{"begin of an upgrade", func() error { _, err := agents.UpdateMany(ctx, []fleet.Agent{changed(begin)}); return err }, true},
		{"upgrade that is downloading", func() error {
			a := changed(func(a *fleet.Agent) { a.UpgradeDetails = &agentapi.UpgradeDetails{State: agentapi.UpgradeDownloading} })
			_, err := agents.Report(ctx, store.Report{Agent: &a})
			return err
		}, false},
		{"end of the upgrade", func() error {
			_, err := agents.Update(ctx, changed(func(a *fleet.Agent) { a.CancelUpgrade("action") }))
			return err
		}, true},
		{"another version", func() error {
			_, err := agents.Update(ctx, changed(func(a *fleet.Agent) { a.Version, a.LastHealthyVersion = "2.0.0", "2.0.0" }))
			return err
		}, false},
		{"the version before", func() error {
			_, err := agents.Update(ctx, changed(func(a *fleet.Agent) { a.Version, a.LastHealthyVersion = "1.0.0", "1.0.0" }))
			return err
		}, true},
		{"update that is refused", func() error {
			if _, err := agents.Update(ctx, a); fleet.KindOf(err) != fleet.Conflict {
				return fmt.Errorf("want a conflict: %w", err)
			}
			return nil
		}, false},
		{"another key", func() error { _, err := agents.UpdateMany(ctx, []fleet.Agent{changed(otherKey)}); return err }, false},
		{"unenrolment", func() error {
			_, err := agents.Update(ctx, changed(func(a *fleet.Agent) { a.AccessKeyID, a.Active = "key", false }))
			return err
		}, false},
		{"report of a status", func() error { _, err := agents.Report(ctx, store.Report{Seen: touch}); return err }, false},
		{"delete", func() error { return agents.Delete(ctx, "a") }, false},
	} {
		keep(r, word("a", "well"), presence.Known{}, start)
		keep(r, word("b", "well"), presence.Known{}, start)
		if err := c.write(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if _, ok := r.Repeats(word("a", "well"), start); ok != c.known {
			t.Errorf("after %s what it said is known: %t", c.name, ok)
		}
	}
}
