package simdisk

import (
	"slices"
	"time"
)

// Tape is a recording of all calls that change a file system or make something durable. It
// is played again without some of the syncs instead of running the programs again, since
// programs do not notice a missing sync.
type Tape struct {
	start *FS
	calls []taped
}

type taped struct {
	call Call
	at   time.Time
	act  func(*FS) error
}

// Record begins to record f, which must not be recorded yet.
func (f *FS) Record() *Tape {
	t := &Tape{start: f.Clone()}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tape = t
	return t
}

func (t *Tape) add(c Call, at time.Time, act func(*FS) error) {
	if t != nil {
		t.calls = append(t.calls, taped{c, at, act})
	}
}

// Snapshot returns a copy of f, and the number of calls recorded so far.
func (f *FS) Snapshot() (copied *FS, calls int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tape != nil {
		calls = len(f.tape.calls)
	}
	return &FS{nodes: slices.Clone(f.nodes), now: f.now}, calls
}

// Same reports whether programs and every power cut see the same on f and g, which one tape
// has made.
func (f *FS) Same(g *FS) bool {
	return slices.EqualFunc(f.nodes, g.nodes, func(a, b *node) bool {
		return a == b || a != nil && b != nil && a.same(b)
	})
}

func (n *node) same(o *node) bool {
	return string(n.data) == string(o.data) && string(n.synced) == string(o.synced) && slices.Equal(n.names, o.names) &&
		slices.Equal(n.kept, o.kept) && len(n.log) == len(o.log)
}

// Play returns the file system after each of the given numbers of calls, which increase,
// without the syncs that skip selects.
func (t *Tape) Play(after []int, skip func(Call) bool) []*FS {
	f, done := t.start.Clone(), 0
	out := make([]*FS, len(after))
	for i, n := range after {
		for ; done < n; done++ {
			c := t.calls[done]
			if c.call.Kind == Sync && skip(c.call) {
				continue
			}
			f.now = c.at
			_ = c.act(f) // fails as it did when it was recorded
		}
		out[i] = f.Clone()
	}
	return out
}
