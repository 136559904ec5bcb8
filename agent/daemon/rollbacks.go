package daemon

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

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

// acceptRollback accepts a switch to a version on the host that is requested there. Preflight
// checks the version, which takes longer than the client waits.
func (d *daemon) acceptRollback(req probe.UpgradeRequest) error {
	if d.watched() != nil {
		if before := d.watchedFrom(); req.Version != "" && before != nil && !before.Is(req.Version) {
			return fmt.Errorf("%w: version %s is being watched, and only %s can be rolled back to meanwhile", request.ErrBusy, d.Running.FullVersion(), before.FullVersion())
		}
		return d.requestRollback("Asked for on the host.")
	}
	v, err := d.executor.Find(req.Version)
	switch {
	case err != nil && d.Running.Is(req.Version):
		return fmt.Errorf("version %s already runs here", req.Version)
	case err != nil:
		return err
	}
	req.Version = d.executor.NameOf(v.Install)
	return d.addLocal(req)
}

// forwardRollback asks the watcher for a rollback if one is pending while a version is
// watched.
func (d *daemon) forwardRollback(ctx context.Context) {
	item := d.queue.Waiting("")
	if item == nil || item.Attempts > 0 {
		return
	}
	r := item.Request()
	if !r.Rollback {
		return
	}
	before := d.watchedFrom()
	if before == nil || r.Version != "" && !before.Is(r.Version) {
		return // the rollback has begun already, or the switch is to another version: after the watch
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

// watchedFrom returns the version before this one while this one is watched, or nil.
func (d *daemon) watchedFrom() *handoff.Install {
	m, err := handoff.ReadMarker(d.Disk, d.Top)
	if err != nil || m == nil || d.Running != m.To {
		return nil
	}
	return &m.From
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
