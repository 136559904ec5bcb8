//go:build linux

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/rpc"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

const (
	// enrolAlone is how many hosts enrol one after the other, enrolTogether how many at
	// the same time: more than the server writes in one transaction.
	enrolAlone    = 100
	enrolTogether = 32
	// actionTimeout bounds an action for all, plus perAgentWait for each agent.
	actionTimeout = time.Minute
	// singleTimeout bounds an action for one agent.
	singleTimeout = 20 * time.Second
	// singlePause bounds the random pause between two actions, so that the work after
	// one action does not delay the next.
	singlePause = 20 * time.Millisecond
	// afterwards is the time after the last answer that is still measured, since
	// last-seen times are written in bulk.
	afterwards = 300 * time.Millisecond
	// apartAgents bounds the agents set apart for the scenario behind; a small fleet
	// sets a tenth apart.
	apartAgents = 50
	// maxBehind bounds the single actions of a round, behindEvery is the time between
	// two: they must not load the server themselves.
	maxBehind   = 5000
	behindEvery = 50 * time.Millisecond
	// closedLoop is how many connections send their next request as soon as the last is
	// answered: enough to keep the server busy.
	closedLoop = 64
	// warmUp is the time before requests are counted; it is shorter in a short run.
	warmUp = time.Second
	// churnShare is the share of the fleet that disconnects in a second.
	churnShare = 0.01
	// slowLinks bounds the slow connections of each kind; a small fleet has one for ten
	// agents.
	slowLinks = 100
)

// enrol measures enrolments one at a time, then many at once.
func (r *run) enrol(ctx context.Context) error {
	first := r.fleet.generators[0]
	if n := min(enrolAlone, first.agents/2-first.has); n > 0 {
		got, err := r.enrolSome(ctx, 1, func(m *member) int {
			if m == first {
				return n
			}
			return 0
		})
		if err != nil {
			return err
		}
		r.addDuration("enrol", "one at a time, p50", got.latency.Percentile(50))
		r.addDuration("enrol", "one at a time, p99", got.latency.Percentile(99))
	}
	return r.enrolRest(ctx)
}

// enrolled is the time of enrolments.
type enrolled struct {
	latency  generator.Latency
	from, to generator.MonoTime
}

func (r *run) enrolSome(ctx context.Context, workers int, count func(*member) int) (got enrolled, err error) {
	some := &fleet{}
	for _, m := range r.fleet.generators {
		if count(m) > 0 {
			some.generators = append(some.generators, m)
		}
	}
	if len(some.generators) == 0 {
		return got, nil
	}
	err = callAll(ctx, some, "Enrol", func(m *member) any {
		return generator.EnrolArgs{Count: count(m), Workers: max(1, workers/len(some.generators))}
	}, func(m *member, e *generator.EnrolReply) {
		m.has += int(e.Latency.Count())
		got.latency.Merge(&e.Latency)
		if got.from == 0 || e.From < got.from {
			got.from = e.From
		}
		got.to = max(got.to, e.To)
		if e.Limited > 0 {
			r.sum("enrol", "answers of 429", e.Limited)
		}
		if e.Failures > 0 {
			err = fmt.Errorf("%d hosts could not enrol: %v", e.Failures, e.Texts[0])
			r.fail("enrol: %v", err)
		}
	})
	return got, err
}

