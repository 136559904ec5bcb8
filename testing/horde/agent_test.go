package horde

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"
	"time"

	"github.com/muster-fleet/muster/server/agentapi"
)

// How long the parts of an upgrade take. They are those of a small package on a
// fast network, told apart enough to be seen from outside.
const (
	downloadTime = 8 * time.Second // and up to downloadSpread more, by host
	extractTime  = 3 * time.Second
	restartTime  = 4 * time.Second
	// WatchTime is how long a host's watcher judges a new version by default.
	WatchTime = 10 * time.Minute
	// downloadSpread keeps agents from doing everything in the same second.
	downloadSpread = 5
	// crashPause is between the ends of a process that does not stay up, crashes
	// how many its watcher bears.
	crashPause = 5 * time.Second
	crashes    = 3
	// beaconEvery is how often a watcher says that it watches.
	beaconEvery = 30 * time.Second
	// keptFor is how long a host could go back.
	keptFor = 7 * 24 * time.Hour
)

// Behaviour is what becomes of an agent on a version. The zero value is well.
type Behaviour struct {
	// Download overrides how long the package takes.
	Download time.Duration
	// FailDownload ends the download with this error.
	FailDownload string
	// Crash ends the process so long after it began to run, again and again, until
	// its watcher puts the old version back. 0: it stays up.
	Crash time.Duration
	// Stuck keeps the watcher from putting the old version back.
	Stuck bool
	// Silent cuts the host off from the network so long after the version began to
	// run. 0: it does not.
	Silent time.Duration
	// Hang switches the host off for so long when it has unpacked the version, once:
	// it comes back as it was.
	Hang time.Duration
	// Status overrides what it says of itself: degraded, error, or starting.
	Status string
	// Failed is a component that says it failed.
	Failed bool
	// Watch overrides WatchTime.
	Watch time.Duration
}

// Agent is one simulated agent with its host and its watcher.
type Agent struct {
	Host
	// Behave is by version; a version that is not there is well.
	Behave map[string]Behaviour

	fleet   *Fleet
	version string
	kept    string // what the host could go back to
	// keptUntil is when that is removed.
	keptUntil time.Time
	status    string
	message   string
	health    string // as its watcher sees it
	token     string
	details   *agentapi.UpgradeDetails
	job       *job   // the upgrade that has not reached its version
	watch     *watch // the upgrade that is judged
	steps     []step // by time
	away      bool   // switched off, or cut off, from outside
	down      bool   // its process is not there
	silent    bool   // the host is cut off by what the version did
}

// job is an upgrade under way.
type job struct {
	action string
	to     string
	begun  bool // it can no longer be called off
}

// watch is an upgrade that has reached its version.
type watch struct {
	action, from, to string
	crashes          int
}

// step is something the agent does at a time.
type step struct {
	at time.Time
	do func(ctx context.Context) error
}

// Version is what it runs, whatever the server believes.
func (a *Agent) Version() string { return a.version }

// Reachable says whether the host is on the network.
func (a *Agent) Reachable() bool { return !a.away && !a.silent }

// heard says whether the agent reaches the server.
func (a *Agent) heard() bool { return !a.away && !a.down && !a.silent }

// SetAway takes the host off the network, or puts it back.
func (a *Agent) SetAway(ctx context.Context, away bool) error {
	back := a.away && !away
	a.away = away
	if back && a.heard() {
		return a.checkin(ctx)
	}
	return nil
}

func (a *Agent) after(d time.Duration, do func(ctx context.Context) error) {
	s := step{a.fleet.Now.UTC().Add(d), do}
	i := len(a.steps)
	for i > 0 && a.steps[i-1].at.After(s.at) {
		i--
	}
	a.steps = slices.Insert(a.steps, i, s)
}

// step does what is due. A host that is away goes on with what it has begun, but
// does not tell of it before it is back.
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

// say checks in if the agent can.
func (a *Agent) say(ctx context.Context) error {
	if !a.heard() {
		return nil
	}
	return a.checkin(ctx)
}

func (a *Agent) phase(state agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{TargetVersion: a.job.to, ActionID: a.job.action, State: state}
}

// take begins what an action asks for.
func (a *Agent) take(ctx context.Context, act agentapi.Action) error {
	switch act.Type {
	case agentapi.ActionCancel:
		return a.cancel(ctx, act)
	case agentapi.ActionUpgrade:
	default:
		return a.ack(ctx, act.ID, "")
	}
	var d agentapi.UpgradeData
	if err := json.Unmarshal(act.Data, &d); err != nil {
		return err
	}
	if a.job != nil {
		if a.job.action == act.ID {
			return nil
		}
		if err := a.ack(ctx, a.job.action, "superseded by action "+act.ID); err != nil {
			return err
		}
	}
	a.steps = nil
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
		download = downloadTime + time.Duration(a.luck()%downloadSpread)*time.Second
	}
	a.details = a.phase(agentapi.UpgradeDownloading)
	a.after(download, func(ctx context.Context) error { return a.downloaded(ctx, b) })
	return a.say(ctx)
}

