//go:build !linux

package sqlite

import "time"

// turn is always there: SQLite's own lock is all that keeps processes apart.
type turn struct{}

func newTurn(string, time.Duration) (*turn, error) { return nil, nil } //nolint:nilnil // a nil turn is always there

func (*turn) take() error            { return nil }
func (*turn) leave()                 {}
func (*turn) handOut(bool)           {}
func (*turn) handOutElsewhere() bool { return false }
func (*turn) close()                 {}
