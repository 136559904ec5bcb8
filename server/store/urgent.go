package store

import "context"

type urgentKey struct{}

// Urgent marks what is done in ctx as what somebody waits for, as long as waits says
// so. Where writes queue, such a write goes before those of the fleet.
// Reads that are marked need not wait for the fleet's, however long they take; with
// waits nil it is for reads alone.
func Urgent(ctx context.Context, waits func() bool) context.Context {
	return context.WithValue(ctx, urgentKey{}, waits)
}

// IsUrgent says whether ctx is marked, whether somebody still waits or not.
func IsUrgent(ctx context.Context) bool { return ctx.Value(urgentKey{}) != nil }

// Waits returns what tells whether somebody still waits for what is done in ctx; nil:
// nobody does.
func Waits(ctx context.Context) func() bool {
	waits, ok := ctx.Value(urgentKey{}).(func() bool)
	if !ok || waits == nil || !waits() {
		return nil
	}
	return waits
}
