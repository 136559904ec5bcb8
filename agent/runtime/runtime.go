// Package runtime defines how an agent runs components: one [Adapter] for each way, such as
// a process of its own, a unit of systemd, or a container. Package primitive acts through
// adapters and does not know which one; package component chooses it by the name in the
// component's signed manifest. The adapters are in the folders below; a new one is a folder
// and an entry in the agent's table.
package runtime

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/runtimes"
)

// Release is one version of a component on a host. Its package is verified and unpacked.
type Release struct {
	// Name is the component's.
	Name string
	// Dir is the component's folder, absolute. The link current in it leads to the home of
	// the installed version, and only package primitive moves it.
	Dir string
	// Home is the folder of this version's package, absolute.
	Home string
	manifest.Identity
	// Component is the signed description.
	Component manifest.Component
	// WithheldAtBoot means that no boot starts it, only Start does: its hosts must not run mixed
	// versions, and one that was away does not know yet which version the others run.
	WithheldAtBoot bool
}

// CurrentLink is the name of the link in the component's folder to the home of the version
// that is installed.
const CurrentLink = "current"

// Current returns the path of the link to the installed version. What an adapter has the
// service manager start is below it, so that going back is one rename.
func (r *Release) Current() string { return filepath.Join(r.Dir, CurrentLink) }

// DecodeSettings decodes the settings of the manifest into v, strictly: a key that v lacks is
// an error which names those that v has. See [runtimes.Decode].
func (r *Release) DecodeSettings(v any) error {
	if err := runtimes.Decode(&r.Component, v); err != nil {
		return fmt.Errorf("component %s: %w", r.Name, err)
	}
	return nil
}

// Status is what runs.
type Status struct {
	Running bool
	// Waits means that it has ended by itself, and the runtime is about to start it again.
	Waits bool
	// Stopped means that it does not run because somebody has stopped it, or it has ended in order and is
	// not started again: it has not failed.
	Stopped bool
	// Ready means that it has started completely, as far as the runtime knows.
	Ready bool
	// Home is that of the release which runs, or is to run; empty if the runtime does not
	// know.
	Home string
	PID  int
	// Since is when it was started, zero if it does not run.
	Since time.Time
	// Restarts counts the restarts that nobody asked for, since the runtime began to count.
	Restarts int
	// Ended says how it ended the last time that it did by itself, as far as the runtime knows.
	Ended string
	// Message says why it does not run, or what is wrong.
	Message string
}

var (
	// ErrUnavailable is wrapped by errors that say that the host lacks the runtime: no
	// D-Bus, no Docker engine, no rights. Nothing has been changed.
	ErrUnavailable = errors.New("this host cannot run it")
	// ErrRefused is wrapped by errors that say that the runtime has answered, and does not understand this
	// agent, or the agent it.
	ErrRefused = errors.New("the runtime and this agent do not understand each other")
	// ErrTransient is wrapped by errors after which the same call may succeed later.
	ErrTransient = errors.New("may succeed later")
)

// Adapter runs components in one way. Calls for one component do not overlap, those for
// different components do. Every call may be repeated, also after a crash in the middle of
// an earlier one, and returns when ctx ends.
type Adapter interface {
	// Check returns an error if this host cannot run the release: invalid settings, a unit
	// that does not exist, no engine, no rights. It changes nothing, and is called before
	// anything is.
	Check(ctx context.Context, r *Release) error

	// Acquire fetches what the release needs besides its package, such as an image. report
	// gets the progress from 0 to 100. Discard removes what only this release needs.
	Acquire(ctx context.Context, r *Release, report func(percent float64)) error
	Acquired(ctx context.Context, r *Release) (bool, error)
	Discard(ctx context.Context, r *Release) error
	// Verify returns an error unless what was acquired is what the manifest names.
	Verify(ctx context.Context, r *Release) error

	// Backup writes what Restore needs beside the packages into the folder dir, which
	// exists, for the release that is installed now.
	Backup(ctx context.Context, r *Release, dir string) error

	// Status returns what runs. A component that was never installed does not run; that is
	// no error.
	Status(ctx context.Context, r *Release) (Status, error)

	// Stop stops the component and waits for its end, with all of its children. That it
	// does not run is no error. What Install has made is not started before Start is called,
	// also not by a boot: the component's state may have the form of neither version. Start
	// starts the installed release and returns when the runtime has started it; its health is
	// for the caller to observe. A release that is WithheldAtBoot and that Start has started is
	// started again when it ends by itself, and after a boot only by another Start.
	Stop(ctx context.Context, r *Release) error
	Start(ctx context.Context, r *Release) error

	// Install makes to what Start starts. from is the release that was installed, nil if
	// none was. The component is stopped. Restore undoes an Install that was complete,
	// partial or not begun; dir is the folder of Backup. After both the link current leads
	// to what is installed.
	Install(ctx context.Context, to, from *Release) error
	Installed(ctx context.Context, to *Release) (bool, error)
	Restore(ctx context.Context, to, from *Release, dir string) error
	// Keep removes what only Restore needs, once the release stays.
	Keep(ctx context.Context, to, from *Release) error

	// ReloadDaemon has the service manager read its definitions again, if it has any and
	// that of the installed release r has changed since it has read it: on some hosts that
	// takes longer than a restart.
	ReloadDaemon(ctx context.Context, r *Release) error
	// Reload has the running component read its configuration again.
	Reload(ctx context.Context, r *Release) error

	// Remove stops the component and removes what Install made outside Dir.
	Remove(ctx context.Context, r *Release) error

	// Logs returns the last lines of the component's output, oldest first.
	Logs(ctx context.Context, r *Release, lines int) ([]string, error)
}

// Printer is an Adapter whose Logs also have what its service manager says.
type Printer interface {
	Adapter
	// Output is Logs without that.
	Output(ctx context.Context, r *Release, lines int) ([]string, error)
}

// Supervisor is an Adapter that supervises its components itself, so that they depend on an
// agent that runs.
type Supervisor interface {
	Adapter
	// Resume takes up the supervision of a component by the release that is installed: it
	// adopts what runs, or starts what was to run unless it is WithheldAtBoot.
	Resume(ctx context.Context, r *Release) error
	// Detach ends all supervision, and leaves what runs.
	Detach()
}
