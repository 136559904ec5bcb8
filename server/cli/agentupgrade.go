package cli

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// upgradePhase describes the upgrade of an agent in a few words. It is empty if there is
// none.
func upgradePhase(g adminapi.Agent) string {
	d := g.UpgradeDetails
	if d == nil {
		switch {
		case g.UpgradeStartedAt == nil:
			return ""
		case deref(g.UpgradeRollback):
			return "rollback requested"
		case g.UpgradeStartedAt.After(time.Now()):
			return "scheduled for " + atTime(*g.UpgradeStartedAt)
		}
		return "requested"
	}
	return describeDetails(d)
}

func describeDetails(d *adminapi.UpgradeDetails) string {
	words := describePhase(d)
	if text := upgradeReason(d); text != "" {
		words += ": " + text
	}
	return words
}

// describePhase is describeDetails without the reason.
func describePhase(d *adminapi.UpgradeDetails) string {
	words := strings.ToLower(strings.TrimPrefix(string(d.State), "UPG_")) + " " + d.TargetVersion
	if m := d.Metadata; m != nil {
		if m.Phase != nil {
			words += " (" + strings.ToLower(string(*m.Phase)) + ")"
		}
		if m.DownloadPercent != nil && d.State == agentapi.UpgradeDownloading {
			words += fmt.Sprintf(" %.0f %%", *m.DownloadPercent)
		}
		if r := describeRetry(d); r != "" {
			words += ", " + r
		}
	}
	return words
}

// describeRetry says when the agent retries after a failure. It is empty if it does not.
func describeRetry(d *adminapi.UpgradeDetails) string {
	m := d.Metadata
	if d.State != agentapi.UpgradeScheduled || m == nil || m.RetryErrorMsg == nil {
		return ""
	}
	words := "retry"
	if m.RetryAttempt != nil {
		words += fmt.Sprintf(" %d", *m.RetryAttempt)
		if m.RetryLimit != nil {
			words += fmt.Sprintf(" of %d", *m.RetryLimit)
		}
	}
	if m.ScheduledAt != nil {
		words += " at " + m.ScheduledAt.Local().Format("15:04")
	}
	return words
}

// upgradeReason returns why an upgrade failed, or its last error while it retries.
func upgradeReason(d *adminapi.UpgradeDetails) string {
	if d == nil || d.Metadata == nil {
		return ""
	}
	return cmp.Or(deref(d.Metadata.Reason), deref(d.Metadata.ErrorMsg), deref(d.Metadata.RetryErrorMsg))
}

// describeRollback says which version a rollback would restore, or why none is possible.
func describeRollback(r *adminapi.RollbackVerdict) string {
	switch {
	case r == nil:
		return "unknown"
	case !r.Available:
		return "no: " + deref(r.Reason)
	case r.ValidUntil == nil:
		return "to " + deref(r.Version) + ", while the upgrade is watched"
	}
	return fmt.Sprintf("to %s, until %s", deref(r.Version), atTime(*r.ValidUntil))
}

// describeWatch describes the last report of the host's watcher.
func describeWatch(watch adminapi.Watch, now time.Time) string {
	words := fmt.Sprintf("%s %s, reported %s", strings.ReplaceAll(string(watch.Stage), "_", " "), watch.To, ago(&watch.ReceivedAt, now))
	if watch.Stage == agentapi.BeaconWatching || watch.Stage == agentapi.BeaconRollingBack {
		words += "; the agent " + watchedAgent(watch.Agent)
	}
	if watch.Reason != nil {
		words += ": " + watch.Reason.Text
	}
	return words
}

func watchedAgent(g adminapi.WatchedAgent) string {
	words := "runs and is " + deref(g.State)
	switch {
	case !g.Alive:
		words = "does not run"
	case g.State == nil:
		words = "runs, but does not answer"
	}
	if g.Crashes > 0 {
		words += ", crashed " + counted(g.Crashes, "time")
	}
	return words
}
