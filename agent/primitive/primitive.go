// Package primitive has the actions by which a component is upgraded, one file each, as steps for
// package steps. They say what happens; an adapter of package runtime says how. The same actions
// install a component, upgrade it, go back to a version that the host has kept, and write only
// its configuration. Eight are part of each change; five more are there for components whose
// packages have hooks, state paths or migrations, and another five for changes in lockstep with
// other hosts, which wait for the server between their phases. Package component puts them in order, adds the
// observation of the new version's health, and keeps what they need.
//
// Each action may be repeated, and has an undo that restores the state before it from the
// journal and the host alone, whether the action was complete, partial or not begun.
package primitive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// Names of the actions in journals and messages. Journals hold them, so they never change.
const (
	BackupState     = "backup_state"
	AcquireArtifact = "acquire_artifact"
	VerifyArtifact  = "verify_artifact"
	VerifyAgain     = "verify_again"
	DrainNode       = "drain_node"
	StopNode        = "stop_node"
	BackupData      = "backup_data"
	MigrateDown     = "migrate_down"
	InstallArtifact = "install_artifact"
	WriteConfigs    = "write_configs"
	ReloadDaemon    = "reload_daemon"
	MigrateUp       = "migrate_up"
	StartNode       = "start_node"
	UndrainNode     = "undrain_node"
)

// Timeouts of the actions.
const (
	backupTimeout  = time.Minute      // configuration files and a description: kilobytes
	acquireTimeout = 5 * time.Minute  // a try; the next one continues the download
	verifyTimeout  = 30 * time.Second // reads what was unpacked once
	StopTimeout    = time.Minute      // a service that writes its state before it ends
	installTimeout = 30 * time.Second // renames, or a container that is created
	writeTimeout   = 30 * time.Second // kilobytes, synced
	reloadTimeout  = 10 * time.Second // systemd reads its units again
	startTimeout   = 30 * time.Second // until the runtime has started it; its health comes later

	// dataTimeout bounds the copy of the component's state, or the return to it: at 100 MB/s
	// some 300 GB. More is for the hook backup, which can make a snapshot.
	dataTimeout = time.Hour
	// Hooks have their own timeouts besides.
	drainTimeout   = manifest.MaxHookTimeout + time.Minute
	undrainTimeout = manifest.MaxHookTimeout + time.Minute
	saveTimeout    = manifest.MaxHookTimeout + dataTimeout
	// migrateTimeout is a day, for years of migrations one after the other.
	migrateTimeout = 24 * time.Hour
)

// discardTimeout bounds the removal of what was fetched: an image of gigabytes, or an engine
// that does not answer.
const discardTimeout = time.Minute

// Phases are the phases that are reported during the actions.
var phases = map[string]string{
	BackupState: agentapi.PhasePreparing, AcquireArtifact: agentapi.PhasePreparing, VerifyArtifact: agentapi.PhasePreparing,
	DrainNode:   agentapi.PhasePreparing,
	StopNode:    agentapi.PhaseStopped,
	BackupData:  agentapi.PhaseStopped,
	MigrateDown: agentapi.PhaseMutating, MigrateUp: agentapi.PhaseMutating,
	InstallArtifact: agentapi.PhaseMutating, WriteConfigs: agentapi.PhaseMutating, ReloadDaemon: agentapi.PhaseMutating,
	StartNode: agentapi.PhaseStarting, UndrainNode: agentapi.PhaseStarting,
	VerifyAgain: agentapi.PhaseStopped,

	Await(agentapi.LockstepStop):   agentapi.PhasePreparing,
	Await(agentapi.LockstepBackup): agentapi.PhaseStopped,
	Await(agentapi.LockstepSwitch): agentapi.PhaseStopped,
	Await(agentapi.LockstepStart):  agentapi.PhaseMutating,
}

// Phase returns the phase that is reported during an action.
func Phase(action string) string { return phases[action] }

