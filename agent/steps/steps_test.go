package steps

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// testJournal is a journal with a field of its own.
type testJournal struct {
	Progress
	Old string `json:"old,omitempty"`
}

// world records what the steps of a test do, and holds the file of their journal.
type world struct {
	t    *testing.T
	file File
	did  []string
	fail map[string]error // by "do <step>" and "undo <step>"
}

func newWorld(t *testing.T) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	return &world{t: t, fail: map[string]error{}, file: File{Disk: disk.OS{}, Op: "test", Path: path, Kind: "test", Version: 1}}
}

func (w *world) act(what string) error {
	w.did = append(w.did, what)
	return w.fail[what]
}

// step returns a step that checks that the journal names it when it acts.
func (w *world) step(name string) Step {
	return Step{
		Name: name, Timeout: time.Minute,
		Do: func(context.Context) error {
			if n := w.read(); n == nil || !n.HasBegun(name) {
				w.t.Errorf("%s acts, and the journal is %+v", name, n)
			}
			return w.act("do " + name)
		},
		Undo: func(context.Context) error { return w.act("undo " + name) },
	}
}

func (w *world) run(n *testJournal, steps ...Step) *Run {
	return &Run{Steps: steps, Journal: n, File: w.file, Log: slog.New(slog.DiscardHandler)}
}

func (w *world) read() *testJournal {
	w.t.Helper()
	n, err := Read[testJournal](w.file)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.did, want) {
		w.t.Errorf("done was %q, want %q", w.did, want)
	}
}

func TestStepsAreRecordedBeforeTheyActAndUndoneInReverse(t *testing.T) {
	w := newWorld(t)
	broken := errors.New("disk full")
	w.fail["do c"] = broken
	silent := w.step("b")
	silent.Undo = nil
	n := &testJournal{}
	r := w.run(n, w.step("a"), silent, w.step("c"), w.step("d"))
	failed, err := r.Do(t.Context())
	if failed != "c" || !errors.Is(err, broken) {
		t.Fatalf("failed at %q: %v", failed, err)
	}
	if err := r.Fail(failed, err); err != nil {
		t.Fatal(err)
	}
	w.expect("do a", "do b", "do c", "undo c", "undo a")
	if left := w.read(); left != nil {
		t.Errorf("the journal is left: %+v", left)
	}
}

// A later process has only the journal.
func TestUndoFromTheJournalOfAnEarlierProcess(t *testing.T) {
	w := newWorld(t)
	w.fail["do b"], w.fail["undo b"] = errors.New("no answer"), errors.New("still no answer")
	r := w.run(&testJournal{Old: "1"}, w.step("a"), w.step("b"))
	failed, err := r.Do(t.Context())
	if err := r.Fail(failed, err); err == nil || !strings.Contains(err.Error(), "undo b: still no answer") {
		t.Fatalf("undoing: %v", err)
	}
	w.expect("do a", "do b", "undo b") // a stays, since b may need it
	n := w.read()
	if n == nil || n.Old != "1" || !n.Undoing || n.FailedStep != "b" || n.FailedError != "no answer" {
		t.Fatalf("the journal is %+v", n)
	}
	w.did, w.fail = nil, nil
	if err := w.run(n, w.step("a"), w.step("b")).Undo(); err != nil {
		t.Fatal(err)
	}
	w.expect("undo b", "undo a")
	if left := w.read(); left != nil {
		t.Errorf("the journal is left: %+v", left)
	}
}

func TestDoneStepIsSkippedAndUndone(t *testing.T) {
	w := newWorld(t)
	s := w.step("a")
	s.Done = func(context.Context) (bool, error) { return true, nil }
	r := w.run(&testJournal{}, s)
	if failed, err := r.Do(t.Context()); err != nil {
		t.Fatalf("%s: %v", failed, err)
	}
	if err := r.Undo(); err != nil {
		t.Fatal(err)
	}
	w.expect("undo a")
}

func TestStepEndsAtItsTimeoutAndWhenItsContextEnds(t *testing.T) {
	w := newWorld(t)
	wait := func(ctx context.Context) error {
		<-ctx.Done()
		return errors.New("interrupted")
	}
	slow := Step{Name: "slow", Timeout: time.Millisecond, Do: wait}
	if _, err := w.run(&testJournal{}, slow).Do(t.Context()); !errors.Is(err, ErrTimeout) || !strings.Contains(err.Error(), "slow took longer than 1ms") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("the operator stopped it")
	slow.Timeout = time.Hour
	r := w.run(&testJournal{}, slow, w.step("next"))
	r.Begins = func(Step) { cancel(stopped) }
	if failed, err := r.Do(ctx); failed != "slow" || !errors.Is(err, stopped) {
		t.Errorf("at %s: %v", failed, err)
	}
	w.expect()
}

