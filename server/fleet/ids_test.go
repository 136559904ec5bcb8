package fleet_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestIndexesByIDSortsAsStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Short ids, and long ids with a common prefix, are the difficult cases.
		ids := rapid.SliceOf(rapid.StringMatching(`(aaaaaaa)?[\x00ab]{0,4}`)).Draw(t, "ids")
		want := make([]int32, len(ids))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(x, y int32) int { return cmp.Compare(ids[x], ids[y]) })
		if got := fleet.IndexesByID(ids); !slices.Equal(got, want) {
			t.Errorf("indexes are %v, want %v", got, want)
		}
		sorted := slices.Sorted(slices.Values(ids))
		if got := fleet.SortedIDs(ids); !slices.Equal(got, sorted) {
			t.Errorf("ids are %q, want %q", got, sorted)
		}
	})
}

func BenchmarkIndexesByID(b *testing.B) {
	ids := make([]string, 100_000)
	for i := range ids {
		ids[i] = fleet.NewID()
	}
	for b.Loop() {
		fleet.IndexesByID(ids)
	}
}