// enrolRest enrols all hosts that have not enrolled.
func (r *run) enrolRest(ctx context.Context) error {
	missing := func(m *member) int { return m.agents - m.has }
	left := 0
	for _, m := range r.fleet.generators {
		left += missing(m)
	}
	if left == 0 {
		return nil
	}
	r.logf("%d hosts enrol …", left)
	stop := r.reportState(ctx, func(s generator.StateReply) string {
		return fmt.Sprintf("%d of %d have enrolled", s.Enrolled, r.Agents)
	})
	got, err := r.enrolSome(ctx, enrolTogether, missing)
	stop()
	if err != nil {
		return err
	}
	for _, m := range r.fleet.generators {
		if missing(m) > 0 {
			return errors.New("not every host could enrol")
		}
	}
	r.work = work{"enrolment", int(got.latency.Count())}
	seconds := got.to.Sub(got.from).Seconds()
	r.add("enrol", "rate", PerSecond, float64(got.latency.Count())/seconds)
	r.addDuration("enrol", fmt.Sprintf("%d at a time, p50", enrolTogether), got.latency.Percentile(50))
	r.addDuration("enrol", fmt.Sprintf("%d at a time, p99", enrolTogether), got.latency.Percentile(99))
	if r.measuresServer() {
		r.addDuration("enrol", "server CPU per enrolment", r.servers.cpu(got.from, got.to)/time.Duration(max(1, got.latency.Count())))
	}
	return callAll(ctx, r.fleet, "IDs", func(*member) any { return generator.Empty{} }, func(m *member, ids *generator.IDsReply) { m.ids = ids.IDs })
}

// park connects all agents for the first time, and then measures the server while they
// are parked and check in whenever a poll ends.
func (r *run) park(ctx context.Context) error {
	if err := r.enrolRest(ctx); err != nil {
		return err
	}
	first := !r.parked
	if first && r.measuresServer() && r.bareConnection == 0 {
		if err := r.onBareServer(ctx, r.bareConnections); err != nil {
			return err
		}
	}
	began := generator.Now()
	if first {
		r.logf("%d agents connect, %.0f a second …", r.Agents, r.Ramp)
		if err := r.connectAtRamp(ctx); err != nil {
			return err
		}
	}
	if err := r.waitParked(ctx); err != nil {
		return err
	}
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.recordCount("park", c)
	if first && c.Connected > 0 {
		r.addDuration("park", "connect and handshake, p99", c.Handshake.Percentile(99))
		r.add("park", "resumed handshakes, percent", Number, 100*float64(c.Resumed)/float64(c.Connected))
		if r.measuresServer() {
			each := r.servers.cpu(began, generator.Now()) / time.Duration(r.Agents)
			r.addDuration("park", "server CPU per first connection and check-in", each)
			if r.bareConnection > 0 {
				r.add("park", "first connection and check-in, to a bare TLS connection", Ratio, each.Seconds()/r.bareConnection.Seconds())
			}
		}
	}
	r.logf("parked for %s …", r.Hold)
	from := generator.Now()
	if err := sleep(ctx, r.Hold); err != nil {
		return err
	}
	to := generator.Now()
	if c, err = r.fleet.count(ctx); err != nil {
		return err
	}
	r.recordCount("park", c)
	r.add("park", "check-ins that end and begin", PerSecond, float64(c.Checkins)/to.Sub(from).Seconds())
	if r.measuresServer() {
		most := float64(r.servers.rss(from, to))
		r.add("park", "server RSS, most", Bytes, most)
		r.add("park", "server RSS per agent", Bytes, most/float64(r.Agents))
		r.add("park", "server CPU", Cores, r.servers.cpu(from, to).Seconds()/to.Sub(from).Seconds())
	}
	r.add("park", "generator RSS per agent", Bytes, float64(r.agents.rss(from, to))/float64(r.Agents))
	return nil
}

// outcome is the progress of an action in all generators.
type outcome struct {
	order
	wanted                   int // how many agents it is for
	delivered, acked, parked []generator.MonoTime
	ackLatency               generator.Latency
	duplicates               int
}

// percentile returns the nearest-rank percentile of sorted times, relative to from.
func percentile(sorted []generator.MonoTime, p int, from generator.MonoTime) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1].Sub(from)
}

// waitComplete waits until want agents of each generator have received and acknowledged
// an action, and fails the run if they do not.
func (r *run) waitComplete(ctx context.Context, o order, timeout time.Duration, want func(*member) int) (*outcome, error) {
	got, err := r.fleet.collect(ctx, o, timeout, want)
	if err != nil {
		return got, err
	}
	return got, r.checkComplete(got, timeout)
}

