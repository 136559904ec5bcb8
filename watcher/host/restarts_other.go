//go:build !linux

package host

import "github.com/muster-fleet/muster/watcher/watch"

// restartCount is 0 without systemd, so that only the samples count.
type restartCount struct{}

func (*restartCount) count(string, watch.Process) int { return 0 }
