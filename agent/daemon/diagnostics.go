package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/diagnostics"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// diagnose collects and sends the diagnostics that the server requests, one request at a
// time, until ctx ends. A request that the end interrupts is carried out after the restart.
func (d *daemon) diagnose(ctx context.Context) {
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		a := d.queue.Diagnostics()
		if a == nil {
			select {
			case <-changed:
			case <-ctx.Done():
			}
			continue
		}
		r := d.sendDiagnostics(ctx, *a)
		if ctx.Err() != nil {
			return
		}
		if err := d.queue.Finish(a.ID, r, time.Now()); err != nil {
			d.log.Error("the queue cannot be written", "error", err, "again_in", queueRetry.String())
			_ = backoff.Sleep(ctx, queueRetry) // the loop ends with ctx
		}
	}
}

func (d *daemon) sendDiagnostics(ctx context.Context, a agentapi.Action) queue.Result {
	now := time.Now()
	if a.Expiration != nil && now.After(*a.Expiration) {
		return queue.Result{Error: "the request expired at " + a.Expiration.UTC().Format(time.RFC3339)}
	}
	var b bytes.Buffer
	s := diagnostics.Source{Disk: d.Disk, Top: d.Top, Version: d.description(), Health: d.health(), Goroutines: true, Key: d.Identity.APIKey, Now: now}
	if err := s.Collect(&b); err != nil {
		return queue.Result{Error: fmt.Sprintf("the diagnostics could not be collected: %v", err)}
	}
	id, err := d.client().Upload(ctx, a.ID, diagnostics.FileName(now), b.Bytes())
	if err != nil {
		d.log.Warn("the diagnostics were not sent", "action", a.ID, "error", err)
		return queue.Result{Error: fmt.Sprintf("the diagnostics could not be sent: %v", err)}
	}
	d.log.Info("diagnostics sent", "action", a.ID, "upload", id, "bytes", b.Len())
	data, err := json.Marshal(agentapi.DiagnosticsAck{UploadID: id})
	if err != nil {
		panic("diagnostics: a string cannot fail to encode: " + err.Error())
	}
	return queue.Result{Message: "diagnostics sent", Data: data}
}

// description returns what is known of the running version and of the host.
func (d *daemon) description() any {
	return map[string]any{
		"version": d.Running.FullVersion(), "build": d.Running.Identity.String(), "home": d.Running.Home, "top": d.Top,
		"os": d.GOOS, "arch": d.GOARCH, "service": d.Service, "host": d.Host, "server": d.client().Address(),
	}
}