// noDisk writes nothing.
type noDisk struct{ disk.OS }

func (noDisk) OpenFile(string, string, int, fs.FileMode) (disk.File, error) {
	return nil, fs.ErrPermission
}

func TestStepThatCannotBeRecordedDoesNotAct(t *testing.T) {
	w := newWorld(t)
	w.file.Disk = noDisk{}
	if failed, err := w.run(&testJournal{}, w.step("a")).Do(t.Context()); failed != "a" || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("at %s: %v", failed, err)
	}
	w.expect()
}

func TestUnknownStepOfAJournalIsAnErrorAndNothingIsUndone(t *testing.T) {
	w := newWorld(t)
	r := w.run(&testJournal{Progress: Progress{Begun: []string{"a", "of a newer version", "b"}}}, w.step("a"), w.step("b"))
	if err := r.Save(); err != nil {
		t.Fatal(err)
	}
	if err := r.Undo(); err == nil || !strings.Contains(err.Error(), `"of a newer version"`) {
		t.Errorf("undoing: %v", err)
	}
	w.expect()
	if w.read() == nil {
		t.Error("the journal is removed")
	}
}

func TestUndoingEndsAtItsTimeoutAndKeepsTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		hangs := w.step("b")
		hangs.Undo = func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}
		// c returns without an error when the time is over; b is not begun then.
		late := w.step("c")
		late.Undo = func(context.Context) error {
			time.Sleep(UndoTimeout + time.Second)
			return nil
		}
		for _, steps := range [][]Step{{w.step("a"), hangs}, {w.step("a"), w.step("b"), late}} {
			w.did = nil
			r := w.run(&testJournal{}, steps...)
			if failed, err := r.Do(t.Context()); err != nil {
				t.Fatalf("%s: %v", failed, err)
			}
			w.did = nil
			if err := r.Undo(); !errors.Is(err, ErrTimeout) || !strings.HasPrefix(err.Error(), "undo b: ") {
				t.Errorf("undoing: %v", err)
			}
			w.expect()
			if w.read() == nil {
				t.Error("the journal is removed")
			}
		}
	})
}

func TestStepThatTakesItsOwnTimeLeavesThatOfTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		long := w.step("c")
		long.OwnTime = true
		long.Undo = func(ctx context.Context) error {
			if _, bounded := ctx.Deadline(); bounded {
				t.Error("it is bounded, and bounds itself")
			}
			time.Sleep(2 * UndoTimeout)
			return w.act("undo c")
		}
		share := w.step("b")
		share.Undo = func(context.Context) error {
			time.Sleep(UndoTimeout - time.Second)
			return w.act("undo b")
		}
		r := w.run(&testJournal{}, w.step("a"), share, long)
		if failed, err := r.Do(t.Context()); err != nil {
			t.Fatalf("%s: %v", failed, err)
		}
		w.did = nil
		if err := r.Undo(); err != nil {
			t.Fatal(err)
		}
		w.expect("undo c", "undo b", "undo a")
	})
}

func TestStepThatIsLeftOutIsNeitherDoneNorUndone(t *testing.T) {
	w := newWorld(t)
	b := w.step("b")
	b.When = func() bool { return w.did[len(w.did)-1] != "do a" } // asked when its turn comes
	r := w.run(&testJournal{}, w.step("a"), b, w.step("c"))
	if failed, err := r.Do(t.Context()); err != nil {
		t.Fatalf("%s: %v", failed, err)
	}
	if err := r.Undo(); err != nil {
		t.Fatal(err)
	}
	w.expect("do a", "do c", "undo c", "undo a")
}

func TestStepWithoutATimeoutHasNoDeadline(t *testing.T) {
	w := newWorld(t)
	s := w.step("a")
	s.Timeout = 0
	s.Do = func(ctx context.Context) error {
		if at, ok := ctx.Deadline(); ok {
			t.Errorf("its context ends at %s", at)
		}
		return nil
	}
	if failed, err := w.run(&testJournal{}, s).Do(t.Context()); err != nil {
		t.Errorf("%s: %v", failed, err)
	}
}
