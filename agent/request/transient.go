package request

import (
	"errors"
	"io/fs"
	"syscall"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

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

// Transient reports whether the same request may succeed after err: what is marked with [Later], and
// a full or busy disk. It is not known of an error that depends on the step, or on who is asked.
func Transient(err error) (transient, known bool) {
	var refused *install.RefusedError
	var onDisk *disk.Error
	var marked *later
	switch {
	case errors.Is(err, steps.ErrCancelled), errors.As(err, &refused), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS),
		errors.Is(err, fs.ErrNotExist): // a file that is missing in the package
		return false, true
	case errors.Is(err, install.ErrNoSpace), errors.Is(err, trust.ErrTransient), errors.As(err, &marked), errors.As(err, &onDisk),
		errors.Is(err, syscall.EIO), errors.Is(err, syscall.ENOSPC): // of an open file, which has no label
		return true, true
	}
	return false, false
}
