package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/watcher/probe"
)

// Component is a workload the agent runs.
type Component interface {
	// ID is unique among the agent's components. Type is the kind of component.
	ID() string
	Type() string
	// Status is called once a second and for every health answer, before, during
	// and after Run. It must answer from memory.
	Status() (probe.State, string)
	// Run works until ctx ends. If it returns earlier or panics, the component has
	// failed, and with it the agent. It may be called again after it has returned.
	Run(ctx context.Context) error
}

// statusEvery is how often the components' status is checked for changes to report.
const statusEvery = time.Second

// components runs the workloads.
type components struct {
	list    []Component
	changed func()
	log     *slog.Logger

	mu     sync.Mutex
	outer  context.Context   // of the agent
	failed map[string]string // errors by id
	cancel context.CancelFunc
	ended  *sync.WaitGroup
}

func newComponents(list []Component, changed func(), log *slog.Logger) *components {
	return &components{list: list, changed: changed, log: log, failed: map[string]string{}}
}

func (c *components) start(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.outer = ctx
	ctx, c.cancel = context.WithCancel(ctx)
	c.ended = &sync.WaitGroup{}
	clear(c.failed)
	for _, comp := range c.list {
		c.ended.Go(func() { c.run(ctx, comp) })
	}
}

// restart starts the components again after stop.
func (c *components) restart() {
	c.mu.Lock()
	outer := c.outer
	c.mu.Unlock()
	c.start(outer)
}

func (c *components) run(ctx context.Context, comp Component) {
	err := runRecovered(ctx, comp)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = errors.New("ended by itself")
	}
	c.mu.Lock()
	c.failed[comp.ID()] = err.Error()
	c.mu.Unlock()
	c.log.Error("component failed", "component", comp.ID(), "error", err)
	c.changed()
}

// runRecovered turns a panic into an error: a faulty component must not end the agent,
// which is needed to replace the component.
func runRecovered(ctx context.Context, comp Component) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return comp.Run(ctx)
}

// stop ends all components and waits at most limit for them.
func (c *components) stop(limit time.Duration) {
	c.mu.Lock()
	cancel, ended := c.cancel, c.ended
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	cancel()
	if !waitAtMost(ended, limit) {
		c.log.Warn("not every component ended in time", "timeout", limit.String())
	}
}

func (c *components) status() []probe.Component {
	out := make([]probe.Component, 0, len(c.list))
	for _, comp := range c.list {
		state, message := comp.Status()
		c.mu.Lock()
		if why, failed := c.failed[comp.ID()]; failed {
			state, message = probe.Failed, why
		}
		c.mu.Unlock()
		out = append(out, probe.Component{ID: comp.ID(), Type: comp.Type(), State: state, Message: message})
	}
	return out
}

// watch reports changes of any component's status until ctx ends.
func (c *components) watch(ctx context.Context) {
	if len(c.list) == 0 {
		return
	}
	tick := time.NewTicker(statusEvery)
	defer tick.Stop()
	last := c.status()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if now := c.status(); !slices.Equal(now, last) {
			last = now
			c.changed()
		}
	}
}
