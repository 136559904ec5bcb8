// Package storetest is the contract of package store as a test suite. The tests
// of every store run it; a store that passes can take the place of another.
//
// What a store may show late is what it finds by searching: lists, facts, the
// census, each of the agents or targets, upgrading agents, active rollouts, counts,
// pending actions, actions and events after a number. It shows them within
// Config.ListLag. What is asked for by id or access key is there as soon as the
// write returned, in every process.
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

// Config says how to reach the store under test.
type Config struct {
	// Place makes an empty place to keep things, such as the path of a file
	// that does not exist yet, and cleans it up when t ends.
	Place func(t *testing.T) string
	// Open opens a place. Opened twice, it stands for two processes.
	Open func(ctx context.Context, place string) (store.Store, error)
	// OneProcess says that a place belongs to one process. What must hold of two
	// processes is then tested with two users of one Store.
	OneProcess bool
	// ListLag is how late a list may be; zero means not at all.
	ListLag time.Duration
	// PackagesInFolder says that the bytes of packages are not the store's to keep:
	// see Store.PackageData.
	PackagesInFolder bool
}

// Run proves that the store keeps the contract.
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
		{"actions", testActions},
		{"results", testResults},
		{"collections", testCollections},
		{"rollouts", testRollouts},
		{"targets", testTargets},
		{"audit", testAudit},
		{"census", testCensus},
		{"events", testEvents},
		{"settings", testSettings},
		{"package data", testPackageData},
		{"the whole", testWhole},
		{"durability", testDurability},
	} {
		t.Run(part.name, func(t *testing.T) {
			if cfg.OneProcess {
				t.Parallel() // places share nothing; those of other stores share a server
			}
			part.run(t, cfg)
		})
	}
}

// base is when the stories begin. Whole milliseconds are what every store keeps.
var base = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func at(d time.Duration) time.Time     { return base.Add(d) }
func atPtr(d time.Duration) *time.Time { t := base.Add(d); return &t }

// open returns a store on a fresh place.
func (c Config) open(t *testing.T) store.Store {
	t.Helper()
	return c.reopen(t, c.Place(t))
}

// openTwice returns what two processes have of a fresh place.
func (c Config) openTwice(t *testing.T) []store.Store {
	t.Helper()
	place := c.Place(t)
	first := c.reopen(t, place)
	if c.OneProcess {
		return []store.Store{first, first}
	}
	return []store.Store{first, c.reopen(t, place)}
}

// reopen opens a place as one more process.
func (c Config) reopen(t *testing.T, place string) store.Store {
	t.Helper()
	s, err := c.Open(t.Context(), place)
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

// eventually wants check to succeed within the time a list may be late.
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

// value is must for calls that return one.
func value[T any](v T, err error) func(*testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// wantKind fails the test unless err is of the kind and says something.
func wantKind(t *testing.T, err error, kind fleet.Kind) {
	t.Helper()
	if err == nil || fleet.KindOf(err) != kind || err.Error() == "" {
		t.Fatalf("error is %v (%s), want one of kind %s", err, fleet.KindOf(err), kind)
	}
}

// differs says where got is not want. Documents are compared as the JSON they
// are, since a store may space or order raw JSON anew.
func differs(got, want any) error { return differ("", asJSON(got), asJSON(want)) }

// differ names the first place two JSON values differ in, since whole fleets of
// them are compared.
func differ(place string, got, want any) error {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if _, there := g[key]; ok && !there {
				return fmt.Errorf("%s.%s is missing, want %v", place, key, w[key])
			}
			if err := differ(place+"."+key, g[key], w[key]); ok && err != nil {
				return err
			}
		}
		for key, v := range g {
			if _, wanted := w[key]; !wanted {
				return fmt.Errorf("%s.%s is %v, want none", place, key, v)
			}
		}
	case []any:
		g, ok := got.([]any)
		for i := range min(len(g), len(w)) {
			if err := differ(fmt.Sprintf("%s[%d]", place, i), g[i], w[i]); err != nil {
				return fmt.Errorf("%w\nof   %v\nwant %v", err, g, w)
			}
		}
		if ok && len(g) != len(w) {
			return fmt.Errorf("%s has %d elements, want %d\nof   %v\nwant %v", place, len(g), len(w), g, w)
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s is %v, want %v", cmp.Or(place, "it"), got, want)
	}
	return nil
}

func asJSON(v any) any {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // a sample of ours
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
		panic(err) // a sample of ours
	}
	return string(b)
}

func equal(t *testing.T, got, want any) {
	t.Helper()
	if err := differs(got, want); err != nil {
		t.Fatal(err)
	}
}