// collect waits until want agents of each generator have received and acknowledged an
// action, or until the timeout.
func (f *fleet) collect(ctx context.Context, o order, timeout time.Duration, want func(*member) int) (*outcome, error) {
	got := &outcome{order: o}
	some := &fleet{}
	for _, m := range f.generators {
		if want(m) > 0 {
			some.generators = append(some.generators, m)
			got.wanted += want(m)
		}
	}
	err := callAll(ctx, some, "Action", func(m *member) any { return generator.ActionArgs{ID: o.id, Want: want(m), Timeout: timeout} },
		func(_ *member, a *generator.ActionReply) {
			got.delivered, got.acked, got.parked = append(got.delivered, a.Delivered...), append(got.acked, a.Acked...), append(got.parked, a.Parked...)
			got.ackLatency.Merge(&a.AckLatency)
			got.duplicates += a.Duplicates
		})
	slices.Sort(got.delivered)
	slices.Sort(got.acked)
	slices.Sort(got.parked)
	return got, err
}

// checkComplete checks that all agents of an action have received and acknowledged it,
// and records that it was ordered.
func (r *run) checkComplete(got *outcome, timeout time.Duration) error {
	r.ordered = append(r.ordered, got.id)
	if len(got.delivered) != got.wanted {
		r.fail("action %s: %d of %d agents received it within %s", got.id, len(got.delivered), got.wanted, timeout)
	}
	if len(got.acked) != len(got.delivered) {
		r.fail("action %s: %d of %d acknowledgements were accepted", got.id, len(got.acked), len(got.delivered))
	}
	if len(got.delivered) == 0 || len(got.acked) == 0 || len(got.parked) == 0 {
		return fmt.Errorf("action %s reached nobody within %s", got.id, timeout)
	}
	return nil
}

// orderTimeout bounds an action for all agents.
func (r *run) orderTimeout() time.Duration {
	return actionTimeout + time.Duration(r.Agents)*perAgentWait
}

// orderAll orders an action for all agents and waits until it is complete.
func (r *run) orderAll(ctx context.Context) (*outcome, error) {
	defer r.reportParked(ctx)()
	o, err := r.operator.upgrade(ctx, r.operator.all())
	if err != nil {
		return nil, err
	}
	return r.waitComplete(ctx, o, r.orderTimeout(), func(m *member) int { return m.agents })
}

// upgradeAll orders upgrades of all agents one after the other. Each agent acknowledges
// and polls again at once.
func (r *run) upgradeAll(ctx context.Context) error {
	const name = "upgrade-all"
	r.work = work{"order + deliver + ack + poll", r.Agents * r.Rounds}
	for round := range r.Rounds {
		if err := r.waitParked(ctx); err != nil {
			return err
		}
		got, err := r.orderAll(ctx)
		if err != nil {
			return err
		}
		end := got.parked[len(got.parked)-1] + generator.MonoTime(afterwards)
		if err := sleep(ctx, end.Sub(generator.Now())+sampleEvery); err != nil {
			return err
		}
		r.addDuration(name, "order answered", got.answered.Sub(got.sent))
		for _, p := range []struct {
			figure string
			p      int
		}{{"delivered p50", 50}, {"delivered p99", 99}, {"delivered to the last", 100}} {
			r.addDuration(name, p.figure, percentile(got.delivered, p.p, got.answered))
			r.addDuration(name, p.figure+", from the order's sending", percentile(got.delivered, p.p, got.sent))
		}
		r.addDuration(name, "ack answered, from its delivery, p50", got.ackLatency.Percentile(50))
		r.addDuration(name, "ack answered, from its delivery, p99", got.ackLatency.Percentile(99))
		r.addDuration(name, "last ack answered", got.acked[len(got.acked)-1].Sub(got.answered))
		accepted := min(got.answered, got.delivered[0]) // what the server does before belongs to the order, not to its delivery
		if r.measuresServer() {
			r.addDuration(name, "server CPU per agent to accept the order", r.servers.cpu(got.sent, accepted)/time.Duration(r.Agents))
			r.addDuration(name, "server CPU per agent until all are delivered", r.servers.cpu(accepted, got.delivered[len(got.delivered)-1])/time.Duration(r.Agents))
			r.addDuration(name, "server CPU per deliver + ack + poll", r.servers.cpu(accepted, end)/time.Duration(r.Agents))
		}
		r.addDuration(name, "generator CPU per agent until all are delivered", r.agents.cpu(accepted, got.delivered[len(got.delivered)-1])/time.Duration(r.Agents))
		r.addDuration(name, "generator CPU per deliver + ack + poll", r.agents.cpu(accepted, end)/time.Duration(r.Agents))
		r.logf("  %d of %d: delivered p99 %s, last ack after %s", round+1, r.Rounds,
			Format(Seconds, percentile(got.delivered, 99, got.answered).Seconds()), Format(Seconds, got.acked[len(got.acked)-1].Sub(got.answered).Seconds()))
	}
	return nil
}

