package storetest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func event(i int) fleet.Event {
	return fleet.Event{At: at(time.Duration(i) * time.Second), Type: fleet.EventAgentStatus, Subject: fmt.Sprint("agent-", i), Actor: "admin", Data: json.RawMessage(`{"status":"online"}`)}
}

func testEvents(t *testing.T, cfg Config) {
	ctx := t.Context()
	bounds := func(t *testing.T, s store.Store, wantFirst, wantLast int64) {
		t.Helper()
		cfg.eventually(t, func() error {
			first, last, err := s.Events().Bounds(ctx)
			if err != nil || first != wantFirst || last != wantLast {
				return fmt.Errorf("bounds are %d and %d, want %d and %d: %w", first, last, wantFirst, wantLast, err)
			}
			return nil
		})
	}
	// read waits until there are n events after a Seq, and returns them.
	read := func(t *testing.T, s store.Store, after int64, n int) (list []fleet.Event) {
		t.Helper()
		cfg.eventually(t, func() (err error) {
			if list, err = s.Events().After(ctx, after, n+1); err != nil || len(list) != n {
				return fmt.Errorf("%d events, want %d: %w", len(list), n, err)
			}
			return nil
		})
		return list
	}

	t.Run("Append cuts long texts", func(t *testing.T) {
		s := cfg.open(t)
		long := strings.Repeat("é", 5_000)
		a := agent("web")
		must(t, s.Agents().Create(ctx, a))
		list := []fleet.Event{event(0), event(1), event(2), event(3)}
		list[1].Data = json.RawMessage(`{"message":"` + long + `","n":12345678901234567890}`)
		list[2].Data = json.RawMessage(`{"a":"` + long + `","b":["` + long + `","` + strings.Repeat(`\u0001`, 5_000) + `"],"c":"kept"}`)
		list[3].Data = json.RawMessage(`{"staged_versions":["1"` + strings.Repeat(`,"1.0.0"`, 1_000) + `]}`)
		must(t, s.Events().Append(ctx, list))
		value(s.Agents().Report(ctx, store.Report{
			Results: []fleet.Result{{ActionID: "x", AgentID: a.ID, Error: long, Message: long, Timestamp: at(0)}}, Events: list[1:2],
		}))(t)
		for i, ev := range read(t, s, 0, 6) {
			var got any
			if i == 3 && ev.Data == nil { // readers read the agent
				continue
			}
			if err := json.Unmarshal(ev.Data, &got); err != nil || len(ev.Data) > 3*fleet.MaxEventText {
				t.Errorf("event %d has %d bytes: %.300s, %v", i, len(ev.Data), ev.Data, err)
			}
		}
		var got struct {
			Message string
			N       json.Number
		}
		must(t, json.Unmarshal(read(t, s, 0, 6)[1].Data, &got))
		if !strings.HasSuffix(got.Message, "é… (10000 bytes)") || len(got.Message) > fleet.MaxEventText || got.N != "12345678901234567890" {
			t.Errorf("the event has %+v", got)
		}
	})

	t.Run("After returns the appended events in order", func(t *testing.T) {
		s := cfg.open(t)
		bounds(t, s, 0, 0)
		if list := value(s.Events().After(ctx, 0, 10))(t); len(list) != 0 {
			t.Fatalf("there are events: %v", list)
		}
		must(t, s.Events().Append(ctx, []fleet.Event{event(0), event(1), {Type: "bare"}}))
		must(t, s.Events().Append(ctx, nil))
		must(t, s.Events().Append(ctx, []fleet.Event{event(3)}))
		list := read(t, s, 0, 4)
		for i, want := range []fleet.Event{event(0), event(1), {Type: "bare"}, event(3)} {
			if i > 0 && list[i].Seq <= list[i-1].Seq {
				t.Fatalf("Seq does not increase: %d after %d", list[i].Seq, list[i-1].Seq)
			}
			want.Seq = list[i].Seq
			equal(t, list[i], want)
		}
		bounds(t, s, list[0].Seq, list[3].Seq)
		equal(t, value(s.Events().After(ctx, list[1].Seq, 1))(t), list[2:3])
		equal(t, value(s.Events().After(ctx, list[3].Seq, 9))(t), []fleet.Event{})
	})

	t.Run("Trim removes the oldest events and reuses no Seq", func(t *testing.T) {
		s := cfg.open(t)
		var list []fleet.Event
		for i := range 10 {
			list = append(list, event(i))
		}
		must(t, s.Events().Append(ctx, list))
		list = read(t, s, 0, 10)
		must(t, s.Events().Trim(ctx, 100))
		must(t, s.Events().Trim(ctx, 10))
		equal(t, read(t, s, 0, 10), list)
		must(t, s.Events().Trim(ctx, 3))
		equal(t, read(t, s, 0, 3), list[7:])
		bounds(t, s, list[7].Seq, list[9].Seq)
		must(t, s.Events().Trim(ctx, 0))
		read(t, s, 0, 0)
		must(t, s.Events().Append(ctx, []fleet.Event{event(11)}))
		if next := read(t, s, 0, 1); next[0].Seq <= list[9].Seq {
			t.Fatalf("Seq is %d, want one above %d", next[0].Seq, list[9].Seq)
		}
	})

	t.Run("readers see the events of concurrent writers in two processes once and in order", func(t *testing.T) {
		h := history{
			stores: cfg.openTwice(t),
			write: func(ctx context.Context, s store.Store, id string) (int64, error) {
				return 0, s.Events().Append(ctx, []fleet.Event{{Type: id, At: base}})
			},
			read: func(ctx context.Context, s store.Store, after int64) (entries []entry, err error) {
				list, err := s.Events().After(ctx, after, 3)
				for _, e := range list {
					entries = append(entries, entry{e.Seq, e.Type})
				}
				return entries, err
			},
			last: func(ctx context.Context, s store.Store) (int64, error) {
				_, last, err := s.Events().Bounds(ctx)
				return last, err
			},
		}
		h.check(t, cfg)
	})
}

