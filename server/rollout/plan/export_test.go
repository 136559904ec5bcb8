package plan

import (
	"slices"
	"testing"
)

// Register adds a strategy for the time of a test.
func Register(t *testing.T, s Strategy) {
	before := strategies
	strategies = append(slices.Clone(before), register(s)...)
	t.Cleanup(func() { strategies = before })
}
