package checkin

import "time"

const (
	// slowAnswers bounds the goroutines that write to clients that do not read.
	slowAnswers = 64
	// largeAnswer is more than a socket's buffer may take at once, even an empty one.
	largeAnswer = 32 << 10
	// keptBuffer is how large a buffer a worker keeps.
	keptBuffer = 64 << 10
)

// worker takes slots from the queue and answers them.
type worker struct {
	lot   *Lot
	role  role
	buf   []byte
	aside aside // with the answers of bulk wakes
	rest  rest

	writes stint
}

func (w *worker) run() {
	l := w.lot
	batch, waits := make([]*slot, 0, batchSize), make([]*Wait, 0, batchSize)
	for {
		clear(batch[:cap(batch)])
		clear(waits[:cap(waits)])
		var bulk bool
		batch, bulk = l.queue.take(w.role, batchSize, batch[:0])
		waits = waits[:0]
		switch {
		case len(batch) == 0:
			return
		case w.role == answersEmpty:
			for i, s := range batch {
				w.answer(s, empty)
				w.yield(i, false)
			}
			continue
		}
		n := 0
		for _, s := range batch {
			if s.take(bulk) {
				batch[n] = s
				n++
				waits = append(waits, &s.wait)
			}
		}
		if n == 0 {
			continue
		}
		if bulk {
			w.stepAside() // a look at so many is work, too
		}
		found := l.look(batch[0].looker, waits)
		for i, s := range batch[:n] {
			if a := l.settle(s, found[i]); a != nil {
				w.answer(s, *a)
				w.yield(i, bulk)
			}
		}
	}
}

// yield lets the handlers run: a worker with a long queue would else keep its
// processor until it is taken from it, 10 ms later. With a bulk wake it steps aside
// while somebody waits for the admin API.
func (w *worker) yield(i int, bulk bool) {
	if bulk {
		w.stepAside()
	}
	if i%yieldEvery == yieldEvery-1 {
		w.rest.yield(bulk)
	}
}

func (w *worker) stepAside() {
	for w.aside.waits(w.lot.Courtesy) {
		time.Sleep(asideLook)
	}
}

// take begins a look, for a bulk wake or not. false: s is not queued any more; it was
// in the queue twice, or has ended.
func (s *slot) take(bulk bool) bool {
	s.shard.mu.Lock()
	defer s.shard.mu.Unlock()
	if s.state != queued {
		return false
	}
	s.state, s.retry, s.bulk = looking, 0, bulk
	return true
}

// settle ends a look. The answer, if there is one, is the caller's to write.
func (l *Lot) settle(s *slot, f Found) *Answer {
	s.shard.mu.Lock()
	switch {
	case s.lost:
		l.drop(s)
		return nil
	case s.ended:
		f.Answer = &empty
	case f.Answer != nil:
	case s.due:
		f.Answer = &empty
	case s.woken:
		s.state, s.woken = queued, false
		l.queue.pushWoken(true, s)
		s.shard.mu.Unlock()
		return nil
	default:
		s.state = parked
		if f.Err != nil {
			s.retry = tick(l.base, time.Now().Add(RetryLook))
			l.wait(s)
		}
		s.shard.mu.Unlock()
		return nil
	}
	s.shard.out(s)
	s.state = answering
	l.wheel.remove(s)
	s.shard.mu.Unlock()
	return f.Answer
}

// answer writes the answer of a slot that is answering. A client that is not ready
// to take it does not hold up the others.
func (w *worker) answer(s *slot, a Answer) {
	l := w.lot
	s.last = s.last || l.ending()
	w.buf = l.encode(w.buf[:0], s, a)
	ready := s.hasRoom(len(w.buf))
	if !ready || len(w.buf) > largeAnswer {
		select {
		case l.slow <- struct{}{}:
			go l.answerSlowly(s, append([]byte(nil), w.buf...))
			return
		default:
			if !ready {
				l.abandon(s) // its next check-in gets the same
				return
			}
		}
	}
	w.writes.begin(s)
	_, err := s.conn.Write(w.buf)
	w.writes.end()
	if cap(w.buf) > keptBuffer {
		w.buf = nil
	}
	l.answered(s, err)
}

// check ends a write that lasts too long: the error goes to the worker.
func (w *worker) check(now time.Time) {
	if s := w.writes.overdue(now, writeLimit); s != nil {
		// Not Close: the descriptor is still watched. Should the write have ended just
		// now, the deadline ends one connection that was slow anyway.
		_ = s.conn.SetWriteDeadline(now)
	}
}

// answerSlowly has a goroutine of its own; s is answering, so Close waits for it.
func (l *Lot) answerSlowly(s *slot, b []byte) {
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeLimit))
	_, err := s.conn.Write(b)
	_ = s.conn.SetWriteDeadline(time.Time{})
	<-l.slow
	l.answered(s, err)
}

// answered decides what becomes of the connection.
func (l *Lot) answered(s *slot, err error) {
	if err != nil {
		l.abandon(s)
		return
	}
	_, more := s.conn.(*early)
	if s.last {
		sayFarewell(s.conn)
	}
	s.shard.mu.Lock()
	s.wait, s.head = Wait{AgentID: s.wait.AgentID}, ""
	switch {
	case s.last && s.lost, l.closing.Load() && !s.last: // the latter as the idle ones
		l.drop(s)
		return
	case s.last:
		s.state, s.deadline = lingering, tick(l.base, time.Now().Add(lingerLimit))
	case more:
		l.giveBack(s) // the next request is here, where epoll does not see it
		return
	case s.lost, s.unread && readable(s.fd):
		s.state = idle
		l.serve(s)
		return
	default:
		s.state, s.unread, s.deadline = idle, false, tick(l.base, time.Now().Add(IdleLimit))
	}
	l.wheel.set(s, s.deadline)
	s.shard.mu.Unlock()
}

func (l *Lot) abandon(s *slot) {
	s.shard.mu.Lock()
	l.drop(s)
}
