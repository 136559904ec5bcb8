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

	"github.com/muster-fleet/muster/testing/horde/herd"
)

const (
	// enrolAlone is how many hosts enrol one after the other, enrolTogether how many
	// at the same time: more than a server writes at once.
	enrolAlone    = 100
	enrolTogether = 32
	// actionTimeout bounds an action for all, beside what the number of agents adds.
	actionTimeout = time.Minute
	// singleTimeout bounds an action for one agent.
	singleTimeout = 20 * time.Second
	// singlePause lies between two actions, at random, so that none waits for what
	// the one before has set off.
	singlePause = 20 * time.Millisecond
	// afterwards is what a server may do after the last answer that still belongs to
	// it: last-seen times are written in bulk.
	afterwards = 300 * time.Millisecond
	// apartAgents are those of the scenario behind, at most; a small fleet has one of
	// ten.
	apartAgents = 50
	// maxBehind bounds the single actions of a round, behindEvery lies between two:
	// the server has something to do for each.
	maxBehind   = 5000
	behindEvery = 50 * time.Millisecond
	// closedLoop is how many connections are used by what sends its next request as soon
	// as the last is answered: enough to keep the server busy.
	closedLoop = 64
	// warmUp is passed over before requests are counted, less in a short run.
	warmUp = time.Second
	// churnShare is the part of the fleet that hangs up in a second.
	churnShare = 0.01
	// slowLinks of each kind, at most; a small fleet has one for ten agents.
	slowLinks = 100
)

// enrol measures enrolments one at a time, and then many at once.
func (r *run) enrol(ctx context.Context) error {
	first := r.fleet.herds[0]
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
		r.took("enrol", "one at a time, p50", got.latency.At(50))
		r.took("enrol", "one at a time, p99", got.latency.At(99))
	}
	return r.enrolRest(ctx)
}

// enrolled is what some enrolments took.
type enrolled struct {
	latency  herd.Latency
	from, to herd.Instant
}

