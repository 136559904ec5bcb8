package daemon

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// homeEvery is how often, on average, an agent asks the server of its enrolment whether it belongs
	// there. A thief's server keeps a host for no longer, and 100,000 hosts are about one question a
	// second.
	homeEvery = 24 * time.Hour
	// homeSpread is how much sooner or later it asks, so that hosts that moved together do not ask
	// together.
	homeSpread = 6 * time.Hour
	// homeOverdue is within what time an agent asks that should have asked while it was off. After a
	// power cut all hosts of a site start together.
	homeOverdue = time.Hour
	// homeCheck is how often it looks at the clock. A timer of a day would stand still while the host
	// sleeps.
	homeCheck = time.Minute
)

// homeURL returns the address of the server that the host was enrolled with.
func (d *daemon) homeURL() string { return strings.TrimRight(d.Identity.Enrolled(), "/") }

// connect keeps the agent connected to its server until ctx ends. An agent that was unenrolled waits
// until the server wants it back.
func (d *daemon) connect(ctx context.Context) {
	for ctx.Err() == nil {
		link, cancel := context.WithCancel(ctx)
		var gateway sync.WaitGroup
		if !d.queue.Unenrolled() {
			gateway.Go(func() { d.runGateway(link) })
		}
		to, found := d.watchHome(link)
		cancel()
		gateway.Wait() // no answer of the server that the agent leaves is accepted later
		if found {
			d.comeHome(to)
		}
	}
}

// homesToAsk returns which servers an agent that is at here asks whether it belongs there, in order;
// none while it is where it was enrolled. An agent that was unenrolled also asks the server that it was
// moved to: that of the enrolment may be gone.
func homesToAsk(here, enrolled string, unenrolled bool) []string {
	switch {
	case here != enrolled && unenrolled:
		return []string{enrolled, here}
	case here != enrolled || unenrolled:
		return []string{enrolled}
	}
	return nil
}

// belongs returns where an agent at here belongs by the answer of the server that it has asked: that
// server, unless the agent's policy there names here.
func belongs(here, asked string, hosts []string) string {
	if slices.ContainsFunc(hosts, func(h string) bool { return strings.TrimRight(h, "/") == here }) {
		return here
	}
	return asked
}

// homeDue returns when an agent asks for the first time since its start, or since it has a reason to.
// stored is what it has planned before; zero if nothing. random is in [0,1).
func homeDue(stored, now time.Time, random float64) time.Time {
	switch {
	case stored.IsZero(), stored.After(now.Add(homeEvery + homeSpread)): // the clock was set back
		return now.Add(time.Duration(random * float64(homeEvery)))
	case stored.Before(now):
		return now.Add(time.Duration(random * float64(homeOverdue)))
	}
	return stored
}

// homeAgain returns when an agent asks next that has asked now.
func homeAgain(now time.Time, random float64) time.Time {
	return now.Add(homeEvery - homeSpread + time.Duration(random*2*float64(homeSpread)))
}

// watchHome asks once a day whether the agent belongs elsewhere, or is wanted back, and returns where it
// does. found is false if ctx has ended before.
func (d *daemon) watchHome(ctx context.Context) (to string, found bool) {
	if d.Switch == nil || !d.Muster {
		<-ctx.Done() // a Fleet Server does not know the question
		return "", false
	}
	var due time.Time
	tick := time.NewTicker(homeCheck)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		now := time.Now().Round(0) // without the monotonic clock, which stands still while the host sleeps
		here, enrolled := d.Switch.URL(), d.homeURL()
		if d.Config.Server.URL != "" {
			enrolled = here // the host's operator has the last word
		}
		asked := homesToAsk(here, enrolled, d.queue.Unenrolled())
		switch {
		case len(asked) == 0:
			due = time.Time{}
			d.planHome(due)
		case due.IsZero(), due.After(now.Add(homeEvery + homeSpread)):
			due = homeDue(d.queue.HomeDue(), now, d.random())
			d.planHome(due)
		case !now.Before(due):
			due = homeAgain(now, d.random())
			d.planHome(due)
			if to, found := d.askHome(ctx, here, asked); found {
				return to, true
			}
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return "", false
}

// planHome stores when the agent asks next. A host that cannot write plans again after its next start.
func (d *daemon) planHome(due time.Time) {
	if err := d.queue.SetHomeDue(due); err != nil {
		d.log.Debug("the time of the next question to the server of the enrolment was not stored", "error", err)
	}
}

// askHome asks servers until one wants the agent, and returns where it then belongs. found is false if
// that changes nothing.
func (d *daemon) askHome(ctx context.Context, here string, servers []string) (to string, found bool) {
	for _, server := range servers {
		home, err := d.Switch.Home(ctx, d.client(), server)
		if err != nil {
			if ctx.Err() == nil {
				d.log.Info("asked whether this agent belongs to another server, or is wanted back", "server", server, "answer", err)
			}
			continue
		}
		to = belongs(here, server, home.Hosts)
		return to, to != here || d.queue.Unenrolled()
	}
	return "", false
}

// comeHome connects the agent to the server at the address to, which wants it. The queue is changed
// first: an agent that dies in between is where it was, and receives the policy of that server again.
func (d *daemon) comeHome(to string) {
	here := d.Switch.URL()
	if d.queue.Unenrolled() {
		d.log.Info("the server wants this agent back", "server", to)
	}
	err := d.queue.Return()
	if err == nil && to != here {
		err = d.settle(here, to)
	}
	if err != nil {
		d.log.Warn("the agent could not return to the server that wants it; it asks again in about a day", "server", to, "error", err)
	}
	d.changes.Urgent()
}

func (d *daemon) random() float64 {
	if d.Rand != nil {
		return d.Rand()
	}
	return rand.Float64()
}
