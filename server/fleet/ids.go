package fleet

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// PlacesByID are the places of ids, that of the lowest id first; of the same id, the
// first place first. Of 100,000 it takes a tenth of the time that sorting them by
// their texts takes, which lie anywhere: most ids differ in their first eight letters,
// and those are sorted beside their places. Every server that shares a store does so
// with each action for a fleet.
func PlacesByID(ids []string) []int32 {
	type key struct {
		letters uint64
		place   int32
	}
	keys := make([]key, len(ids))
	for i, id := range ids {
		var first [8]byte
		copy(first[:], id)
		keys[i] = key{binary.BigEndian.Uint64(first[:]), int32(i)} //nolint:gosec // an action is for 100,000 agents
	}
	slices.SortFunc(keys, func(x, y key) int {
		if x.letters != y.letters {
			return cmp.Compare(x.letters, y.letters)
		}
		return cmp.Or(cmp.Compare(ids[x.place], ids[y.place]), cmp.Compare(x.place, y.place))
	})
	places := make([]int32, len(ids))
	for i, k := range keys {
		places[i] = k.place
	}
	return places
}

// SortedIDs are ids, the lowest first, in a slice of their own.
func SortedIDs(ids []string) []string {
	sorted := make([]string, len(ids))
	for i, at := range PlacesByID(ids) {
		sorted[i] = ids[at]
	}
	return sorted
}
