package process

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestProcessStatusWithAnyNameIsParsed(t *testing.T) {
	const rest = " S 1 42 43 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 50\n"
	for _, name := range []string{"server", "a b", "x) Z 9 9 9 (y", ""} {
		got, err := parseStat("42 (" + name + ")" + rest)
		if err != nil || got.group != 42 || got.session != 43 || got.Start != "987654" || got.ended {
			t.Errorf("%q: %+v, %v", name, got, err)
		}
	}
	for _, bad := range []string{"", "42 (x", "42 (x) S 1", "42 (x) S 1 a 43 0 -1 4 1 0 0 0 1 2 0 0 20 0 1 0 9 1 5"} {
		if got, err := parseStat(bad); err == nil {
			t.Errorf("%q: %+v", bad, got)
		}
	}
}

func TestOwnControlGroupIsFoundInEachLayout(t *testing.T) {
	const (
		unified = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
		mixed   = "35 34 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n36 34 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		part    = "30 24 0:26 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for _, test := range []struct {
		name, mounts, own string
		version           hierarchy
		want              string
	}{
		{"version 2", unified, "0::/system.slice/muster-agent.service\n", version2, "/sys/fs/cgroup/system.slice/muster-agent.service"},
		{"version 2 beside version 1", mixed, "9:name=systemd:/a\n0::/b\n", version2, "/sys/fs/cgroup/unified/b"},
		{"version 1 beside version 2", mixed, "9:name=systemd:/a\n0::/b\n", version1, "/sys/fs/cgroup/systemd/a"},
		{"version 1 alone", unified, "9:name=systemd:/a\n", version2, ""},
		{"a part of the hierarchy", part, "0::/docker/1\n", version2, ""},
	} {
		if got := ownGroup(test.mounts, test.own, test.version); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// The first hierarchy is the one of most hosts; older ones have only the other.
func TestStopEndsTheChildrenInAControlGroupOfVersion1(t *testing.T) {
	testStopEndsChildren(t, requireGroups(func() string { return groupIn(version1) })(t), "session", "hidden")
}

// Between starting a process and recording it, only the environment says whose it is.
func TestAgentKilledWhileItStartsAComponentLeavesNoSecondProcess(t *testing.T) {
	m := newMachine(t)
	m.options.Groups = ""
	r := m.good("web", "1.0.0")
	m.point(r)
	m.removeAfter(r)
	for n := 1; ; n++ {
		d := &dyingDisk{Disk: disk.OS{}}
		a := m.agentOn(d)
		d.left.Store(int64(n))
		err := dyingAgent{a}.Start(t.Context(), r)
		if !d.died.Load() {
			if err != nil || n < 4 {
				t.Errorf("Start makes %d calls: %v", n, err)
			}
			return
		}
		next := m.agent()
		if err := next.Start(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := processesIn(t, r.Home); len(got) != 1 || got[0] != m.status(next, r).PID {
			t.Errorf("killed at call %d: processes %v run, want %d alone", n, got, m.status(next, r).PID)
		}
		if err := next.Stop(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if got := processesIn(t, r.Home); len(got) != 0 {
			t.Errorf("killed at call %d: processes %v run after a stop", n, got)
		}
	}
}

// processesIn returns the processes that run a program of a home.
func processesIn(t *testing.T, home string) []int {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, link := range links {
		if program, err := os.Readlink(link); err == nil && strings.HasPrefix(program, home+"/") {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pid)
		}
	}
	return out
}
