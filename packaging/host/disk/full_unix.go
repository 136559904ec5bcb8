//go:build unix

package disk

import (
	"errors"
	"syscall"
)

// IsFull reports whether an operation failed because bytes, a quota or inodes ran
// out.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// IsUnwritable reports whether an operation failed because nothing can be written: the disk is full, or
// mounted read-only.
func IsUnwritable(err error) bool { return IsFull(err) || errors.Is(err, syscall.EROFS) }