// single orders actions for one random parked agent each.
func (r *run) single(ctx context.Context) error {
	sent, answered, acked, err := r.singles(ctx, r.Singles, r.fleet.anyone, nil)
	if err != nil {
		return err
	}
	r.addDuration("single", "delivered p50", sent.Percentile(50))
	r.addDuration("single", "delivered p99", sent.Percentile(99))
	r.addDuration("single", "delivered, longest", sent.Percentile(100))
	r.addDuration("single", "order answered, p50", answered.Percentile(50))
	r.addDuration("single", "ack answered, from its delivery, p99", acked.Percentile(99))
	return nil
}

// singles orders n actions for agents of the generators that of returns, or fewer if done
// is closed before. It measures from the sending of each order to its delivery.
func (r *run) singles(ctx context.Context, n int, of func() *member, done <-chan *rpc.Call) (delivered, answered, acked generator.Latency, err error) {
	for range n {
		select {
		case <-done:
			return delivered, answered, acked, nil
		default:
		}
		if err := sleep(ctx, rand.N(singlePause)); err != nil {
			return delivered, answered, acked, err
		}
		m := of()
		got, err := r.orderOne(ctx, m, m.ids[rand.IntN(len(m.ids))], singleTimeout)
		if err == nil {
			err = r.checkComplete(got, singleTimeout)
		}
		if err != nil {
			return delivered, answered, acked, err
		}
		delivered.Add(got.delivered[0].Sub(got.sent))
		answered.Add(got.answered.Sub(got.sent))
		acked.Merge(&got.ackLatency)
	}
	return delivered, answered, acked, nil
}

// orderOne orders an action for one agent of a generator, and waits until it is acknowledged.
func (r *run) orderOne(ctx context.Context, m *member, id string, timeout time.Duration) (*outcome, error) {
	o, err := r.operator.upgrade(ctx, []string{id})
	if err != nil {
		return nil, err
	}
	return r.fleet.collect(ctx, o, timeout, func(other *member) int {
		if other == m {
			return 1
		}
		return 0
	})
}

