package host

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/watcher/watch"
)

// systemctlTimeout bounds one query to systemd, which answers in milliseconds. It is the
// interval of the samples.
const systemctlTimeout = time.Second

// restartCount follows systemd's count of the service's restarts, which includes crashes of
// a program that ends before it holds its lock. Without systemd, or if it does not answer,
// it stays 0 and only the samples count.
type restartCount struct {
	known  bool
	last   int
	sum    int
	daemon func(name string) (int, bool) // nil: systemctl
}

// count is called at every sample. It queries systemd at the first, and while no process is
// found, since otherwise the count cannot have grown.
func (r *restartCount) count(name string, p watch.Process) int {
	if r.known && p.Alive {
		return r.sum
	}
	ask := r.daemon
	if ask == nil {
		ask = systemdRestarts
	}
	now, ok := ask(name)
	if !ok {
		return r.sum
	}
	// systemd resets the count when the service is started manually.
	if r.known && now > r.last {
		r.sum += now - r.last
	}
	r.known, r.last = true, now
	return r.sum
}

func systemdRestarts(name string) (int, bool) {
	if _, err := os.Stat("/run/systemd/system"); err != nil {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(context.Background(), systemctlTimeout)
	defer cancel()
	out, err := exec.CommandContext(ctx, "systemctl", "show", "--property=NRestarts", "--value", name+".service").Output()
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(out)))
	return n, err == nil
}
