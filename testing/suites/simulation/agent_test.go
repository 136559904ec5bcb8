package simulation

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// How long the parts of an upgrade take: those of a small package on a fast network, but
// long enough that each phase shows in a script's output.
const (
	downloadTime = 8 * time.Second // and up to downloadSpread more, by host
	extractTime  = 3 * time.Second
	restartTime  = 4 * time.Second
	// WatchTime is how long a host's watcher watches a new version by default.
	WatchTime = 10 * time.Minute
	// downloadSpread keeps the agents from acting in the same second.
	downloadSpread = 5
	// crashPause is the time between two crashes of a process, crashes how many of them
	// make the watcher roll back.
	crashPause = 5 * time.Second
	crashes    = 3
	// beaconEvery is how often a watcher sends a beacon.
	beaconEvery = 30 * time.Second
	// keptFor is how long a host keeps the previous version.
	keptFor = 7 * 24 * time.Hour
)

// Behaviour is how an agent behaves on a version. The zero value is healthy.
type Behaviour struct {
	// Download overrides how long the download takes.
	Download time.Duration
	// FailDownload is the error with which the download fails, if not empty.
	FailDownload string
	// Crash is how long after its start the process crashes, repeatedly, until the watcher
	// rolls back. 0 means never.
	Crash time.Duration
	// Stuck makes the watcher's rollback fail.
	Stuck bool
	// Silent is how long after the start of the version the host loses its network. 0
	// means never.
	Silent time.Duration
	// Hang is for how long the host is switched off once, after it has unpacked the
	// version. It comes back with the old version.
	Hang time.Duration
	// Status overrides the reported status: degraded, error, or starting.
	Status string
	// Failed reports a component as failed.
	Failed bool
	// Watch overrides WatchTime.
	Watch time.Duration
}

// Agent is one simulated agent with its host and its watcher.
type Agent struct {
	Host
	// Behave is by version; a missing version is healthy.
	Behave map[string]Behaviour

	fleet      *Fleet
	components []*component
	staged     []string // nil: it cannot stage versions
	version    string
	kept       string // the previous version, to which the host can go back
	// keptUntil is when kept is removed.
	keptUntil time.Time
	status    string
	message   string
	health    string // as its watcher reports it
	token     string
	details   *agentapi.UpgradeDetails
	job       *job   // the upgrade before the new version runs
	watch     *watch // the upgrade that is being watched
	steps     []step // by time
	offline   bool   // switched off or disconnected by the script
	down      bool   // its process does not run
	silent    bool   // the version has disconnected the host
}

// job is an upgrade before the new version runs.
type job struct {
	action string
	to     string
	begun  bool // it can no longer be cancelled
}

// watch is an upgrade whose new version runs.
type watch struct {
	action, from, to string
	crashes          int
}

// step is a scheduled action of the agent.
type step struct {
	at time.Time
	do func(ctx context.Context) error
	// component: it belongs to the upgrade of a component, which one of the agent does not end.
	component bool
}

// Reachable reports whether the host is on the network.
func (a *Agent) Reachable() bool { return !a.offline && !a.silent }

// connected reports whether the agent can reach the server.
func (a *Agent) connected() bool { return !a.offline && !a.down && !a.silent }

// SetOffline disconnects the host from the network, or connects it again.
func (a *Agent) SetOffline(ctx context.Context, offline bool) error {
	back := a.offline && !offline
	a.offline = offline
	if back && a.connected() {
		return a.checkin(ctx)
	}
	return nil
}

func (a *Agent) after(d time.Duration, do func(ctx context.Context) error) {
	a.schedule(step{at: a.fleet.Now.UTC().Add(d), do: do})
}

// forget drops the steps of the agent's own upgrade.
func (a *Agent) forget() {
	a.steps = slices.DeleteFunc(a.steps, func(s step) bool { return !s.component })
}

func (a *Agent) schedule(s step) {
	i := len(a.steps)
	for i > 0 && a.steps[i-1].at.After(s.at) {
		i--
	}
	a.steps = slices.Insert(a.steps, i, s)
}

