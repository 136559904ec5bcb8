package fleet_test

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestIDsAreSortedAsTheirTextsAre(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Short ones, and long ones that begin alike, are those that could be mistaken.
		ids := rapid.SliceOf(rapid.StringMatching(`(aaaaaaa)?[\x00ab]{0,4}`)).Draw(t, "ids")
		want := make([]int32, len(ids))
		for i := range want {
			want[i] = int32(i)
		}
		slices.SortStableFunc(want, func(x, y int32) int { return cmp.Compare(ids[x], ids[y]) })
		if got := fleet.PlacesByID(ids); !slices.Equal(got, want) {
			t.Errorf("the places are %v, not %v", got, want)
		}
		sorted := slices.Sorted(slices.Values(ids))
		if got := fleet.SortedIDs(ids); !slices.Equal(got, sorted) {
			t.Errorf("they are %q, not %q", got, sorted)
		}
	})
}

func BenchmarkPlacesByID(b *testing.B) {
	ids := make([]string, 100_000)
	for i := range ids {
		ids[i] = fleet.NewID()
	}
	for b.Loop() {
		fleet.PlacesByID(ids)
	}
}
