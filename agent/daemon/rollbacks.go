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

// keptCheck is how often the kept version is looked at: it is run for a moment,
// and what breaks it, a disk or a person, is rare.
const keptCheck = time.Hour

// watchKept keeps what is said about the version before up to date, and removes
// that version when its time is over.
func (d *daemon) watchKept(ctx context.Context) {
	tick := time.NewTicker(keptCheck)
	defer tick.Stop()
	for {
		watching := d.watched()
		if err := d.executor.DropKept(time.Now()); err != nil {
			d.log.Warn("the version before could not be removed; it is tried again", "error", err, "again_in", keptCheck.String())
		}
		d.lookAtKept(ctx)
		select {
		case <-watching: // nil while nothing is watched
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// lookAtKept finds the version the host could go back to: the one before, as
// long as this one is watched, else the one that is kept.
func (d *daemon) lookAtKept(ctx context.Context) {
	var found []probe.Rollback
	if m, err := handoff.ReadMarker(d.Disk, d.Top); err == nil && m != nil {
		if d.Running == m.To {
			found = append(found, probe.Rollback{Version: m.From.FullVersion(), ValidUntil: m.CreatedAt.Add(d.executor.RollbackWindow)})
		}
	} else if k, err := d.executor.Kept(ctx); err != nil {
		d.log.Warn("cannot tell whether a version is kept", "error", err)
	} else if k != nil {
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
		d.log.Info("this host could go back", "version", r.Version, "valid_until", r.ValidUntil, "problem", r.Problem)
	}
	d.changes.Progress()
}

// knownRollbacks is what lookAtKept found last.
func (d *daemon) knownRollbacks() []probe.Rollback {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rollbacks
}

// offered are the rollbacks the server may ask for.
func offered(all []probe.Rollback) *agentapi.CheckinUpgrade {
	var up agentapi.CheckinUpgrade
	for _, r := range all {
		if r.Problem == "" {
			up.Rollbacks = append(up.Rollbacks, agentapi.Rollback{Version: r.Version, ValidUntil: r.ValidUntil})
		}
	}
	return &up
}

// acceptRollback takes a rollback asked for on the host. Like all that the control
// socket answers it rests on memory: looking at the kept version takes longer than
// who asks waits, and preflight does so anyhow.
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

// askToGoBack looks for a rollback among what waits while a version is watched,
// and has the watcher carry it out.
func (d *daemon) askToGoBack() {
	item := d.queue.Waiting()
	if item == nil || item.Attempts > 0 {
		return
	}
	r, err := upgrade.ParseRequest(item.Action.ID, item.ActionID(), item.Action.Data)
	if err != nil || !r.Rollback {
		return
	}
	if m, err := handoff.ReadMarker(d.Disk, d.Top); err != nil || m == nil || d.Running != m.To {
		return // is being put back already: done when the watch has ended
	}
	if err := d.requestRollback(fmt.Sprintf("Asked for by action %s of the server.", item.Action.ID)); err != nil {
		d.finish(r.ID, queue.Result{Message: "rollback failed", Error: err.Error()})
		return
	}
	// The version that comes back knows that this was answered; see
	// queue.Adopt.
	d.finish(r.ID, queue.Result{Message: "rollback is under way"})
}

// requestRollback has the watcher end its watch by going back.
func (d *daemon) requestRollback(why string) error {
	m, err := handoff.ReadMarker(d.Disk, d.Top)
	if err != nil {
		return err
	}
	if m == nil || d.Running != m.To {
		return errors.New("the version before is being put back already")
	}
	d.log.Info("the watcher is asked to go back", "to", m.From.String(), "why", why)
	return handoff.WriteRequest(d.Disk, d.Top, handoff.Request{ToHome: m.To.Home, Why: why, At: time.Now().UTC()})
}