// step performs the steps that are due. An offline host continues what it has begun, and
// reports it when it is online again.
func (a *Agent) step(ctx context.Context, now time.Time) error {
	for len(a.steps) > 0 && !a.steps[0].at.After(now) {
		do := a.steps[0].do
		a.steps = a.steps[1:]
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// checkinIfConnected checks in if the agent can reach the server.
func (a *Agent) checkinIfConnected(ctx context.Context) error {
	if !a.connected() {
		return nil
	}
	return a.checkin(ctx)
}

func (a *Agent) phase(state agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{TargetVersion: a.job.to, ActionID: a.job.action, State: state}
}

// handle begins to execute an action.
func (a *Agent) handle(ctx context.Context, act agentapi.Action) error {
	switch act.Type {
	case agentapi.ActionCancel:
		return a.cancel(ctx, act)
	case agentapi.ActionProceed:
		return a.proceed(ctx, act)
	case agentapi.ActionUpgrade:
	default:
		return a.ack(ctx, act.ID, "")
	}
	var d agentapi.UpgradeData
	if err := json.Unmarshal(act.Data, &d); err != nil {
		return err
	}
	if d.Component != nil {
		return a.upgradeComponent(ctx, act, d)
	}
	if a.job != nil {
		if a.job.action == act.ID {
			return nil
		}
		if err := a.ack(ctx, a.job.action, "superseded by action "+act.ID); err != nil {
			return err
		}
	}
	a.forget()
	a.job = &job{action: act.ID, to: d.Version}
	if d.Rollback {
		return a.goBack(ctx)
	}
	if d.Version == a.version {
		a.job = nil
		return a.ack(ctx, act.ID, "")
	}
	b := a.Behave[d.Version]
	download := b.Download
	if download == 0 {
		download = downloadTime + time.Duration(a.hash()%downloadSpread)*time.Second
	}
	a.details = a.phase(agentapi.UpgradeDownloading)
	a.after(download, func(ctx context.Context) error { return a.downloaded(ctx, b) })
	return a.checkinIfConnected(ctx)
}

// hash returns a number derived from the agent's id.
func (a *Agent) hash() uint32 {
	h := fnv.New32a()
	h.Write([]byte(a.ID))
	return h.Sum32()
}

func (a *Agent) downloaded(ctx context.Context, b Behaviour) error {
	if b.FailDownload != "" {
		a.details = a.phase(agentapi.UpgradeFailed)
		a.details.Metadata = agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: b.FailDownload}
		id := a.job.action
		a.job = nil
		if err := a.checkinIfConnected(ctx); err != nil {
			return err
		}
		return a.ack(ctx, id, b.FailDownload)
	}
	a.job.begun = true
	a.details = a.phase(agentapi.UpgradeExtracting)
	if b.Hang > 0 {
		return a.hang(ctx, b)
	}
	a.after(extractTime, func(ctx context.Context) error {
		a.details = a.phase(agentapi.UpgradeRestarting)
		a.after(restartTime, func(ctx context.Context) error { return a.restarted(ctx, b) })
		return a.checkinIfConnected(ctx)
	})
	return a.checkinIfConnected(ctx)
}

// hang simulates a host that loses its power before it switches to the new version.
func (a *Agent) hang(ctx context.Context, b Behaviour) error {
	if err := a.checkinIfConnected(ctx); err != nil {
		return err
	}
	a.down = true
	a.after(b.Hang, func(ctx context.Context) error {
		delete(a.Behave, a.job.to)
		a.down, a.job, a.details = false, nil, nil
		return a.checkinIfConnected(ctx)
	})
	return nil
}

// restarted is called when the new version starts.
func (a *Agent) restarted(ctx context.Context, b Behaviour) error {
	now := a.fleet.Now.UTC()
	a.watch = &watch{action: a.job.action, from: a.version, to: a.job.to}
	a.details = a.phase(agentapi.UpgradeWatching)
	a.kept, a.keptUntil = a.version, now.Add(keptFor)
	a.version = a.job.to
	a.job = nil
	a.status, a.health = "online", "healthy"
	if b.Status != "" {
		a.status, a.health = b.Status, map[string]string{"degraded": "degraded", "error": "failed"}[b.Status]
	}
	if err := a.checkinIfConnected(ctx); err != nil {
		return err
	}
	if a.connected() {
		if err := a.ack(ctx, a.watch.action, ""); err != nil {
			return err
		}
	}
	w, until := a.watch, now.Add(WatchTime)
	if b.Watch > 0 {
		until = now.Add(b.Watch)
	}
	switch {
	case b.Crash > 0:
		a.after(b.Crash, func(ctx context.Context) error { return a.crash(ctx, w, b) })
	case b.Silent > 0:
		a.after(b.Silent, func(context.Context) error {
			a.silent = true
			return nil
		})
	}
	return a.watchStep(ctx, w, until)
}

// watchStep sends the watcher's beacon, until the watch ends.
func (a *Agent) watchStep(ctx context.Context, w *watch, until time.Time) error {
	if a.watch != w || w.crashes > 0 {
		return nil // the watch is over, or the version crashes
	}
	now := a.fleet.Now.UTC()
	phase := agentapi.BeaconWatching
	// A version that is never healthy is watched for ever here. A real watcher would
	// roll back, which Crash simulates.
	if !now.Before(until) && a.health == "healthy" {
		phase = agentapi.BeaconCommitted
		a.watch, a.details = nil, nil
	} else {
		a.after(beaconEvery, func(ctx context.Context) error { return a.watchStep(ctx, w, until) })
	}
	if a.offline || a.silent {
		return nil
	}
	if phase == agentapi.BeaconCommitted {
		a.watch = w // beacon reads it
		err := a.beacon(ctx, phase, nil)
		a.watch = nil
		if err != nil {
			return err
		}
		return a.checkinIfConnected(ctx)
	}
	return a.beacon(ctx, phase, nil)
}

// crash simulates one crash of the process.
func (a *Agent) crash(ctx context.Context, w *watch, b Behaviour) error {
	if a.watch != w {
		return nil
	}
	a.down = true
	w.crashes++
	if w.crashes < crashes {
		a.after(crashPause, func(ctx context.Context) error { return a.crash(ctx, w, b) })
		return a.sendBeacon(ctx, agentapi.BeaconWatching, nil)
	}
	cause := &agentapi.BeaconCause{Code: "crash_loop", Text: "The process ended 3 times: segmentation fault."}
	a.after(crashPause, func(ctx context.Context) error {
		if b.Stuck {
			return a.sendBeacon(ctx, agentapi.BeaconRollbackFailed, &agentapi.BeaconCause{Code: "crash_loop", Text: "the old version's folder is gone"})
		}
		a.version, a.kept = w.from, ""
		if err := a.sendBeacon(ctx, agentapi.BeaconRolledBack, cause); err != nil {
			return err
		}
		a.after(crashPause, func(ctx context.Context) error { return a.rolledBack(ctx, w, cause) })
		return nil
	})
	return a.sendBeacon(ctx, agentapi.BeaconRollingBack, cause)
}

// sendBeacon sends a beacon if the host is on the network.
func (a *Agent) sendBeacon(ctx context.Context, phase agentapi.BeaconPhase, cause *agentapi.BeaconCause) error {
	if a.offline || a.silent {
		return nil
	}
	return a.beacon(ctx, phase, cause)
}

// rolledBack is called when the old version starts after a rollback by the watcher.
func (a *Agent) rolledBack(ctx context.Context, w *watch, cause *agentapi.BeaconCause) error {
	a.down, a.watch = false, nil
	a.status, a.health = "online", "healthy"
	a.details = &agentapi.UpgradeDetails{TargetVersion: w.to, ActionID: w.action, State: agentapi.UpgradeRollback}
	a.details.Metadata.Reason, a.details.Metadata.ReasonCode = cause.Text, cause.Code
	return a.checkinIfConnected(ctx)
}

// goBack executes a rollback to the kept version. While an upgrade is being watched its
// watcher does this, and the agent reports the end of that upgrade, not of this action.
func (a *Agent) goBack(ctx context.Context) error {
	j, w := a.job, a.watch
	if a.kept == "" || a.kept != j.to {
		a.job = nil
		return a.ack(ctx, j.action, "version "+j.to+" is not kept on this host")
	}
	j.begun = true
	if w != nil {
		if err := a.ack(ctx, j.action, ""); err != nil {
			return err
		}
	} else {
		a.details = a.phase(agentapi.UpgradeRestarting)
	}
	a.after(restartTime, func(ctx context.Context) error {
		a.version, a.kept, a.job = j.to, "", nil
		if w != nil {
			cause := &agentapi.BeaconCause{Code: "requested", Text: "Asked for by action " + j.action + " of the server."}
			if err := a.sendBeacon(ctx, agentapi.BeaconRolledBack, cause); err != nil {
				return err
			}
			return a.rolledBack(ctx, w, cause)
		}
		a.details = nil
		if err := a.checkinIfConnected(ctx); err != nil || !a.connected() {
			return err
		}
		return a.ack(ctx, j.action, "")
	})
	return a.checkinIfConnected(ctx)
}

// cancel cancels the named upgrade if it has not begun.
func (a *Agent) cancel(ctx context.Context, act agentapi.Action) error {
	var d agentapi.CancelData
	if err := json.Unmarshal(act.Data, &d); err != nil {
		return err
	}
	if done, err := a.cancelComponent(ctx, act.ID, d.TargetID); done || err != nil {
		return err
	}
	if a.job == nil || a.job.action != d.TargetID {
		return a.ack(ctx, act.ID, "")
	}
	if a.job.begun {
		return a.ack(ctx, act.ID, "the upgrade has begun")
	}
	a.job, a.details = nil, nil
	a.forget()
	if err := a.ack(ctx, d.TargetID, agentapi.Cancelled+" by action "+act.ID); err != nil {
		return err
	}
	if err := a.ack(ctx, act.ID, ""); err != nil {
		return err
	}
	return a.checkinIfConnected(ctx)
}

// Begun reports whether the host has begun to switch to the plan's version, or runs it.
func (a *Agent) Begun(p *fleet.Plan) bool {
	if p.Component != "" {
		c := a.component(p.Component)
		return c != nil && (c.version == p.Version || c.begun && c.details != nil && c.details.TargetVersion == p.Version)
	}
	return a.version == p.Version || a.job != nil && a.job.begun && a.job.to == p.Version
}
