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

// systemctlTimeout bounds one question to systemd, which answers in
// milliseconds; a second keeps the watch's own pace.
const systemctlTimeout = time.Second

// restartCount follows systemd's own count of the service's restarts, which sees
// the crashes of a program that ends before it takes its lock. Elsewhere, or
// when systemd does not answer, it stays 0 and the samples alone count.
type restartCount struct {
	known  bool
	last   int
	sum    int
	daemon func(name string) (int, bool) // nil: systemctl
}

// count is asked at every look, and asks systemd only at the first and while no
// process is seen: at no other time can the count have grown unseen.
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
	// The count starts anew when the service is started by hand.
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
