package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// theShared is what all tests of a package share.
var theShared struct {
	willClose bool   // With has been called
	dir       string // of Built, empty if nothing was built
	once      sync.Once
	world     *World
	started   bool // the world is complete
}

// Built are the programs that all tests of a package use.
type Built struct {
	toolchain.Programs
	// Dir is a folder for whatever else the tests share, until [With] removes it.
	Dir   string
	cache *Cache // most tests use the same few packages, each with its own signer
}

// Build returns the programs. The first call builds them.
var Build = sync.OnceValues(func() (*Built, error) {
	if !theShared.willClose {
		return nil, errors.New("harness.Build needs `func TestMain(m *testing.M) { os.Exit(harness.With(m).Run()) }` in its package, to remove the programs")
	}
	root, err := toolchain.Root()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "muster-bin-")
	if err != nil {
		return nil, err
	}
	theShared.dir = dir
	p, err := toolchain.ProgramsForTests(context.Background(), root, dir) // not of the first test alone
	return &Built{p, dir, NewCache(filepath.Join(dir, "packages"))}, err
})

// SharedWorld returns the world that all tests of a package use. add completes it when it has been
// started; [With] ends it.
func SharedWorld(t testing.TB, add func(*World)) *World {
	t.Helper()
	s := &theShared
	s.once.Do(func() {
		s.world = emptyWorld(t)
		s.world.start()
		add(s.world)
		s.started = true
	})
	if !s.started {
		t.Fatal("the world of this package's tests did not start: its first test says why")
	}
	w := *s.world
	w.TB = t
	return &w
}

// Tests are the tests of a package: the *testing.M of its TestMain.
type Tests interface{ Run() int }

// With wraps a package's tests so that what they share ends after them:
//
//	func TestMain(m *testing.M) { os.Exit(harness.With(m).Run()) }
func With(m Tests) Tests { return with{m} }

type with struct{ tests Tests }

func (w with) Run() int {
	theShared.willClose = true
	code := w.tests.Run()
	var errs []error
	if theShared.world != nil {
		errs = append(theShared.world.stop(), os.RemoveAll(theShared.world.Dir))
	}
	if theShared.dir != "" {
		errs = append(errs, os.RemoveAll(theShared.dir))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "what the tests of this package share:", err)
		return max(code, 1)
	}
	return code
}
