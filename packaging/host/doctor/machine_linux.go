package doctor

import (
	"bytes"
	"fmt"

	"golang.org/x/sys/unix"
)

// leastKernel is the oldest Linux that programs of Go 1.26 run on.
var leastKernel = [2]int{3, 2}

// Kernel judges the kernel's version.
func Kernel() Finding {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return Finding{}
	}
	release := string(bytes.TrimRight(u.Release[:], "\x00"))
	machine := string(bytes.TrimRight(u.Machine[:], "\x00"))
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return Doubt("uname -r", "the kernel's version %q is not understood", release)
	}
	if major < leastKernel[0] || major == leastKernel[0] && minor < leastKernel[1] {
		return Bad("upgrade the system", "Linux %s is older than %d.%d", release, leastKernel[0], leastKernel[1])
	}
	return Good("Linux %s on %s", release, machine)
}

// NoExec reports whether programs may be started from a folder.
func NoExec(folder string) Finding {
	var s unix.Statfs_t
	if err := unix.Statfs(folder, &s); err != nil {
		return Finding{}
	}
	if s.Flags&unix.ST_NOEXEC != 0 {
		return Bad("sudo mount -o remount,exec "+mountOf(folder), "no program may be started from %s: its file system is mounted with noexec", folder)
	}
	return Good("programs may be started from %s", folder)
}

// Synchronised reports whether the kernel's clock is kept right by another one.
func Synchronised() Finding {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return Finding{}
	}
	if state == unix.TIME_ERROR || t.Status&unix.STA_UNSYNC != 0 {
		return Doubt("sudo timedatectl set-ntp true", "the clock is not kept right by a time server, as far as the kernel knows")
	}
	return Good("the clock is kept right by a time server")
}