// luck is a number that stays with the host.
func (a *Agent) luck() uint32 {
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
		if err := a.say(ctx); err != nil {
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
		return a.say(ctx)
	})
	return a.say(ctx)
}

// hang is a host that loses its power and comes back without having switched.
func (a *Agent) hang(ctx context.Context, b Behaviour) error {
	if err := a.say(ctx); err != nil {
		return err
	}
	a.down = true
	a.after(b.Hang, func(ctx context.Context) error {
		delete(a.Behave, a.job.to)
		a.down, a.job, a.details = false, nil, nil
		return a.say(ctx)
	})
	return nil
}

// restarted is the new version's first moment.
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
	if err := a.say(ctx); err != nil {
		return err
	}
	if a.heard() {
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
	return a.watched(ctx, w, until)
}

// watched is the watcher's beacon, until the version has stood its time.
func (a *Agent) watched(ctx context.Context, w *watch, until time.Time) error {
	if a.watch != w || w.crashes > 0 {
		return nil // over, or going back
	}
	now := a.fleet.Now.UTC()
	stage := agentapi.BeaconWatching
	// A version that never gets well is watched for ever here: a real watcher
	// would go back, which Crash shows.
	if !now.Before(until) && a.health == "healthy" {
		stage = agentapi.BeaconCommitted
		a.watch, a.details = nil, nil
	} else {
		a.after(beaconEvery, func(ctx context.Context) error { return a.watched(ctx, w, until) })
	}
	if a.away || a.silent {
		return nil
	}
	if stage == agentapi.BeaconCommitted {
		a.watch = w // its last word
		err := a.beacon(ctx, stage, nil)
		a.watch = nil
		if err != nil {
			return err
		}
		return a.say(ctx)
	}
	return a.beacon(ctx, stage, nil)
}

// crash is one end of a process that does not stay up.
func (a *Agent) crash(ctx context.Context, w *watch, b Behaviour) error {
	if a.watch != w {
		return nil
	}
	a.down = true
	w.crashes++
	if w.crashes < crashes {
		a.after(crashPause, func(ctx context.Context) error { return a.crash(ctx, w, b) })
		return a.tell(ctx, agentapi.BeaconWatching, nil)
	}
	cause := &agentapi.BeaconCause{Code: "crash_loop", Text: "The process ended 3 times: segmentation fault."}
	a.after(crashPause, func(ctx context.Context) error {
		if b.Stuck {
			return a.tell(ctx, agentapi.BeaconRollbackFailed, &agentapi.BeaconCause{Code: "crash_loop", Text: "the old version's folder is gone"})
		}
		a.version, a.kept = w.from, ""
		if err := a.tell(ctx, agentapi.BeaconRolledBack, cause); err != nil {
			return err
		}
		a.after(crashPause, func(ctx context.Context) error { return a.returned(ctx, w, cause) })
		return nil
	})
	return a.tell(ctx, agentapi.BeaconRollingBack, cause)
}

// tell sends a beacon if the host is on the network.
func (a *Agent) tell(ctx context.Context, stage agentapi.BeaconStage, cause *agentapi.BeaconCause) error {
	if a.away || a.silent {
		return nil
	}
	return a.beacon(ctx, stage, cause)
}

// returned is the old version's first moment after its watcher has put it back.
func (a *Agent) returned(ctx context.Context, w *watch, cause *agentapi.BeaconCause) error {
	a.down, a.watch = false, nil
	a.status, a.health = "online", "healthy"
	a.details = &agentapi.UpgradeDetails{TargetVersion: w.to, ActionID: w.action, State: agentapi.UpgradeRollback}
	a.details.Metadata.Reason, a.details.Metadata.ReasonCode = cause.Text, cause.Code
	return a.say(ctx)
}

// goBack puts the kept version back. While the newer one is judged its watcher
// does that, and the agent reports the end of that upgrade, not of this action.
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
			if err := a.tell(ctx, agentapi.BeaconRolledBack, cause); err != nil {
				return err
			}
			return a.returned(ctx, w, cause)
		}
		a.details = nil
		if err := a.say(ctx); err != nil || !a.heard() {
			return err
		}
		return a.ack(ctx, j.action, "")
	})
	return a.say(ctx)
}

// cancel drops the upgrade that is named, while it still can be.
func (a *Agent) cancel(ctx context.Context, act agentapi.Action) error {
	var d agentapi.CancelData
	if err := json.Unmarshal(act.Data, &d); err != nil {
		return err
	}
	if a.job == nil || a.job.action != d.TargetID {
		return a.ack(ctx, act.ID, "")
	}
	if a.job.begun {
		return a.ack(ctx, act.ID, "the upgrade has begun")
	}
	a.job, a.details, a.steps = nil, nil, nil
	if err := a.ack(ctx, d.TargetID, agentapi.Cancelled+" by action "+act.ID); err != nil {
		return err
	}
	if err := a.ack(ctx, act.ID, ""); err != nil {
		return err
	}
	return a.say(ctx)
}

// Begun says whether the host is being changed to a version.
func (a *Agent) Begun(version string) bool {
	return a.job != nil && a.job.begun && a.job.to == version
}
