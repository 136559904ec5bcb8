package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/upgrade"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

// queueRetry is the wait after the queue could not be written, on a full disk
// say.
const queueRetry = 10 * time.Second

// upgrades runs what is due in the queue, one at a time. While a version is
// being watched everything waits: the server's actions stay in the queue, and if
// the version is rolled back the server sends them again to the one before,
// whose ack token is older.
func (d *daemon) upgrades(ctx context.Context) {
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		if watching := d.watched(); watching != nil {
			select {
			case <-watching:
			case <-ctx.Done():
			}
			continue
		}
		item, again, err := d.queue.Next(time.Now())
		if err != nil {
			d.log.Error("the queue cannot be written", "error", err, "again_in", queueRetry.String())
			again = time.Now().Add(queueRetry)
		}
		if item != nil && err == nil {
			if d.upgradeTo(ctx, *item) {
				continue
			}
			again = time.Now().Add(queueRetry)
		} else {
			d.reportWaiting()
		}
		wait := time.Until(again)
		if again.IsZero() {
			wait = time.Hour
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// reportWaiting says what is scheduled, and takes that back when it no longer
// is.
func (d *daemon) reportWaiting() {
	item := d.queue.Waiting()
	now := d.currentUpgrade()
	if item == nil {
		if now != nil && now.State == agentapi.UpgradeScheduled {
			d.settleStart() // whatever was said before it
		}
		return
	}
	r, err := upgrade.ParseRequest(item.Action.ID, item.ActionID(), item.Action.Data)
	if err != nil {
		return // told when it is due
	}
	if now != nil && now.State == agentapi.UpgradeScheduled && now.ActionID == r.ActionID {
		return
	}
	at := item.Due()
	d.setUpgrade(agentapi.UpgradeDetails{
		TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeScheduled,
		Metadata: agentapi.UpgradeMetadata{ScheduledAt: &at},
	}, false)
}

// upgradeTo runs one upgrade to its end. false means that the queue could not be
// written: nothing was done.
func (d *daemon) upgradeTo(ctx context.Context, item queue.Item) bool {
	r, err := upgrade.ParseRequest(item.Action.ID, item.ActionID(), item.Action.Data)
	switch {
	case item.HandedOver && r.Version == d.fullVersion():
		return d.finish(r.ID, queue.Result{Message: "upgraded to " + r.Version})
	case item.HandedOver:
		err = fmt.Errorf("the host was switched to version %s, but %s runs, and nothing on the host says why", r.Version, d.fullVersion())
	case err == nil && item.Attempts >= queue.MaxAttempts:
		err = fmt.Errorf("given up after it was interrupted %d times", item.Attempts)
	}
	if err != nil {
		return d.finish(r.ID, failed(r, d.executor.Refuse(r, err)))
	}
	if err := d.queue.Begin(r.ID); err != nil {
		d.log.Error("upgrade not begun: the queue cannot be written", "error", err)
		return false
	}
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeRequested}, false)

	// The executor must see why it ends: the agent stopping is no failure.
	work, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(upgrade.ErrStopping) })()
	err = d.executor.Upgrade(work, r)
	switch {
	case err == nil:
		d.stop(ErrReplaced)
		return true
	case errors.Is(err, upgrade.ErrStopping):
		d.log.Info("upgrade interrupted; it begins again when the agent starts", "version", r.Version)
		return true
	}
	return d.finish(r.ID, failed(r, err))
}

func failed(r upgrade.Request, err error) queue.Result {
	return queue.Result{Message: "upgrade to " + r.Version + " failed", Error: err.Error()}
}

// finish ends an action; false if that could not be stored.
func (d *daemon) finish(id string, r queue.Result) bool {
	if id == "" {
		return true
	}
	if err := d.queue.Finish(id, r, time.Now()); err != nil {
		d.log.Error("the result of an action was not stored; it is tried again when the agent starts", "action", id, "error", err)
		return false
	}
	return true
}

// acceptLocal takes an upgrade asked for on the host.
func (d *daemon) acceptLocal(req probe.UpgradeRequest) error {
	if _, err := manifest.ParseVersion(req.Version); err != nil {
		return err
	}
	if req.Version == d.fullVersion() && !d.Running.Snapshot {
		return fmt.Errorf("version %s already runs here", req.Version)
	}
	if d.Identity == nil && req.SourceURI == "" {
		return errors.New("this host is not enrolled, so there is no server to fetch the package from: enrol it, or name a source_uri")
	}
	if d.watched() != nil {
		return fmt.Errorf("%w: version %s is being watched", control.ErrBusy, d.fullVersion())
	}
	if item := d.queue.Waiting(); item != nil {
		return fmt.Errorf("%w: action %s is waiting or running", control.ErrBusy, item.Action.ID)
	}
	data, err := json.Marshal(map[string]any{"version": req.Version, "source_uri": req.SourceURI, "force": req.Force})
	if err != nil {
		return err
	}
	// Said before the upgrade loop can say more, so that whoever asks next does
	// not take an older upgrade's end for this one's.
	before := d.currentUpgrade()
	d.setUpgrade(agentapi.UpgradeDetails{TargetVersion: req.Version, State: agentapi.UpgradeRequested}, false)
	if err := d.queue.AddLocal("local:"+uuid.NewString(), data, time.Now()); err != nil {
		if before != nil {
			d.setUpgrade(*before, false)
		} else {
			d.clearUpgrade()
		}
		return fmt.Errorf("%w: %w", control.ErrBusy, err)
	}
	return nil
}
