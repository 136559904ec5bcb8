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

	"github.com/muster-fleet/muster/testing/horde/herd"
)

// Options are a run's. Agents is required; the zero value of the others is a
// default, which the constants beside say.
type Options struct {
	Target
	Agents int
	// HTTP2 is the share of the agents that speak HTTP/2, 0 to 1.
	HTTP2 float64
	// Dials is how many connections all agents together make at once.
	Dials int
	// PerProcess is how many agents one process has; 0: as many as it can hold.
	PerProcess int
	// Ramp is how many agents connect in a second before anything is measured.
	Ramp float64
	// Hold is how long the fleet is parked, how long check-ins go round, agents
	// churn, and links are slow.
	Hold time.Duration
	// Rounds is how often an action for all is ordered, Singles how often one for a
	// single agent.
	Rounds, Singles int
	// Profiles is a folder for processor profiles of the server and of the agents
	// in each scenario, and the table then says where the time goes; empty: none are
	// taken. Only a server that is started here can be profiled.
	Profiles string
	// Progress is told what happens.
	Progress io.Writer
	// Program is started for what must not share a process with the operator, with
	// HerdCommand or FloorCommand; empty: this program.
	Program string
}

// Defaults of a run.
const (
	// DefaultRamp is half of what two cores can do together with the agents.
	DefaultRamp = 500
	DefaultHold = 20 * time.Second
	// DefaultRounds gives a middle.
	DefaultRounds  = 3
	DefaultSingles = 200
	// DefaultDials of all agents together: what a server has in its queue for
	// connections is far above.
	DefaultDials = 1000
	// MaxRun bounds a run of any size.
	MaxRun = 6 * time.Hour
	// maxAgents bounds a run on one machine.
	maxAgents = 1_000_000
	// bytesPerAgent is what an agent takes on both sides, the kernel's buffers with it.
	bytesPerAgent = 128 << 10
	// agentsPerCore is what a core can serve together with the agents themselves.
	agentsPerCore = 9_500
)

// StandardAgents is a size fit for this machine: what one process can hold and
// what fits into its memory and onto its cores.
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

// apart is how many agents a run of some scenarios sets apart.
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

// Names are the scenarios, in the order in which a standard run has them.
// The floor comes first: park compares with it. Check-ins come before any order: they
// are those of agents without pending actions.
var Names = []string{"floor", "enrol", "park", "checkins", "single", "upgrade-all", "behind", "churn", "slow", "storm", "restart"}

// scenarios by name. Each but those of needsNoFleet begins with a parked fleet and
// leaves it parked.
var scenarios = map[string]func(*run, context.Context) error{
	"enrol": (*run).enrol, "park": (*run).park, "floor": (*run).floor, "single": (*run).single, "upgrade-all": (*run).upgradeAll, "checkins": (*run).checkins,
	"behind": (*run).behind, "churn": (*run).churn, "slow": (*run).slow, "storm": (*run).storm, "restart": (*run).restart,
}

// needsNoFleet are the scenarios that begin before all agents are parked.
var needsNoFleet = []string{"floor", "enrol", "park"}

// run is one run of some scenarios.
type run struct {
	Options
	*Table
	site     *site
	fleet    *fleet
	operator *operator
	servers  *sampler
	agents   *sampler
	ordered  []string // all actions of the run
	parked   bool     // the fleet is
	did      work     // in the scenario that goes on
	// bareConnection is what a connection costs a bare server; 0: not measured yet.
	bareConnection time.Duration
	saying         sync.Mutex
}

// work is what a scenario does many times, so that its time can be told for each.
type work struct {
	what  string
	times int
}

