package fleet

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// IndexesByID returns the indexes of ids in ascending order of id, equal ids in
// ascending order of index. Comparing the first eight bytes, which lie beside the
// index, decides nearly always: for 100,000 ids it takes a tenth of the time of
// comparing the strings, which are scattered in memory. Every server that shares a
// store does this for each action for a fleet.
func IndexesByID(ids []string) []int32 {
	type key struct {
		prefix uint64
		index  int32
	}
	keys := make([]key, len(ids))
	for i, id := range ids {
		var first [8]byte
		copy(first[:], id)
		keys[i] = key{binary.BigEndian.Uint64(first[:]), int32(i)} //nolint:gosec // an action is for 100,000 agents
	}
	slices.SortFunc(keys, func(x, y key) int {
		if x.prefix != y.prefix {
			return cmp.Compare(x.prefix, y.prefix)
		}
		return cmp.Or(cmp.Compare(ids[x.index], ids[y.index]), cmp.Compare(x.index, y.index))
	})
	indexes := make([]int32, len(ids))
	for i, k := range keys {
		indexes[i] = k.index
	}
	return indexes
}

// SortedIDs returns a sorted copy of ids.
func SortedIDs(ids []string) []string {
	sorted := make([]string, len(ids))
	for i, index := range IndexesByID(ids) {
		sorted[i] = ids[index]
	}
	return sorted
}
