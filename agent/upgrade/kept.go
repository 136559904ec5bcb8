package upgrade

import (
	"context"
	"fmt"
	"path"
	"time"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/install"
	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const opKept = "kept version"

// Previous is the previous version, which the host can be rolled back to.
type Previous struct {
	handoff.Install
	ValidUntil time.Time
	// Problem is why the version cannot be started; empty if it can.
	Problem string

	checks []manifest.Check
}

// Previous returns the previous version, or nil if none is on the host. It checks that the
// version's files are intact and its program starts. It does not read the files of the
// version intact, which the caller has seen to be intact: a version may have gigabytes.
func (e *Executor) Previous(ctx context.Context, intact handoff.Install) (*Previous, error) {
	p := e.recorded()
	if p == nil {
		return nil, nil
	}
	var err error
	k := &Previous{Install: p.Install, ValidUntil: p.ReplacedAt.Add(e.RollbackWindow)}
	if k.checks, err = e.ready(ctx, p.Install, p.Install == intact); err != nil {
		k.Problem = err.Error()
	}
	return k, nil
}

// recorded returns the record of the previous version, or nil.
func (e *Executor) recorded() *handoff.Previous {
	p, err := handoff.ReadPrevious(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable record of the previous version is ignored", "error", err)
	}
	if p == nil || p.Home == e.Running.Home {
		return nil
	}
	return p
}

// ready returns an error if the version cannot be started, and otherwise the checks in
// its manifest.
func (e *Executor) ready(ctx context.Context, v handoff.Install, intact bool) ([]manifest.Check, error) {
	p, err := install.ReadHome(e.Disk, e.Top, v.Home)
	if err == nil && !intact {
		err = install.CheckDigests(ctx, e.Disk, e.Top, v.Home)
	}
	if err != nil {
		return nil, err
	}
	if p.Identity() != v.Identity {
		return nil, fmt.Errorf("%s holds %s, not %s", v.Home, p.Identity(), v.Identity)
	}
	if err := e.executable(v.Home, agentName); err != nil {
		return nil, err
	}
	if e.Startable == nil {
		return p.Checks, nil
	}
	ctx, cancel := context.WithTimeout(ctx, HandshakeTimeout)
	defer cancel()
	return p.Checks, e.Startable(ctx, e.path(path.Join(v.Home, agentName)))
}

// executable returns an error unless the program in a home is executable.
func (e *Executor) executable(home, program string) error {
	fi, err := e.Disk.Lstat(opKept, e.path(path.Join(home, program)))
	if err != nil {
		return fmt.Errorf("package has no program %s: %w", program, err)
	}
	// On Windows the name determines whether a file is executable.
	may := fi.Mode().Perm()&0o111 != 0 || e.GOOS == "windows"
	if !fi.Mode().IsRegular() || !may {
		return fmt.Errorf("%s of the package cannot be executed", program)
	}
	return nil
}

// DropPrevious removes the previous version when its window is over. It does nothing while
// an upgrade is watched, since the watcher may need the version.
func (e *Executor) DropPrevious(now time.Time) error {
	p, err := handoff.ReadPrevious(e.Disk, e.Top)
	if e.marker() != nil || p == nil || err != nil || p.Home == e.Running.Home || now.Before(p.ReplacedAt.Add(e.RollbackWindow)) {
		return nil
	}
	e.log().Info("the previous version is removed: its rollback window is over", "version", p.Identity.String(), "replaced_at", p.ReplacedAt)
	// The home goes first: without its record it would stay until the next upgrade
	// is committed.
	if err := disk.RemoveHome(e.Disk, e.Top, p.Home); err != nil {
		return err
	}
	return handoff.RemovePrevious(e.Disk, e.Top)
}
