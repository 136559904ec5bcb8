//go:build linux

package generator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/rpc"
	"runtime/pprof"
	"slices"
	"time"
)

// Service controls a generator over net/rpc. Its methods may be called concurrently,
// except Enrol and PollTwice, which change the set of agents.
type Service struct{ g *Generator }

// Serve serves the Service of g on conn until the client closes it.
func Serve(g *Generator, conn io.ReadWriteCloser) error {
	s := rpc.NewServer()
	if err := s.RegisterName("Generator", &Service{g}); err != nil {
		return err
	}
	s.ServeConn(conn)
	return nil
}

// Empty stands for missing arguments or an empty reply.
type Empty struct{}

// ConnectArgs say how fast all agents connect.
type ConnectArgs struct {
	// PerSecond is how many agents connect in a second; 0 means all at once.
	PerSecond float64
}

// Connect starts to connect all agents that are disconnected. It does not wait for them.
func (s *Service) Connect(args ConnectArgs, _ *Empty) error {
	from, k := Now(), 0
	s.g.each(func(l *loop) {
		for _, a := range l.agents {
			if a.wantConnected {
				continue
			}
			if args.PerSecond <= 0 {
				l.connect(a)
				continue
			}
			a.wantConnected = true
			at := from + MonoTime(float64(k)/args.PerSecond*float64(time.Second))
			l.after(a, at.Sub(Now()), l.connect)
			k++
		}
	})
	return nil
}

// Disconnect closes all connections at once. The agents stay disconnected.
func (s *Service) Disconnect(_ Empty, _ *Empty) error {
	s.g.mu.Lock()
	s.g.dials = nil
	s.g.mu.Unlock()
	s.g.each(func(l *loop) {
		for _, a := range l.agents {
			a.wantConnected, a.acked = false, nil
			l.hangUp(a)
		}
	})
	return nil
}

// Reconnect closes all connections at once, and connects all agents again.
func (s *Service) Reconnect(_ Empty, _ *Empty) error {
	if err := s.Disconnect(Empty{}, nil); err != nil {
		return err
	}
	return s.Connect(ConnectArgs{}, nil)
}

// StateReply counts the agents by what they are doing.
type StateReply struct {
	Agents int
	// Enrolled includes the agents that a running Enrol call has enrolled.
	Enrolled int
	// Polling agents have sent a check-in and wait for its answer.
	Polling, Acking, Dialing, Waiting, Disconnected int
}

// State reports what the agents are doing.
func (s *Service) State(_ Empty, reply *StateReply) error {
	s.g.each(func(l *loop) {
		var n [phases]int
		for _, a := range l.agents {
			n[a.phase]++
		}
		reply.Agents += len(l.agents)
		reply.Polling += n[polling]
		reply.Acking += n[acking]
		reply.Dialing += n[dialing]
		reply.Waiting += n[waiting]
		reply.Disconnected += n[disconnected]
	})
	reply.Enrolled = int(s.g.enrolling.Load())
	return nil
}

// CountArgs are the arguments of Count. Reset sets the counts to zero after they are read.
type CountArgs struct{ Reset bool }

// Count reports what the agents have observed.
func (s *Service) Count(args CountArgs, reply *Count) error {
	s.g.each(func(l *loop) {
		reply.Merge(&l.count)
		if args.Reset {
			l.count = Count{Status: map[string]int{}}
		}
	})
	reply.Handshake.export()
	reply.ConnectToCheckin.export()
	return nil
}

// ActionArgs name an action, and how many agents of this generator it is for.
type ActionArgs struct {
	ID      string
	Want    int
	Timeout time.Duration
}

// ActionReply is the progress of an action: when it was delivered to each agent, when
// each acknowledgement was answered, and when each agent had polled again.
type ActionReply struct {
	Delivered, Acked, Parked []MonoTime
	// AckLatency is the time from each delivery to the answer to its acknowledgement.
	AckLatency Latency
	// Duplicates counts deliveries to agents that already had the action.
	Duplicates int
}

// collectEvery is how often Action reads the progress, which takes the loops a few
// microseconds.
const collectEvery = 10 * time.Millisecond

// Action waits until args.Want agents have received the action, acknowledged it and
// polled again, or until the timeout; the reply then lacks what has not happened.
func (s *Service) Action(args ActionArgs, reply *ActionReply) error {
	deadline := time.Now().Add(args.Timeout)
	for {
		parked := 0
		s.g.each(func(l *loop) {
			if r := l.records[args.ID]; r != nil {
				parked += len(r.parked)
			}
		})
		if parked >= args.Want || time.Now().After(deadline) || s.g.ctx.Err() != nil {
			break
		}
		time.Sleep(collectEvery)
	}
	s.g.each(func(l *loop) {
		if r := l.records[args.ID]; r != nil {
			for _, side := range []struct {
				to   *[]MonoTime
				from map[int]MonoTime
			}{{&reply.Delivered, r.delivered}, {&reply.Acked, r.acked}, {&reply.Parked, r.parked}} {
				for _, at := range side.from {
					*side.to = append(*side.to, at)
				}
			}
			for number, at := range r.acked {
				reply.AckLatency.Add(at.Sub(r.delivered[number]))
			}
			reply.Duplicates += r.duplicates
		}
	})
	reply.AckLatency.export()
	return nil
}

