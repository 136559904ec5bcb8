// Package storetest is a test suite for the contract of package store. Every
// implementation runs it, so that one can replace another.
//
// Reads by id or access key see a write as soon as it has returned, in every process.
// Searches may see it later, but within Config.ListLag. Searches are lists, values, facts,
// counts, the census, the Each and After methods, upgrading agents, active rollouts and
// pending actions.
package storetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// Config describes the implementation under test.
type Config struct {
	// NewLocation returns a location without a store, such as the path of a file that does
	// not exist yet, and removes it when t ends.
	NewLocation func(t *testing.T) string
	// Open opens the store at a location, creating it if there is none. Each call stands
	// for another process.
	Open func(ctx context.Context, location string) (store.Store, error)
	// OneProcess is set if a store belongs to one process. Tests of two processes then use
	// one Store twice.
	OneProcess bool
	// ListLag bounds how long after a write a search may miss it.
	ListLag time.Duration
	// PackagesInFolder is set if the implementation does not store the bytes of packages;
	// see Store.PackageData.
	PackagesInFolder bool
	// Damage replaces the document of one row of every kind, beneath the store. No process of
	// a store of OneProcess has it open.
	Damage func(t *testing.T, location, doc string)
}

// Run tests the implementation.
func Run(t *testing.T, cfg Config) {
	for _, part := range []struct {
		name string
		run  func(*testing.T, Config)
	}{
		{"agents", testAgents},
		{"last seen", testTouch},
		{"reports", testReports},
		{"agent changes", testAgentChanges},
		{"lists of agents", testAgentLists},
		{"queries", testQueries},
		{"tallies", testTally},
		{"actions", testActions},
		{"results", testResults},
		{"collections", testCollections},
		{"rollouts", testRollouts},
		{"targets", testTargets},
		{"audit", testAudit},
		{"history", testHistory},
		{"census", testCensus},
		{"events", testEvents},
		{"settings", testSettings},
		{"package data", testPackageData},
		{"reading everything", testReadingEverything},
		{"exclusive calls", testExclusive},
		{"unreadable documents", testUnreadable},
		{"durability", testDurability},
	} {
		t.Run(part.name, func(t *testing.T) {
			if cfg.OneProcess {
				t.Parallel() // other implementations share one server
			}
			part.run(t, cfg)
		})
	}
}

// base is the time that tests start from. It has whole milliseconds, which every
// implementation stores exactly.
var base = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time     { return base.Add(d) }
func atPtr(d time.Duration) *time.Time { t := base.Add(d); return &t }

// open returns an empty store.
func (c Config) open(t *testing.T) store.Store {
	t.Helper()
	return c.reopen(t, c.NewLocation(t))
}

// openTwice opens an empty store as two processes do.
func (c Config) openTwice(t *testing.T) []store.Store {
	t.Helper()
	location := c.NewLocation(t)
	first := c.reopen(t, location)
	if c.OneProcess {
		return []store.Store{first, first}
	}
	return []store.Store{first, c.reopen(t, location)}
}

// reopen opens a store as another process does, and closes it when the test ends.
func (c Config) reopen(t *testing.T, location string) store.Store {
	t.Helper()
	s, err := c.Open(t.Context(), location)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// eventually fails the test unless check succeeds within ListLag.
func (c Config) eventually(t *testing.T, check func() error) {
	t.Helper()
	deadline := time.Now().Add(c.ListLag)
	for {
		err := check()
		if err == nil {
			return
		}
		if !time.Now().Before(deadline) {
			t.Fatalf("after %s: %v", c.ListLag, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// value is must for a call that returns a value.
func value[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// Update updates a document, and fails the test if it is not written.
func Update[T any](t testing.TB, c store.Collection[T], v T) {
	t.Helper()
	if _, err := c.Update(t.Context(), v); err != nil {
		t.Fatal(err)
	}
}

// wantKind fails the test unless err is of the kind and has a message.
func wantKind(t *testing.T, err error, kind fleet.Kind) {
	t.Helper()
	if err == nil || fleet.KindOf(err) != kind || err.Error() == "" {
		t.Fatalf("error is %v (%s), want one of kind %s", err, fleet.KindOf(err), kind)
	}
}

// differs returns an error that says where got differs from want. It compares decoded JSON,
// because a store may change the white space and the order of keys in raw JSON.
func differs(got, want any) error { return differ("", asJSON(got), asJSON(want)) }

// differ returns an error with the path of the first difference between two JSON values. It
// does not print whole values, which may be fleets.
func differ(path string, got, want any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if _, there := g[key]; ok && !there {
				return fmt.Errorf("%s.%s is missing, want %v", path, key, w[key])
			}
			if err := differ(path+"."+key, g[key], w[key]); ok && err != nil {
				return err
			}
		}
		for key, v := range g {
			if _, wanted := w[key]; !wanted {
				return fmt.Errorf("%s.%s is %v, want none", path, key, v)
			}
		}
	case []any:
		g, ok := got.([]any)
		for i := range min(len(g), len(w)) {
			if err := differ(fmt.Sprintf("%s[%d]", path, i), g[i], w[i]); err != nil {
				return fmt.Errorf("%w\nof   %v\nwant %v", err, g, w)
			}
		}
		if ok && len(g) != len(w) {
			return fmt.Errorf("%s has %d elements, want %d\nof   %v\nwant %v", path, len(g), len(w), g, w)
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %v, want %v", cmp.Or(path, "the value"), got, want)
	}
	return nil
}

func asJSON(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the values of this package can be encoded
	}
	var out any
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

func asText(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // the values of this package can be encoded
	}
	return string(b)
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if err := differs(got, want); err != nil {
		t.Fatal(err)
	}
}
