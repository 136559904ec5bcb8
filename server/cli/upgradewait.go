package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// awaited is an agent whose upgrade or rollback --wait follows.
type awaited struct {
	id, host, to string
	refused      string // why it does not start, empty if it does
}

func awaitUpgrade(p adminapi.UpgradePreview) []awaited {
	var list []awaited
	for _, i := range p.Items {
		one := awaited{id: i.AgentId, host: i.Hostname, to: p.Version}
		if !i.Will {
			if i.Version == p.Version {
				continue // it runs the version already
			}
			one.refused = deref(i.Reason)
		}
		list = append(list, one)
	}
	return list
}

// nothingToDo reports whether an order would change no agent because all of them run the version. A
// script that is repeated has then reached what it asks for.
func nothingToDo(p adminapi.UpgradePreview) bool {
	run := 0
	for _, c := range deref(p.Causes) {
		if c.Code == causeRunning && !c.Will {
			run += c.Count
		}
	}
	return p.Will == 0 && p.Wont > 0 && run == p.Wont
}

// causeRunning is the code of agents that run the version already.
const causeRunning = "running"

// showNothingToDo answers an order for agents that all run the version.
func (a *client) showNothingToDo(cmd *cobra.Command, p adminapi.UpgradePreview, what string) error {
	return a.show(cmd.OutOrStdout(), p, func(w io.Writer) {
		fmt.Fprintf(w, "nothing to do: %s already %s on %s\n", what, p.Version, counted(p.Wont, "agent"))
	})
}

func awaitRollback(p adminapi.RollbackPreview) []awaited {
	var list []awaited
	for _, i := range p.Items {
		one := awaited{id: i.AgentId, host: i.Hostname, to: deref(i.To)}
		if !i.Will {
			one.refused = deref(i.Reason)
		}
		list = append(list, one)
	}
	return list
}

// waitFlags are the flags of subcommands that follow what they order.
type waitFlags struct {
	on      bool
	timeout time.Duration
}

func (w *waitFlags) flags(f *pflag.FlagSet, until string) {
	f.BoolVar(&w.on, "wait", false, "wait until "+until)
	f.DurationVar(&w.timeout, "timeout", 30*time.Minute, "how long --wait waits at most")
}

// scheduleFlags are the flags of subcommands that order upgrades for later.
type scheduleFlags struct {
	at   string
	over time.Duration
}

func (s *scheduleFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&s.at, "at", "", `begin at this time, such as 2026-01-31T22:00:00Z, "2026-01-31 22:00" or 22:00 (local time; today, or tomorrow if that is past)`)
	f.DurationVar(&s.over, "over", 0, "spread the begin over this time, such as 2h; at least 10m")
}

// times returns when the first agent begins, and over how many seconds the others follow; nil for
// what is not given.
func (s *scheduleFlags) times(wait waitFlags, now time.Time) (start *time.Time, over *int, err error) {
	if wait.on && (s.at != "" || s.over != 0) {
		return nil, nil, errors.New("--wait follows upgrades that begin now: omit it, and follow the order with `muster actions list`")
	}
	if s.at != "" {
		t, err := parseTime(s.at, now)
		if err != nil {
			return nil, nil, fmt.Errorf("--at %w", err)
		}
		if _, err := time.Parse("15:04", s.at); err == nil && !t.After(now) {
			t = t.AddDate(0, 0, 1)
		}
		if !t.After(now) {
			return nil, nil, fmt.Errorf("--at is %s, which is past: omit it to begin now", s.at)
		}
		start = &t
	}
	if s.over != 0 {
		if s.over < time.Second {
			return nil, nil, fmt.Errorf("--over is %s, want a time such as 2h", s.over)
		}
		over = new(int(s.over / time.Second))
	}
	return start, over, nil
}

// upgradeEnd is how --wait knows that an upgrade or a rollback has ended.
type upgradeEnd struct {
	// outcome describes it, and returns whether it is over and whether the version was reached.
	outcome func(g adminapi.Agent, to string) (phase string, over, good bool)
	// failed is what an agent is that did not reach it.
	failed string
	// see and seeFailed are the subcommands that show the agents, and those that failed.
	see, seeFailed string
}

// agentEnd is that of an upgrade or a rollback of agents.
func agentEnd(failed string) upgradeEnd {
	unexplained := map[string]time.Time{} // agents that were rolled back, since when no reason is known
	outcome := func(g adminapi.Agent, to string) (phase string, over, good bool) {
		phase, over, good = upgradeOutcome(g, to)
		if reasonFollows(g) {
			if unexplained[g.Id].IsZero() {
				unexplained[g.Id] = time.Now()
			}
			over = time.Since(unexplained[g.Id]) >= reasonGrace
		}
		return phase, over, good
	}
	return upgradeEnd{outcome: outcome, failed: failed, see: "`muster agents list`", seeFailed: "`muster actions list`"}
}

