//go:build unix

package disk

import (
	"errors"
	"syscall"
)

// IsFull says whether an operation failed for want of room: bytes, a quota, or
// the number of files.
func IsFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
