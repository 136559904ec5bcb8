package fleet

import "github.com/muster-fleet/muster/server/wire/agentapi"

// vagueCodes are the reason codes that say little of why an upgrade ended: they are reported
// where nothing else is known. All other codes name a cause.
var vagueCodes = map[string]bool{
	"":            true,
	"unknown":     true,
	"not_started": true, // a watcher that was itself disturbed has seen no process
}

// weight is how much the report of an end says of its reason.
func weight(d *agentapi.UpgradeDetails) int {
	switch m := &d.Metadata; {
	case !vagueCodes[m.ReasonCode]:
		return 2
	case cause(d) != "" || m.ReasonCode != "":
		return 1
	}
	return 0
}

// keepReason returns a report of how an upgrade ended, with the reason of an earlier report of
// the same end if that says more. Of two that say as much, the later one counts.
func keepReason(earlier, d *agentapi.UpgradeDetails) *agentapi.UpgradeDetails {
	if earlier == nil || !earlier.State.Ended() || !d.State.Ended() ||
		earlier.ActionID != d.ActionID || earlier.TargetVersion != d.TargetVersion || weight(earlier) <= weight(d) {
		return d
	}
	merged := *d
	merged.Metadata.Reason, merged.Metadata.ReasonCode = earlier.Metadata.Reason, earlier.Metadata.ReasonCode
	if earlier.State == d.State { // otherwise it is the error of something else, such as of going back
		merged.Metadata.ErrorMsg = earlier.Metadata.ErrorMsg
	}
	return &merged
}