// Run performs scenarios and returns their figures. The table has what must not
// happen, if it did; an error says why the run could not go on.
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
	r := &run{Options: o, site: s, Table: &Table{Machine: machine(), Size: o.Agents, Setup: s.setup(), Failures: []string{}}}
	if r.operator, err = newOperator(s, tag, o.Agents); err != nil {
		return nil, err
	}
	if r.fleet, err = newFleet(o, s, tag, o.apart(names)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.fleet.close()) }()
	watch, stop := context.WithCancel(ctx)
	var samplers sync.WaitGroup
	r.servers, r.agents = &sampler{pids: s.pids}, &sampler{pids: r.fleet.pids}
	samplers.Go(func() { r.servers.run(watch) })
	samplers.Go(func() { r.agents.run(watch) })
	defer func() { stop(); samplers.Wait() }()

	defer func() {
		if err != nil {
			r.fail("the run broke off: %v", err)
		}
	}()
	for _, name := range names {
		if !slices.Contains(needsNoFleet, name) {
			if err := r.settle(ctx); err != nil {
				return r.Table, fmt.Errorf("before %s: %w", name, err)
			}
		}
		r.say("── %s", name)
		r.did = work{}
		p, err := r.profileBegin(ctx, name)
		if err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
		if err := errors.Join(scenarios[name](r, ctx), p.end(ctx)); err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
		if err := r.judge(ctx, name); err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r.Table, nil
}

func (s *site) setup() string {
	switch {
	case !s.Start:
		return "a server that ran already"
	case s.Elasticsearch != "":
		return "one server on Elasticsearch"
	}
	return "one server on the embedded store"
}

