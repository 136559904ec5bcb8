//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

// Options configure a run. Agents is required; for the zero value of the others the
// constants below have defaults.
type Options struct {
	LoadedServer
	Agents int
	// HTTP2 is the share of the agents that speak HTTP/2, 0 to 1.
	HTTP2 float64
	// Dials is how many connections all agents together make at once.
	Dials int
	// PerProcess is how many agents one process has; 0 means as many as it can hold.
	PerProcess int
	// Ramp is how many agents connect in a second before anything is measured.
	Ramp float64
	// Hold is how long the scenarios park, checkins, churn and slow measure.
	Hold time.Duration
	// Rounds is how many actions for all agents are ordered, Singles how many for a
	// single agent.
	Rounds, Singles int
	// Profiles is a folder for CPU profiles of the server and the generators in each
	// scenario, and makes the table show how CPU time was spent; empty means no
	// profiles. It requires Start.
	Profiles string
	// Progress receives progress messages.
	Progress io.Writer
	// Program is started as a child process, with GeneratorSubcommand or FloorSubcommand;
	// empty means this program.
	Program string
}

// Defaults and limits of a run.
const (
	// DefaultRamp is half of what two cores can handle together with the agents.
	DefaultRamp = 500
	DefaultHold = 20 * time.Second
	// DefaultRounds is enough for a median.
	DefaultRounds  = 3
	DefaultSingles = 200
	// DefaultDials is far below the length of a server's listen queue.
	DefaultDials = 1000
	// MaxRun bounds a run of any size.
	MaxRun = 6 * time.Hour
	// maxAgents bounds a run on one machine.
	maxAgents = 1_000_000
	// bytesPerAgent is the memory of an agent on both sides, with the kernel's buffers.
	bytesPerAgent = 128 << 10
	// agentsPerCore is how many agents a core can both simulate and serve.
	agentsPerCore = 9_500
)

// StandardAgents returns a number of agents suited to this machine: what one process can
// hold, and what fits its memory and its cores.
func StandardAgents(cores int) int {
	n := min(agentsPerProcess(), cores*agentsPerCore)
	if m := memory(); m > 0 {
		n = min(n, int(m/2/bytesPerAgent))
	}
	return max(n/100*100, 100)
}

func (o *Options) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if o.Agents < 1 || o.Agents > maxAgents {
		bad("--agents: is %d, want 1 to %d", o.Agents, maxAgents)
	}
	if most := agentsPerProcess(); o.PerProcess < 0 || o.PerProcess > most {
		bad("--per-process: is %d, want 1 to %d: a process may open %d descriptors here", o.PerProcess, most, descriptors())
	}
	if o.HTTP2 < 0 || o.HTTP2 > 1 {
		bad("--http2: is %v, want a share from 0 to 1", o.HTTP2)
	}
	if o.Hold < 0 || o.Hold > MaxRun {
		bad("--hold: is %s, want at most %s", o.Hold, MaxRun)
	}
	if most := agentsPerServer(); o.Start && o.Agents > most {
		bad("--agents: %d are more than the server can hold: a process may open %d descriptors here, so want at most %d", o.Agents, descriptors(), most)
	}
	if o.Profiles != "" && !o.Start {
		bad("--profiles: needs --start: only a server that is started here serves profiles")
	}
	if o.Dials < 0 || o.Ramp < 0 || o.Rounds < 0 || o.Singles < 0 {
		bad("--dials, --ramp, --rounds and --singles: want none below 0")
	}
	if o.Rounds > 1000 || o.Singles > 100_000 {
		bad("--rounds and --singles: are %d and %d, want at most 1000 and 100000", o.Rounds, o.Singles)
	}
	o.Dials, o.Hold = orDefault(o.Dials, DefaultDials), orDefault(o.Hold, DefaultHold)
	o.PerProcess = orDefault(o.PerProcess, agentsPerProcess())
	o.Ramp = orDefault(o.Ramp, DefaultRamp)
	o.Rounds, o.Singles = orDefault(o.Rounds, DefaultRounds), orDefault(o.Singles, DefaultSingles)
	return errors.Join(errs...)
}

