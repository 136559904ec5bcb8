package daemon

import (
	"context"
	"slices"
	"time"

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

// stagedVersions returns the staged versions to report, never nil.
func (d *daemon) stagedVersions() []string {
	out := append([]string{}, staged(d.knownVersions())...)
	for _, name := range d.workloads.Names() {
		for _, version := range staged(d.workloads.Versions(name)) {
			out = append(out, name+" "+version)
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

// removeTimeout bounds how long the removal of a component's version waits for a look at the
// component, and takes: a client waits thirty seconds.
const removeTimeout = 20 * time.Second

// removeVersion removes a version on request of the host.
func (d *daemon) removeVersion(req probe.RemoveRequest) error {
	if req.Component != "" {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		return d.workloads.RemoveVersion(ctx, req.Component, req.Version)
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
