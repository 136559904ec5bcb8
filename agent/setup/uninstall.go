package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/probe"
)

// reportTimeout bounds the report of the removal to the server.
const reportTimeout = 5 * time.Second

// Removal describes the agent to uninstall.
type Removal struct {
	Disk     disk.Disk
	Top      string
	Services Services
	// Lock acquires a lock file, as daemon.Options.Lock does.
	Lock func(path, content string) (release func() error, err error)
	// Running is the version that is reported to the server.
	Running manifest.Identity
	// Components removes the components that depend on the agent, and returns the names of
	// the others.
	Components func(context.Context) (left []string, err error)
}

// Removed is the result of a removal.
type Removed struct {
	// ReportErr is why the removal could not be reported to the server; it does
	// not fail the removal.
	ReportErr error
	// Left are names in the top folder that are not part of the installation.
	Left []string
	// Settings are the files beside the pointer that stay, if it was not in the top folder.
	Settings []string
	// Components are what goes on without the agent; it needs the folder with their files.
	Components []string
}

// Run stops and removes the agent under r.Top.
func (r Removal) Run(ctx context.Context) (Removed, error) {
	var out Removed
	if _, err := r.Disk.Lstat("uninstall", layout.Path(r.Top, layout.AgentLink)); errors.Is(err, fs.ErrNotExist) {
		return out, fmt.Errorf("no agent is installed in %s: say where with --top", r.Top)
	} else if err != nil {
		return out, err
	}
	roots, err := disk.FindRoots(r.Disk, r.Top)
	if err != nil {
		return out, err
	}
	// A watcher could start the agent during the removal.
	if err := r.refuseLocked(layout.WatcherLockFile, "an upgrade is being watched: uninstall when it is over (see muster-agent status)"); err != nil {
		return out, err
	}
	if err := r.stopService(roots); err != nil {
		return out, err
	}
	if err := r.refuseLocked(layout.AgentLockFile, "the agent is running: stop it first"); err != nil {
		return out, err
	}
	if out.Components, err = r.Components(ctx); err != nil {
		return out, err
	}
	out.ReportErr = r.reportRemoval(ctx)
	if err := leaveHome(r.Top); err != nil {
		return out, err
	}
	if err := errors.Join(removeInstalled(r.Disk, roots), identity.EndEnrollment(r.Disk, r.Top)); err != nil {
		return out, err
	}
	if roots.Links != "" {
		if out.Settings, err = removeSettings(r.Disk, roots); err != nil {
			return out, err
		}
	}
	entries, err := r.Disk.ReadDir("uninstall", r.Top)
	if err != nil {
		return out, err
	}
	if len(entries) == 0 {
		return out, r.Disk.Remove("uninstall", r.Top)
	}
	for _, e := range entries {
		out.Left = append(out.Left, e.Name())
	}
	return out, nil
}

func (r Removal) refuseLocked(file, why string) error {
	release, err := r.Lock(layout.Path(r.Top, file), "")
	if errors.Is(err, daemon.ErrLocked) {
		return fmt.Errorf("%s: %w", why, err)
	}
	if err != nil {
		return err
	}
	return release()
}

func (r Removal) stopService(roots layout.Roots) error {
	data, err := r.Disk.ReadFile("uninstall", layout.Path(r.Top, layout.ServiceFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	name := strings.TrimSpace(string(data))
	if err := r.Services.Remove(name, roots); err != nil {
		return fmt.Errorf("remove service %s: %w", name, err)
	}
	return r.waitStopped()
}

// waitStopped waits for the process of a stopped service to exit.
func (r Removal) waitStopped() error {
	client := probe.Client{Dial: probe.DialSocket(r.Top)}
	for end := time.Now().Add(daemon.StopTimeout + time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if _, err := client.Health(context.Background()); errors.Is(err, probe.ErrNotRunning) {
			return nil
		}
	}
	return nil // the lock decides
}

func (r Removal) reportRemoval(ctx context.Context) error {
	id, err := identity.Load(r.Disk, r.Top)
	if errors.Is(err, identity.ErrNotEnrolled) {
		return nil
	}
	if err != nil {
		return err
	}
	cfg, _ := config.Effective(r.Disk, r.Top) // with a broken file, the last valid one
	client, err := (gateway.Trust{CAPEM: id.CAPEM, Fingerprint: id.CAFingerprint, Network: cfg.Network}).HTTPClient(id.ServerURL)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	g := &gateway.Client{
		HTTP: client, URL: id.ServerURL, AgentID: id.AgentID, APIKey: id.APIKey,
		Version: r.Running.FullVersion(),
	}
	return g.Uninstalled(ctx, time.Now())
}