// AuditArgs lists all actions that were ordered.
type AuditArgs struct{ Ordered []string }

// AuditReply reports wrong deliveries.
type AuditReply struct {
	Unordered  []string // delivered actions that nobody ordered
	Duplicates int      // deliveries to agents that already had the action
}

// Audit compares what was delivered with what was ordered.
func (s *Service) Audit(args AuditArgs, reply *AuditReply) error {
	s.g.each(func(l *loop) {
		for id, r := range l.records {
			reply.Duplicates += r.duplicates
			if !slices.Contains(args.Ordered, id) && len(reply.Unordered) < keptTexts {
				reply.Unordered = append(reply.Unordered, id)
			}
		}
	})
	return nil
}

// PollTwiceArgs say how many agents poll on two connections.
type PollTwiceArgs struct{ Agents int }

// PollTwice gives the first agents a second connection, on which they poll as well.
// The server ends an agent's older poll when a newer one arrives, so these agents are
// parked and answered without pause. 0 removes the second connections.
func (s *Service) PollTwice(args PollTwiceArgs, _ *Empty) error {
	per := (args.Agents + len(s.g.loops) - 1) / len(s.g.loops)
	s.g.each(func(l *loop) {
		own := slices.IndexFunc(l.agents, func(a *agent) bool { return a.number < 0 })
		if own >= 0 {
			for _, a := range l.agents[own:] {
				a.wantConnected = false
				l.hangUp(a)
			}
			l.agents = slices.Delete(l.agents, own, len(l.agents))
		}
		for _, a := range l.agents[:min(per, len(l.agents))] {
			second := &agent{number: -1 - a.number, slot: len(l.agents), id: a.id, key: a.key, host: a.host, token: a.token}
			l.agents = append(l.agents, second)
			l.connect(second)
		}
	})
	return nil
}

// ChurnArgs say how many agents disconnect in a second, and for how long.
type ChurnArgs struct {
	PerSecond float64
	For       time.Duration
}

// churnTick is how often a loop disconnects the agents that are due.
const churnTick = 10 * time.Millisecond

type churning struct {
	every       time.Duration
	next, until MonoTime
}

// churnStep disconnects the agents that are due by now. They reconnect at once.
func (l *loop) churnStep(now MonoTime) {
	for ; l.churn.next <= now; l.churn.next += MonoTime(l.churn.every) {
		if l.churn.next >= l.churn.until {
			l.churn = nil
			return
		}
		// An agent that is not parked is left alone, and no other is chosen instead.
		if a := l.agents[rand.IntN(len(l.agents))]; a.wantConnected && a.phase == polling {
			l.hangUp(a)
			l.connect(a)
		}
	}
}

// Churn starts to disconnect agents chosen at random, which reconnect at once. It does
// not wait for the end.
func (s *Service) Churn(args ChurnArgs, _ *Empty) error {
	if args.PerSecond <= 0 {
		return fmt.Errorf("churn: is %v per second, want more than 0", args.PerSecond)
	}
	every := max(time.Duration(float64(time.Second)/args.PerSecond*float64(len(s.g.loops))), time.Microsecond)
	s.g.each(func(l *loop) {
		if len(l.agents) > 0 {
			l.churn = &churning{every: every, next: Now(), until: Now() + MonoTime(args.For)}
		}
	})
	return nil
}

// IDsReply is the result of IDs.
type IDsReply struct{ IDs []string }

// IDs returns the ids of the agents in the order of their numbers.
func (s *Service) IDs(_ Empty, reply *IDsReply) error {
	byNumber := make([]string, s.g.enrolled)
	s.g.each(func(l *loop) {
		for _, a := range l.agents {
			if a.number >= 0 {
				byNumber[a.number-s.g.First] = a.id
			}
		}
	})
	reply.IDs = byNumber
	return nil
}

// ProfileArgs are the arguments of Profile: Begin starts a CPU profile, otherwise it ends.
type ProfileArgs struct{ Begin bool }

// ProfileReply is the profile that ended, in the format of pprof.
type ProfileReply struct{ CPU []byte }

// Profile starts or ends a CPU profile of the generator's process, which can have only
// one at a time.
func (s *Service) Profile(args ProfileArgs, reply *ProfileReply) error {
	s.g.mu.Lock()
	defer s.g.mu.Unlock()
	if args.Begin {
		if err := pprof.StartCPUProfile(&s.g.profile); err != nil {
			return err
		}
		s.g.profiled = true
		return nil
	}
	if !s.g.profiled {
		return errors.New("profile: none is running")
	}
	s.g.endProfile()
	reply.CPU = bytes.Clone(s.g.profile.Bytes())
	s.g.profile.Reset()
	return nil
}

// endProfile ends the running profile, if there is one.
func (g *Generator) endProfile() {
	if g.profiled {
		pprof.StopCPUProfile()
		g.profiled = false
	}
}
