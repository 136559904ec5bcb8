package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// checkEvery is how often the versions on the host are checked. The check starts their programs.
// It reads a version's files only once in the life of this process: damage is rare, and a switch
// reads them again before it begins.
const checkEvery = time.Hour

// watchVersions checks the versions on the host regularly, and removes those that are not kept
// any more; run has removed them once before it starts this.
func (d *daemon) watchVersions(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		watching := d.watched()
		d.checkVersions(ctx)
		select {
		case <-watching: // nil while nothing is watched
		case <-d.recheck:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		d.dropSurplus()
	}
}

func (d *daemon) dropSurplus() {
	if err := d.executor.DropSurplus(time.Now()); err != nil {
		d.log.Warn("an old version could not be removed; it is tried again", "error", err, "again_in", checkEvery.String())
	}
}

// checkVersions finds the versions on the host, and those that it can be rolled back to: during
// a watch only the marker's previous version.
func (d *daemon) checkVersions(ctx context.Context) {
	d.checking.Lock()
	defer d.checking.Unlock()
	versions := []probe.Version{d.runningVersion()}
	var rollbacks []probe.Rollback
	before, intact := d.watchedFrom(), map[handoff.Install]bool{}
	for _, o := range d.executor.Versions(ctx, d.intact) {
		v := probe.Version{
			Version: o.FullVersion(), Hash: o.Hash, State: probe.VersionPrevious, Since: o.ReplacedAt, Bytes: o.Bytes, Until: o.ValidUntil, Problem: o.Problem,
		}
		if o.Staged() {
			v.State, v.Since = probe.VersionStaged, o.StagedAt
		}
		versions = append(versions, v)
		isBefore := before != nil && o.Install == *before
		intact[o.Install] = o.Problem == "" && !isBefore
		if !o.Staged() && (before == nil || isBefore) {
			rollbacks = append(rollbacks, probe.Rollback{Version: v.Version, Hash: v.Hash, ValidUntil: v.Until, Problem: v.Problem})
		}
	}
	if ctx.Err() != nil {
		return // the agent is stopping, so that no program was started
	}
	d.intact = intact
	d.mu.Lock()
	same, sameStaged := slices.Equal(d.rollbacks, rollbacks), slices.Equal(staged(d.versions), staged(versions))
	d.versions, d.rollbacks = versions, rollbacks
	d.mu.Unlock()
	if !same {
		for _, r := range rollbacks {
			d.log.Info("this host can be rolled back", "version", r.Version, "valid_until", r.ValidUntil, "problem", r.Problem)
		}
	}
	if !same || !sameStaged {
		d.changes.Progress()
	}
}

// staged returns the names of the staged versions of a list that can be started.
func staged(list []probe.Version) []string {
	var out []string
	for _, v := range list {
		if v.State == probe.VersionStaged && v.Problem == "" {
			out = append(out, v.Version)
		}
	}
	return out
}

func (d *daemon) runningVersion() probe.Version {
	return probe.Version{Version: d.Running.FullVersion(), Hash: d.Running.Hash, State: probe.VersionRunning}
}

// knownRollbacks returns what the last checkVersions has found.
func (d *daemon) knownRollbacks() []probe.Rollback {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rollbacks
}

func (d *daemon) knownVersions() []probe.Version {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.versions
}

// removeVersion removes a version on request of the host.
func (d *daemon) removeVersion(req probe.RemoveRequest) error {
	if req.Component != "" {
		return d.removeComponentVersion(req)
	}
	if err := d.executor.RemoveVersion(req.Version); err != nil {
		return err
	}
	d.mu.Lock()
	d.versions = slices.DeleteFunc(slices.Clone(d.versions), func(v probe.Version) bool {
		return v.State != probe.VersionRunning && v.Is(req.Version)
	})
	d.mu.Unlock()
	select {
	case d.recheck <- struct{}{}:
	default: // it is pending
	}
	return nil
}

