package admin

import (
	"cmp"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// addProgress adds the health of a rendered agent, how its upgrade stands, and what failed on
// it.
func addProgress(out *adminapi.Agent, a *fleet.Agent, inactivity time.Duration, now time.Time) {
	health := a.Facts().HealthAt(now, inactivity)
	out.Health, out.Site = &health, ptr(a.Label(fleet.SiteLabel))
	if p, ok := a.ProgressAt(now); ok {
		out.Progress = renderProgress(p)
	}
	if len(a.FailedVersions) > 0 {
		failed := make([]adminapi.FailedVersion, 0, len(a.FailedVersions))
		for _, f := range slices.Backward(a.FailedVersions) {
			failed = append(failed, adminapi.FailedVersion{Version: f.Version, Reason: ptr(f.Reason), At: f.At})
		}
		out.FailedVersions = &failed
	}
}

func renderProgress(p fleet.Progress) *adminapi.Progress {
	out := &adminapi.Progress{
		State: p.State, Version: p.Version, From: ptr(p.From), Since: p.Since, Until: p.Until, Retrying: ptr(p.Retrying),
		Reason: renderReason(p.Code, p.Reason), Rollback: ptr(p.Rollback), By: ptr(p.By), Rollout: p.Rollout, Phase: ptr(p.Phase),
	}
	if p.Percent != nil {
		percent := int(*p.Percent)
		out.Percent = &percent
	}
	return out
}

// unknownCause is the code of a failure of which its host has reported none.
const unknownCause = "unknown"

func renderReason(code, text string) *adminapi.WatchReason {
	if code == "" && text == "" {
		return nil
	}
	return &adminapi.WatchReason{Code: cmp.Or(code, unknownCause), Text: cmp.Or(text, "no reason is known")}
}
