package request

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// ErrSettings is the failure of an agent that cannot read its configuration or its identity. Whoever
// administers the host must correct them: a retry would not help, and another version neither.
var ErrSettings = errors.New("the settings of this host are not valid: correct them and upgrade again")

// Failure is the error of a request that was not carried out. The host is as before, unless it is
// Broken.
type Failure struct {
	// State is the phase and Step the step in which it failed.
	State agentapi.UpgradeState
	Step  string
	Err   error
	// Transient means that the same request may succeed later.
	Transient bool
	// Broken means that it could not be undone. If it is also Transient, another try may undo it.
	Broken bool
	// Lockstep is how far an upgrade in lockstep was.
	Lockstep *agentapi.LockstepReport
}

func (f *Failure) Error() string { return f.Err.Error() }
func (f *Failure) Unwrap() error { return f.Err }

// Details are what is reported of r once it is not tried again.
func (f *Failure) Details(r Request) agentapi.UpgradeDetails {
	return agentapi.UpgradeDetails{
		TargetVersion: r.Version, ActionID: r.ActionID, State: agentapi.UpgradeFailed,
		Metadata: agentapi.UpgradeMetadata{FailedState: f.State, ErrorMsg: f.Error(), ReasonCode: f.code(), Lockstep: f.Lockstep},
	}
}

// code returns the code of a failure that says more than the phase it has ended; empty: the phase
// says it all.
func (f *Failure) code() string {
	var own interface{ ReasonCode() string } // what the version has shown
	switch err := f.Err; {
	case f.Broken:
		return agentapi.FailedRollback
	case errors.As(err, &own):
		return own.ReasonCode()
	case errors.Is(err, disk.ErrNoSpace), disk.IsFull(err):
		return agentapi.ReasonNoSpace
	case errors.Is(err, trust.ErrUntrusted), errors.Is(err, download.ErrContent), errors.Is(err, trust.ErrNoPublisher):
		return agentapi.ReasonUntrusted
	case errors.Is(err, ErrSettings):
		return agentapi.ReasonSettings
	}
	return ""
}

// Later marks err as one that a retry may not meet again.
func Later(err error) error {
	if err == nil {
		return nil
	}
	return &later{err}
}

type later struct{ err error }

func (e *later) Error() string { return e.err.Error() }
func (e *later) Unwrap() error { return e.err }

// Transient reports whether the same request may succeed after err: the network, the server, a full or
// busy disk, a runtime that is being restarted, what is marked with [Later]. otherwise is the answer if
// that depends on the step.
func Transient(err error, otherwise bool) bool {
	var refused *install.RefusedError
	var onDisk *disk.Error
	var marked *later
	switch {
	case errors.Is(err, steps.ErrCancelled):
		return false
	case errors.Is(err, runtime.ErrTransient): // first, since the socket of an engine that is stopped does not exist
		return true
	case errors.Is(err, ErrSettings), errors.As(err, &refused), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		errors.Is(err, fs.ErrNotExist): // a file that is missing in the package
		return false
	case errors.Is(err, disk.ErrNoSpace), errors.Is(err, trust.ErrTransient), download.Transient(err), errors.As(err, &marked), errors.As(err, &onDisk),
		errors.Is(err, syscall.EIO), disk.IsFull(err): // of an open file, which has no label
		return true
	}
	return otherwise
}
