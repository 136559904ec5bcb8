package access

import (
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// freeFailures is how many wrong keys of one source are answered without a delay: a
	// person who copies a key wrongly, or a few programs with a key that was replaced.
	freeFailures = 10
	// maxDelay bounds the delay. Keys cannot be guessed, at 256 random bits; the delay
	// keeps whoever tries from costing a read of the store each time. It also delays
	// others behind the same address who have not used their key here before, so it is
	// short.
	maxDelay = 30 * time.Second
	// forgetAfter is how long after its last failure a source is forgotten.
	forgetAfter = 15 * time.Minute
	// maxSources bounds the memory, to about a megabyte. Beyond it half of the sources are
	// forgotten, whichever they are: an attacker with that many addresses is not slowed
	// down by a delay for each.
	maxSources = 10_000
)

// attempts delays the attempts of sources that have sent wrong keys.
type attempts struct {
	mu      sync.Mutex
	sources map[string]failures
}

// failures are the recent wrong keys of a source.
type failures struct {
	count int
	last  time.Time
}

// next returns when the source may try again.
func (f failures) next() time.Time {
	if f.count < freeFailures {
		return f.last
	}
	// 1, 2, 4, 8, 16 s; the bound on the shift keeps it from overflowing.
	return f.last.Add(min(time.Second<<min(f.count-freeFailures, 10), maxDelay))
}

// allow returns an error while the source has to wait.
func (a *attempts) allow(source string, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait := a.sources[source].next().Sub(now)
	if wait <= 0 {
		return nil
	}
	wait = (wait + time.Second - 1).Truncate(time.Second) // Retry-After has whole seconds
	e := fleet.Errorf(fleet.TooMany, "too many wrong admin API keys came from your address: try again in %s", wait)
	e.RetryAfter = wait
	return e
}

// failed counts a wrong key.
func (a *attempts) failed(source string, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sources == nil {
		a.sources = map[string]failures{}
	}
	f, known := a.sources[source]
	if now.Sub(f.last) > forgetAfter {
		f = failures{}
	}
	if !known && len(a.sources) >= maxSources {
		a.makeRoom(now)
	}
	a.sources[source] = failures{f.count + 1, now}
}

// makeRoom forgets old failures, and if that is not enough any, until half of the room is
// free, so that it runs seldom.
func (a *attempts) makeRoom(now time.Time) {
	maps.DeleteFunc(a.sources, func(_ string, f failures) bool { return now.Sub(f.last) > forgetAfter })
	if len(a.sources) < maxSources {
		return
	}
	maps.DeleteFunc(a.sources, func(string, failures) bool { return len(a.sources) > maxSources/2 })
}

// succeeded forgets the failures of a source.
func (a *attempts) succeeded(source string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.sources, source)
}

// sourceOf returns what is delayed together: an IPv4 address, or the network of an IPv6
// address, of which one host has all addresses.
func sourceOf(remote string) string {
	p, err := netip.ParseAddrPort(remote)
	if err != nil {
		return remote
	}
	addr := p.Addr().Unmap().WithZone("")
	if addr.Is6() {
		if net, err := addr.Prefix(64); err == nil {
			return net.String()
		}
	}
	return addr.String()
}
