package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// MaxCauses bounds the causes of Failures: more are not read.
const MaxCauses = 50

// maxSample bounds the error that stands for a cause, in bytes. Some quote the end of a log.
const maxSample = 300

// Failures are the agents whose last upgrade failed or was rolled back, by the cause.
type Failures struct {
	Total  int
	Unseen int // that ended after the time until which the caller has seen them
	Causes []Cause
	Other  int // agents with causes beyond MaxCauses
}

// Cause is why the last upgrade of some agents ended badly.
type Cause struct {
	Code    string // that of the watcher, or the phase that failed; empty: none is known
	State   fleet.ProgressState
	Version string
	Count   int
	Latest  time.Time
	Sample  string
	// Kuery is a query of exactly these agents.
	Kuery string
}

// Failed is the query of all of them.
const Failed = fleet.FieldProgress + ": (failed or rolled_back)"

// Failures groups the agents whose last upgrade ended badly, of those that the list shows for a
// query. seen is until when the caller has seen them; nil: never. The result is a few seconds old
// at most.
func (s *Service) Failures(ctx context.Context, kuery string, seen *time.Time) (Failures, error) {
	failed, err := kql.Compile(Failed, fleet.AgentSchema(nil), s.Now.UTC())
	if err != nil {
		return Failures{}, err
	}
	found, err := s.Agents.Find(ctx, inventory.Selection{Kuery: kuery, With: failed})
	if err != nil {
		return Failures{}, err
	}
	key := fmt.Sprintf("%q %v %v", kuery, seen, found.Timeouts)
	return s.failures.Get(ctx, key, found.Now, func(ctx context.Context, now time.Time) (Failures, error) {
		return s.failuresOf(ctx, found, seen, now)
	})
}

func (s *Service) failuresOf(ctx context.Context, found inventory.Found, seen *time.Time, now time.Time) (Failures, error) {
	type key struct {
		reason, failedState, version string
		state                        fleet.ProgressState
	}
	var out Failures
	causes := map[key]*Cause{}
	err := s.Agents.Each(ctx, found, func(a fleet.Agent) {
		k := key{state: a.ProgressStateAt(now)}
		sample := ""
		if d := a.UpgradeDetails; d != nil {
			k.reason, k.version = d.Metadata.ReasonCode, d.TargetVersion
			if k.reason == "" {
				k.failedState = string(d.Metadata.FailedState)
			}
			sample = cmp.Or(d.Metadata.ErrorMsg, d.Metadata.Reason)
		}
		c := causes[k]
		if c == nil {
			c = &Cause{Code: cmp.Or(k.reason, k.failedState), State: k.state, Version: k.version, Kuery: kuery(k.state, k.reason, k.failedState, k.version)}
			causes[k] = c
		}
		c.Count++
		ended := a.LastActivity() // not before
		if a.UpgradeEndedAt != nil {
			ended = *a.UpgradeEndedAt
		}
		if seen == nil || ended.After(*seen) {
			out.Unseen++
		}
		if ended.After(c.Latest) {
			c.Latest = ended
		}
		c.Sample = cmp.Or(c.Sample, fleet.Shorten(sample, maxSample))
	})
	if err != nil {
		return Failures{}, err
	}
	out.Causes = []Cause{}
	for _, c := range causes {
		out.Total += c.Count
		out.Causes = append(out.Causes, *c)
	}
	slices.SortFunc(out.Causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Kuery, b.Kuery))
	})
	for len(out.Causes) > MaxCauses {
		last := len(out.Causes) - 1
		out.Other += out.Causes[last].Count
		out.Causes = out.Causes[:last]
	}
	return out, nil
}

// kuery returns the query of the agents with a cause. A field that has no value is asked for
// as such, so that no two causes share an agent.
func kuery(state fleet.ProgressState, reason, failedState, version string) string {
	const details = "upgrade_details."
	is := func(field, value string) string {
		if value == "" {
			return "not " + details + field + ": *"
		}
		return details + field + ": " + kql.Quote(value)
	}
	parts := []string{fmt.Sprintf("%s: %s", fleet.FieldProgress, state), is("metadata.reason_code", reason)}
	if reason == "" {
		parts = append(parts, is("metadata.failed_state", failedState))
	}
	return strings.Join(append(parts, is("target_version", version)), " and ")
}

// reasons are what the codes of watchers and agents mean.
var reasons = map[string]string{
	"crash_loop":              "The new version kept crashing",
	"agent_failed":            "The new version reported that it failed",
	"component_failed":        "A component failed under the new version",
	"control_lost":            "The new version did not answer its watcher",
	"wrong_version":           "Another version than the new one answered",
	"not_started":             "The new version never ran",
	"check_failed":            "A check of the package failed",
	"checkin_lost":            "The new version did not reach the server",
	agentapi.ReasonNotRunning: "The new version did not keep running",
	agentapi.ReasonNotReady:   "The new version did not get ready",
	agentapi.ReasonNoSpace:    "The disk had too little free space",
	agentapi.ReasonUntrusted:  "The host did not trust the package",
	agentapi.ReasonSettings:   "The settings of the host are not valid",
	agentapi.ReasonUnwritable: "The host could not write to its disk",
	agentapi.ReasonManual:     "Somebody asked to go back",
	agentapi.FailedRollback:   "Going back failed",
}

// phases are what went wrong if an upgrade failed in a phase.
var phases = map[agentapi.UpgradeState]string{
	agentapi.UpgradeRequested:   "The agent did not begin",
	agentapi.UpgradeScheduled:   "The agent did not begin",
	agentapi.UpgradeDownloading: "The package could not be downloaded",
	agentapi.UpgradeExtracting:  "The package could not be unpacked",
	agentapi.UpgradeReplacing:   "The version could not be put in place",
	agentapi.UpgradeRestarting:  "The new version did not start",
	agentapi.UpgradeWatching:    "The new version did not prove itself",
	agentapi.UpgradeRollback:    "Going back failed",
}

// Text returns the cause as a sentence.
func (c *Cause) Text() string { return CauseText(c.Code, c.State) }

// CauseText returns what a code means for an upgrade that ended in a state, as a sentence.
func CauseText(code string, state fleet.ProgressState) string {
	text := cmp.Or(reasons[code], phases[agentapi.UpgradeState(code)])
	switch {
	case text != "":
	case code != "":
		text = "The host reported " + strings.ReplaceAll(strings.ToLower(code), "_", " ")
	default:
		text = "The host reported no reason"
	}
	if state == fleet.ProgressRolledBack {
		return text + ", and the host went back"
	}
	return text
}