// behind orders an action for all agents except those set apart, and meanwhile single
// actions for these. It measures how much longer they take than on an idle server.
func (r *run) behind(ctx context.Context) error {
	const name = "behind"
	apart := r.fleet.apart
	idle, _, _, err := r.singles(ctx, r.Singles, func() *member { return apart }, nil)
	if err != nil {
		return err
	}
	usual := idle.Percentile(50)
	r.addDuration(name, "single action, idle server, p50", usual)
	r.addDuration(name, "single action, idle server, p99", idle.Percentile(99))
	var accepted, delivered, acked, answered generator.Latency // delays, by when the single order was sent
	for round := range r.Rounds {
		if err := r.waitParked(ctx); err != nil {
			return err
		}
		all, singles, err := r.orderBehind(ctx)
		if err != nil {
			return err
		}
		last, end, right := all.delivered[len(all.delivered)-1], all.acked[len(all.acked)-1], true
		for _, s := range singles {
			delay := s.delivered[0].Sub(s.sent) - usual
			switch {
			case s.sent < all.answered:
				accepted.Add(delay)
			case s.sent <= last || right: // the first one counts even if the other order is already delivered
				delivered.Add(delay)
				answered.Add(s.answered.Sub(s.sent))
				right = false
			case s.sent <= end:
				acked.Add(delay)
			}
		}
		r.logf("  %d of %d: %d single actions, delivered to the last of all others after %s", round+1, r.Rounds, len(singles), Format(Seconds, last.Sub(all.answered).Seconds()))
	}
	r.addDuration(name, "single order answered while the other is delivered, p99", answered.Percentile(99))
	for _, of := range []struct {
		when string
		l    *generator.Latency
	}{{"while the other order is accepted", &accepted}, {"while the other is delivered", &delivered}, {"while the other is acknowledged", &acked}} {
		if n := of.l.Count(); n > 0 {
			r.add(name, "single actions "+of.when, Number, float64(n))
			r.addDuration(name, "longer "+of.when+", p99", of.l.Percentile(99))
			r.addDuration(name, "longer "+of.when+", most", of.l.Percentile(100))
		}
	}
	return nil
}

// orderBehind orders an action for all agents except those set apart, and until it is
// acknowledged a single action for one of these every behindEvery. It does not wait for
// earlier single actions, so that a slow one does not keep others from being measured.
// At least one is sent after the order is answered. The single actions are returned in
// the order in which they were sent.
func (r *run) orderBehind(ctx context.Context) (*outcome, []*outcome, error) {
	defer r.reportParked(ctx)()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		all     *outcome
		mu      sync.Mutex
		singles []*outcome
		ended   = make(chan struct{})
	)
	both, ctx := errgroup.WithContext(ctx)
	both.Go(func() (err error) {
		defer close(ended)
		o, err := r.operator.upgrade(ctx, r.operator.others())
		if err != nil {
			return err
		}
		all, err = r.fleet.collect(ctx, o, r.orderTimeout(), func(m *member) int {
			if m == r.fleet.apart {
				return 0
			}
			return m.agents
		})
		return err
	})
	free := make(chan string, len(r.fleet.apart.ids)) // an agent has at most one action at a time
	for _, id := range r.fleet.apart.ids {
		free <- id
	}
	for n, over := 0, false; n < maxBehind && !over && ctx.Err() == nil; n++ {
		select {
		case <-ended:
			over = true
		default:
		}
		var id string
		select {
		case id = <-free:
		case <-ctx.Done():
			continue
		}
		both.Go(func() error {
			one, err := r.orderOne(ctx, r.fleet.apart, id, r.orderTimeout())
			mu.Lock()
			defer mu.Unlock()
			singles = append(singles, one)
			free <- id
			return err
		})
		_ = sleep(ctx, behindEvery) // the loop checks ctx
	}
	if err := both.Wait(); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(singles, func(a, b *outcome) int { return cmp.Compare(a.sent, b.sent) })
	err := r.checkComplete(all, r.orderTimeout())
	for _, one := range singles {
		err = errors.Join(err, r.checkComplete(one, r.orderTimeout()))
	}
	return all, singles, err
}

