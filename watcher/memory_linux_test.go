package main

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// maxRSS bounds a watcher's resident memory in kB, since it runs on every host.
const maxRSS = 12 << 10

// The watcher stays below maxRSS with a beacon over TLS each second and checks of every
// kind.
func TestWatcherUsesLittleMemory(t *testing.T) {
	t.Parallel()
	h, s := newSite(t, nil), newBeaconServer(t)
	h.m.Rules.Grace, h.m.Rules.FailedFor = handoff.Duration(time.Minute), handoff.Duration(time.Second)
	h.m.Rules.Interval = handoff.Duration(200 * time.Millisecond)
	h.m.Rules.Checks = []manifest.Check{{Name: "program", Exec: []string{"/bin/true"}}, {Name: "page", HTTP: s.URL, Threshold: 1000}}
	h.credential(s)
	h.switched()
	cmd := h.watcher(lineWatching)
	h.waitFor("five beacons", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return len(s.beacons) >= 5 })
	kB, err := rss(cmd.Process.Pid)
	h.must(err)
	t.Logf("%d kB resident", kB)
	if kB > maxRSS {
		t.Errorf("%d kB resident, want at most %d", kB, maxRSS)
	}
	h.must(cmd.Process.Kill())
	_ = cmd.Wait()
}
