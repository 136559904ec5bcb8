package presence

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

// Whoever reads and writes an agent side by side, in whatever order: once the writes
// are over, what is known by heart fits the document that is in the store.
func TestWhatIsKnownFitsTheDocument(t *testing.T) {
	type write struct {
		version, read int // what it writes, over which revision
		was           *entry
		done, ok      bool
	}
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	agent := func(version int) *fleet.Agent {
		v := strconv.Itoa(version)
		return &fleet.Agent{ID: "a", Active: true, Version: v, LastHealthyVersion: v}
	}
	rapid.Check(t, func(t *rapid.T) {
		r := testRegistry(quiet{})
		var version, revision int // the document in the store
		var writes []*write
		var reads []func()
		t.Repeat(map[string]func(*rapid.T){
			"read": func(*rapid.T) {
				mark, read := Mark{Word: Word{AgentID: "a"}, Ticket: r.Ticket("a")}, version
				reads = append(reads, func() { r.Keep(mark, agent(read), Known{After: int64(read)}, start) })
			},
			"keep": func(t *rapid.T) {
				if len(reads) == 0 {
					return
				}
				i := rapid.IntRange(0, len(reads)-1).Draw(t, "who")
				reads[i]()
				reads = append(reads[:i], reads[i+1:]...)
			},
			"begin": func(t *rapid.T) {
				next := version + rapid.IntRange(0, 1).Draw(t, "change")
				writes = append(writes, &write{version: next, read: revision, was: r.changing("a")})
			},
			"commit": func(t *rapid.T) {
				if len(writes) == 0 {
					return
				}
				w := rapid.SampledFrom(writes).Draw(t, "who")
				if !w.done {
					w.done, w.ok = true, w.read == revision
				}
				if w.ok && w.read == revision {
					version = w.version
					revision++
				}
			},
			"end": func(t *rapid.T) {
				if len(writes) == 0 {
					return
				}
				i := rapid.IntRange(0, len(writes)-1).Draw(t, "who")
				w := writes[i]
				if !w.done {
					w.done, w.ok = true, false // it was broken off
				}
				r.changed(agent(w.version), w.was, w.ok)
				writes = append(writes[:i], writes[i+1:]...)
			},
			"": func(t *rapid.T) {
				known, ok := r.Repeats(Word{AgentID: "a"}, start)
				if ok && len(writes) == 0 && known.After != int64(version) {
					t.Fatalf("version %d is known, the document has %d", known.After, version)
				}
			},
		})
	})
}
