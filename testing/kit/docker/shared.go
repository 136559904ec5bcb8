//go:build linux

package docker

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
)

// theShared is the engine of all tests of a package.
var theShared struct {
	sync.Mutex
	willClose bool // With has been called
	engine    *Engine
	err       error // why it did not start
}

// Shared returns an engine that all tests of the package use. The first call starts it, and
// [With] in TestMain ends it. After each test its containers are removed, so tests that use
// it do not run in parallel.
func Shared(t testing.TB) *Engine {
	t.Helper()
	Needs(t)
	theShared.Lock()
	defer theShared.Unlock()
	if !theShared.willClose {
		t.Fatal("TestMain must call docker.With, which ends the shared engine")
	}
	if theShared.engine == nil && theShared.err == nil {
		// Not the context of the test, which ends before the engine.
		theShared.engine, theShared.err = New(context.Background())
	}
	if theShared.err != nil {
		t.Fatal(theShared.err)
	}
	e := theShared.engine
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of the engine ends:\n%s", e.log())
		}
		ctx := context.Background()
		if e.cmd == nil { // the test has stopped it
			if err := e.Start(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.Clear(ctx); err != nil {
			t.Errorf("remove what the test left in the engine: %v", err)
		}
	})
	return e
}

// With runs the tests of a package, the *testing.M of its TestMain, and ends the engine that
// they share. It returns the exit status for os.Exit.
func With(m interface{ Run() int }) int {
	theShared.willClose = true
	status := m.Run()
	if theShared.engine != nil {
		if err := theShared.engine.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return max(status, 1)
		}
	}
	return status
}
