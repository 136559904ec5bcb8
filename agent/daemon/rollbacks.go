package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// keptCheckEvery is how often the previous version is checked. The check starts its program.
// It reads the version's files only once in the life of this process: damage is rare, and a
// rollback reads them again before it begins.
const keptCheckEvery = time.Hour

// watchKept checks the previous version regularly, and removes it when its window is
// over.
func (d *daemon) watchKept(ctx context.Context) {
	tick := time.NewTicker(keptCheckEvery)
	defer tick.Stop()
	for {
		watching := d.watched()
		if err := d.executor.DropPrevious(time.Now()); err != nil {
			d.log.Warn("the previous version could not be removed; it is tried again", "error", err, "again_in", keptCheckEvery.String())
		}
		d.checkKept(ctx)
		select {
		case <-watching: // nil while nothing is watched
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// checkKept finds the version that the host can be rolled back to: during a watch the
// marker's previous version, otherwise the one that is kept.
func (d *daemon) checkKept(ctx context.Context) {
	var found []probe.Rollback
	if m, err := handoff.ReadMarker(d.Disk, d.Top); err == nil && m != nil {
		if d.Running == m.To {
			found = append(found, probe.Rollback{Version: m.From.FullVersion(), ValidUntil: m.CreatedAt.Add(d.executor.RollbackWindow)})
		}
	} else if k, err := d.executor.Previous(ctx, d.intact); err != nil {
		d.log.Warn("cannot tell whether a version is kept", "error", err)
	} else if k != nil {
		d.intact = handoff.Install{}
		if k.Problem == "" {
			d.intact = k.Install
		}
		found = append(found, probe.Rollback{Version: k.FullVersion(), ValidUntil: k.ValidUntil, Problem: k.Problem})
	}
	d.mu.Lock()
	same := slices.Equal(d.rollbacks, found)
	d.rollbacks = found
	d.mu.Unlock()
	if same {
		return
	}
	for _, r := range found {
		d.log.Info("this host can be rolled back", "version", r.Version, "valid_until", r.ValidUntil, "problem", r.Problem)
	}
	d.changes.Progress()
}

// knownRollbacks returns the last result of checkKept.
func (d *daemon) knownRollbacks() []probe.Rollback {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rollbacks
}

// offered returns the rollbacks to report to the server.
func offered(all []probe.Rollback) *agentapi.CheckinUpgrade {
	var up agentapi.CheckinUpgrade
	for _, r := range all {
		if r.Problem == "" {
			up.Rollbacks = append(up.Rollbacks, agentapi.Rollback{Version: r.Version, ValidUntil: r.ValidUntil})
		}
	}
	return &up
}

// acceptRollback accepts a rollback that is requested on the host. It relies on the last
// checkKept, since a new check takes longer than the client waits, and preflight checks
// again.
func (d *daemon) acceptRollback(req probe.UpgradeRequest) error {
	if d.watched() != nil {
		return d.requestRollback("Asked for on the host.")
	}
	kept := d.knownRollbacks()
	switch {
	case len(kept) == 0:
		return errors.New("no earlier version is kept on this host: upgrade to the version you want instead")
	case req.Version == "":
		req.Version = kept[0].Version
	}
	return d.addLocal(req)
}

// forwardRollback asks the watcher for a rollback if one is pending while a version is
// watched.
func (d *daemon) forwardRollback(ctx context.Context) {
	item := d.queue.Waiting("")
	if item == nil || item.Attempts > 0 {
		return
	}
	r, err := upgrade.ParseRequest(item.Action.ID, item.ActionID(), item.Local, item.Action.Data)
	if err != nil || !r.Rollback {
		return
	}
	if m, err := handoff.ReadMarker(d.Disk, d.Top); err != nil || m == nil || d.Running != m.To {
		return // the rollback has begun already; the action is handled after the watch
	}
	if err := d.allowed(ctx, item.Local); err != nil {
		d.finish(r.ID, queue.Result{Message: "rollback failed", Error: err.Error()})
		return
	}
	if err := d.requestRollback(fmt.Sprintf("Asked for by action %s of the server.", item.Action.ID)); err != nil {
		d.finish(r.ID, queue.Result{Message: "rollback failed", Error: err.Error()})
		return
	}
	// The restored version adopts this result; see queue.Adopt.
	d.finish(r.ID, queue.Result{Message: "rollback is under way"})
}

// allowed refuses a rollback by the server, while a version is watched, to a previous version
// that the publishers no longer allow. The watcher restores that version all the same if the
// new one fails.
func (d *daemon) allowed(ctx context.Context, local bool) error {
	m, err := handoff.ReadMarker(d.Disk, d.Top)
	if err != nil || m == nil || local {
		return err
	}
	return d.executor.CheckRollback(ctx, m.From.FullVersion())
}

// requestRollback asks the watcher to roll back.
func (d *daemon) requestRollback(why string) error {
	m, err := handoff.ReadMarker(d.Disk, d.Top)
	if err != nil {
		return err
	}
	if m == nil || d.Running != m.To {
		return errors.New("the previous version is being restored already")
	}
	d.log.Info("the watcher is asked to roll back", "to", m.From.String(), "why", why)
	return handoff.WriteRequest(d.Disk, d.Top, handoff.Request{ToHome: m.To.Home, Why: why, At: time.Now().UTC()})
}
