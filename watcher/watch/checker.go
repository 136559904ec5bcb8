package watch

import (
	"context"
	"sync"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const (
	// checkRetry is the time between two tries of a failing check, if the interval is
	// not shorter. A service that restarts after three seconds is back at the second
	// try, and the three tries of the default threshold end within ten seconds.
	checkRetry = 5 * time.Second

	// maxTries bounds the concurrent tries, so that they do not fail because of their
	// own load.
	maxTries = 4
)

// checker runs the checks of the package in the background. Only the loop's goroutine calls
// its methods.
type checker struct {
	host     Host
	home     string
	interval time.Duration
	checks   []scheduled

	ctx     context.Context // of the current life
	cancel  context.CancelFunc
	life    int
	slots   chan struct{}
	results chan Try
	tries   sync.WaitGroup
}

// scheduled is one check and when it is next tried.
type scheduled struct {
	manifest.Check
	running bool
	ended   time.Time
	failed  bool
}

func newChecker(host Host, m handoff.Marker) *checker {
	c := &checker{
		host: host, home: m.To.Home, interval: time.Duration(m.Rules.Interval),
		life: cancelledLife, cancel: func() {},
		slots: make(chan struct{}, maxTries),
		// Each check has at most one running try, so no send blocks.
		results: make(chan Try, len(m.Rules.Checks)),
	}
	for _, check := range m.Rules.Checks {
		c.checks = append(c.checks, scheduled{Check: check.WithDefaults()})
	}
	return c
}

// collect returns the tries that have ended, without waiting for others.
func (c *checker) collect() []Try {
	var out []Try
	for {
		select {
		case t := <-c.results:
			s := &c.checks[t.Check]
			s.running, s.ended, s.failed = false, time.Now(), t.Err != ""
			if t.Life != c.life {
				s.ended = time.Time{}
			}
			out = append(out, t)
		default:
			return out
		}
	}
}

// start starts the tries that are due, if the new version answers. It cancels tries of an
// earlier life.
func (c *checker) start(ctx context.Context, h History) {
	if len(c.checks) == 0 {
		return
	}
	if c.life != h.Life() {
		c.cancel()
		c.life = h.Life()
		c.ctx, c.cancel = context.WithCancel(ctx)
		for i := range c.checks {
			c.checks[i].ended = time.Time{}
		}
	}
	if !h.Answering() {
		return
	}
	for i := range c.checks {
		if s := &c.checks[i]; !s.running && s.due(c.interval) {
			c.try(i, s)
		}
	}
}

func (s *scheduled) due(interval time.Duration) bool {
	wait := interval
	if s.failed {
		wait = min(interval, checkRetry)
	}
	return s.ended.IsZero() || time.Since(s.ended) >= wait
}

func (c *checker) try(i int, s *scheduled) {
	s.running = true
	ctx, check, life := c.ctx, s.Check, c.life
	c.tries.Go(func() {
		t := Try{Check: i, Life: life}
		if err := c.ask(ctx, check); err != nil {
			t.Err = err.Error()
		}
		if ctx.Err() != nil {
			t.Life = cancelledLife
		}
		c.results <- t
	})
}

// cancelledLife is the life of a try that was cancelled, whose result is ignored.
const cancelledLife = -1

// ask runs the check. Its timeout begins when there is a free slot.
func (c *checker) ask(ctx context.Context, check manifest.Check) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, check.Timeout)
	defer cancel()
	return c.host.Check(ctx, c.home, check)
}

// stop cancels the running tries and waits for them, so that no program of a check outlives
// the watch. The host ends a try within a second of its context.
func (c *checker) stop() {
	c.cancel()
	c.tries.Wait()
}
