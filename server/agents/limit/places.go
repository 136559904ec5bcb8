package limit

import (
	"container/list"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
)

// share bounds what one source may hold: this many times as much as is still free. A lone
// source, such as a load balancer, then gets seven eighths, two get seven fifteenths each,
// and something is left for the next one. It is the rule by which switches share their buffers among ports (dynamic
// thresholds), and needs no knowledge of who will come.
const share = 7

// sourceBits is the prefix of an IPv6 address that counts as one source: a network gives
// each host or customer a /64 at least.
const sourceBits = 64

// sourceOf returns the source of an address: an IPv4 address or an IPv6 /64. Addresses
// without an IP are one source.
func sourceOf(a net.Addr) netip.Prefix {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return sourceOfIP(tcp.AddrPort().Addr())
	}
	return netip.Prefix{}
}

// sourceOfText is sourceOf for the RemoteAddr of a request.
func sourceOfText(remote string) netip.Prefix {
	a, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Prefix{}
	}
	return sourceOfIP(a.Addr())
}

func sourceOfIP(ip netip.Addr) netip.Prefix {
	ip = ip.Unmap().WithZone("")
	p, err := ip.Prefix(min(sourceBits, ip.BitLen()))
	if err != nil { // the zero address
		return netip.Prefix{}
	}
	return p
}

// errQueueFull means that a source has more callers waiting than its share.
var errQueueFull = errors.New("too many wait from one address")

// places are a semaphore whose callers have sources: the network of an address, or the id of
// a key. A source holds at most its share of the places, and sources with waiting callers
// take turns, so that none waits behind the crowd of another.
type places[K comparable] struct {
	max, queue int
	most       int // that one source may hold; 0: its share alone decides

	mu      sync.Mutex
	free    int
	waiting int
	sources map[K]*source // those that hold or wait
	turns   list.List     // of *source with waiting callers, the next one first
}

type source struct {
	held    int
	waiting list.List     // of chan struct{}, which is closed when the caller has a place
	turn    *list.Element // in places.turns; nil if nobody waits
}

// newPlaces returns n places for which at most queue callers wait.
func newPlaces[K comparable](n, queue int) *places[K] {
	return &places[K]{max: n, queue: queue, free: n, sources: map[K]*source{}}
}

// acquire waits for a place until ctx ends. It fails at once if too many wait.
func (p *places[K]) acquire(ctx context.Context, from K) error {
	p.mu.Lock()
	s := p.sources[from]
	if s == nil {
		s = &source{}
		p.sources[from] = s
	}
	switch {
	case s.turn == nil && p.room(s):
		p.take(s)
		p.mu.Unlock()
		return nil
	case s.waiting.Len() >= share*(p.queue-p.waiting):
		p.forget(from, s)
		p.mu.Unlock()
		return errQueueFull
	}
	granted := make(chan struct{})
	place := s.waiting.PushBack(granted)
	p.waiting++
	if s.turn == nil {
		s.turn = p.turns.PushBack(s)
	}
	p.mu.Unlock()
	select {
	case <-granted:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-granted: // at the same moment
		p.put(from, s)
	default:
		p.leaveQueue(s, place)
		p.forget(from, s)
	}
	return ctx.Err()
}

// tryAcquire acquires a place if that needs no wait.
func (p *places[K]) tryAcquire(from K) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sources[from]
	if s == nil {
		s = &source{}
		p.sources[from] = s
	}
	if s.turn == nil && p.room(s) {
		p.take(s)
		return true
	}
	p.forget(from, s)
	return false
}

// release returns a place of a source.
func (p *places[K]) release(from K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.put(from, p.sources[from])
}

func (p *places[K]) use() Use {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Use{Max: int64(p.max), Used: int64(p.max - p.free), Waiting: p.waiting}
}

// The caller of these holds the lock.

// room reports whether a source may have one more place.
func (p *places[K]) room(s *source) bool {
	return s.held < share*p.free && (p.most == 0 || s.held < p.most)
}

func (p *places[K]) take(s *source) {
	s.held++
	p.free--
}

// put frees a place and gives out what is free then.
func (p *places[K]) put(from K, s *source) {
	s.held--
	p.free++
	p.forget(from, s)
	for turn := p.turns.Front(); turn != nil && p.free > 0; {
		s := turn.Value.(*source)
		if !p.room(s) {
			turn = turn.Next()
			continue
		}
		p.take(s)
		first := s.waiting.Front()
		close(first.Value.(chan struct{}))
		p.turns.MoveToBack(turn)
		p.leaveQueue(s, first)
		turn = p.turns.Front()
	}
}

func (p *places[K]) leaveQueue(s *source, place *list.Element) {
	s.waiting.Remove(place)
	p.waiting--
	if s.waiting.Len() == 0 {
		p.turns.Remove(s.turn)
		s.turn = nil
	}
}

func (p *places[K]) forget(from K, s *source) {
	if s.held == 0 && s.turn == nil {
		delete(p.sources, from)
	}
}