func (r *run) enrolSome(ctx context.Context, workers int, count func(*member) int) (got enrolled, err error) {
	some := &fleet{}
	for _, m := range r.fleet.herds {
		if count(m) > 0 {
			some.herds = append(some.herds, m)
		}
	}
	if len(some.herds) == 0 {
		return got, nil
	}
	err = tell(ctx, some, "Enrol", func(m *member) any {
		return herd.EnrolArgs{Count: count(m), Workers: max(1, workers/len(some.herds))}
	}, func(m *member, e *herd.EnrolReply) {
		m.has += int(e.Latency.Count())
		got.latency.Join(&e.Latency)
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

// enrolRest enrols whoever has not.
func (r *run) enrolRest(ctx context.Context) error {
	missing := func(m *member) int { return m.agents - m.has }
	left := 0
	for _, m := range r.fleet.herds {
		left += missing(m)
	}
	if left == 0 {
		return nil
	}
	r.say("%d hosts enrol …", left)
	stop := r.tellAll(ctx, func(s herd.StateReply) string { return fmt.Sprintf("%d of %d have enrolled", s.Enrolled, r.Agents) })
	got, err := r.enrolSome(ctx, enrolTogether, missing)
	stop()
	if err != nil {
		return err
	}
	for _, m := range r.fleet.herds {
		if missing(m) > 0 {
			return errors.New("not every host could enrol")
		}
	}
	r.did = work{"enrolment", int(got.latency.Count())}
	seconds := got.to.Since(got.from).Seconds()
	r.add("enrol", "rate", PerSecond, float64(got.latency.Count())/seconds)
	r.took("enrol", fmt.Sprintf("%d at a time, p50", enrolTogether), got.latency.At(50))
	r.took("enrol", fmt.Sprintf("%d at a time, p99", enrolTogether), got.latency.At(99))
	if r.measuresServer() {
		r.took("enrol", "server CPU per enrolment", r.servers.cpu(got.from, got.to)/time.Duration(max(1, got.latency.Count())))
	}
	return tell(ctx, r.fleet, "IDs", func(*member) any { return herd.None{} }, func(m *member, ids *herd.IDsReply) { m.ids = ids.IDs })
}

// park connects the fleet, each agent for the first time, and then measures the server
// while the agents are parked and check in as often as polls end.
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
	began := herd.Now()
	if first {
		r.say("%d agents connect, %.0f a second …", r.Agents, r.Ramp)
		if err := r.comeSlowly(ctx); err != nil {
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
	r.judged("park", c)
	if first && c.Connected > 0 {
		r.took("park", "connect and handshake, p99", c.Handshake.At(99))
		r.add("park", "resumed handshakes, percent", Number, 100*float64(c.Resumed)/float64(c.Connected))
		if r.measuresServer() {
			each := r.servers.cpu(began, herd.Now()) / time.Duration(r.Agents)
			r.took("park", "server CPU per first connection and check-in", each)
			if r.bareConnection > 0 {
				r.add("park", "first connection and check-in, to a bare TLS connection", Ratio, each.Seconds()/r.bareConnection.Seconds())
			}
		}
	}
	r.say("parked for %s …", r.Hold)
	from := herd.Now()
	if err := sleep(ctx, r.Hold); err != nil {
		return err
	}
	to := herd.Now()
	if c, err = r.fleet.count(ctx); err != nil {
		return err
	}
	r.judged("park", c)
	r.add("park", "check-ins that end and begin", PerSecond, float64(c.Checkins)/to.Since(from).Seconds())
	if r.measuresServer() {
		most := float64(r.servers.rss(from, to))
		r.add("park", "server RSS, most", Bytes, most)
		r.add("park", "server RSS per agent", Bytes, most/float64(r.Agents))
		r.add("park", "server CPU", Cores, r.servers.cpu(from, to).Seconds()/to.Since(from).Seconds())
	}
	r.add("park", "generator RSS per agent", Bytes, float64(r.agents.rss(from, to))/float64(r.Agents))
	return nil
}

// outcome is what became of an action in all herds.
type outcome struct {
	order
	wanted                   int // agents it is for
	delivered, acked, parked []herd.Instant
	took                     herd.Latency
	again                    int
}

// percentile is the nearest rank of sorted moments, from another one on.
func percentile(sorted []herd.Instant, p int, from herd.Instant) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1].Since(from)
}

// follow waits until an action has come to want agents of each herd and back.
func (r *run) follow(ctx context.Context, o order, timeout time.Duration, want func(*member) int) (*outcome, error) {
	got, err := r.fleet.collect(ctx, o, timeout, want)
	if err != nil {
		return got, err
	}
	return got, r.complete(got, timeout)
}

// collect waits for what becomes of an action.
func (f *fleet) collect(ctx context.Context, o order, timeout time.Duration, want func(*member) int) (*outcome, error) {
	got := &outcome{order: o}
	some := &fleet{}
	for _, m := range f.herds {
		if want(m) > 0 {
			some.herds = append(some.herds, m)
			got.wanted += want(m)
		}
	}
	err := tell(ctx, some, "Action", func(m *member) any { return herd.ActionArgs{ID: o.id, Want: want(m), Timeout: timeout} },
		func(_ *member, a *herd.ActionReply) {
			got.delivered, got.acked, got.parked = append(got.delivered, a.Delivered...), append(got.acked, a.Acked...), append(got.parked, a.Parked...)
			got.took.Join(&a.Took)
			got.again += a.Again
		})
	slices.Sort(got.delivered)
	slices.Sort(got.acked)
	slices.Sort(got.parked)
	return got, err
}

// complete checks that an action has come to all it is for, and back, and knows it
// from then on as one that was ordered.
func (r *run) complete(got *outcome, timeout time.Duration) error {
	r.ordered = append(r.ordered, got.id)
	if len(got.delivered) != got.wanted {
		r.fail("action %s: %d of %d agents were given it within %s", got.id, len(got.delivered), got.wanted, timeout)
	}
	if len(got.acked) != len(got.delivered) {
		r.fail("action %s: %d of %d acknowledgements were taken", got.id, len(got.acked), len(got.delivered))
	}
	if len(got.delivered) == 0 || len(got.acked) == 0 || len(got.parked) == 0 {
		return fmt.Errorf("action %s came to nobody within %s", got.id, timeout)
	}
	return nil
}

// orderTimeout bounds what becomes of an action for all.
func (r *run) orderTimeout() time.Duration {
	return actionTimeout + time.Duration(r.Agents)*perAgentPatience
}

// orderAll orders an action for all agents and follows it.
func (r *run) orderAll(ctx context.Context) (*outcome, error) {
	defer r.tellState(ctx)()
	o, err := r.operator.upgrade(ctx, r.operator.all())
	if err != nil {
		return nil, err
	}
	return r.follow(ctx, o, r.orderTimeout(), func(m *member) int { return m.agents })
}

// upgradeAll orders upgrades of all agents, one after the other. Each agent
// acknowledges at once and polls again.
func (r *run) upgradeAll(ctx context.Context) error {
	const name = "upgrade-all"
	r.did = work{"order + deliver + ack + poll", r.Agents * r.Rounds}
	for round := range r.Rounds {
		if err := r.waitParked(ctx); err != nil {
			return err
		}
		got, err := r.orderAll(ctx)
		if err != nil {
			return err
		}
		end := got.parked[len(got.parked)-1] + herd.Instant(afterwards)
		if err := sleep(ctx, end.Since(herd.Now())+sampleEvery); err != nil {
			return err
		}
		r.took(name, "order answered", got.answered.Since(got.sent))
		for _, p := range []struct {
			figure string
			p      int
		}{{"delivered p50", 50}, {"delivered p99", 99}, {"delivered to the last", 100}} {
			r.took(name, p.figure, percentile(got.delivered, p.p, got.answered))
			r.took(name, p.figure+", from the order's sending", percentile(got.delivered, p.p, got.sent))
		}
		r.took(name, "ack answered, from its delivery, p50", got.took.At(50))
		r.took(name, "ack answered, from its delivery, p99", got.took.At(99))
		r.took(name, "last ack answered", got.acked[len(got.acked)-1].Since(got.answered))
		taken := min(got.answered, got.delivered[0]) // what comes before is the order's, not its delivery's
		if r.measuresServer() {
			r.took(name, "server CPU per agent to take the order in", r.servers.cpu(got.sent, taken)/time.Duration(r.Agents))
			r.took(name, "server CPU per agent until all are delivered", r.servers.cpu(taken, got.delivered[len(got.delivered)-1])/time.Duration(r.Agents))
			r.took(name, "server CPU per deliver + ack + poll", r.servers.cpu(taken, end)/time.Duration(r.Agents))
		}
		r.took(name, "generator CPU per agent until all are delivered", r.agents.cpu(taken, got.delivered[len(got.delivered)-1])/time.Duration(r.Agents))
		r.took(name, "generator CPU per deliver + ack + poll", r.agents.cpu(taken, end)/time.Duration(r.Agents))
		r.say("  %d of %d: delivered p99 %s, last ack after %s", round+1, r.Rounds,
			Spell(Seconds, percentile(got.delivered, 99, got.answered).Seconds()), Spell(Seconds, got.acked[len(got.acked)-1].Since(got.answered).Seconds()))
	}
	return nil
}

// single orders actions for one parked agent each, chosen at random.
func (r *run) single(ctx context.Context) error {
	sent, answered, acked, err := r.singles(ctx, r.Singles, r.fleet.anyone, nil)
	if err != nil {
		return err
	}
	r.took("single", "delivered p50", sent.At(50))
	r.took("single", "delivered p99", sent.At(99))
	r.took("single", "delivered, longest", sent.At(100))
	r.took("single", "order answered, p50", answered.At(50))
	r.took("single", "ack answered, from its delivery, p99", acked.At(99))
	return nil
}

// singles orders n actions for agents of herds that of chooses, or until done is
// closed, and measures from the sending of each order to its delivery.
func (r *run) singles(ctx context.Context, n int, of func() *member, done <-chan *rpc.Call) (delivered, answered, acked herd.Latency, err error) {
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
			err = r.complete(got, singleTimeout)
		}
		if err != nil {
			return delivered, answered, acked, err
		}
		delivered.Add(got.delivered[0].Since(got.sent))
		answered.Add(got.answered.Since(got.sent))
		acked.Join(&got.took)
	}
	return delivered, answered, acked, nil
}