// reasonGrace is how long --wait waits for the reason of a rollback that has ended: the host's
// watcher reports it within seconds, unless it cannot reach the server.
const reasonGrace = 15 * time.Second

// reasonFollows reports whether an agent was rolled back for a reason that is not known yet, though
// its watcher reports one. That of an Elastic Agent reports nothing.
func reasonFollows(g adminapi.Agent) bool {
	return g.UpgradeStatus != nil && *g.UpgradeStatus == fleet.UpgradeRolledBack && upgradeReason(g.UpgradeDetails) == "" && g.Maker == nil
}

// waitFor waits for all agents, and returns an error unless each reaches its version.
func (a *client) waitFor(cmd *cobra.Command, agents []awaited, timeout time.Duration, end upgradeEnd) error {
	failed, err := a.waitForUpgrades(cmd, agents, timeout, end)
	if err == nil && failed > 0 {
		err = fmt.Errorf("%d of %s %s: see %s", failed, counted(len(agents), "agent"), end.failed, end.seeFailed)
	}
	return err
}

// waitForUpgrades prints each agent's phases as they change, until all upgrades have
// ended. An upgrade ends with its watch, not with its acknowledgement: until then the
// watcher can roll it back. While the server does not answer, it retries.
// waitForUpgrades returns how many agents did not reach their version.
func (a *client) waitForUpgrades(cmd *cobra.Command, agents []awaited, timeout time.Duration, end upgradeEnd) (failed int, err error) {
	say := changes(cmd.ErrOrStderr())
	waiting := map[string]string{} // agent id to its last phase
	to, host := map[string]string{}, map[string]string{}
	for _, one := range agents {
		host[one.id] = cmp.Or(one.host, one.id)
		if one.refused == "" {
			waiting[one.id], to[one.id] = "", one.to
			continue
		}
		failed++
		say(host[one.id], one.refused)
	}
	err = poll(cmd, timeout, func(ctx context.Context) (bool, error) {
		for id := range waiting {
			got, err := ask(ctx, a, adminapi.GetAgent, nil, id)
			switch {
			case isFinal(err):
				return false, err
			case err != nil:
				if ctx.Err() == nil {
					waiting[id] = err.Error()
					say(host[id], err.Error())
				}
				continue
			}
			phase, over, good := end.outcome(got.Item, to[id])
			waiting[id] = phase
			if strings.HasPrefix(phase, watching) {
				phase += " (for ten minutes by default)"
			}
			say(host[id], phase)
			if over {
				delete(waiting, id)
			}
			if over && !good {
				failed++
			}
		}
		return len(waiting) == 0, nil
	}, func() error {
		return fmt.Errorf("%d of %s not done within %s (--timeout): %s; it continues: see %s",
			len(waiting), counted(len(agents), "agent"), timeout, describeWaiting(waiting, host), end.see)
	}, nil)
	return failed, err
}

// waitingShown is how many agents an error names that --wait still waited for.
const waitingShown = 5

// describeWaiting says what --wait waited for: the phase of each agent, by agent id.
func describeWaiting(phases, host map[string]string) string {
	var words []string
	watched := false
	for _, id := range slices.Sorted(maps.Keys(phases)) {
		watched = watched || strings.HasPrefix(phases[id], watching)
		if len(words) < waitingShown {
			words = append(words, host[id]+" is in phase “"+cmp.Or(phases[id], "unknown")+"”")
		}
	}
	text := strings.Join(words, ", ")
	if rest := len(phases) - len(words); rest > 0 {
		text += fmt.Sprintf(" and %d more", rest)
	}
	if watched {
		text += ". " + strings.TrimSuffix(watchText, ".")
	}
	return text
}

// watching begins the phase of an upgrade whose new version runs and is watched.
const watching = "watching "

// upgradeOutcome describes the upgrade of an agent, and returns whether it is over and
// whether it succeeded. The running version decides: a cancelled upgrade leaves no other
// trace.
func upgradeOutcome(g adminapi.Agent, to string) (phase string, over, good bool) {
	phase = cmp.Or(upgradePhase(g), "runs "+g.Agent.Version)
	switch {
	case g.UpgradeStatus != nil && *g.UpgradeStatus != fleet.UpgradeStarted:
		return phase, true, false
	case g.UpgradeStartedAt != nil || g.UpgradeDetails != nil:
		return phase, false, false
	}
	return phase, true, g.Agent.Version == to
}
