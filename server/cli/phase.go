package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/adminapi"
)

// upgradePhase is the upgrade in a few words, empty when there is none.
func upgradePhase(g adminapi.Agent) string {
	d := g.UpgradeDetails
	if d == nil {
		switch {
		case g.UpgradeStartedAt == nil:
			return ""
		case deref(g.UpgradeRollback):
			return "rollback requested"
		}
		return "requested"
	}
	words := strings.ToLower(strings.TrimPrefix(string(d.State), "UPG_")) + " " + d.TargetVersion
	if m := d.Metadata; m != nil {
		if m.DownloadPercent != nil && d.State == adminapi.UpgradeDownloading {
			words += fmt.Sprintf(" %.0f %%", *m.DownloadPercent)
		}
		if r := retryWords(d); r != "" {
			words += ", " + r
		}
		if text := upgradeReason(d); text != "" {
			words += ": " + text
		}
	}
	return words
}

// retryWords is when the agent tries again after a failure, empty when it does
// not.
func retryWords(d *adminapi.UpgradeDetails) string {
	m := d.Metadata
	if d.State != adminapi.UpgradeScheduled || m == nil || m.RetryErrorMsg == nil {
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

// upgradeReason is why an upgrade ended badly, or what it struggles with.
func upgradeReason(d *adminapi.UpgradeDetails) string {
	if d == nil || d.Metadata == nil {
		return ""
	}
	return firstOf(deref(d.Metadata.Reason), deref(d.Metadata.ErrorMsg), deref(d.Metadata.RetryErrorMsg))
}

// rollbackWords is where a rollback would lead, or why there is none.
func rollbackWords(r *adminapi.RollbackVerdict) string {
	switch {
	case r == nil:
		return "unknown"
	case !r.Available:
		return "no: " + deref(r.Reason)
	case r.ValidUntil == nil:
		return "to " + deref(r.Version) + ", while the upgrade is watched"
	}
	return fmt.Sprintf("to %s, until %s", deref(r.Version), r.ValidUntil.Local().Format(time.DateTime))
}

// watchWords is the last report of the host's watcher, and its meaning.
func watchWords(watch adminapi.Watch, now time.Time) string {
	words := fmt.Sprintf("%s %s, reported %s", strings.ReplaceAll(string(watch.Stage), "_", " "), watch.To, ago(&watch.ReceivedAt, now))
	if watch.Stage == adminapi.WatchWatching || watch.Stage == adminapi.WatchRollingBack {
		words += "; the agent " + watchedAgent(watch.Agent)
	}
	if watch.Reason != nil {
		words += ": " + watch.Reason.Text
	}
	if watch.Diagnosis != nil {
		words += "\n             " + watch.Diagnosis.Text
	}
	return words
}

func watchedAgent(g adminapi.WatchedAgent) string {
	words := "runs, and is " + deref(g.State)
	switch {
	case !g.Alive:
		words = "does not run"
	case g.State == nil:
		words = "runs, and does not answer"
	}
	if g.Crashes > 0 {
		words += fmt.Sprintf(", ended %d times", g.Crashes)
	}
	return words
}
