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
