package doctor

import (
	"context"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/doctor"
)

// A child for the test of a user who may not read the agent's files.
func init() {
	children["TEST_TOP_AS_NOBODY"] = func(top string) any {
		const nobody = 65534
		for _, change := range []func() error{
			func() error { return syscall.Setgroups(nil) },
			func() error { return syscall.Setgid(nobody) },
			func() error { return syscall.Setuid(nobody) },
		} {
			if err := change(); err != nil {
				panic(err)
			}
		}
		h := Host{Disk: disk.OS{}, Top: top, Now: time.Now}
		return doctor.Run(context.Background(), h.Checks())
	}
}
