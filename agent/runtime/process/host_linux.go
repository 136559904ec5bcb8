package process

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/agent/runtime"
)

func supported() error { return nil }

// bootID identifies the boot of the host. Process ids and start times begin again with it.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// find returns a process, also one that waits to be collected.
func find(pid int) (processInfo, error) { return findIn(bootID(), pid) }

func findIn(boot string, pid int) (processInfo, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return processInfo{}, err
	}
	info, err := parseStat(string(b))
	info.PID, info.Boot = pid, boot
	return info, err
}

// Fields of /proc/<pid>/stat, counted from the one after the name; see proc(5).
const (
	statState, statGroup, statSession, statStart = 0, 2, 3, 19
)

// parseStat parses /proc/<pid>/stat. The name of the program, in parentheses, may hold
// spaces and parentheses.
func parseStat(stat string) (processInfo, error) {
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) <= statStart {
		return processInfo{}, fmt.Errorf("unknown format of a process's status: %q", stat)
	}
	group, err := strconv.Atoi(fields[statGroup])
	if err != nil {
		return processInfo{}, err
	}
	session, err := strconv.Atoi(fields[statSession])
	if err != nil {
		return processInfo{}, err
	}
	return processInfo{
		identity: identity{Start: fields[statStart]}, group: group, session: session,
		ended: strings.ContainsAny(fields[statState], "ZXx"),
	}, nil
}

// members returns the processes of a run that have not ended: those in its control group,
// those with its id in their environment, and those in the program's session or group.
//
// The session counts only while the program is there or waits to be collected: later its
// number may be that of another one.
func members(rec record) ([]identity, error) {
	leader, boot := 0, bootID()
	if rec.Process != nil {
		if info, err := findIn(boot, rec.Process.PID); err == nil && info.identity == *rec.Process {
			leader = info.PID
		}
	}
	grouped := groupMembers(rec.Group)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []identity
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		info, err := findIn(boot, pid)
		if err != nil || info.ended {
			continue // it has ended since
		}
		if leader != 0 && (info.session == leader || info.group == leader) || slices.Contains(grouped, pid) || hasRun(pid, rec.Run) {
			out = append(out, info.identity)
		}
	}
	return out, nil
}

// hasRun reports whether the process began with the run in its environment.
func hasRun(pid int, run string) bool {
	if run == "" {
		return false
	}
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	return err == nil && slices.ContainsFunc(bytes.Split(env, []byte{0}), func(v []byte) bool {
		return string(v) == runVariable+"="+run
	})
}

// awaitChild waits until a child has ended, and does not collect it. It returns false if
// the process is not the agent's child.
func awaitChild(pid int) bool {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, syscall.EINTR) {
			return err == nil
		}
	}
}

// OwnGroup returns the folder of this process's control group: that of version 2, or else
// that of the hierarchy in which systemd groups services in version 1. It is "" if the host
// has neither.
func OwnGroup() string { return cmp.Or(groupIn(version2), groupIn(version1)) }

// hierarchy is one of control groups: what begins the line of a process's own group, and
// what its mount has.
type hierarchy struct{ line, kind, option string }

var (
	version2 = hierarchy{"0::", "cgroup2", ""}
	version1 = hierarchy{":name=systemd:", "cgroup", "name=systemd"}
)

// groupIn returns the folder of this process's control group in a hierarchy.
func groupIn(h hierarchy) string {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return ""
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return ""
	}
	return ownGroup(string(mounts), string(own), h)
}

func ownGroup(mountinfo, own string, h hierarchy) string {
	group := ""
	for line := range strings.Lines(own) {
		if _, path, found := strings.Cut(strings.TrimSpace(line), h.line); found {
			group = path
			break
		}
	}
	if group == "" {
		return ""
	}
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		at, kind := strings.Fields(before), strings.Fields(after)
		// A mount of a part of the hierarchy shows other paths.
		if len(at) > 4 && len(kind) > 2 && at[3] == "/" && kind[0] == h.kind &&
			(h.option == "" || slices.Contains(strings.Split(kind[2], ","), h.option)) {
			return filepath.Join(at[4], group)
		}
	}
	return ""
}

// groupFolder returns the folder of the component's control group below groups. Several
// agents on a host may run a component of the same name.
func groupFolder(groups string, r *runtime.Release) string {
	if groups == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(r.Dir))
	return filepath.Join(groups, "muster-"+r.Name+"-"+hex.EncodeToString(sum[:4]))
}

// joinGroup creates a control group and moves a process into it. What the process has
// started before stays outside. The kernel could start a process inside, but the sandbox of
// the agent's unit forbids the call (RestrictNamespaces).
func joinGroup(group string, pid int) error {
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// groupMembers returns the ids of the processes in a control group and those below it.
func groupMembers(group string) []int {
	var out []int
	for _, dir := range groupTree(group) {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue // it was removed since
		}
		for line := range strings.Lines(string(b)) {
			if pid, err := strconv.Atoi(strings.TrimSpace(line)); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
	}
	return out
}

// groupTree returns the folders of a control group and those below it, the deepest first.
func groupTree(group string) []string {
	if group == "" {
		return nil
	}
	var out []string
	// What cannot be read was removed since.
	_ = filepath.WalkDir(group, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() {
			out = append(out, path)
		}
		return nil
	})
	slices.Reverse(out)
	return out
}

// removeGroup removes a control group and those below it, and reports whether they are gone.
func removeGroup(group string) bool {
	for _, dir := range groupTree(group) {
		if err := syscall.Rmdir(dir); err != nil && !errors.Is(err, syscall.ENOENT) {
			return false
		}
	}
	return true
}
