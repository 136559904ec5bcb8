// Package clock is the time as the server's services read it: the machine's, or
// one a test hands them. The rules in package fleet read none, they take now.
package clock

import "time"

// Clock tells the time; nil is the machine's.
type Clock func() time.Time

// UTC is the time now. Documents hold UTC, so that replicas in several zones
// write the same.
func (c Clock) UTC() time.Time {
	if c == nil {
		return time.Now().UTC()
	}
	return c().UTC()
}
