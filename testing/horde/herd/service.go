//go:build linux

package herd

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

// Service is what a herd can be told. Its methods have the form of net/rpc and may
// be called side by side, but for those that change which agents there are: Enrol,
// Twins.
type Service struct{ h *Herd }

// Serve lets whoever is at the other end of conn give orders, until it hangs up.
func Serve(h *Herd, conn io.ReadWriteCloser) error {
	s := rpc.NewServer()
	if err := s.RegisterName("Herd", &Service{h}); err != nil {
		return err
	}
	s.ServeConn(conn)
	return nil
}

// None is what is asked or answered where there is nothing to say.
type None struct{}

// ComeArgs say how fast all agents connect.
type ComeArgs struct {
	// PerSecond is how many begin in a second; 0: all at once.
	PerSecond float64
}

// Come lets all agents connect and check in, those that are away. It does not wait.
func (s *Service) Come(args ComeArgs, _ *None) error {
	from, k := Now(), 0
	s.h.each(func(l *loop) {
		for _, a := range l.agents {
			if a.wanted {
				continue
			}
			if args.PerSecond <= 0 {
				l.come(a)
				continue
			}
			a.wanted = true
			at := from + Instant(float64(k)/args.PerSecond*float64(time.Second))
			l.after(a, at.Since(Now()), l.come)
			k++
		}
	})
	return nil
}

// Leave lets all agents hang up at once, and stay away.
func (s *Service) Leave(_ None, _ *None) error {
	s.h.mu.Lock()
	s.h.dials = nil
	s.h.mu.Unlock()
	s.h.each(func(l *loop) {
		for _, a := range l.agents {
			a.wanted, a.done = false, nil
			l.hangUp(a)
		}
	})
	return nil
}

// Drop lets all agents hang up and come back at once.
func (s *Service) Drop(_ None, _ *None) error {
	if err := s.Leave(None{}, nil); err != nil {
		return err
	}
	return s.Come(ComeArgs{}, nil)
}

// StateReply is what the agents do.
type StateReply struct {
	Agents int
	// Enrolled counts those that an Enrol that goes on has enrolled, too.
	Enrolled int
	// Polling agents have sent a check-in that is not answered.
	Polling, Acking, Dialing, Waiting, Away int
}

// State tells what the agents do.
func (s *Service) State(_ None, reply *StateReply) error {
	s.h.each(func(l *loop) {
		var n [phases]int
		for _, a := range l.agents {
			n[a.phase]++
		}
		reply.Agents += len(l.agents)
		reply.Polling += n[polling]
		reply.Acking += n[acking]
		reply.Dialing += n[dialing]
		reply.Waiting += n[waiting]
		reply.Away += n[away]
	})
	reply.Enrolled = int(s.h.enrolling.Load())
	return nil
}

// CountArgs say whether the count begins anew.
type CountArgs struct{ Reset bool }

// Count tells what was seen.
func (s *Service) Count(args CountArgs, reply *Count) error {
	s.h.each(func(l *loop) {
		reply.Join(&l.count)
		if args.Reset {
			l.count = Count{Status: map[string]int{}}
		}
	})
	reply.Handshake.pack()
	reply.Came.pack()
	return nil
}

// ActionArgs name an action, and how many agents of this herd it is for.
type ActionArgs struct {
	ID      string
	Want    int
	Timeout time.Duration
}

// ActionReply tells what became of it: when agents were given it, when their
// acknowledgements were answered, and when they had polled again.
type ActionReply struct {
	Delivered, Acked, Parked []Instant
	// Took is how long each acknowledgement took from the delivery to its answer.
	Took Latency
	// Again are deliveries to agents that had it.
	Again int
}

// collectEvery is how often Action looks: it takes the loops some microseconds.
const collectEvery = 10 * time.Millisecond

// Action waits until an action has been delivered to all, all have acknowledged it
// and polled again. Whatever is missing when the time is over is missing in the
// reply.
func (s *Service) Action(args ActionArgs, reply *ActionReply) error {
	deadline := time.Now().Add(args.Timeout)
	for {
		parked := 0
		s.h.each(func(l *loop) {
			if r := l.records[args.ID]; r != nil {
				parked += len(r.parked)
			}
		})
		if parked >= args.Want || time.Now().After(deadline) || s.h.ctx.Err() != nil {
			break
		}
		time.Sleep(collectEvery)
	}
	s.h.each(func(l *loop) {
		if r := l.records[args.ID]; r != nil {
			for _, side := range []struct {
				to   *[]Instant
				from map[int]Instant
			}{{&reply.Delivered, r.delivered}, {&reply.Acked, r.acked}, {&reply.Parked, r.parked}} {
				for _, at := range side.from {
					*side.to = append(*side.to, at)
				}
			}
			for number, at := range r.acked {
				reply.Took.Add(at.Since(r.delivered[number]))
			}
			reply.Again += r.again
		}
	})
	reply.Took.pack()
	return nil
}

