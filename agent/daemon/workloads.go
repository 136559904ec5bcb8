package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os/user"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/component"
	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/docker"
	"github.com/muster-fleet/muster/agent/runtime/process"
	"github.com/muster-fleet/muster/agent/runtime/systemd"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/probe"
)

func (d *daemon) buildWorkloads() {
	d.workloads = component.New(component.Options{
		Disk: d.Disk, Top: d.Top, Links: d.Links, GOOS: d.GOOS, GOARCH: d.GOARCH, Adapters: d.Runtimes,
		Packages: packages{d}, Check: check.Run, PolicyCheck: d.Config.Checks.Policy().Run, Execute: check.Execute, Account: account, Keep: d.Config.Upgrade.Limits(),
		Changed: func(progress bool) {
			if progress {
				d.changes.Progress()
				return
			}
			d.changes.Urgent()
		},
		Log: d.log,
	})
}

// HostRuntimes returns the runtimes of this machine, by their names in manifests. They connect
// to nothing until a component uses them, and each says of a component why it cannot run it.
func HostRuntimes(d disk.Disk, service string, log *slog.Logger) (map[string]runtime.Adapter, error) {
	containers, err := docker.New(docker.Options{Disk: d})
	return map[string]runtime.Adapter{
		"process": process.New(process.Options{Disk: d, Groups: process.OwnGroup(), Log: log}),
		"systemd": systemd.New(systemd.Options{Disk: d, Agent: service}),
		"docker":  containers,
	}, err
}

// packages fetches packages of components from where the agent's own come from.
type packages struct{ d *daemon }

func (p packages) Expect(ctx context.Context, archive, sourceURI string) (*trust.Expectation, error) {
	if p.d.Trust == nil {
		return nil, fmt.Errorf("%w: enrol this host with --trust-root to let it install components", trust.ErrNoPublisher)
	}
	return p.d.executor.Expect(ctx, archive, sourceURI)
}

func (p packages) Floor(ctx context.Context, component string) string {
	if p.d.Trust == nil {
		return ""
	}
	return p.d.Trust.Floor(ctx, component)
}

func (p packages) Fetch(ctx context.Context, dir, archive, sourceURI string, want download.Want, report func(download.Progress)) error {
	return p.d.executor.Fetch(ctx, dir, archive, sourceURI, want, report)
}

// account returns the numbers of a user and a group, of which one may be empty.
func account(name, group string) (disk.Owner, error) {
	owner := disk.Own
	if name != "" {
		uid, err := strconv.Atoi(name)
		if err != nil {
			u, err := user.Lookup(name)
			if err != nil {
				return owner, fmt.Errorf("owner: %w: create the account, or name another one", err)
			}
			if uid, err = strconv.Atoi(u.Uid); err != nil {
				return owner, fmt.Errorf("owner %s: %w", name, err)
			}
		}
		owner.UID = uid
	}
	if group != "" {
		gid, err := strconv.Atoi(group)
		if err != nil {
			g, err := user.LookupGroup(group)
			if err != nil {
				return owner, fmt.Errorf("group: %w: create the group, or name another one", err)
			}
			if gid, err = strconv.Atoi(g.Gid); err != nil {
				return owner, fmt.Errorf("group %s: %w", group, err)
			}
		}
		owner.GID = gid
	}
	return owner, nil
}

// runWorkloads follows the policy's components and upgrades them, each apart from the others,
// until ctx ends.
func (d *daemon) runWorkloads(ctx context.Context) {
	var parts sync.WaitGroup
	defer parts.Wait()
	parts.Go(func() { d.workloads.Run(ctx) })
	var followed []agentapi.PolicyComponent
	busy := map[string]bool{}
	ended := make(chan string)
	answered := d.answered
	for ctx.Err() == nil {
		changed := d.queue.Changed()
		// Before the policy is read: the answer was stored with the policy that it had.
		confirmed := false
		select {
		case <-answered:
			confirmed, answered = true, nil
		default:
		}
		if list := d.queue.Settings().Components; !reflect.DeepEqual(list, followed) {
			if err := d.workloads.Follow(ctx, list); err != nil {
				d.log.Error("not every component of the policy is followed", "error", err)
			}
			followed = list
			for _, r := range d.workloads.Interrupted() {
				d.beginAgain(r)
			}
		}
		if confirmed {
			d.workloads.Confirmed()
		}
		again := time.Now().Add(time.Hour)
		names := d.queue.Components()
		d.workloads.CalledOff(names)
		for _, i := range d.queue.Lockstep() {
			d.workloads.Proceed(i.Component(), i.Action.ID, i.Until, i.Undo)
		}
		for _, name := range names {
			if name == "" || busy[name] {
				continue
			}
			item, next := d.due(ctx, name)
			if item == nil {
				if !next.IsZero() && next.Before(again) {
					again = next
				}
				continue
			}
			busy[name] = true
			parts.Go(func() {
				if !d.carryOut(ctx, *item) {
					_ = backoff.Sleep(ctx, queueRetry)
				}
				select {
				case ended <- name:
				case <-ctx.Done():
				}
			})
		}
		timer := time.NewTimer(time.Until(again))
		select {
		case <-changed:
		case <-answered:
		case name := <-ended:
			delete(busy, name)
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// cancelUpgrade stops the running upgrade or stage of an action, whosever it is.
func (d *daemon) cancelUpgrade(id, why string) bool {
	return d.cancelStage(id) || d.workloads.Cancel(id, why) || d.executor.Cancel(id, why)
}

// workloadHealth returns the components for the control socket.
func (d *daemon) workloadHealth() []probe.Workload {
	reports := d.workloads.Reports()
	out := make([]probe.Workload, 0, len(reports))
	for _, r := range reports {
		w := probe.Workload{
			Name: r.Name, Runtime: r.Runtime, Version: r.Version, State: probe.State(strings.ToLower(r.Status)), Message: r.Message,
			LastHealthyVersion: r.LastHealthyVersion, Rollbacks: r.Rollbacks, Restarts: r.Restarts, Since: r.Since,
			ManagedBy: managedBy(r.Runtime), Folder: filepath.Join(d.Top, component.FolderName, r.Name),
		}
		w.Upgrade, w.Staging = probed(r.UpgradeDetails), probed(d.workloads.Staging(r.Name))
		w.Versions, w.FailedSince = d.workloads.Versions(r.Name), d.workloads.FailedSince(r.Name)
		out = append(out, w)
	}
	return out
}

// managedBy says who restarts a component when it ends.
func managedBy(runtime string) string {
	if runtime == "process" {
		return "muster-agent"
	}
	return runtime
}

// releaseComponent lets an upgrade in lockstep that waits for the server go on, or undoes it, or
// starts a component whose start is withheld.
func (d *daemon) releaseComponent(req probe.ReleaseRequest) error {
	if err := d.workloads.Known(req.Component); err != nil {
		return err
	}
	upgraded := slices.ContainsFunc(d.queue.Lockstep(), func(i queue.Item) bool { return i.Component() == req.Component })
	if !upgraded && !req.Undo && d.workloads.IsWithheld(req.Component) {
		ctx, cancel := context.WithTimeout(context.Background(), removeTimeout)
		defer cancel()
		if err := d.workloads.ReleaseWithheld(ctx, req.Component); err != nil {
			return err
		}
		d.log.Warn("a component whose start was withheld was released on this host", "component", req.Component)
		return nil
	}
	if err := d.queue.Release(req.Component, req.Undo); err != nil {
		return err
	}
	d.log.Warn("an upgrade in lockstep was released on this host", "component", req.Component, "undo", req.Undo)
	return nil
}