// Desired is what an upgrade is to reach.
type Desired struct {
	// ID identifies the upgrade on the host.
	ID        string `json:"id"`
	Component string `json:"component"`
	// Runtime is the adapter's name.
	Runtime string `json:"runtime"`
	Version string `json:"version"` // full
	// SourceURI is a source of the package, or empty.
	SourceURI string `json:"source_uri,omitempty"`
	// Checksum and Image pin the artifact; see agentapi.ComponentData.
	Checksum string `json:"checksum,omitempty"`
	Image    string `json:"image,omitempty"`
	// Files are the files that the server has rendered; nil: only the package's own.
	Files []agentapi.RenderedFile `json:"files,omitempty"`
	// Rollback goes back to a version that the host has kept, with its configuration.
	Rollback bool `json:"rollback,omitempty"`
	// Migration is what the version does to the component's state; see agentapi.ComponentData.
	Migration string `json:"migration,omitempty"`
	// ServerConfig: the component's policy lets the server render configuration.
	ServerConfig bool `json:"server_config,omitempty"`
	// WithheldAtBoot is that of the version; see runtime.Release.
	WithheldAtBoot bool `json:"held_at_boot,omitempty"`
}

// Installed is a version that is on the host.
type Installed struct {
	manifest.Identity
	Home string `json:"home"` // below the component's folder
	// Archive identifies the bytes that it was unpacked from; see trust.Expectation.
	Archive string `json:"archive,omitempty"`
	Image   string `json:"image,omitempty"`
	// Files are the paths of the configuration files that were written for it.
	Files []string `json:"files,omitempty"`
	// ConfigSHA256 identifies all of them, RenderedSHA256 those that the server rendered.
	ConfigSHA256   string `json:"config_sha256,omitempty"`
	RenderedSHA256 string `json:"rendered_sha256,omitempty"`
	// WithheldAtBoot is that of the release; see runtime.Release. Only an installation changes it.
	WithheldAtBoot bool `json:"held_at_boot,omitempty"`
}

// Journal is what the actions record.
type Journal struct {
	steps.Progress
	Desired Desired `json:"order"`
	// From is what was installed before; nil: nothing.
	From *Installed `json:"from,omitempty"`
	// To is set by acquire_artifact.
	To Installed `json:"to,omitzero"`
	// Reused means that To was on the host before, so that undoing keeps it.
	Reused bool `json:"reused,omitempty"`
	// Runs means that From ran when the upgrade began, so that it has to run once that is
	// undone.
	Runs bool `json:"runs,omitempty"`
	// Ran means that From was stopped.
	Ran bool `json:"ran,omitempty"`
	// Reload means that the component only reads its configuration again.
	Reload bool `json:"reload,omitempty"`
	// Extras are set by verify_artifact.
	Extras Extras `json:"extras,omitzero"`
	// Lockstep is how far a change in lockstep may go and is; nil: it is none. Until is recorded
	// before a phase begins.
	Lockstep *agentapi.LockstepReport `json:"lockstep,omitempty"`
	// KeepDownload: the upgrade will be tried again.
	KeepDownload bool `json:"keep_download,omitempty"`
}

// Packages fetches packages of components, and what their publishers say about them.
type Packages interface {
	// Expect returns what the publishers say about an archive. sourceURI is the source that
	// Desired names, or empty.
	Expect(ctx context.Context, archive, sourceURI string) (*trust.Expectation, error)
	// Floor returns the lowest version of a component that its publishers still allow, or "".
	Floor(ctx context.Context, component string) string
	// Fetch downloads it into a folder, and continues an earlier download.
	Fetch(ctx context.Context, dir, archive, sourceURI string, want download.Want, report func(download.Progress)) error
}

// Change is an upgrade of one component that is under way. All fields are required.
type Change struct {
	Disk     disk.Disk
	Adapter  runtime.Adapter
	Packages Packages
	// Top is the agent's folder, absolute, and Links that of its pointer, empty if that is Top. No
	// configuration file may be in them.
	Top, Links string
	// Dir is the component's folder, absolute.
	Dir          string
	GOOS, GOARCH string
	// OnHost are the versions on the host: those that were installed before, those that are
	// staged, and the installed one.
	OnHost []handoff.Version
	// Allow returns an error if a version must not be installed, by what the publishers say
	// about it; see package component.
	Allow   func(version string, e *trust.Expectation) error
	Journal *Journal
	// Save writes the journal.
	Save func() error
	// Await waits, in a change in lockstep, until a phase may begin, and records that it may.
	Await func(ctx context.Context, phase agentapi.LockstepPhase) error
	// Report gets the progress of an action.
	Report func(agentapi.UpgradeMetadata)
	// Execute runs a program of a package; see check.Execute.
	Execute func(context.Context, check.Program) (status int, err error)
	// Account returns the number of a user or a group; see os/user.
	Account func(user, group string) (disk.Owner, error)
	Log     *slog.Logger
}

