//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	// Progress is told what happens.
	Progress io.Writer
	// Child starts this program as a herd; see ServeHerd. Without it, all agents are
	// in this process.
	Child []string
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

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Names are the scenarios, in the order in which a standard run has them.
var Names = []string{"enrol", "park", "single", "upgrade-all", "checkins", "churn", "slow", "storm", "restart"}

// scenarios by name. Each may count on a fleet that is parked, enrol excepted, and
// leaves it so.
var scenarios = map[string]func(*run, context.Context) error{
	"enrol": (*run).enrol, "park": (*run).park, "single": (*run).single, "upgrade-all": (*run).upgradeAll, "checkins": (*run).checkins,
	"churn": (*run).churn, "slow": (*run).slow, "storm": (*run).storm, "restart": (*run).restart,
}

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
		if name == "restart" && !o.Start {
			return nil, errors.New("the scenario restart needs --start: other servers are not this program's to stop")
		}
	}
	if o.Progress == nil {
		o.Progress = io.Discard
	}
	ctx, cancel := context.WithTimeout(ctx, MaxRun)
	defer cancel()
	tag := unique()
	s, err := o.open(ctx, tag, o.Progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r := &run{Options: o, site: s, Table: &Table{Machine: machine(), Size: o.Agents, Setup: s.setup(), Failures: []string{}}}
	if r.operator, err = newOperator(s, tag); err != nil {
		return nil, err
	}
	if r.fleet, err = newFleet(o, s, tag, o.Child); err != nil {
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
		if name != "enrol" && name != "park" {
			if err := r.settle(ctx); err != nil {
				return r.Table, fmt.Errorf("before %s: %w", name, err)
			}
		}
		r.say("── %s", name)
		if err := scenarios[name](r, ctx); err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
		if err := r.judge(ctx, name); err != nil {
			return r.Table, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r.Table, nil
}

func (s *site) setup() string {
	store := "the embedded store"
	if s.Elasticsearch != "" {
		store = "Elasticsearch"
	}
	switch n := len(s.Servers); {
	case !s.Start:
		return fmt.Sprintf("%d servers that ran already", n)
	case n == 1:
		return "one server on " + store
	default:
		return fmt.Sprintf("%d replicas on %s", n, store)
	}
}

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Progress, time.Now().Format(time.TimeOnly)+" "+format+"\n", args...)
}

// measuresServer says whether the servers' processes are known.
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
	// stateEvery is how often the agents are asked what they do: it takes them some
	// milliseconds when they are many.
	stateEvery = 50 * time.Millisecond
	// minPatience and perAgentPatience bound the wait for a fleet: ten times what it
	// takes where the machine does nothing else.
	minPatience      = time.Minute
	perAgentPatience = 20 * time.Millisecond
	// calmCPU is the share of a core that a server may still take when a fleet is
	// called parked, for calmFor.
	calmCPU = 0.5
	calmFor = 300 * time.Millisecond
	// progressEvery is how often a wait says what it waits for.
	progressEvery = 5 * time.Second
)

func (r *run) patience() time.Duration {
	return minPatience + time.Duration(r.Agents)*perAgentPatience + time.Duration(float64(r.Agents)/r.Ramp*float64(time.Second))
}

// waitParked waits until every agent has a check-in out and the servers have come to
// rest: they have then parked it.
func (r *run) waitParked(ctx context.Context) error {
	if err := r.waitPolling(ctx); err != nil {
		return err
	}
	deadline := time.Now().Add(r.patience())
	for {
		if n, counts := r.operator.parked(ctx); counts && n >= r.Agents && len(r.site.Servers) == 1 {
			return nil
		}
		from := herd.Now()
		if err := sleep(ctx, calmFor); err != nil {
			return err
		}
		if !r.measuresServer() || r.servers.cpu(from, herd.Now()).Seconds() < calmCPU*calmFor.Seconds() {
			return nil
		}
		if time.Now().After(deadline) {
			return errors.New("the servers do not come to rest")
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
		if err := sleep(ctx, stateEvery); err != nil {
			return err
		}
	}
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

// Report writes RESULTS.md.
func (t *Table) Report(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	return errors.Join(t.Markdown(f), f.Close())
}
