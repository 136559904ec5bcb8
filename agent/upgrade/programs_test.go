package upgrade

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// An upgrade, and its undoing, leave the programs that run where they are: Windows does not let
// them be replaced.
func TestUpgradeReplacesNoProgramThatRuns(t *testing.T) {
	s := newSource(t)
	s.publish(t, "1.1.0", pkg("1.1.0", "bbbbbb"))
	for name, last := range map[string]error{"done": nil, "undone at its last step": errFault} {
		t.Run(name, func(t *testing.T) {
			var running []string
			h := newHost(t, s, simdisk.Windows{Disk: disk.OS{}, Running: func() []string { return running }})
			for _, program := range []string{agentName, watcherName} {
				running = append(running, filepath.Join(h.top, version("1.0.0", "aaaaaa").Home, program))
			}
			before := h.tree(t)
			h.executor.Reexec = func(context.Context, request.Request, string) error { return last }
			if err := h.executor.Upgrade(t.Context(), wanted); !errors.Is(err, last) {
				t.Fatalf("upgrade: %v, want %v", err, last)
			}
			if last == nil {
				if home := h.pointsAt(t); home != version("1.1.0", "bbbbbb").Home {
					t.Errorf("the pointer leads to %s", home)
				}
				return
			}
			sameTree(t, before, h.tree(t))
		})
	}
}

func TestArchivesForWindowsAreZipFiles(t *testing.T) {
	for goos, want := range map[string]string{"windows": "muster-agent-1.1.0-windows-amd64.zip", "linux": "muster-agent-1.1.0-linux-amd64.tar.gz"} {
		if got := (&Executor{GOOS: goos, GOARCH: "amd64"}).archiveName("1.1.0"); got != want {
			t.Errorf("on %s the archive is %s, want %s", goos, got, want)
		}
	}
}
