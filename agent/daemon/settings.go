package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/identity"
)

const (
	// hostsRetry is the wait after none of the policy's servers has answered.
	hostsRetry = 10 * time.Minute
	// hostsCheck is how often the agent looks whether it needs another server.
	hostsCheck = time.Minute
	// hostsAfter is how many check-ins in a row fail before the agent tries the policy's
	// other servers: more than a restart of its server takes.
	hostsAfter = 5
)

// logLevel returns the level of the agent's log.
func (d *daemon) logLevel() slog.Level {
	if l := d.queue.Settings().LogLevel; l != nil {
		return *l
	}
	return d.Config.Log.Level
}

// followSettings applies the log level that the server sets, until ctx ends.
func (d *daemon) followSettings(ctx context.Context) {
	reported := d.logLevel()
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		level := d.logLevel()
		if d.Level != nil {
			d.Level.Set(level)
		}
		if level != reported {
			reported = level
			d.changes.Urgent()
		}
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
}

// serversToTry returns where an agent that is at here looks for another server, in order. lost
// means that its server does not answer. Then the address of the enrolment comes last: whoever has
// stolen the server may name others in the policy, and take them away.
func serversToTry(hosts []string, here, enrolled string, lost bool) []string {
	listed := false
	var out []string
	for _, h := range hosts {
		if h = strings.TrimRight(h, "/"); h == here {
			listed = true
		} else if !slices.Contains(out, h) {
			out = append(out, h)
		}
	}
	switch {
	case !lost && listed, !lost && len(hosts) == 0:
		return nil
	case lost && here != enrolled && !slices.Contains(out, enrolled):
		out = append(out, enrolled)
	}
	return out
}

// followHosts moves the agent to a server of its policy, until ctx ends: if its server is no
// longer one of them, or does not answer. It stays where it is if no other one answers.
func (d *daemon) followHosts(ctx context.Context) {
	if d.Switch == nil || d.Config.Server.URL != "" {
		return
	}
	var tried []string // without success, and when to try them again
	var again time.Time
	tick := time.NewTicker(hostsCheck)
	defer tick.Stop()
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		here := d.Switch.URL()
		lost := d.loop.Fleet(time.Now()).FailedTries >= hostsAfter
		hosts := serversToTry(d.queue.Settings().Hosts, here, d.homeURL(), lost)
		if len(hosts) > 0 && (!slices.Equal(hosts, tried) || !time.Now().Before(again)) {
			if err := d.moveTo(ctx, hosts, here); err != nil && ctx.Err() == nil {
				d.log.Warn("the agent stays at its server: no other one of its policy, nor that of its enrolment, can be used", "server", here, "error", err, "again_in", hostsRetry.String())
			}
			tried, again = hosts, time.Now().Add(hostsRetry)
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// moveTo moves the agent to the first of hosts that answers, and stores that.
func (d *daemon) moveTo(ctx context.Context, hosts []string, here string) error {
	var errs []error
	enrolled := d.homeURL()
	for _, host := range hosts {
		if err := d.Switch.CheckHost(host); err != nil && host != enrolled {
			errs = append(errs, fmt.Errorf("fleet.hosts: %w", err))
			continue
		}
		if err := d.Switch.Try(ctx, host); err != nil {
			errs = append(errs, err)
			continue
		}
		if host == enrolled {
			// Whoever has stolen the server may have raised the number of its policy.
			if err := d.queue.Return(); err != nil {
				return err
			}
		}
		return d.settle(here, host)
	}
	return errors.Join(errs...)
}

// settle stores that the agent's server is at host, and sends its requests there.
func (d *daemon) settle(here, host string) error {
	id := *d.Identity
	id.ServerURL, id.EnrolledURL = host, ""
	if enrolled := d.homeURL(); host != enrolled {
		id.EnrolledURL = enrolled
	}
	if err := identity.Save(d.Disk, d.Top, id); err != nil {
		return err
	}
	if err := d.Switch.Move(host); err != nil {
		return err
	}
	d.log.Info("the agent has moved to another server", "from", here, "to", host)
	if d.Muster {
		followServer(d.Disk, d.Top, host, d.Config.Network, d.log)
	}
	d.changes.Urgent()
	return nil
}