// checkins measures how many check-ins the server handles. Some agents poll on two
// connections, so that each of their check-ins ends the one before; the server
// authenticates, handles, parks and answers each.
func (r *run) checkins(ctx context.Context) error {
	const name = "checkins"
	// Stable agents repeat their last check-in. Once actions have been ordered, check-ins
	// report more and the server has more to read.
	what := "stable agents"
	if len(r.ordered) > 0 {
		what = "agents amid upgrades"
	}
	n := min(closedLoop, r.Agents)
	if err := callAll[generator.Empty](ctx, r.fleet, "PollTwice", func(m *member) any { return generator.PollTwiceArgs{Agents: r.fleet.share(m, n)} }, nil); err != nil {
		return err
	}
	if err := sleep(ctx, r.warm()); err != nil {
		return err
	}
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.recordCount(name, c)
	r.work = work{"check-in", c.Checkins}
	from := generator.Now()
	if err := sleep(ctx, r.Hold); err != nil {
		return err
	}
	to := generator.Now()
	if c, err = r.fleet.count(ctx); err != nil {
		return err
	}
	r.recordCount(name, c)
	if err := r.fleet.call(ctx, "PollTwice", generator.PollTwiceArgs{}); err != nil {
		return err
	}
	r.work.times += c.Checkins
	r.add(name, what+", parked and answered", PerSecond, float64(c.Checkins)/to.Sub(from).Seconds())
	r.perCore(name, what+", ", c.Checkins, from, to)
	return nil
}

// warm returns the time before a measurement of Hold begins.
func (r *run) warm() time.Duration { return min(warmUp, r.Hold) }

func (r *run) perCore(scenario, prefix string, n int, from, to generator.MonoTime) {
	if r.measuresServer() {
		if cpu := r.servers.cpu(from, to); cpu > 0 {
			r.add(scenario, prefix+"per server core", PerSecond, float64(n)/cpu.Seconds())
		}
	}
	if cpu := r.agents.cpu(from, to); cpu > 0 {
		r.add(scenario, prefix+"per generator core", PerSecond, float64(n)/cpu.Seconds())
	}
}

// churn disconnects and reconnects agents continuously, and then checks that an action
// reaches all of them.
func (r *run) churn(ctx context.Context) error {
	rate := max(1, float64(r.Agents)*churnShare)
	r.logf("%.0f agents a second disconnect and reconnect, for %s …", rate, r.Hold)
	from := generator.Now()
	err := callAll[generator.Empty](ctx, r.fleet, "Churn", func(m *member) any {
		return generator.ChurnArgs{PerSecond: rate * float64(m.agents) / float64(r.Agents), For: r.Hold}
	}, nil)
	if err != nil {
		return err
	}
	if err := sleep(ctx, r.Hold); err != nil {
		return err
	}
	to := generator.Now()
	if err := r.waitParked(ctx); err != nil {
		return err
	}
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.recordCount("churn", c)
	r.add("churn", "hung up and came back", PerSecond, float64(c.ConnectToCheckin.Count())/to.Sub(from).Seconds())
	r.addDuration("churn", "back again, p99", c.ConnectToCheckin.Percentile(99))
	if c.Connected > 0 {
		r.add("churn", "resumed handshakes, percent", Number, 100*float64(c.Resumed)/float64(c.Connected))
	}
	if n := c.ConnectToCheckin.Count(); n > 0 && r.measuresServer() {
		r.addDuration("churn", "server CPU per return", r.servers.cpu(from, to)/time.Duration(n))
	}
	got, err := r.orderAll(ctx)
	if err != nil {
		return err
	}
	r.addDuration("churn", "afterwards delivered to the last", got.delivered[len(got.delivered)-1].Sub(got.answered))
	return nil
}

