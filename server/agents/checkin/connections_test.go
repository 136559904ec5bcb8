package checkin

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/storehealth"
)

// What is kept of ended polls is bounded by those that end within twice the time, and none is
// forgotten before.
func TestEndedPollsAreForgotten(t *testing.T) {
	var e ended
	start := time.Unix(1_000_000, 0)
	for i := range 1000 {
		now := start.Add(time.Duration(i) * time.Second)
		if e.add(time.Duration(i).String(), now); len(e.recent)+len(e.older) > 2*int(fleet.ReconnectWithin/time.Second)+2 {
			t.Fatalf("after %d ends it keeps %d and %d", i, len(e.recent), len(e.older))
		}
		for _, ago := range []int{0, 1, 10, 11, 30} {
			want := time.Duration(ago)*time.Second <= fleet.ReconnectWithin && ago <= i
			if got := e.has(time.Duration(i-ago).String(), now); got != want {
				t.Fatalf("after %d ends, that of %d s ago is known: %v, want %v", i, ago, got, want)
			}
		}
	}
}

// A server that has just begun does not know who is on the way back to it.
func TestNoConnectionIsClosedForAServerThatHasJustBegun(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	c := Connections{Parker: &Blocking{}, Health: &storehealth.Monitor{}, Since: now, Now: func() time.Time { return now }}
	if got := c.Of(&fleet.Agent{ID: "a"}); got != fleet.ConnectionUnknown {
		t.Errorf("at its start: %d", got)
	}
	now = now.Add(fleet.ConnectedWithin)
	if got := c.Of(&fleet.Agent{ID: "a"}); got != fleet.ConnectionClosed {
		t.Errorf("later: %d", got)
	}
}

// Where servers share the store, a closed connection counts while the agent was not seen since.
func TestConnectionThatAnotherServerSawClosed(t *testing.T) {
	closed := time.Unix(1_000_000, 0)
	c := Connections{Parker: &Blocking{}, Health: &storehealth.Monitor{}, Closed: func(agentID string) (time.Time, bool) {
		return closed, agentID == "a"
	}}
	for _, of := range []struct {
		id   string
		seen time.Time
		want fleet.Connection
	}{
		{"a", closed.Add(-time.Second), fleet.ConnectionClosed},
		{"a", closed, fleet.ConnectionClosed},
		{"a", closed.Add(time.Millisecond), fleet.ConnectionUnknown}, // it has come back to another server
		{"b", closed.Add(-time.Hour), fleet.ConnectionUnknown},
	} {
		if got := c.Of(&fleet.Agent{ID: of.id, Last: fleet.LastSeen{At: &of.seen}}); got != of.want {
			t.Errorf("agent %s, seen %s: %d, want %d", of.id, of.seen, got, of.want)
		}
	}
}
