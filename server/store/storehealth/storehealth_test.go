package storehealth

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestStateAfterPings(t *testing.T) {
	bad := fleet.Errorf(fleet.Unavailable, "the disk is full")
	// Each letter is a ping: + is answered, - is not, ! is not after a message had
	// failed, ~ is answered after one had.
	for _, row := range []struct {
		name, pings, away string // away: one letter for each ping, a for away
	}{
		{"it is there", "+++", "..."},
		{"one ping is lost", "+-+-+", "....."},
		{"two in a row", "+--", "..a"},
		{"a message and a ping are two witnesses", "+!", ".a"},
		{"a message alone is none", "~~~", "..."},
		{"it stays away", "--!-", ".aaa"},
		{"one good ping ends it", "--+-", ".a.."},
		{"and it can go again", "--+--", ".a..a"},
	} {
		t.Run(row.name, func(t *testing.T) {
			start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
			s, was := State{Since: start}, State{Since: start}
			for i, ping := range row.pings {
				now := start.Add(time.Duration(i+1) * time.Second)
				var err error
				if ping == '-' || ping == '!' {
					err = bad
				}
				s = s.next(err, ping == '!' || ping == '~', now)
				if want := row.away[i] == 'a'; s.Away != want {
					t.Fatalf("after ping %d of %s it is away: %t", i+1, row.pings, s.Away)
				}
				if s.Away != (s.Reason != "") {
					t.Errorf("after ping %d it is away: %t, because %q", i+1, s.Away, s.Reason)
				}
				if changed := s.Away != was.Away; changed && !s.Since.Equal(now) || !changed && !s.Since.Equal(was.Since) {
					t.Errorf("after ping %d at %s it is so since %s", i+1, now, s.Since)
				}
				was = s
			}
		})
	}
}

func TestReasonHasNoAddressAndNoCredential(t *testing.T) {
	secret := errors.New(`Get "http://elastic:changeme@10.0.0.7:9200/": connection refused`)
	for _, err := range []error{
		secret,
		&fleet.Error{Kind: fleet.Unavailable, Message: "Elasticsearch cannot be reached (ping): connection refused", Err: secret},
		context.DeadlineExceeded,
	} {
		if text := reason(err); text == "" || strings.Contains(text, "changeme") || strings.Contains(text, "10.0.0.7") {
			t.Errorf("people are told %q", text)
		}
	}
}

// A store that hangs is away soon after the first call has failed, is pinged seldom
// however many calls fail, and its return is seen within a second.
func TestFailedCallsCauseOnePing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var gone atomic.Bool
		var pings atomic.Int64
		m := New(func(ctx context.Context) error {
			pings.Add(1)
			if gone.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}, slog.New(slog.DiscardHandler), nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		defer func() { stop(); <-done }()
		time.Sleep(10*time.Second + 50*time.Millisecond)
		if n := pings.Load(); m.State().Away || n < 9 || n > 11 {
			t.Fatalf("in 10 s of a good store there were %d pings, away: %t", n, m.State().Away)
		}
		gone.Store(true)
		m.Failed(context.DeadlineExceeded)
		time.Sleep(pingGap + PingTimeout)
		if s := m.State(); !s.Away || s.Reason == "" {
			t.Fatalf("after %s it is %+v", PingTimeout, s)
		}
		before := pings.Load()
		for range 1_000 {
			m.Failed(context.DeadlineExceeded)
			time.Sleep(10 * time.Millisecond)
		}
		if n := pings.Load() - before; n > 5 {
			t.Errorf("a hanging store was pinged %d times in 10 s", n)
		}
		gone.Store(false)
		time.Sleep(PingTimeout + PingInterval + pingGap)
		if m.Away() != nil || time.Since(m.Back()) > PingInterval+PingTimeout {
			t.Errorf("the store is back, and the monitor says %+v", m.State())
		}
		if m.Steady() == nil {
			t.Error("agents may be judged though they have had no time to repeat what was refused")
		}
		time.Sleep(Grace)
		if err := m.Steady(); err != nil {
			t.Errorf("%s after the outage agents may not be judged: %v", Grace, err)
		}
	})
}

func TestCallFailsAtOnceWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		m := New(hang, slog.New(slog.DiscardHandler), nil)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.Run(ctx) }()
		defer func() { stop(); <-done }()
		begin := time.Now()
		if err := m.Call(t.Context(), hang); fleet.KindOf(err) != fleet.Unavailable || time.Since(begin) != CallTimeout {
			t.Errorf("after %s a hanging store gives %v", time.Since(begin), err)
		}
		time.Sleep(pingGap + PingTimeout)
		err := m.Call(t.Context(), func(context.Context) error { t.Error("a store that is away is asked"); return nil })
		if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "the store has been away since") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestCallReturnsOtherErrorsUnchanged(t *testing.T) {
	var m Monitor
	want := fleet.Errorf(fleet.NotFound, "there is no such agent")
	if err := m.Call(t.Context(), func(context.Context) error { return want }); !errors.Is(err, want) || m.Away() != nil {
		t.Errorf("the error is %v, away is %v", err, m.Away())
	}
}
