package outage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, dir string, maxBytes int64) *Journal {
	t.Helper()
	j, err := OpenJournal(dir, maxBytes, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func message(agent string, n int) Message {
	return Message{
		AgentID: agent, KeyID: "key-" + agent, Kind: Ack, Received: time.Date(2026, 3, 3, 10, 0, n, n, time.UTC),
		Body: fmt.Appendf(nil, `{"n":%d}`, n),
	}
}

func add(t testing.TB, j *Journal, messages ...Message) {
	t.Helper()
	for _, m := range messages {
		if err := j.Add(context.Background(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func all(t testing.TB, j *Journal) []Message {
	t.Helper()
	got, err := j.Batch(context.Background(), 0, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// said is who said what, in order.
func said(messages []Message) string {
	var b strings.Builder
	for _, m := range messages {
		fmt.Fprintf(&b, "%s%s ", m.AgentID, bytes.Trim(m.Body, `{"n:}`))
	}
	return strings.TrimSpace(b.String())
}

// crash is a copy of the folder as a power cut at this moment would leave it.
func crash(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestWhatWasAddedSurvivesAKill(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, 1<<20)
	add(t, j, message("a", 1), message("b", 2), message("a", 3))
	if err := j.Remove(t.Context(), all(t, j)[:1]); err != nil {
		t.Fatal(err)
	}
	after := open(t, crash(t, dir), 1<<20)
	got := all(t, after)
	if said(got) != "b2 a3" {
		t.Fatalf("after a kill there is %q", said(got))
	}
	if m := got[0]; m.KeyID != "key-b" || m.Kind != Ack || !m.Received.Equal(message("b", 2).Received) {
		t.Errorf("a message has become %+v", m)
	}
	n, size := after.Size()
	if was, bytes := j.Size(); n != was || size != bytes || !after.Holds("a") || after.Holds("c") {
		t.Errorf("it counts %d messages of %d bytes, there were %d of %d", n, size, was, bytes)
	}
	add(t, after, message("a", 4))
	if said(all(t, after)) != "b2 a3 a4" {
		t.Errorf("what is new stands in %q", said(all(t, after)))
	}
}

func TestAFullJournalRefusesAndSaysSo(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), 1000)
	refused := 0
	for n := range 20 {
		if err := j.Add(t.Context(), message("a", n)); err != nil {
			if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "full") {
				t.Fatal(err)
			}
			refused++
		}
	}
	n, size := j.Size()
	if n == 0 || n+refused != 20 || size > 1000 || size < 800 || len(all(t, j)) != n {
		t.Errorf("%d messages were taken and %d refused; it says %d bytes", n, refused, size)
	}
	if text := j.Problem(); !strings.Contains(text, "full at 1000 bytes") {
		t.Errorf("the problem is %q", text)
	}
	if err := j.Remove(t.Context(), all(t, j)); err != nil {
		t.Fatal(err)
	}
	add(t, j, message("a", 21))
	if text := j.Problem(); text != "" {
		t.Errorf("there is room again, and the problem is %q", text)
	}
}

func TestManyAgentsShareAFlush(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), 64<<20)
	var agents sync.WaitGroup
	for a := range 200 {
		agents.Go(func() {
			for n := range 5 {
				if err := j.Add(context.Background(), message(fmt.Sprintf("agent%d-", a), n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	agents.Wait()
	got := all(t, j)
	if len(got) != 1000 {
		t.Fatalf("there are %d messages of 1000", len(got))
	}
	next := map[string]int{}
	for _, m := range got {
		if want := fmt.Sprintf(`{"n":%d}`, next[m.AgentID]); string(m.Body) != want {
			t.Fatalf("%s said %s, want %s", m.AgentID, m.Body, want)
		}
		next[m.AgentID]++
	}
}

// Two servers may share a data folder. What one that died has left goes to whoever
// starts next, and to nobody while it lives.
func TestAJournalIsTakenOverFromTheDeadAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	one := open(t, dir, 1<<20)
	two := open(t, dir, 1<<20)
	three := open(t, dir, 1<<20)
	add(t, one, message("a", 1))
	add(t, two, message("b", 2), message("a", 3))
	add(t, three, message("c", 4))
	for _, dead := range []*Journal{one, three} {
		if err := dead.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := one.Add(t.Context(), message("a", 9)); fleet.KindOf(err) != fleet.Unavailable {
		t.Errorf("a closed journal took a message: %v", err)
	}
	four := open(t, dir, 1<<20)
	if got := said(all(t, four)); got != "a1 c4" && got != "c4 a1" {
		t.Errorf("the next server has %q", got)
	}
	if got := said(all(t, two)); got != "b2 a3" {
		t.Errorf("the living one has %q", got)
	}
	add(t, two, message("a", 5))
	if err := errors.Join(two.Close(), four.Close()); err != nil {
		t.Fatal(err)
	}
	last := open(t, dir, 1<<20)
	if n, _ := last.Size(); n != 5 {
		t.Errorf("the last one has %d messages of 5: %s", n, said(all(t, last)))
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"+journalSuffix))
	if err != nil || len(files) > 3 {
		t.Errorf("three servers at a time have left %v, %v", files, err)
	}
}

func TestADamagedJournalDoesNotKeepTheServerFromStarting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "x"+journalSuffix)
	if err := os.WriteFile(path, bytes.Repeat([]byte("no database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	j := open(t, dir, 1<<20)
	add(t, j, message("a", 1))
	if _, err := os.Stat(path + damagedSuffix); err != nil {
		t.Errorf("the damaged file is not put aside: %v", err)
	}
}

func TestAJournalOfALaterVersionIsLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, 1<<20)
	add(t, j, message("a", 1))
	if err := j.file.exec(t.Context(), "PRAGMA user_version = 2"); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if n, _ := open(t, dir, 1<<20).Size(); n != 0 {
		t.Errorf("%d messages of a later version were taken", n)
	}
}

func TestAnEmptyJournalGivesItsRoomBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, 64<<20)
	for n := range 200 {
		m := message("a", n)
		m.Body = bytes.Repeat([]byte("x"), 20<<10)
		add(t, j, m)
	}
	if err := j.Remove(t.Context(), all(t, j)); err != nil {
		t.Fatal(err)
	}
	for err := error(nil); err == nil; { // a batch is bounded
		rest := all(t, j)
		if len(rest) == 0 {
			break
		}
		err = j.Remove(t.Context(), rest)
	}
	info, err := os.Stat(j.file.path)
	if err != nil || info.Size() > 64<<10 {
		t.Errorf("the empty journal takes %d bytes, %v", info.Size(), err)
	}
}

// Half a gigabyte is given back in steps: an agent that speaks in between must not
// wait for all of them.
func TestRoomIsGivenBackInSteps(t *testing.T) {
	t.Parallel()
	j := open(t, t.TempDir(), 64<<20)
	many := make([]Message, 800)
	for n := range many {
		many[n] = message("a", n)
		many[n].Body = bytes.Repeat([]byte("x"), 20<<10)
	}
	err := j.file.add(t.Context(), many)
	if err != nil {
		t.Fatal(err)
	}
	for n := range many {
		many[n].Seq = int64(n + 1)
	}
	if err := j.file.remove(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	free, err := j.shrinkStep(t.Context())
	if err != nil || free <= shrinkPages {
		t.Fatalf("the first step finds %d free pages, want more than one step's %d: %v", free, shrinkPages, err)
	}
	add(t, j, message("b", 1))
	if err := j.shrink(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := j.file.conn.QueryRowContext(t.Context(), "PRAGMA freelist_count").Scan(&free); err != nil || free == 0 {
		t.Errorf("a journal with a message has %d free pages, %v: want it to go on when it is empty", free, err)
	}
	if err := j.Remove(t.Context(), all(t, j)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(j.file.path)
	if err != nil || info.Size() > 64<<10 {
		t.Errorf("the empty journal takes %d bytes, %v", info.Size(), err)
	}
}

// What the messages are counted as is what they take: check-ins fill their pages.
func TestTheBoundIsThatOfTheDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	j := open(t, dir, 64<<20)
	many := make([]Message, 10_000)
	for n := range many {
		many[n] = Message{
			AgentID: fmt.Sprintf("5f2a9c1b-e0d9-4f7c-8f2a-%012d", n), KeyID: "5f2a9c1be0d94f7c5f2a", Kind: Checkin, Received: time.Now(),
			Body: bytes.Repeat([]byte("x"), 1500),
		}
	}
	if err := j.file.add(t.Context(), many); err != nil {
		t.Fatal(err)
	}
	if err := j.count(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, counted := j.Size()
	info, err := os.Stat(j.file.path)
	if err != nil || info.Size() < counted/2 || info.Size() > counted*11/10 {
		t.Errorf("%d bytes are counted, and the file has %d, %v: want a tenth more at most", counted, info.Size(), err)
	}
}

// A journal is a bounded queue, whatever happens to its process.
func TestAJournalIsAQueue(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		run++
		dir := filepath.Join(root, fmt.Sprint(run))
		const bound = 1500
		var j *Journal
		start := func() {
			var err error
			if j, err = openJournal(dir, bound, testOnlyVolatile, quiet); err != nil {
				t.Fatal(err)
			}
		}
		start()
		defer func() { _ = j.Close() }()
		var model []Message
		var size int64
		n := 0
		check := func() {
			got, err := j.Batch(context.Background(), 0, 1000)
			if err != nil || said(got) != said(model) {
				t.Fatalf("it has %q, %v; want %q", said(got), err, said(model))
			}
			if messages, bytes := j.Size(); messages != len(model) || bytes != size {
				t.Fatalf("it counts %d messages of %d bytes, want %d of %d", messages, bytes, len(model), size)
			}
			held := map[string]bool{}
			for _, m := range model {
				held[m.AgentID] = true
			}
			for _, id := range []string{"a", "b", "c"} {
				if j.Holds(id) != held[id] {
					t.Fatalf("it holds messages of %s: %t", id, j.Holds(id))
				}
			}
		}
		steps := map[string]func(){
			"add": func() {
				n++
				m := message(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "agent"), n)
				err := j.Add(context.Background(), m)
				if fits := size+m.size() <= bound; fits != (err == nil) {
					t.Fatalf("with %d bytes: %v", size, err)
				} else if fits {
					model = append(model, m)
					size += m.size()
				}
			},
			"remove": func() {
				got, err := j.Batch(context.Background(), 0, 1000)
				if err != nil {
					t.Fatal(err)
				}
				var gone, rest []Message
				for i, m := range got {
					if rapid.Bool().Draw(t, "gone") {
						gone = append(gone, m)
						size -= model[i].size()
					} else {
						rest = append(rest, model[i])
					}
				}
				if err := j.Remove(context.Background(), gone); err != nil {
					t.Fatal(err)
				}
				model = rest
			},
			"die": func() {
				if err := j.Close(); err != nil {
					t.Fatal(err)
				}
				start()
			},
		}
		// Deaths are few: to start takes longest.
		for _, step := range rapid.SliceOfN(rapid.SampledFrom([]string{"add", "add", "add", "add", "add", "remove", "remove", "die"}), 0, 16).Draw(t, "steps") {
			steps[step]()
			check()
		}
	})
}
