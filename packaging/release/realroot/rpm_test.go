//go:build linux

package realroot

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/nspawn"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// rpm runs the rpm of this machine on the root of the other, whose systemd its scripts talk to.
// The machine is a Debian, so its rpm knows of no package that ours could require.
func (m *machine) rpm(args ...string) (string, error) {
	m.t.Helper()
	root := m.Path("/")
	// Among the processes of the machine, so that its /proc describes those of the scripts.
	enter := []string{"--target=" + strings.Split(root, "/")[2], "--pid", "--ipc", "--uts", "--", "rpm", "--root=" + root, "--dbpath=/var/lib/rpm", "--nodeps"}
	c := exec.CommandContext(m.t.Context(), "nsenter", append(enter, args...)...)
	out, err := c.CombinedOutput()
	m.t.Logf("$ rpm %s\n%s", strings.Join(args, " "), out)
	return string(out), err
}

func (m *machine) mustRPM(args ...string) string {
	m.t.Helper()
	out, err := m.rpm(args...)
	if err != nil || strings.Contains(out, "scriptlet failed") {
		m.t.Fatalf("rpm %q: %v\n%s", args, err, out)
	}
	return out
}

func rpmFile(name, version string) string {
	arch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	return filepath.Join(folder, version, name+"-"+version+"-1."+arch+".rpm")
}

func TestServerAndAgentAreInstalledUpgradedAndErasedByRPM(t *testing.T) {
	require.Program(t, "rpm")
	m := boot(t, nspawn.Options{Name: "rpm"})
	if out := m.mustRPM("--install", rpmFile("muster", first)); !strings.Contains(out, "start the server with: sudo systemctl enable --now muster") {
		t.Error("installing does not say how to start the server")
	}
	m.is("systemctl is-active muster", "inactive")
	m.is("stat --format='%n %U:%G %a' /var/lib/muster /etc/muster /etc/muster/server.yml", "/var/lib/muster muster:muster 700\n/etc/muster root:muster 750\n/etc/muster/server.yml root:muster 640")
	m.configure()
	m.run("systemctl enable --now muster")
	m.serves(first)
	m.mustRPM("--install", rpmFile("muster-agent", first))
	m.enrol(first)
	m.agent(first, "online")

	// A refused configuration: rpm has replaced its files, and the old version runs.
	m.run("cp -p /etc/muster/server.yml /srv/ && echo 'colour: red' >> /etc/muster/server.yml")
	if out, _ := m.rpm("--upgrade", rpmFile("muster", second)); !strings.Contains(out, "version 1.1.0 does not accept /etc/muster/server.yml: correct it, then run: sudo /usr/libexec/muster/activate") {
		t.Error("rpm does not print the command that mends it")
	}
	m.is("readlink /etc/muster/lib", "/usr/lib/muster/1.0.0")
	m.serves(first)
	m.run("cp -p /srv/server.yml /etc/muster/ && /usr/libexec/muster/activate")
	m.serves(second)

	m.mustRPM("--upgrade", rpmFile("muster-agent", second))
	m.is("ls /usr/lib/muster-agent", "1.0.0\n1.1.0\ndefault")
	m.run("systemctl restart muster-agent")
	m.agent(first, "online")
	m.mustRPM("--verify", "--nomode", "--nogroup", "--nouser", "--noconfig", "muster", "muster-agent")

	// rpm knows no purge: erasing the agent uninstalls it, and erasing the server keeps its data.
	m.mustRPM("--erase", "muster-agent")
	m.is("ls -d /etc/muster-agent /var/lib/muster-agent /usr/lib/muster-agent /etc/systemd/system/muster-agent* 2>/dev/null", "")
	m.is("muster agents list -o json | grep -c '\"status\": *\"online\"'", "0")
	m.mustRPM("--erase", "muster")
	m.is("systemctl is-active muster", "inactive")
	m.is("ls -d /usr/lib/muster /usr/libexec/muster /usr/bin/muster /etc/muster/lib 2>/dev/null", "")
	m.run("test -e /var/lib/muster/first-admin-key && grep -q listen: /etc/muster/server.yml.rpmsave")
	m.is("systemctl --failed --plain --no-legend | wc -l", "0")
}