// slow measures actions for single agents beside slow connections.
func (r *run) slow(ctx context.Context) error {
	links := max(1, min(slowLinks, r.Agents/10))
	args := func(m *member) any {
		n := r.fleet.share(m, links)
		return generator.SlowArgs{Trickle: n, HalfOpen: n, Unread: n, For: r.Hold}
	}
	var opened, closed int
	done, ended := make(chan *rpc.Call), make(chan error, 1)
	go func() {
		err := callAll(ctx, r.fleet, "Slow", args, func(_ *member, reply *generator.SlowReply) {
			opened += reply.Opened
			closed += reply.Closed
		})
		close(done)
		ended <- err
	}()
	if err := sleep(ctx, min(r.warm(), r.Hold/4)); err != nil {
		return err
	}
	delivered, _, _, err := r.singles(ctx, r.Singles, r.fleet.anyone, done)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	r.add("slow", "slow links", Number, float64(opened))
	r.add("slow", "of these ended by the server", Number, float64(closed))
	r.addDuration("slow", "single action beside them, p50", delivered.Percentile(50))
	r.addDuration("slow", "single action beside them, p99", delivered.Percentile(99))
	return nil
}

// storm drops all connections at once, and all agents reconnect.
func (r *run) storm(ctx context.Context) error {
	r.work = work{"return, with an action for it", r.Agents}
	p := r.operator.probe(ctx)
	from := generator.Now()
	if err := r.fleet.call(ctx, "Reconnect", generator.Empty{}); err != nil {
		return err
	}
	return r.measureReturn(ctx, "storm", p, from)
}

// restart stops and starts the server.
func (r *run) restart(ctx context.Context) error {
	up, err := r.server.restart(ctx)
	if err != nil {
		return err
	}
	// The probe starts only now, since its requests fail while the server is down.
	return r.measureReturn(ctx, "restart", r.operator.probe(ctx), up)
}

// measureReturn waits until all agents are back, and measures the time and the cost.
func (r *run) measureReturn(ctx context.Context, name string, p *probe, from generator.MonoTime) error {
	err := r.waitPolling(ctx)
	counted, counts := generator.MonoTime(0), false
	if err == nil {
		counted, counts = r.waitCounted(ctx)
	}
	admin, refused := p.end()
	if err != nil {
		return err
	}
	end := generator.Now()
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.recordCount(name, c)
	r.addDuration(name, "all checked in again", c.LastCheckin.Sub(from))
	if counts {
		r.addDuration(name, "all parked, as the server counts", counted.Sub(from))
	}
	if name == "storm" { // after a restart it would include the time without a server
		r.addDuration(name, "back again, p50", c.ConnectToCheckin.Percentile(50))
	}
	r.addDuration(name, "handshake p99", c.Handshake.Percentile(99))
	if c.Connected > 0 {
		r.add(name, "resumed handshakes, percent", Number, 100*float64(c.Resumed)/float64(c.Connected))
	}
	if r.measuresServer() && c.Connected > 0 {
		r.addDuration(name, "server CPU per return", r.servers.cpu(from, end)/time.Duration(c.Connected))
		r.add(name, "server RSS, most", Bytes, float64(r.servers.rss(from, end)))
	}
	r.addDuration(name, "generator CPU per return", r.agents.cpu(from, end)/time.Duration(r.Agents))
	r.addDuration(name, "admin API, p99", admin.Percentile(99))
	r.addDuration(name, "admin API, longest", admin.Percentile(100))
	for _, text := range refused[:min(3, len(refused))] {
		r.fail("%s: the admin API did not answer: %s", name, text)
	}
	if err := r.waitParked(ctx); err != nil {
		return err
	}
	got, err := r.orderAll(ctx)
	if err != nil {
		return err
	}
	r.addDuration(name, "afterwards delivered to the last", got.delivered[len(got.delivered)-1].Sub(got.answered))
	return nil
}

// waitCounted waits until the server counts all agents as parked. It returns false if
// the server does not serve the count or does not reach it in time.
func (r *run) waitCounted(ctx context.Context) (at generator.MonoTime, counts bool) {
	deadline := time.Now().Add(r.maxWait())
	for time.Now().Before(deadline) {
		parked, counts := r.operator.parked(ctx)
		if !counts {
			return 0, false
		}
		if parked >= r.nearlyAll() {
			return generator.Now(), true
		}
		if sleep(ctx, r.stateEvery()) != nil {
			break
		}
	}
	return 0, false
}
