package simfleet

import "github.com/muster-fleet/muster/server/wire/agentapi"

// end is how an upgrade ends badly; the zero value is a good end.
type end struct {
	state agentapi.UpgradeState
	agentapi.UpgradeMetadata
}

// rollbacks are why watchers put the version before back. The first are more frequent.
var rollbacks = []agentapi.BeaconCause{
	{Code: "crash_loop", Text: "The agent's process ended 3 times in 60 s: panic: runtime error: index out of range [4] with length 4"},
	{Code: "crash_loop", Text: "The agent's process ended 3 times in 60 s: panic: runtime error: index out of range [4] with length 4"},
	{Code: "checkin_lost", Text: "The agent has not reached its server for 5m0s, and the watcher has: x509: certificate signed by unknown authority"},
	{Code: "component_failed", Text: "Component collector has failed for 1m30s, and was healthy before: it does not run: exit status 1"},
	{Code: "control_lost", Text: "The agent runs and has not answered its control socket for 60 s"},
}

// failures are why upgrades fail before anything is changed.
var failures = []agentapi.UpgradeMetadata{
	{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "download: no space left on device: 212 MiB are free in /opt/muster, 640 MiB are needed"},
	{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "download: no space left on device: 88 MiB are free in /opt/muster, 640 MiB are needed"},
	{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "download: the connection ended after 31 MiB of 47 MiB, in 5 attempts: unexpected EOF"},
	{FailedState: agentapi.UpgradeExtracting, ErrorMsg: "unpack: the signature is not that of a trusted publisher: the key 8F3A is not in trust/"},
}

// rollback returns one of the rollbacks.
func rollback(n int) end {
	r := rollbacks[n%len(rollbacks)]
	return end{agentapi.UpgradeRollback, agentapi.UpgradeMetadata{Reason: r.Text, ReasonCode: r.Code}}
}

// failure returns one of the failures.
func failure(n int) end { return end{agentapi.UpgradeFailed, failures[n%len(failures)]} }

// componentFailure is why a new version of a component was taken back.
func componentFailure() agentapi.UpgradeMetadata {
	return agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ReasonCode: "check_failed", ErrorMsg: "the check http failed 3 times: 503 Service Unavailable"}
}
