//go:build !linux

package host

import "github.com/muster-fleet/muster/watcher/watch"

// restartCount: only systemd keeps one, so the samples alone count.
type restartCount struct{}

func (*restartCount) count(string, watch.Process) int { return 0 }