// orderOne orders an action for one agent of a herd, and waits for what becomes of it.
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

// behind orders an action for all agents but those apart, and for some of these
// single actions meanwhile: how much longer these take than on an idle server.
func (r *run) behind(ctx context.Context) error {
	const name = "behind"
	apart := r.fleet.apart
	idle, _, _, err := r.singles(ctx, r.Singles, func() *member { return apart }, nil)
	if err != nil {
		return err
	}
	usual := idle.At(50)
	r.took(name, "single action, idle server, p50", usual)
	r.took(name, "single action, idle server, p99", idle.At(99))
	var taken, delivered, acked, answered herd.Latency // the delay of those sent in each of these times
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
			delay := s.delivered[0].Since(s.sent) - usual
			switch {
			case s.sent < all.answered:
				taken.Add(delay)
			case s.sent <= last || right: // the first of them is right behind, however fast the other is
				delivered.Add(delay)
				answered.Add(s.answered.Since(s.sent))
				right = false
			case s.sent <= end:
				acked.Add(delay)
			}
		}
		r.say("  %d of %d: %d single actions, delivered to the last of all others after %s", round+1, r.Rounds, len(singles), Spell(Seconds, last.Since(all.answered).Seconds()))
	}
	r.took(name, "single order answered while the other is delivered, p99", answered.At(99))
	for _, of := range []struct {
		when string
		l    *herd.Latency
	}{{"while the other order is taken in", &taken}, {"while the other is delivered", &delivered}, {"while the other is acknowledged", &acked}} {
		if n := of.l.Count(); n > 0 {
			r.add(name, "single actions "+of.when, Number, float64(n))
			r.took(name, "longer "+of.when+", p99", of.l.At(99))
			r.took(name, "longer "+of.when+", most", of.l.At(100))
		}
	}
	return nil
}

