package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

const (
	// selfCheckIdle is how often an agent that is well and not watched checks itself. A check syncs a
	// folder, which wears the memory of small hosts.
	selfCheckIdle = 10 * time.Minute
	// selfCheckShortest and selfCheckLongest bound the interval of the watch, at which an agent checks itself that
	// is watched, or not well.
	selfCheckShortest, selfCheckLongest = time.Second, 10 * time.Second
)

// selfTry is what one check of the agent by itself has found.
type selfTry struct {
	name    string
	problem string // a sentence without its stop
	// atFault means that it fails because of the agent, and not of the host or whoever works on it.
	atFault bool
}

// judgeSelf returns the checks that fail now. One that is among failing, those of before, keeps its time.
func judgeSelf(failing []probe.Check, tries []selfTry, now time.Time) []probe.Check {
	var out []probe.Check
	for _, t := range tries {
		c := probe.Check{Name: t.name, Problem: t.problem, Since: now, AtFault: t.atFault}
		if i := slices.IndexFunc(failing, func(f probe.Check) bool { return f.Name == t.name }); i >= 0 {
			c.Since = failing[i].Since
		}
		out = append(out, c)
	}
	return out
}

// blames reports whether a failed try to write the queue is the fault of the agent. elsewhere is the error of
// a try in another folder: if the host cannot write there either, it is the host's.
func blames(err, elsewhere error) bool {
	if errors.Is(err, syscall.EMFILE) { // the agent's own handles, which it also lacks elsewhere
		return true
	}
	return err != nil && elsewhere == nil && !disk.IsHostFault(err)
}

// failingTries returns the checks that fail, by what the daemon remembers. The caller holds d.mu.
func (d *daemon) failingTries(now time.Time) []selfTry {
	var tries []selfTry
	add := func(name string, atFault bool, format string, args ...any) {
		tries = append(tries, selfTry{name, fmt.Sprintf(format, args...), atFault})
	}
	if err := d.unwritable; err != nil {
		add("disk", false, "this host %s, so it stores no order and begins no upgrade: %.*s", agentapi.Unwritable, maxProblem, err.Error())
	}
	if err := d.queueProblem; err != nil {
		add("queue", blames(err, d.unwritable), "the agent cannot write its queue: %.*s", maxProblem, err.Error())
	}
	if err := d.settings.problem; err != nil {
		add("settings", d.settings.unread(), "%.*s: the agent goes on with the configuration that it read last; correct the file and restart the agent", maxProblem, err.Error())
	}
	for _, u := range d.workloads.Unanswered(now) {
		add("runtime "+u.Runtime, u.AtFault, "the agent cannot ask the runtime %s: %.*s", u.Runtime, maxProblem, u.Err.Error())
	}
	return tries
}

// unread reports whether this process has never been able to read the file. One that could be read was
// changed since, and a file that is not valid was so for every version: a new one is asked about it before
// the host is switched.
func (s settingsCheck) unread() bool {
	return unreadable(s.problem) && !s.read && !disk.IsHostFault(s.problem)
}

// unreadable reports whether the configuration could not be read, whatever is in it.
func unreadable(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is
}

// selfChecks returns the checks of the agent by itself that fail. It checks nothing: see checkSelf.
func (d *daemon) selfChecks() []probe.Check {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.failing = judgeSelf(d.failing, d.failingTries(now), now)
	return d.failing
}

// checkSelf checks what needs the disk.
func (d *daemon) checkSelf() {
	d.checkSettings()
	d.checkDisk()
	err := d.queue.Check()
	d.mu.Lock()
	was := d.queueProblem
	d.queueProblem = err
	d.mu.Unlock()
	switch {
	case err != nil && was == nil:
		d.log.Error("the agent cannot write its queue", "error", err)
	case err == nil && was != nil:
		d.log.Info("the agent can write its queue again")
	}
}

// watchSelf checks the agent and reports changes until ctx ends.
func (d *daemon) watchSelf(ctx context.Context) {
	last := d.selfChecks()
	for {
		wait := selfCheckIdle
		if d.watched() != nil || len(last) > 0 {
			wait = min(max(time.Duration(d.Config.Upgrade.Watch.Rules().Interval), selfCheckShortest), selfCheckLongest)
		}
		if backoff.Sleep(ctx, wait) != nil {
			return
		}
		d.checkSelf()
		now := d.selfChecks()
		// The words of an error may change each time.
		if !slices.EqualFunc(now, last, func(a, b probe.Check) bool { return a.Name == b.Name && a.AtFault == b.AtFault }) {
			d.changes.Urgent()
		}
		last = now
	}
}

// before returns how this version sees itself and its components, for the comparison with the next.
func (d *daemon) before() handoff.Before {
	d.checkSelf()
	var b handoff.Before
	for _, c := range d.selfChecks() {
		b.Failing = append(b.Failing, c.Name)
	}
	for _, w := range d.workloadHealth() {
		if w.State != probe.Healthy || w.Version == "" {
			continue
		}
		if b.Healthy == nil {
			b.Healthy = map[string]string{}
		}
		b.Healthy[w.Name] = w.Version
	}
	return b
}