func (r *run) say(format string, args ...any) {
	r.saying.Lock()
	defer r.saying.Unlock()
	fmt.Fprintf(r.Progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// measuresServer says whether the server's process is known.
func (r *run) measuresServer() bool { return len(r.site.pids()) > 0 }

// settle brings the fleet into the state that most scenarios begin with: everybody
// has enrolled and is parked.
func (r *run) settle(ctx context.Context) error {
	if r.parked {
		return r.waitParked(ctx)
	}
	if err := r.enrolRest(ctx); err != nil {
		return err
	}
	r.say("%d agents connect, %.0f a second …", r.Agents, r.Ramp)
	if err := r.comeSlowly(ctx); err != nil {
		return err
	}
	if err := r.waitParked(ctx); err != nil {
		return err
	}
	_, err := r.fleet.count(ctx) // what was needed to get here is nobody's figure
	return err
}

// comeSlowly lets the agents connect at the rate of Ramp.
func (r *run) comeSlowly(ctx context.Context) error {
	r.parked = true
	return tell[herd.None](ctx, r.fleet, "Come", func(m *member) any {
		return herd.ComeArgs{PerSecond: r.Ramp * float64(m.agents) / float64(r.Agents)}
	}, nil)
}

const (
	// stateEvery is how often the agents are asked what they do, and less often when
	// they are more than statesAgents: each has to be looked at.
	stateEvery   = 50 * time.Millisecond
	statesAgents = 20_000
	// minPatience and perAgentPatience bound the wait for a fleet: ten times what it
	// takes where the machine does nothing else.
	minPatience      = time.Minute
	perAgentPatience = 20 * time.Millisecond
	// calmCPU is the share of a core that an idle server may take during calmFor.
	calmCPU = 0.5
	calmFor = 300 * time.Millisecond
	// calmPatience bounds the wait for an idle server once the fleet is parked: a large
	// fleet always causes some work.
	calmPatience = 20 * time.Second
	// progressEvery is how often a wait says what it waits for.
	progressEvery = 5 * time.Second
)

func (r *run) patience() time.Duration {
	return minPatience + time.Duration(r.Agents)*perAgentPatience + time.Duration(float64(r.Agents)/r.Ramp*float64(time.Second))
}

// waitParked waits until every agent has sent its check-in and the server is idle: it
// has then parked them and finished its deferred writes. If the server counts the fleet
// as parked but stays busy, waitParked returns after calmPatience.
func (r *run) waitParked(ctx context.Context) error {
	if err := r.waitPolling(ctx); err != nil {
		return err
	}
	began, said := time.Now(), time.Now()
	for {
		from := herd.Now()
		if err := sleep(ctx, calmFor); err != nil {
			return err
		}
		calm := !r.measuresServer() || r.servers.cpu(from, herd.Now()).Seconds() < calmCPU*calmFor.Seconds()
		parked, counted := r.operator.parked(ctx)
		switch waited := time.Since(began); {
		case calm:
			return nil
		case counted && parked >= r.nearly() && waited > calmPatience:
			r.say("  all agents are parked, and the server is still busy after %s: what follows includes that", calmPatience)
			return nil
		case waited > r.patience():
			return errors.New("the server does not become idle")
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			r.say("  every check-in has been sent, and the server is still busy …")
		}
	}
}

// waitPolling waits until every agent has sent its check-in.
func (r *run) waitPolling(ctx context.Context) error {
	deadline, said := time.Now().Add(r.patience()), time.Now()
	for {
		s, err := r.fleet.state(ctx)
		if err != nil {
			return err
		}
		if s.Polling == s.Agents && s.Agents >= r.Agents {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited in vain until all agents are parked: of %d, %d are, %d acknowledge, %d connect, %d wait, %d are away", s.Agents, s.Polling, s.Acking, s.Dialing, s.Waiting, s.Away)
		}
		if time.Since(said) > progressEvery {
			said = time.Now()
			r.say("  %d of %d are parked, %d connect, %d wait …", s.Polling, s.Agents, s.Dialing, s.Waiting)
		}
		if err := sleep(ctx, r.stateEvery()); err != nil {
			return err
		}
	}
}

func (r *run) stateEvery() time.Duration {
	return stateEvery * time.Duration(max(1, r.Agents/statesAgents))
}

// nearly is how many of the agents are parked when all are that can be at one
// moment: some polls end at every moment, and begin anew.
func (r *run) nearly() int { return r.Agents - r.Agents/1000 }

// tellAll says what the agents do, every few seconds until stop is called.
func (r *run) tellAll(ctx context.Context, text func(herd.StateReply) string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for sleep(ctx, progressEvery) == nil {
			if s, err := r.fleet.state(ctx); err == nil {
				r.say("  %s …", text(s))
			}
		}
	}()
	return func() { cancel(); <-done }
}

// tellState is tellAll while an order is on its way.
func (r *run) tellState(ctx context.Context) (stop func()) {
	return r.tellAll(ctx, func(s herd.StateReply) string {
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

// judge takes what the agents have seen into the table's failures, and the count of
// answers into its figures.
func (r *run) judge(ctx context.Context, name string) error {
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.judged(name, c)
	var again int
	err = tell(ctx, r.fleet, "Audit", func(*member) any { return herd.AuditArgs{Ordered: r.ordered} }, func(_ *member, got *herd.AuditReply) {
		for _, id := range got.Foreign {
			r.fail("%s: agents were given action %s, which nobody ordered", name, id)
		}
		again += got.Again
	})
	if again > 0 {
		r.fail("%s: %d deliveries to agents that had the action, since the run began", name, again)
	}
	return err
}

// judged takes in a count.
func (r *run) judged(name string, c *herd.Count) {
	if c.Failures > 0 {
		r.fail("%s: %d answers that must not be, such as: %s", name, c.Failures, strings.Join(c.Texts[:min(3, len(c.Texts))], "; "))
	}
	if c.Broken > 0 {
		r.fail("%s: %d answers broke off", name, c.Broken)
	}
	if c.CutOff > 0 && name != "restart" {
		r.fail("%s: %d connections ended under a request", name, c.CutOff)
	}
	if c.DialErrors > 0 && name != "restart" {
		r.sum(name, "connections that had to be tried again", c.DialErrors)
		r.say("  %s", strings.Join(c.DialTexts[:min(3, len(c.DialTexts))], "; "))
	}
	storms := name == "storm" || name == "restart"
	if n := c.Limited(); n > 0 || storms {
		r.sum(name, "answers of 429", n)
	}
	if storms {
		r.sum(name, "answers of 5xx", c.ServerErrors())
	}
}
