// Package clock provides the time to the server's services: the system clock, or a
// test's. The rules in package fleet read no clock; they take now.
package clock

import "time"

// Clock returns the current time. A nil Clock is the system clock.
type Clock func() time.Time

// UTC returns the current time in UTC. Documents hold UTC, so that servers in several
// time zones write the same.
func (c Clock) UTC() time.Time {
	if c == nil {
		return time.Now().UTC()
	}
	return c().UTC()
}