// acceptStage accepts a stage that is requested on the host.
func (d *daemon) acceptStage(req probe.StageRequest) error {
	if _, err := manifest.ParseVersion(req.Version); err != nil {
		return err
	}
	if d.Identity == nil && req.SourceURI == "" {
		return errNoServer
	}
	r := request.Request{ID: "stage", Local: true, Version: req.Version, SourceURI: req.SourceURI, Force: req.Force}
	if req.Component != "" {
		r.Component = agentapi.ComponentData{Name: req.Component, UpgradeID: "stage-" + req.Version}
		return d.addStage(r)
	}
	if req.Version == d.Running.FullVersion() && !d.Running.Snapshot {
		return fmt.Errorf("version %s already runs here", req.Version)
	}
	if d.watched() != nil {
		return fmt.Errorf("%w: version %s is being watched", request.ErrBusy, d.Running.FullVersion())
	}
	if item := d.queue.Begun(); item != nil {
		return fmt.Errorf("%w: action %s", request.ErrBusy, item.Action.ID)
	}
	return d.addStage(r)
}

// addStage gives a stage to runStages.
func (d *daemon) addStage(r request.Request) error {
	err := d.reserveStage(r)
	if err == nil {
		d.stages <- r // there is room: the one before has ended
	}
	return err
}

// beginAgain gives a stage to runStages that an earlier process left unfinished.
func (d *daemon) beginAgain(r request.Request) {
	d.log.Info("an interrupted stage begins again", "stage", r.String())
	if err := d.addStage(r); err != nil {
		d.log.Error("it does not begin again", "error", err)
	}
}

// reserveStage reports a stage that is about to begin, and returns an error while its subject has one.
func (d *daemon) reserveStage(r request.Request) error {
	if r.Component.Name != "" {
		return d.workloads.AcceptStage(r)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.staging != nil && !d.staging.State.Ended() {
		return fmt.Errorf("%w: version %s is being staged", request.ErrBusy, d.staging.TargetVersion)
	}
	d.staging = &agentapi.UpgradeDetails{TargetVersion: r.Version, State: agentapi.UpgradeRequested}
	return nil
}

// recoverStage undoes or finishes a stage that an earlier process left unfinished.
func (d *daemon) recoverStage() {
	r, err := d.executor.RecoverStage()
	switch {
	case err != nil:
		d.log.Warn("what is left of a stage could not be removed; the upgrade loop tries again", "error", err)
	case r != nil && !r.Local: // it is in the queue
		d.interrupted = *r
	case r != nil:
		d.beginAgain(*r)
	}
}

// runStages runs the stages that were accepted, each apart from the others, until ctx ends. A stage
// that was interrupted begins again by its journal.
func (d *daemon) runStages(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for {
		select {
		case r := <-d.stages:
			parts.Go(func() { _ = d.stage(ctx, r) }) // it is reported
		case <-ctx.Done():
			return
		}
	}
}

// stage does a stage that was reserved.
func (d *daemon) stage(ctx context.Context, r request.Request) error {
	work, cancel := stoppable(ctx)
	defer cancel()
	do := d.stageOwn
	if r.Component.Name != "" {
		do = d.workloads.Stage
	}
	err := do(work, r)
	if errors.Is(err, steps.ErrStopping) {
		d.log.Info("a stage was interrupted; it begins again when the agent starts", "stage", r.String())
	}
	return err
}

// stageOwn stages a version of the agent.
func (d *daemon) stageOwn(ctx context.Context, r request.Request) error {
	err := d.executor.Stage(ctx, r)
	var f *request.Failure
	switch {
	case err == nil:
		d.log.Info("version is staged", "version", r.Version)
		d.checkVersions(ctx)
		d.mu.Lock()
		d.staging = nil
		d.mu.Unlock()
		return nil
	case errors.Is(err, steps.ErrStopping):
		return err
	case !errors.As(err, &f):
		f = upgrade.Refuse(err)
	}
	d.setStaging(f.Details(r), false)
	return f
}

// setStaging sets the state of the stage.
func (d *daemon) setStaging(u agentapi.UpgradeDetails, progress bool) {
	d.mu.Lock()
	d.staging = &u
	d.mu.Unlock()
	if progress {
		return
	}
	log := d.log.With("state", u.State, "version", u.TargetVersion)
	if u.Metadata.ErrorMsg != "" {
		log = log.With("error", u.Metadata.ErrorMsg)
	}
	log.Info("stage")
}

func (d *daemon) currentStage() *agentapi.UpgradeDetails {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.staging == nil {
		return nil
	}
	u := *d.staging
	return &u
}