// Steps returns all actions in order. Those of hooks are left out where the packages have none, and
// those of lockstep unless the change is one.
func (c *Change) Steps() []steps.Step {
	return c.inLockstep([]steps.Step{
		c.backupState(), c.acquireArtifact(), c.verifyArtifact(), c.drainNode(), c.stopNode(), c.backupData(),
		c.migrateDown(), c.installArtifact(), c.writeConfigs(), c.reloadDaemon(), c.migrateUp(), c.startNode(), c.undrainNode(),
	})
}

// archiveFormat is the format of packages that agents fetch.
const archiveFormat = "tar.gz"

// StageSteps returns the actions that bring a version to the host and change nothing that runs.
func (c *Change) StageSteps() []steps.Step {
	return []steps.Step{c.acquireArtifact(), c.verifyArtifact()}
}

func (c *Change) archive() string {
	o := c.Journal.Desired
	return manifest.ComponentArchiveName(o.Component, o.Version, c.GOOS, c.GOARCH, archiveFormat)
}

func (c *Change) downloads() string { return filepath.Join(c.Dir, "downloads") }

// Backup returns the folder with the backup of an upgrade.
func Backup(dir, upgradeID string) string { return filepath.Join(dir, "backup", folderName(upgradeID)) }

func (c *Change) backup() string { return Backup(c.Dir, c.Journal.Desired.ID) }

// folderName returns a name for any id of an upgrade, which the server chooses.
func folderName(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// release returns a version that is on the host.
func (c *Change) release(i Installed) (*runtime.Release, error) {
	return Release(c.Disk, c.Dir, c.Journal.Desired.Component, i)
}

// Release reads a version of a component that is on the host.
func Release(d disk.Disk, dir, name string, i Installed) (*runtime.Release, error) {
	p, err := install.ReadHome(d, dir, i.Home)
	if err != nil {
		return nil, err
	}
	if p.Component == nil || p.Component.Name != name {
		return nil, fmt.Errorf("%s is no version of component %s", layout.Path(dir, i.Home), name)
	}
	return &runtime.Release{Name: name, Dir: dir, Home: layout.Path(dir, i.Home), Identity: p.Identity(), Component: *p.Component, WithheldAtBoot: i.WithheldAtBoot}, nil
}

// to and from are the two versions. from is nil if none was installed.
func (c *Change) to() (*runtime.Release, error) {
	if c.Journal.To.Home == "" {
		return nil, errors.New("the version is not on the host")
	}
	return c.release(c.Journal.To)
}

func (c *Change) from() (*runtime.Release, error) {
	if c.Journal.From == nil {
		return nil, nil
	}
	return c.release(*c.Journal.From)
}

// undone reports whether the version is no longer on the host. Undoing acquire_artifact has
// removed it then, and before that the later actions were undone.
func (c *Change) undone() bool {
	_, err := c.to()
	return c.Journal.To.Home == "" || missing(err)
}

// both returns the two versions.
func (c *Change) both() (to, from *runtime.Release, err error) {
	if to, err = c.to(); err != nil {
		return nil, nil, err
	}
	from, err = c.from()
	return to, from, err
}

// configOnly reports whether the version stays and only its configuration changes.
func (j *Journal) configOnly() bool { return j.From != nil && j.From.Home == j.To.Home }

// input returns the digest of what the actions work on.
func (c *Change) input() string {
	b, err := json.Marshal(struct {
		Desired Desired `json:"Order"` // its name in journals of unfinished changes
		From    *Installed
		To      Installed
	}{c.Journal.Desired, c.Journal.From, c.Journal.To})
	if err != nil {
		panic("primitive: strings cannot fail to encode: " + err.Error())
	}
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// current returns the home that the component's link leads to, empty if there is none.
func (c *Change) current() (string, error) { return Current(c.Disk, c.Dir) }

// Current returns the home that a component's link leads to, empty if there is none.
func Current(d disk.Disk, dir string) (string, error) {
	target, err := d.Readlink(InstallArtifact, filepath.Join(dir, runtime.CurrentLink))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return filepath.ToSlash(target), err
}

// missing reports whether a file does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) || os.IsNotExist(err) }
