package process

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/agent/runtime"
)

func supported() error { return nil }

// bootID identifies the boot of the host.
func bootID() string {
	id, err := unix.Sysctl("kern.bootsessionuuid")
	if err != nil {
		return ""
	}
	return id
}

// zombie is SZOMB of sys/proc.h.
const zombie = 5

// find returns a process, also one that waits to be collected.
func find(pid int) (processInfo, error) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return processInfo{}, err
	}
	return info(p), nil
}

func info(p *unix.KinfoProc) processInfo {
	return processInfo{
		identity: identity{
			PID: int(p.Proc.P_pid), Boot: bootID(),
			Start: fmt.Sprintf("%d.%06d", p.Proc.P_starttime.Sec, p.Proc.P_starttime.Usec),
		},
		group: int(p.Eproc.Pgid), ended: p.Proc.P_stat == zombie,
	}
}

// members returns the processes of a run that have not ended: those in the program's
// process group, while the program is there or waits to be collected. The system does not
// show the environment of processes.
func members(rec record) ([]identity, error) {
	if rec.Process == nil {
		return nil, nil
	}
	if p, err := find(rec.Process.PID); err != nil || p.identity != *rec.Process {
		return nil, nil //nolint:nilerr // there is no such process
	}
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	var out []identity
	for i := range list {
		if p := info(&list[i]); p.group == rec.Process.PID && !p.ended && p.PID != os.Getpid() {
			out = append(out, p.identity)
		}
	}
	return out, nil
}

// awaitChild returns false: a child cannot be awaited without being collected, which frees
// its id while its group is still to be ended. It is looked for every second instead.
func awaitChild(int) bool { return false }

// OwnGroup returns "": there are no control groups.
func OwnGroup() string { return "" }

func groupFolder(string, *runtime.Release) string { return "" }

func joinGroup(string, int) error { return nil }

func removeGroup(string) bool { return true }