func testSettings(t *testing.T, cfg Config) {
	ctx := t.Context()

	t.Run("GetOrPut returns the first value", func(t *testing.T) {
		s := cfg.open(t)
		for name, first := range map[string][]byte{"key": {0, 1, 2, 255}, "empty": {}} {
			for _, v := range [][]byte{first, []byte("later")} {
				got := value(s.Settings().GetOrPut(ctx, name, v))(t)
				if string(got) != string(first) {
					t.Fatalf("%s is %q, want %q", name, got, first)
				}
				clear(got) // must not affect the store
			}
		}
	})

	t.Run("Get fails with NotFound before GetOrPut and after Delete", func(t *testing.T) {
		stores := cfg.openTwice(t)
		s, other := stores[0], stores[1]
		_, err := s.Settings().Get(ctx, "key")
		wantKind(t, err, fleet.NotFound)
		value(s.Settings().GetOrPut(ctx, "key", []byte("first")))(t)
		if got := value(other.Settings().Get(ctx, "key"))(t); string(got) != "first" {
			t.Fatalf("the setting is %q", got)
		}
		for range 2 {
			must(t, s.Settings().Delete(ctx, "key"))
		}
		_, err = other.Settings().Get(ctx, "key")
		wantKind(t, err, fleet.NotFound)
		if got := value(other.Settings().GetOrPut(ctx, "key", []byte("second")))(t); string(got) != "second" {
			t.Fatalf("put again, the setting is %q", got)
		}
	})

	t.Run("concurrent calls of GetOrPut return the same value", func(t *testing.T) {
		stores := cfg.openTwice(t)
		got := make([]string, 12)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() {
				v, err := stores[i%2].Settings().GetOrPut(ctx, "key", fmt.Append(nil, "value ", i))
				if err != nil {
					t.Error(err)
				}
				got[i] = string(v)
			})
		}
		all.Wait()
		for i, v := range got {
			if v != got[0] || v == "" {
				t.Fatalf("caller %d got %q, caller 0 got %q", i, v, got[0])
			}
		}
	})
}
