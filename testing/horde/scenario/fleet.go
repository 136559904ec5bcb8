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

	"github.com/muster-fleet/muster/testing/horde/herd"
)

// fleet is the agents of a run, in one herd or several.
type fleet struct {
	herds []*member
	// apart is one of the herds, the last, or nil: agents with a tag of their own,
	// that orders for all others pass over, in a process that has nothing else to do.
	apart *member
}

// member is one herd of the fleet.
type member struct {
	*rpc.Client
	agents int // that it is to have
	has    int
	ids    []string // of its agents, when all have enrolled

	child *exec.Cmd
}

// HerdCommand is what Options.Program is started with to be a herd: it calls ServeHerd.
const HerdCommand = "herd"

// ServeHerd is a child process: it reads what herd it is from in, and then serves it
// there until in ends.
func ServeHerd(in io.ReadCloser, out io.WriteCloser) error {
	dec := json.NewDecoder(oneByte{in}) // what is behind the options is for net/rpc
	var o herd.Options
	if err := dec.Decode(&o); err != nil {
		return fmt.Errorf("this command is for the program itself: %w", err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil { // the encoder ends with a new line
		return err
	}
	h, err := herd.New(o)
	if err != nil {
		return err
	}
	return errors.Join(herd.Serve(h, pipes{in, out}), h.Close())
}

// oneByte keeps a decoder from reading ahead.
type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(1, len(p))]) }

type pipes struct {
	io.ReadCloser
	io.WriteCloser
}

func (p pipes) Close() error { return errors.Join(p.ReadCloser.Close(), p.WriteCloser.Close()) }

// apartTag is what agents apart have besides the tag of all.
func apartTag(tag string) string { return tag + "-apart" }

// newFleet divides the agents among processes of their own: the operator measures how
// long it waits for the servers, and beside thousands of agents it would wait for them.
func newFleet(o Options, s *site, tag string, apart int) (*fleet, error) {
	f := &fleet{}
	per, rest := o.PerProcess, o.Agents-apart
	processes := (rest + per - 1) / per
	options := herd.Options{
		Server: s.Server, CA: s.ca, Token: s.EnrollmentToken, Tags: []string{tag}, Version: "1.0.0", HTTP2: o.HTTP2, Dials: max(1, o.Dials/processes),
	}
	add := func(agents int) error {
		m := &member{agents: agents}
		if err := m.start(options, o.Program); err != nil {
			return errors.Join(err, f.close())
		}
		f.herds = append(f.herds, m)
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
		f.apart = f.herds[len(f.herds)-1]
	}
	return f, nil
}

func (m *member) start(o herd.Options, program string) error {
	c := exec.Command(program, HerdCommand)
	c.Stderr = os.Stderr
	// Ctrl-C is for the parent, which then closes the pipe.
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
		return fmt.Errorf("start a process with more agents: %w", err)
	}
	m.child = c
	if err := json.NewEncoder(in).Encode(o); err != nil {
		return errors.Join(err, m.close())
	}
	m.Client = rpc.NewClient(pipes{out, in})
	return nil
}

// childGrace is what a child has to hang up, besides perAgentGrace for each agent:
// all processes do so at the same time, and the servers beside them.
const (
	childGrace    = 10 * time.Second
	perAgentGrace = 5 * time.Millisecond
)

func (m *member) close() error {
	if m.Client != nil {
		_ = m.Client.Close() // the child's end of life
	}
	if m.child == nil {
		return nil
	}
	ended := make(chan struct{})
	go func() {
		_ = m.child.Wait() // how it ended does not matter any more
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(childGrace + time.Duration(m.agents)*perAgentGrace):
		err := m.child.Process.Kill()
		<-ended
		return errors.Join(errors.New("a process with agents did not end in time"), err)
	}
}

func (f *fleet) close() error {
	errs := make([]error, len(f.herds))
	var all sync.WaitGroup
	for i, m := range f.herds {
		all.Go(func() { errs[i] = m.close() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// pids are the processes of the agents.
func (f *fleet) pids() []int {
	pids := []int{}
	for _, m := range f.herds {
		pids = append(pids, m.child.Process.Pid)
	}
	return pids
}

// tell calls every herd at once and waits for all of them, or for ctx.
func tell[Reply any](ctx context.Context, f *fleet, method string, args func(*member) any, each func(*member, *Reply)) error {
	calls := make([]*rpc.Call, len(f.herds))
	for i, m := range f.herds {
		calls[i] = m.Go("Herd."+method, args(m), new(Reply), make(chan *rpc.Call, 1))
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
			each(f.herds[i], call.Reply.(*Reply))
		}
	}
	return nil
}

// say is tell without an answer.
func (f *fleet) say(ctx context.Context, method string, args any) error {
	return tell[herd.None](ctx, f, method, func(*member) any { return args }, nil)
}

// state is what all agents do.
func (f *fleet) state(ctx context.Context) (sum herd.StateReply, err error) {
	err = tell(ctx, f, "State", func(*member) any { return herd.None{} }, func(_ *member, r *herd.StateReply) {
		sum.Agents += r.Agents
		sum.Enrolled += r.Enrolled
		sum.Polling += r.Polling
		sum.Acking += r.Acking
		sum.Dialing += r.Dialing
		sum.Waiting += r.Waiting
		sum.Away += r.Away
	})
	return sum, err
}

// count is what all agents have seen since it was asked last.
func (f *fleet) count(ctx context.Context) (*herd.Count, error) {
	sum := &herd.Count{}
	return sum, tell(ctx, f, "Count", func(*member) any { return herd.CountArgs{Reset: true} }, func(_ *member, r *herd.Count) { sum.Join(r) })
}

// share divides a number among the herds as their agents are.
func (f *fleet) share(m *member, n int) int {
	total := 0
	for _, other := range f.herds {
		total += other.agents
	}
	return max(1, n*m.agents/total)
}

// anyone is a herd, as likely as it has agents.
func (f *fleet) anyone() *member {
	total := 0
	for _, m := range f.herds {
		total += m.agents
	}
	n := rand.IntN(total)
	for _, m := range f.herds {
		if n -= m.agents; n < 0 {
			return m
		}
	}
	return f.herds[0] // there are no others
}
