package gateway

import (
	"context"
	"sync"
)

// Changes is how the daemon tells the loop that its report is out of date. The
// zero value is ready.
type Changes struct {
	mu       sync.Mutex
	urgent   uint64 // counts changes of phase or status
	progress uint64 // counts changes of figures
	sent     uint64 // the urgent count the server was last told
	wake     chan struct{}
}

// Urgent says that a phase or a status changed: the server is told at once.
func (c *Changes) Urgent() { c.bump(func() { c.urgent++ }) }

// Progress says that only figures changed: the server is told once a second.
func (c *Changes) Progress() { c.bump(func() { c.progress++ }) }

// Flush waits until everything urgent has been sent, or ctx ends.
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

// channel is closed at the next change. Called with mu held.
func (c *Changes) channel() <-chan struct{} {
	if c.wake == nil {
		c.wake = make(chan struct{})
	}
	return c.wake
}
