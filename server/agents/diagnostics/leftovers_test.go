package diagnostics

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// folder returns the files of a folder that may not exist yet.
func (w *world) folder() []string {
	list, err := filepath.Glob(filepath.Join(w.s.Dir, "*"))
	if err != nil {
		w.t.Fatal(err)
	}
	return list
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func TestChunkLongerThanAnnouncedIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := agent("web", "act")
	for size, chunks := range map[int64][]int{
		3:                          {4, agentapi.ChunkSize},
		agentapi.ChunkSize + 3:     {agentapi.ChunkSize + 1, 4},
		2*agentapi.ChunkSize - 100: {agentapi.ChunkSize + 1, agentapi.ChunkSize},
	} {
		u := w.begin(a, "act", size)
		for n, length := range chunks[:len(u.Chunks)] {
			body := make([]byte, length)
			if err := w.s.Chunk(t.Context(), u, n, digestOf(body), body); fleet.KindOf(err) != fleet.TooLarge {
				t.Errorf("chunk %d of a file of %d bytes with %d bytes: %v", n, size, length, err)
			}
		}
	}
	if n := len(w.folder()); n != 0 {
		t.Errorf("%d files are left", n)
	}
}

// A chunk arrives while the end of its upload is refused, or another upload takes its place.
func TestChunkOfAnEndedUploadLeavesNothing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world, fleet.Agent, fleet.Upload){
		"refused": func(w *world, a fleet.Agent, u fleet.Upload) {
			if err := w.s.Complete(w.t.Context(), a.ID, u.ID, digestOf(nil)); fleet.KindOf(err) != fleet.Invalid {
				w.t.Errorf("the end: %v", err)
			}
		},
		"replaced": func(w *world, a fleet.Agent, _ fleet.Upload) { w.begin(a, "act", 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			a := agent("web", "act")
			w.begin(a, "act", 3)
			u := w.begin(a, "act", 3)
			if err := w.s.Chunk(t.Context(), u, 0, digestOf([]byte("abc")), []byte("abc")); err != nil {
				t.Fatal(err)
			}
			late, err := w.s.Open(t.Context(), a.ID, u.ID, 0)
			if err != nil {
				t.Fatal(err)
			}
			end(w, a, u)
			if err := w.s.Chunk(t.Context(), late, 0, digestOf([]byte("xyz")), []byte("xyz")); fleet.KindOf(err) != fleet.Invalid {
				t.Errorf("the late chunk: %v", err)
			}
			if n := w.files(); n != 0 {
				t.Errorf("%d files are left", n)
			}
		})
	}
}

func TestBytesWithoutARecordAreSwept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	kept := w.send(agent("web", "act"), "act", "kept")
	write := func(name string, written time.Time) string {
		path := filepath.Join(w.s.Dir, name)
		if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, written, written); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for i := range expireBatch + 5 {
		write(strings.Repeat("a", 60)+string(rune('a'+i%26))+string(rune('a'+i/26)), start.Add(-2*time.Hour))
	}
	fresh := write(strings.Repeat("b", 64), start.Add(-time.Minute))
	for range 2 {
		if err := w.s.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := w.files(); n != 2 {
		t.Errorf("%d files are left, want that of the upload and the fresh one", n)
	}
	if _, err := os.Stat(fresh); err != nil {
		t.Errorf("a chunk whose record is being written: %v", err)
	}
	if got, err := w.content(kept.ID); got != "kept" || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
}