// apart returns how many agents a run of the named scenarios sets apart.
func (o *Options) apart(names []string) int {
	if !slices.Contains(names, "behind") || o.Agents < 2 {
		return 0
	}
	return max(1, min(apartAgents, o.Agents/10))
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Names are the scenarios in the order of a standard run. The floor comes first, since
// park is compared with it. The check-ins come before any order, so that their agents
// have no pending actions.
var Names = []string{"floor", "enrol", "park", "checkins", "single", "upgrade-all", "behind", "churn", "slow", "storm", "restart"}

// scenarios has the scenarios by name. Each begins with a parked fleet, except those in
// needsNoFleet, and leaves the fleet parked.
var scenarios = map[string]func(*run, context.Context) error{
	"enrol": (*run).enrol, "park": (*run).park, "floor": (*run).floor, "single": (*run).single, "upgrade-all": (*run).upgradeAll, "checkins": (*run).checkins,
	"behind": (*run).behind, "churn": (*run).churn, "slow": (*run).slow, "storm": (*run).storm, "restart": (*run).restart,
}

// needsNoFleet are the scenarios that begin before all agents are parked.
var needsNoFleet = []string{"floor", "enrol", "park"}

// run is one run of scenarios.
type run struct {
	Options
	*Table
	server   *serverUnderTest
	fleet    *fleet
	operator *operator
	servers  *sampler
	agents   *sampler
	ordered  []string // the ids of all actions of the run
	parked   bool     // the fleet has been connected
	work     work     // of the current scenario
	// bareConnection is the CPU time of a connection to a bare server; 0 means not
	// measured yet.
	bareConnection time.Duration
	logMu          sync.Mutex
}

// work is what a scenario does many times, so that CPU time can be divided by it.
type work struct {
	what  string
	times int
}

// Run performs the named scenarios and returns their figures. What must never happen is
// in the table's failures; an error says why the run could not continue.
func Run(ctx context.Context, o Options, names ...string) (_ *Table, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	for _, name := range names {
		if scenarios[name] == nil {
			return nil, fmt.Errorf("there is no scenario %q: want one of %s", name, strings.Join(Names, ", "))
		}
		if name == "behind" && o.apart(names) == 0 {
			return nil, errors.New("the scenario behind needs --agents of 2 at least: one that gets a single action, and one that does not")
		}
		if name == "restart" && !o.Start {
			return nil, errors.New("the scenario restart needs --start: this program stops only a server that it started")
		}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	if o.Program == "" {
		if o.Program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	if o.Profiles != "" {
		if err := os.MkdirAll(o.Profiles, 0o755); err != nil {
			return nil, fmt.Errorf("--profiles: %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, MaxRun)
	defer cancel()
	tag := unique()
	s, err := o.open(ctx, tag, o.Profiles != "", o.Progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &run{Options: o, server: s, Table: &Table{Machine: machine(), Size: o.Agents, Setup: s.setup(), Failures: []string{}}}
	if r.operator, err = newOperator(s, tag, o.Agents); err != nil {
		return nil, err
	}
	if r.fleet, err = newFleet(o, s, tag, o.apart(names)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.fleet.close()) }()
	sampling, stop := context.WithCancel(ctx)
	var samplers sync.WaitGroup
	r.servers, r.agents = &sampler{pids: s.pids}, &sampler{pids: r.fleet.pids}
	samplers.Go(func() { r.servers.run(sampling) })
	samplers.Go(func() { r.agents.run(sampling) })
	defer func() { stop(); samplers.Wait() }()

	defer func() {
		if err != nil {
			r.fail("the run stopped: %v", err)
		}
	}()
	for _, name := range names {
		if !slices.Contains(needsNoFleet, name) {
			if err := r.parkFleet(ctx); err != nil {
				return r.Table, fmt.Errorf("before %s: %w", name, err)
			}
		}
		r.logf("── %s", name)
		r.work = work{}
		p, err := r.profileBegin(ctx, name)
		if err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
		if err := errors.Join(scenarios[name](r, ctx), p.end(ctx)); err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
		if err := r.recordChecks(ctx, name); err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r.Table, nil
}

func (s *serverUnderTest) setup() string {
	switch {
	case !s.Start:
		return "a server that ran already"
	case s.Elasticsearch != "":
		return "one server on Elasticsearch"
	}
	return "one server on the embedded store"
}

func (r *run) logf(format string, args ...any) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	fmt.Fprintf(r.Progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// measuresServer reports whether the server's process is known.
func (r *run) measuresServer() bool { return len(r.server.pids()) > 0 }

// parkFleet enrols and connects all agents that are not yet, and waits until all are
// parked, which is how most scenarios begin.
func (r *run) parkFleet(ctx context.Context) error {
	if r.parked {
		return r.waitParked(ctx)
	}
	if err := r.enrolRest(ctx); err != nil {
		return err
	}
	r.logf("%d agents connect, %.0f a second …", r.Agents, r.Ramp)
	if err := r.connectAtRamp(ctx); err != nil {
		return err
	}
	if err := r.waitParked(ctx); err != nil {
		return err
	}
	_, err := r.fleet.count(ctx) // resets the counts
	return err
}

// connectAtRamp starts to connect all agents at the rate of Ramp.
func (r *run) connectAtRamp(ctx context.Context) error {
	r.parked = true
	return callAll[generator.Empty](ctx, r.fleet, "Connect", func(m *member) any {
		return generator.ConnectArgs{PerSecond: r.Ramp * float64(m.agents) / float64(r.Agents)}
	}, nil)
}

const (
	// stateEvery is how often the state of the agents is counted. Beyond statesAgents
	// agents it is less often, since each one has to be examined.
	stateEvery   = 50 * time.Millisecond
	statesAgents = 20_000
	// minWait and perAgentWait bound the wait for the fleet: ten times what it takes on
	// an idle machine.
	minWait      = time.Minute
	perAgentWait = 20 * time.Millisecond
	// idleCPU is the share of a core that an idle server may use during idleFor.
	idleCPU = 0.5
	idleFor = 300 * time.Millisecond
	// idleTimeout bounds the wait for an idle server once the fleet is parked, since a
	// large fleet always causes some work.
	idleTimeout = 20 * time.Second
	// progressEvery is how often a wait reports progress.
	progressEvery = 5 * time.Second
)

func (r *run) maxWait() time.Duration {
	return minWait + time.Duration(r.Agents)*perAgentWait + time.Duration(float64(r.Agents)/r.Ramp*float64(time.Second))
}

// waitParked waits until every agent has sent its check-in and the server is idle: it
// has then parked them and finished its deferred writes. If the server counts the fleet
// as parked but stays busy, waitParked returns after idleTimeout.
func (r *run) waitParked(ctx context.Context) error {
	if err := r.waitPolling(ctx); err != nil {
		return err
	}
	began, logged := time.Now(), time.Now()
	for {
		from := generator.Now()
		if err := sleep(ctx, idleFor); err != nil {
			return err
		}
		idle := !r.measuresServer() || r.servers.cpu(from, generator.Now()).Seconds() < idleCPU*idleFor.Seconds()
		parked, counted := r.operator.parked(ctx)
		switch waited := time.Since(began); {
		case idle:
			return nil
		case counted && parked >= r.nearlyAll() && waited > idleTimeout:
			r.logf("  all agents are parked, and the server is still busy after %s: what follows includes that", idleTimeout)
			return nil
		case waited > r.maxWait():
			return errors.New("the server does not become idle")
		}
		if time.Since(logged) > progressEvery {
			logged = time.Now()
			r.logf("  every check-in has been sent, and the server is still busy …")
		}
	}
}

// waitPolling waits until every agent has sent its check-in.
func (r *run) waitPolling(ctx context.Context) error {
	deadline, logged := time.Now().Add(r.maxWait()), time.Now()
	for {
		s, err := r.fleet.state(ctx)
		if err != nil {
			return err
		}
		if s.Polling == s.Agents && s.Agents >= r.Agents {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("timed out waiting for all agents to park: of %d, %d are parked, %d acknowledge, %d connect, %d wait, %d are disconnected", s.Agents, s.Polling, s.Acking, s.Dialing, s.Waiting, s.Disconnected)
		}
		if time.Since(logged) > progressEvery {
			logged = time.Now()
			r.logf("  %d of %d are parked, %d connect, %d wait …", s.Polling, s.Agents, s.Dialing, s.Waiting)
		}
		if err := sleep(ctx, r.stateEvery()); err != nil {
			return err
		}
	}
}

func (r *run) stateEvery() time.Duration {
	return stateEvery * time.Duration(max(1, r.Agents/statesAgents))
}

// nearlyAll returns how many agents must count as parked when all are: at any time a few
// polls have ended and the next ones have not begun.
func (r *run) nearlyAll() int { return r.Agents - r.Agents/1000 }

// reportState reports what the agents are doing every few seconds, until stop is called.
func (r *run) reportState(ctx context.Context, text func(generator.StateReply) string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, progressEvery) == nil {
			if s, err := r.fleet.state(ctx); err == nil {
				r.logf("  %s …", text(s))
			}
		}
	}()
	return func() { cancel(); <-done }
}

// reportParked reports how many agents are parked, until stop is called.
func (r *run) reportParked(ctx context.Context) (stop func()) {
	return r.reportState(ctx, func(s generator.StateReply) string {
		return fmt.Sprintf("%d of %d are parked, %d acknowledge, %d wait", s.Polling, s.Agents, s.Acking, s.Waiting)
	})
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// recordChecks adds the agents' counts and the failures they have noticed to the table.
func (r *run) recordChecks(ctx context.Context, name string) error {
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.recordCount(name, c)
	var duplicates int
	err = callAll(ctx, r.fleet, "Audit", func(*member) any { return generator.AuditArgs{Ordered: r.ordered} }, func(_ *member, got *generator.AuditReply) {
		for _, id := range got.Unordered {
			r.fail("%s: agents received action %s, which nobody ordered", name, id)
		}
		duplicates += got.Duplicates
	})
	if duplicates > 0 {
		r.fail("%s: %d deliveries since the start of the run to agents that already had the action", name, duplicates)
	}
	return err
}

// recordCount adds a count to the table.
func (r *run) recordCount(name string, c *generator.Count) {
	if c.Failures > 0 {
		r.fail("%s: %d failures, such as: %s", name, c.Failures, strings.Join(c.Texts[:min(3, len(c.Texts))], "; "))
	}
	if c.Broken > 0 {
		r.fail("%s: %d connections ended within an answer", name, c.Broken)
	}
	if c.CutOff > 0 && name != "restart" {
		r.fail("%s: %d connections ended under a request", name, c.CutOff)
	}
	if c.DialErrors > 0 && name != "restart" {
		r.sum(name, "connections that had to be tried again", c.DialErrors)
		r.logf("  %s", strings.Join(c.DialTexts[:min(3, len(c.DialTexts))], "; "))
	}
	storms := name == "storm" || name == "restart"
	if n := c.Limited(); n > 0 || storms {
		r.sum(name, "answers of 429", n)
	}
	if storms {
		r.sum(name, "answers of 5xx", c.ServerErrors())
	}
}
