package checkin

import (
	"context"
	"time"

	"golang.org/x/time/rate"
)

// drainBurst divides the answers of a second into the bursts that Close writes.
const drainBurst = 50

// Close answers every poll Empty at DrainRate, or as much faster as ctx demands,
// and closes the connections it holds.
func (p *EpollParker) Close(ctx context.Context) error {
	p.mu.Lock()
	if first := !p.closing.Swap(true); first {
		p.stopIfEmpty()
		if !p.stopped {
			p.running.Go(func() { p.drain(ctx) })
		}
	}
	p.mu.Unlock()
	err := p.blocking.Close(ctx)
	select {
	case <-p.empty:
		p.running.Wait() // the goroutines no longer wait for anything
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// drain closes idle connections and ends every poll.
func (p *EpollParker) drain(ctx context.Context) {
	for _, c := range p.poller.all() {
		c.shard.mu.Lock()
		if c.state == stateIdle {
			p.drop(c)
			continue
		}
		c.shard.mu.Unlock()
	}
	var left []*parkedConn
	for i := range p.shards {
		sh := &p.shards[i]
		sh.mu.Lock()
		for _, c := range sh.polls {
			if c.state == stateNew || c.state == stateChecking {
				p.end(c)
			} else {
				left = append(left, c)
			}
		}
		sh.mu.Unlock()
	}
	perSecond := float64(DrainRate)
	if end, ok := ctx.Deadline(); ok {
		// A fifth of the time is for the clients to read the answers.
		perSecond = max(perSecond, float64(len(left))/max(0.8*time.Until(end).Seconds(), 1./drainBurst))
	}
	pace := rate.NewLimiter(rate.Limit(perSecond), int(perSecond)/drainBurst)
	for _, c := range left {
		_ = pace.Wait(ctx) // fails if there is no time left; then the rest is written at once
		c.shard.mu.Lock()
		p.end(c)
		c.shard.mu.Unlock()
	}
}