// orderBehind orders an action for all agents but those apart, and single actions for
// these until it is acknowledged, one after behindEvery, whether those before have
// arrived or not: one that takes long must not keep others from being measured. At
// least one is sent behind its answer. They come back in the order of their sending.
func (r *run) orderBehind(ctx context.Context) (*outcome, []*outcome, error) {
	defer r.tellState(ctx)()
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
	free := make(chan string, len(r.fleet.apart.ids)) // an agent has one at a time
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
		_ = sleep(ctx, behindEvery) // that it was cut short is seen above
	}
	if err := both.Wait(); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(singles, func(a, b *outcome) int { return cmp.Compare(a.sent, b.sent) })
	err := r.complete(all, r.orderTimeout())
	for _, one := range singles {
		err = errors.Join(err, r.complete(one, r.orderTimeout()))
	}
	return all, singles, err
}

// checkins measures how many check-ins the server handles: some agents poll on two
// connections, so that each of their check-ins ends the one before. The server
// authenticates, handles, parks and answers each.
func (r *run) checkins(ctx context.Context) error {
	const name = "checkins"
	// Settled agents say what they have said before. One that was ordered something
	// has more to say, and its server more to look up.
	what := "settled agents"
	if len(r.ordered) > 0 {
		what = "agents amid upgrades"
	}
	n := min(closedLoop, r.Agents)
	if err := tell[herd.None](ctx, r.fleet, "Twins", func(m *member) any { return herd.TwinsArgs{Agents: r.fleet.share(m, n)} }, nil); err != nil {
		return err
	}
	if err := sleep(ctx, r.warm()); err != nil {
		return err
	}
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.judged(name, c)
	r.did = work{"check-in", c.Checkins}
	from := herd.Now()
	if err := sleep(ctx, r.Hold); err != nil {
		return err
	}
	to := herd.Now()
	if c, err = r.fleet.count(ctx); err != nil {
		return err
	}
	r.judged(name, c)
	if err := r.fleet.say(ctx, "Twins", herd.TwinsArgs{}); err != nil {
		return err
	}
	r.did.times += c.Checkins
	r.add(name, what+", parked and answered", PerSecond, float64(c.Checkins)/to.Since(from).Seconds())
	r.perCore(name, what+", ", c.Checkins, from, to)
	return nil
}

// warm is passed over before something is counted that goes on for Hold.
func (r *run) warm() time.Duration { return min(warmUp, r.Hold) }

func (r *run) perCore(scenario, prefix string, n int, from, to herd.Instant) {
	if r.measuresServer() {
		if cpu := r.servers.cpu(from, to); cpu > 0 {
			r.add(scenario, prefix+"per server core", PerSecond, float64(n)/cpu.Seconds())
		}
	}
	if cpu := r.agents.cpu(from, to); cpu > 0 {
		r.add(scenario, prefix+"per generator core", PerSecond, float64(n)/cpu.Seconds())
	}
}

