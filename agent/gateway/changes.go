package gateway

import (
	"context"
	"sync"
)

// Changes wakes the loop when the daemon's report has changed. The zero value is ready
// to use.
type Changes struct {
	mu       sync.Mutex
	urgent   uint64 // counts changes of phase or status
	progress uint64 // counts changes of progress
	sent     uint64 // the urgent count of the last poll that was sent
	wake     chan struct{}
}

// Urgent reports a change of a phase or a status, which the loop sends at once.
func (c *Changes) Urgent() { c.bump(func() { c.urgent++ }) }

// Progress reports a change of progress, which the loop sends once a second at most.
func (c *Changes) Progress() { c.bump(func() { c.progress++ }) }

// Flush waits until every urgent change has been sent, or ctx ends.
func (c *Changes) Flush(ctx context.Context) error {
	for {
		c.mu.Lock()
		done, wake := c.sent >= c.urgent, c.channel()
		c.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (c *Changes) markSent(urgent uint64) {
	c.bump(func() { c.sent = max(c.sent, urgent) })
}

func (c *Changes) counts() (urgent, progress uint64, wake <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.urgent, c.progress, c.channel()
}

func (c *Changes) bump(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
	if c.wake != nil {
		close(c.wake)
		c.wake = nil
	}
}

// channel returns a channel that is closed at the next change. The caller holds mu.
func (c *Changes) channel() <-chan struct{} {
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return c.wake
}
