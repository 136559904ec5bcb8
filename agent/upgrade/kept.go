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

// Kept is the version a host could go back to.
type Kept struct {
	handoff.Install
	ValidUntil time.Time
	// Problem is why it could not be started; empty when it is ready.
	Problem string

	checks []manifest.Check
}

// Kept finds the version that was replaced last, and looks whether it is whole
// and starts; nil when none is kept.
func (e *Executor) Kept(ctx context.Context) (*Kept, error) {
	p, err := handoff.ReadPrevious(e.Disk, e.Top)
	if err != nil {
		e.log().Warn("an unreadable record of the kept version is passed over", "error", err)
		return nil, nil
	}
	if p == nil || p.Home == e.Running.Home {
		return nil, nil
	}
	k := &Kept{Install: p.Install, ValidUntil: p.ReplacedAt.Add(e.RollbackWindow)}
	if k.checks, err = e.ready(ctx, p.Install); err != nil {
		k.Problem = err.Error()
	}
	return k, nil
}

// ready says why a version on the host could not be gone back to; its checks come
// from its manifest.
func (e *Executor) ready(ctx context.Context, v handoff.Install) ([]manifest.Check, error) {
	p, err := install.CheckIntact(ctx, e.Disk, e.Top, v.Home)
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

// executable says why a program of a home cannot be run.
func (e *Executor) executable(home, program string) error {
	fi, err := e.Disk.Lstat(opKept, e.path(path.Join(home, program)))
	if err != nil {
		return fmt.Errorf("package has no program %s: %w", program, err)
	}
	// On Windows the name decides what can be executed.
	may := fi.Mode().Perm()&0o111 != 0 || e.GOOS == "windows"
	if !fi.Mode().IsRegular() || !may {
		return fmt.Errorf("%s of the package cannot be executed", program)
	}
	return nil
}

// DropKept removes the kept version once its window is over. It does nothing
// while a switch is watched: the version may be the one to go back to.
func (e *Executor) DropKept(now time.Time) error {
	p, err := handoff.ReadPrevious(e.Disk, e.Top)
	if e.marker() != nil || p == nil || err != nil || p.Home == e.Running.Home || now.Before(p.ReplacedAt.Add(e.RollbackWindow)) {
		return nil
	}
	e.log().Info("the version before is no longer kept", "version", p.Identity.String(), "replaced_at", p.ReplacedAt)
	// The home before the record: a home nobody knows of would stay until the
	// next upgrade is kept.
	if err := disk.RemoveHome(e.Disk, e.Top, p.Home); err != nil {
		return err
	}
	return handoff.RemovePrevious(e.Disk, e.Top)
}