// churn lets agents hang up and come back all the time, and then sees whether an
// action reaches all of them.
func (r *run) churn(ctx context.Context) error {
	rate := max(1, float64(r.Agents)*churnShare)
	r.say("%.0f agents a second hang up and come back, for %s …", rate, r.Hold)
	from := herd.Now()
	err := tell[herd.None](ctx, r.fleet, "Churn", func(m *member) any {
		return herd.ChurnArgs{PerSecond: rate * float64(m.agents) / float64(r.Agents), For: r.Hold}
	}, nil)
	if err != nil {
		return err
	}
	if err := sleep(ctx, r.Hold); err != nil {
		return err
	}
	to := herd.Now()
	if err := r.waitParked(ctx); err != nil {
		return err
	}
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.judged("churn", c)
	r.add("churn", "hung up and came back", PerSecond, float64(c.Came.Count())/to.Since(from).Seconds())
	r.took("churn", "back again, p99", c.Came.At(99))
	if c.Connected > 0 {
		r.add("churn", "resumed handshakes, percent", Number, 100*float64(c.Resumed)/float64(c.Connected))
	}
	if n := c.Came.Count(); n > 0 && r.measuresServer() {
		r.took("churn", "server CPU per return", r.servers.cpu(from, to)/time.Duration(n))
	}
	got, err := r.orderAll(ctx)
	if err != nil {
		return err
	}
	r.took("churn", "afterwards delivered to the last", got.delivered[len(got.delivered)-1].Since(got.answered))
	return nil
}

// slow measures actions for single agents while others have slow links.
func (r *run) slow(ctx context.Context) error {
	links := max(1, min(slowLinks, r.Agents/10))
	args := func(m *member) any {
		n := r.fleet.share(m, links)
		return herd.SlowArgs{Trickle: n, HalfOpen: n, Mute: n, For: r.Hold}
	}
	var opened, closed int
	done, ended := make(chan *rpc.Call), make(chan error, 1)
	go func() {
		err := tell(ctx, r.fleet, "Slow", args, func(_ *member, reply *herd.SlowReply) {
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
	r.took("slow", "single action beside them, p50", delivered.At(50))
	r.took("slow", "single action beside them, p99", delivered.At(99))
	return nil
}

// storm drops all connections at once, and all agents come back.
func (r *run) storm(ctx context.Context) error {
	r.did = work{"return, with an action for it", r.Agents}
	p := r.operator.probe(ctx)
	from := herd.Now()
	if err := r.fleet.say(ctx, "Drop", herd.None{}); err != nil {
		return err
	}
	return r.settled(ctx, "storm", p, from)
}

// restart stops the server and starts it again.
func (r *run) restart(ctx context.Context) error {
	up, err := r.site.restart(ctx)
	if err != nil {
		return err
	}
	// Only now: nobody answers while the server is down.
	return r.settled(ctx, "restart", r.operator.probe(ctx), up)
}

// settled waits until all agents are back and measures what that took.
func (r *run) settled(ctx context.Context, name string, p *probe, from herd.Instant) error {
	err := r.waitPolling(ctx)
	counted, counts := herd.Instant(0), false
	if err == nil {
		counted, counts = r.waitCounted(ctx)
	}
	admin, refused := p.end()
	if err != nil {
		return err
	}
	end := herd.Now()
	c, err := r.fleet.count(ctx)
	if err != nil {
		return err
	}
	r.judged(name, c)
	r.took(name, "all checked in again", c.LastCame.Since(from))
	if counts {
		r.took(name, "all parked, as the server counts", counted.Since(from))
	}
	if name == "storm" { // else the time without a server is in it
		r.took(name, "back again, p50", c.Came.At(50))
	}
	r.took(name, "handshake p99", c.Handshake.At(99))
	if c.Connected > 0 {
		r.add(name, "resumed handshakes, percent", Number, 100*float64(c.Resumed)/float64(c.Connected))
	}
	if r.measuresServer() && c.Connected > 0 {
		r.took(name, "server CPU per return", r.servers.cpu(from, end)/time.Duration(c.Connected))
		r.add(name, "server RSS, most", Bytes, float64(r.servers.rss(from, end)))
	}
	r.took(name, "generator CPU per return", r.agents.cpu(from, end)/time.Duration(r.Agents))
	r.took(name, "admin API, p99", admin.At(99))
	r.took(name, "admin API, longest", admin.At(100))
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
	r.took(name, "afterwards delivered to the last", got.delivered[len(got.delivered)-1].Since(got.answered))
	return nil
}

// waitCounted waits until the server counts all agents as parked, if it says so at all.
func (r *run) waitCounted(ctx context.Context) (at herd.Instant, counts bool) {
	deadline := time.Now().Add(r.patience())
	for time.Now().Before(deadline) {
		parked, counts := r.operator.parked(ctx)
		if !counts {
			return 0, false
		}
		if parked >= r.nearly() {
			return herd.Now(), true
		}
		if sleep(ctx, r.stateEvery()) != nil {
			break
		}
	}
	return 0, false
}
