//go:build linux

package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

// fleet is all agents of a run, in one or more generators.
type fleet struct {
	generators []*member
	// apart is the last of the generators, or nil. Its agents have an additional tag, so
	// that an order can leave them out, and a process that has nothing else to do.
	apart *member
}

// member is one generator of the fleet.
type member struct {
	*rpc.Client
	agents int      // how many it will have
	has    int      // how many have enrolled
	ids    []string // of its agents, once all have enrolled

	child *exec.Cmd
}

// GeneratorSubcommand is the argument of Options.Program that makes it call ServeGenerator.
const GeneratorSubcommand = "generator"

// ServeGenerator is the main function of a child process. It reads the generator's
// options from in, and then serves the generator until in ends.
func ServeGenerator(in io.ReadCloser, out io.WriteCloser) error {
	dec := json.NewDecoder(oneByte{in}) // what follows the options is for net/rpc
	var o generator.Options
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf("this command is for the program itself: %w", err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil { // the encoder's final newline
		return err
	}
	h, err := generator.New(o)
	if err != nil {
		return err
	}
	return errors.Join(generator.Serve(h, pipes{in, out}), h.Close())
}

// oneByte keeps a decoder from reading ahead.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.WriteCloser.Close()) }

// apartTag returns the additional tag of the agents set apart.
func apartTag(tag string) string { return tag + "-apart" }

// newFleet divides the agents among child processes. The operator's process has no
// agents, since they would delay its measurements.
func newFleet(o Options, s *serverUnderTest, tag string, apart int) (*fleet, error) {
	f := &fleet{}
	per, rest := o.PerProcess, o.Agents-apart
	processes := (rest + per - 1) / per
	options := generator.Options{
		Server: s.Server, CA: s.ca, Token: s.EnrollmentToken, Tags: []string{tag}, Version: "1.0.0", HTTP2: o.HTTP2, Dials: max(1, o.Dials/processes),
	}
	add := func(agents int) error {
		m := &member{agents: agents}
		if err := m.start(options, o.Program); err != nil {
			return errors.Join(err, f.close())
		}
		f.generators = append(f.generators, m)
		options.First += agents
		return nil
	}
	size := (rest + processes - 1) / processes
	for options.First < rest {
		if err := add(min(size, rest-options.First)); err != nil {
			return nil, err
		}
	}
	if apart > 0 {
		options.Tags = append(options.Tags, apartTag(tag))
		if err := add(apart); err != nil {
			return nil, err
		}
		f.apart = f.generators[len(f.generators)-1]
	}
	return f, nil
}

func (m *member) start(o generator.Options, program string) error {
	c := exec.Command(program, GeneratorSubcommand)
	c.Stderr = os.Stderr
	// Ctrl-C must reach only the parent, which then closes the pipe.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := c.StdinPipe()
	if err != nil {
		return err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return fmt.Errorf("start a generator process: %w", err)
	}
	m.child = c
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return errors.Join(err, m.close())
	}
	m.Client = rpc.NewClient(pipes{out, in})
	return nil
}

// childGrace is how long a child may take to disconnect its agents, plus perAgentGrace
// for each of them: all children and the server do this at the same time.
const (
	childGrace    = 10 * time.Second
	perAgentGrace = 5 * time.Millisecond
)

func (m *member) close() error {
	if m.Client != nil {
		_ = m.Client.Close() // ends the child
	}
	if m.child == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		_ = m.child.Wait() // its exit status does not matter
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(childGrace + time.Duration(m.agents)*perAgentGrace):
		err := m.child.Process.Kill()
		<-ended
		return errors.Join(errors.New("a generator process did not end in time"), err)
	}
}

func (f *fleet) close() error {
	errs := make([]error, len(f.generators))
	var all sync.WaitGroup
	for i, m := range f.generators {
		all.Go(func() { errs[i] = m.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// pids returns the ids of the generator processes.
func (f *fleet) pids() []int {
	pids := []int{}
	for _, m := range f.generators {
		pids = append(pids, m.child.Process.Pid)
	}
	return pids
}

// callAll calls a method of all generators concurrently and waits for all of them, or
// for ctx.
func callAll[Reply any](ctx context.Context, f *fleet, method string, args func(*member) any, each func(*member, *Reply)) error {
	calls := make([]*rpc.Call, len(f.generators))
	for i, m := range f.generators {
		calls[i] = m.Go("Generator."+method, args(m), new(Reply), make(chan *rpc.Call, 1))
	}
	for i, call := range calls {
		select {
		case <-call.Done:
		case <-ctx.Done():
			return ctx.Err()
		}
		if call.Error != nil {
			return fmt.Errorf("agents, %s: %w", method, call.Error)
		}
		if each != nil {
			each(f.generators[i], call.Reply.(*Reply))
		}
	}
	return nil
}

// call is callAll for a method without a reply.
func (f *fleet) call(ctx context.Context, method string, args any) error {
	return callAll[generator.Empty](ctx, f, method, func(*member) any { return args }, nil)
}

// state counts all agents by what they are doing.
func (f *fleet) state(ctx context.Context) (sum generator.StateReply, err error) {
	err = callAll(ctx, f, "State", func(*member) any { return generator.Empty{} }, func(_ *member, r *generator.StateReply) {
		sum.Agents += r.Agents
		sum.Enrolled += r.Enrolled
		sum.Polling += r.Polling
		sum.Acking += r.Acking
		sum.Dialing += r.Dialing
		sum.Waiting += r.Waiting
		sum.Disconnected += r.Disconnected
	})
	return sum, err
}

// count returns what all agents have observed since the last call.
func (f *fleet) count(ctx context.Context) (*generator.Count, error) {
	sum := &generator.Count{}
	return sum, callAll(ctx, f, "Count", func(*member) any { return generator.CountArgs{Reset: true} }, func(_ *member, r *generator.Count) { sum.Merge(r) })
}

// share returns m's part of n, in proportion to its agents.
func (f *fleet) share(m *member, n int) int {
	total := 0
	for _, other := range f.generators {
		total += other.agents
	}
	return max(1, n*m.agents/total)
}

// anyone returns a random generator, weighted by its agents.
func (f *fleet) anyone() *member {
	total := 0
	for _, m := range f.generators {
		total += m.agents
	}
	n := rand.IntN(total)
	for _, m := range f.generators {
		if n -= m.agents; n < 0 {
			return m
		}
	}
	return f.generators[0] // there are no others
}
