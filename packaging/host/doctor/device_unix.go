//go:build unix

package doctor

import (
	"io/fs"
	"syscall"
)

func deviceOf(fi fs.FileInfo) (device uint64, ok bool) {
	s, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return uint64(s.Dev), true //nolint:unconvert // another type on macOS
}

func ownerOf(fi fs.FileInfo) (user uint32, ok bool) {
	s, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return s.Uid, true
}
