//go:build release && linux

package elsewhere

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// nobody is a user without any rights.
const nobody = 65534

// asNobody returns a command that runs without root's rights.
func asNobody(t testing.TB, args ...string) *exec.Cmd {
	c := exec.CommandContext(t.Context(), args[0], args[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Setsid: true}
	c.Env = []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent"}
	return c
}

func TestUserWithoutRootIsUpgradedAndRolledBackInAnOwnFolder(t *testing.T) {
	require.Root(t) // to become another user
	w := newWorld(t)
	top := filepath.Join(w.homeOfNobody(), "muster")
	install := slices.Concat([]string{w.Programs.Agent, "install", "--top", top, "--package", w.Archives["1.0.0"]}, w.Enrollment())

	out, err := asNobody(t, install...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "a service needs root's rights") || !strings.Contains(string(out), "--no-service") {
		t.Errorf("install with a service: %v: %s", err, out)
	}
	if _, err := os.Stat(top); err == nil {
		t.Error("the refused installation left its folder")
	}
	out, err = asNobody(t, w.Programs.Agent, "install", "--no-service", "--package", w.Archives["1.0.0"], "--trust-root", w.Publisher.TrustRoot).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "/opt/muster") || !strings.Contains(string(out), "permission denied") {
		t.Errorf("install into root's folder: %v: %s", err, out)
	}
	out, err = asNobody(t, append(install, "--no-service")...).CombinedOutput()
	w.ok("install: "+string(out), err)
	w.runAsNobody(top, "nobodys")
	h := w.online("nobodys", "1.0.0")
	w.Publish("1.1.0", w.Programs.Agent)
	w.Upgrade("1.1.0", h)
	w.upgraded(h, "1.1.0")
	w.Publish("1.2.0", w.Programs.CrashLooper)
	w.Upgrade("1.2.0", h)
	w.rolledBack(h, "1.1.0", "crash_loop")
}

// homeOfNobody makes a folder for the user without rights, who gets to the programs too.
func (w *world) homeOfNobody() string {
	w.Helper()
	home := filepath.Join(w.Dir, "home")
	for _, dir := range []string{w.Dir, filepath.Dir(w.Programs.Agent)} {
		w.ok("let others in", os.Chmod(dir, 0o755))
	}
	w.ok("make a home folder", os.Mkdir(home, 0o755))
	w.ok("give it away", os.Chown(home, nobody, nobody))
	return home
}

// runAsNobody starts an agent that is installed without a service, until the test ends.
func (w *world) runAsNobody(top, name string) {
	w.Helper()
	config := fmt.Sprintf("host: {name: %s}\n%s", name, shortWatch)
	w.ok("configure the agent", os.WriteFile(filepath.Join(top, layout.ConfigFile), []byte(config), 0o644))
	agent := asNobody(w, filepath.Join(top, layout.AgentLink), "run", "--top", top)
	var log bytes.Buffer
	agent.Stdout, agent.Stderr = &log, &log
	w.ok("start the agent", agent.Start())
	ended := make(chan struct{})
	go func() {
		_ = agent.Wait() // a bad version ends it
		close(ended)
	}()
	w.Cleanup(func() {
		harness.Eventually(w, "all programs have ended", func() error {
			left := w.below(top)
			if len(left) == 0 {
				return nil
			}
			for _, pid := range left { // the watcher may start the agent again before it ends
				_ = syscall.Kill(pid, syscall.SIGTERM) // it has ended
			}
			return fmt.Errorf("processes %v run", left)
		})
		<-ended
	})
}

// below returns the processes whose program is below a folder.
func (w *world) below(top string) (pids []int) {
	all, err := filepath.Glob("/proc/[0-9]*")
	w.ok("list processes", err)
	for _, dir := range all {
		var pid int
		if program, _ := os.Readlink(dir + "/exe"); strings.HasPrefix(program, top+"/") {
			_, err := fmt.Sscanf(filepath.Base(dir), "%d", &pid)
			w.ok("read a process id", err)
			pids = append(pids, pid)
		}
	}
	return pids
}