// AuditArgs are all actions that were ordered.
type AuditArgs struct{ Ordered []string }

// AuditReply tells what was delivered beside them.
type AuditReply struct {
	Foreign []string // actions that nobody ordered
	Again   int      // deliveries to agents that had the action
}

// Audit compares what was delivered with what was ordered.
func (s *Service) Audit(args AuditArgs, reply *AuditReply) error {
	s.h.each(func(l *loop) {
		for id, r := range l.records {
			reply.Again += r.again
			if !slices.Contains(args.Ordered, id) && len(reply.Foreign) < keptTexts {
				reply.Foreign = append(reply.Foreign, id)
			}
		}
	})
	return nil
}

// TwinsArgs say how many agents poll twice.
type TwinsArgs struct{ Agents int }

// Twins gives the first agents a second connection, on which they poll, too. The
// server ends an agent's older poll when it sends a newer one, so each of them
// parks and is answered without end. 0 takes the second connections away.
func (s *Service) Twins(args TwinsArgs, _ *None) error {
	per := (args.Agents + len(s.h.loops) - 1) / len(s.h.loops)
	s.h.each(func(l *loop) {
		own := slices.IndexFunc(l.agents, func(a *agent) bool { return a.number < 0 })
		if own >= 0 {
			for _, a := range l.agents[own:] {
				a.wanted = false
				l.hangUp(a)
			}
			l.agents = slices.Delete(l.agents, own, len(l.agents))
		}
		for _, a := range l.agents[:min(per, len(l.agents))] {
			twin := &agent{number: -1 - a.number, slot: len(l.agents), id: a.id, key: a.key, host: a.host, token: a.token}
			l.agents = append(l.agents, twin)
			l.come(twin)
		}
	})
	return nil
}

// ChurnArgs say how many agents hang up in a second, and for how long.
type ChurnArgs struct {
	PerSecond float64
	For       time.Duration
}

// churnTick is how often agents hang up: a hundredth of a second's at a time.
const churnTick = 10 * time.Millisecond

type churning struct {
	every       time.Duration
	next, until Instant
}

// churnOn lets as many hang up as should have by now. They come back at once.
func (l *loop) churnOn(now Instant) {
	for ; l.churn.next <= now; l.churn.next += Instant(l.churn.every) {
		if l.churn.next >= l.churn.until {
			l.churn = nil
			return
		}
		// Whoever is on its way already is left alone: a try for each is enough.
		if a := l.agents[rand.IntN(len(l.agents))]; a.wanted && a.phase == polling {
			l.hangUp(a)
			l.come(a)
		}
	}
}

// Churn lets agents hang up, chosen at random, and come back at once. It does not
// wait.
func (s *Service) Churn(args ChurnArgs, _ *None) error {
	if args.PerSecond <= 0 {
		return fmt.Errorf("churn: is %v per second, want more than 0", args.PerSecond)
	}
	every := max(time.Duration(float64(time.Second)/args.PerSecond*float64(len(s.h.loops))), time.Microsecond)
	s.h.each(func(l *loop) {
		if len(l.agents) > 0 {
			l.churn = &churning{every: every, next: Now(), until: Now() + Instant(args.For)}
		}
	})
	return nil
}

// IDsReply are the ids of the agents.
type IDsReply struct{ IDs []string }

// IDs are the ids of the agents, in the order of their numbers.
func (s *Service) IDs(_ None, reply *IDsReply) error {
	byNumber := make([]string, s.h.enrolled)
	s.h.each(func(l *loop) {
		for _, a := range l.agents {
			if a.number >= 0 {
				byNumber[a.number-s.h.First] = a.id
			}
		}
	})
	reply.IDs = byNumber
	return nil
}

// ProfileArgs begin a processor profile of the herd's process, or end it.
type ProfileArgs struct{ Begin bool }

// ProfileReply is the profile that was ended, as pprof reads it.
type ProfileReply struct{ CPU []byte }

// Profile begins a profile or ends it. A process has one at a time.
func (s *Service) Profile(args ProfileArgs, reply *ProfileReply) error {
	s.h.mu.Lock()
	defer s.h.mu.Unlock()
	if args.Begin {
		if err := pprof.StartCPUProfile(&s.h.profile); err != nil {
			return err
		}
		s.h.profiled = true
		return nil
	}
	if !s.h.profiled {
		return errors.New("profile: none was begun")
	}
	s.h.endProfile()
	reply.CPU = bytes.Clone(s.h.profile.Bytes())
	s.h.profile.Reset()
	return nil
}

// endProfile ends the profile that goes on, if one does.
func (h *Herd) endProfile() {
	if h.profiled {
		pprof.StopCPUProfile()
		h.profiled = false
	}
}
