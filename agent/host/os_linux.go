package host

import (
	"os"

	"golang.org/x/sys/unix"
)

func readOS() OS {
	o := OS{Type: "linux", Platform: "linux", Name: "Linux", Family: "linux"}
	for _, file := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if b, err := os.ReadFile(file); err == nil {
			o = ParseOSRelease(b)
			break
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		o.Kernel = unix.ByteSliceToString(u.Release[:])
	}
	return o
}
