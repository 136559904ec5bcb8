//go:build linux

package realroot

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// policy keeps packages from starting services, as an administrator may want it.
const policy = `printf '#!/bin/sh\nexit 101\n' > /usr/sbin/policy-rc.d && chmod 755 /usr/sbin/policy-rc.d`

// serverInDebian installs the first release of the server, with ports of this test.
func serverInDebian(t *testing.T, name string) *machine {
	t.Helper()
	m := boot(t, nspawn.Options{Name: name})
	m.run(policy)
	m.run("apt-get install --yes " + m.deb("muster", first))
	m.is("systemctl is-enabled muster", "enabled")
	m.is("systemctl is-active muster", "inactive")
	m.configure()
	m.run("rm /usr/sbin/policy-rc.d && systemctl start muster")
	m.serves(first)
	return m
}

func TestServerAndAgentAreInstalledUpgradedAndRemovedInDebian(t *testing.T) {
	m := serverInDebian(t, "debian")
	m.is("stat --format='%n %U:%G %a' /var/lib/muster /etc/muster /etc/muster/server.yml", "/var/lib/muster muster:muster 700\n/etc/muster root:muster 750\n/etc/muster/server.yml root:muster 640")
	m.is("readlink -f /usr/bin/muster", "/usr/lib/muster/1.0.0/bin/muster")
	m.run("test -s /usr/share/man/man1/muster-server.1.gz && test -s /usr/share/bash-completion/completions/muster")

	// The agent's package enrols nothing, and says how to.
	if out := m.run("apt-get install --yes " + m.deb("muster-agent", first)); !strings.Contains(out, "/usr/lib/muster-agent/1.0.0/muster-agent install --prefix /usr --sysconfdir /etc --url") {
		t.Error("the package of the agent does not print the command that enrols")
	}
	m.is("ls -d /etc/muster-agent /var/lib/muster-agent 2>/dev/null", "")
	m.enrol(first)
	m.agent(first, "online")

	// The server's package backs up the store, and the running server replaces itself.
	pid := m.run("systemctl show --property=MainPID --value muster")
	m.run("apt-get install --yes " + m.deb("muster", second))
	m.serves(second)
	m.run("journalctl --no-pager --unit='muster-switch@*' | grep --quiet 'the current version is another one.*1.1.0'")
	m.is("systemctl show --property=MainPID --value muster", pid)
	m.run(fmt.Sprintf("grep -q 'listen: 127.0.0.1:%d' /etc/muster/server.yml", m.adminPort))
	m.agent(first, "online")
	m.run("systemctl restart muster")
	m.serves(second)

	// The agent's package places its version and changes nothing that runs.
	pid = m.run("systemctl show --property=MainPID --value muster-agent")
	m.run("apt-get install --yes " + m.deb("muster-agent", second))
	m.is("ls /usr/lib/muster-agent", "1.0.0\n1.1.0\ndefault")
	m.is("systemctl show --property=MainPID --value muster-agent", pid)
	m.run("systemctl restart muster-agent")
	m.agent(first, "online")

	// A lower version is placed, and a person asks for the way back.
	if out := m.run("apt-get install --yes --allow-downgrades " + m.deb("muster", first)); !strings.Contains(out, "muster server upgrade --to 1.0.0 --config /etc/muster/server.yml") {
		t.Error("the lower version does not print the command that goes back")
	}
	m.serves(second)
	m.run("runuser -u muster -- muster server upgrade --to 1.0.0 --config /etc/muster/server.yml")
	m.serves(first)

	// Removing the agent keeps its identity, and installing it again has it run again.
	m.run("apt-get remove --yes muster-agent")
	m.is("systemctl is-active muster-agent", "inactive")
	identity := m.run("sha256sum < /var/lib/muster-agent/identity")
	m.run("apt-get install --yes " + m.deb("muster-agent", second))
	m.agent(first, "online")
	m.is("sha256sum < /var/lib/muster-agent/identity", identity)
	m.run("apt-get purge --yes muster-agent")
	m.is("ls -d /etc/muster-agent /var/lib/muster-agent /usr/lib/muster-agent /etc/systemd/system/muster-agent* 2>/dev/null", "")
	m.is("muster agents list -o json | grep -c '\"status\": *\"online\"'", "0")

	// Removing the server keeps data and configuration, purging it removes all.
	m.run("apt-get remove --yes muster")
	m.is("systemctl is-active muster", "inactive")
	m.is("ls -d /usr/lib/muster /usr/bin/muster /etc/muster/lib 2>/dev/null", "")
	m.run("test -e /var/lib/muster/first-admin-key && grep -q listen: /etc/muster/server.yml")
	m.run("apt-get install --yes " + m.deb("muster", second))
	m.serves(second)
	m.run("apt-get purge --yes muster")
	m.is("ls -d /usr/lib/muster /usr/libexec/muster /etc/muster /var/lib/muster 2>/dev/null; getent passwd muster", "")
	m.is("systemctl --failed --plain --no-legend | wc -l", "0")
}

// Whatever is wrong with a new version, the old one runs on and can be started again, and the
// package manager says what mends it.
func TestFailedUpgradeLeavesTheOldServerRunning(t *testing.T) {
	m := serverInDebian(t, "failing")
	still := func() {
		t.Helper()
		m.is("readlink /etc/muster/lib", "/usr/lib/muster/1.0.0")
		m.serves(first)
	}

	// A configuration that the new version refuses.
	m.run("cp -p /etc/muster/server.yml /srv/ && echo 'colour: red' >> /etc/muster/server.yml")
	m.refused("apt-get install --yes "+m.deb("muster", second), "colour", "version 1.1.0 does not accept /etc/muster/server.yml: correct it, then run: sudo /usr/libexec/muster/activate", "version 1.0.0 stays the current one")
	still()
	m.run("cp -p /srv/server.yml /etc/muster/ && systemctl restart muster")
	still()

	// A program for another processor.
	m.run("mkdir /srv/wrong && cp /usr/libexec/muster/muster /srv/wrong/ && printf '\\267' | dd of=/usr/libexec/muster/muster bs=1 seek=18 conv=notrunc 2>/dev/null")
	m.refused("dpkg --configure muster", "/usr/libexec/muster/muster does not start on this machine", "install the package of this architecture")
	still()
	m.run("cp /srv/wrong/muster /usr/libexec/muster/muster && rm -r /srv/wrong")

	// A folder of programs that cannot be written to.
	m.run("mount --bind /usr/lib/muster /usr/lib/muster && mount -o remount,bind,ro /usr/lib/muster")
	m.refused("dpkg --configure muster", "read-only file system", "/usr/lib/muster: mend that, then run: sudo /usr/libexec/muster/activate")
	still()
	m.run("umount /usr/lib/muster")

	// What is mended is completed.
	m.run("dpkg --configure muster")
	m.serves(second)

	// A full disk: dpkg puts back what it has replaced.
	m.run("fallocate --length $(( $(df --output=avail --block-size=1 / | tail -n 1) - 16000000 )) /srv/ballast")
	m.refused("apt-get install --yes --allow-downgrades "+m.deb("muster", first), "No space left on device")
	m.is("readlink /etc/muster/lib", "/usr/lib/muster/1.1.0")
	m.run("rm /srv/ballast && systemctl restart muster")
	m.serves(second)
}

// An administrator's stopped or masked server stays so.
func TestStoppedServerIsNotStartedByAnUpgrade(t *testing.T) {
	m := serverInDebian(t, "stopped")
	m.run("systemctl stop muster && systemctl mask muster")
	m.run("apt-get install --yes " + m.deb("muster", second))
	m.is("systemctl is-active muster", "inactive")
	m.is("systemctl is-enabled muster", "masked")
	m.is("readlink /etc/muster/lib", "/usr/lib/muster/1.1.0")
	m.run("systemctl unmask muster && systemctl start muster")
	m.serves(second)
}

// If the server can change the names in /etc/muster, an upgrade ends that, and changes no file behind a
// link that the server has left there.
func TestFolderOfThePointerIsClosedByAnUpgrade(t *testing.T) {
	m := serverInDebian(t, "open")
	const doctor = "muster doctor 2>/dev/null | grep --count 'sudo chmod go-w /etc/muster'"
	m.is(doctor, "0")
	shadow := m.run("stat --format='%U:%G %a' /etc/shadow")
	for _, how := range []struct{ link, activate, says string }{
		{"ln -s /etc/shadow server.yml", "/usr/libexec/muster/activate", "version 1.0.0 does not accept /etc/muster/server.yml"},
		// Where systemd does not have these programs.
		{"ln -s /etc/shadow server.yml", "mv /usr/bin/systemd-tmpfiles /srv/ && { /usr/libexec/muster/activate; s=$?; mv /srv/systemd-tmpfiles /usr/bin/; exit $s; }", "/etc/muster/server.yml is a link, or no file of its own"},
		{"ln -sfn /usr/lib/muster/.. lib; cp kept server.yml", "/usr/libexec/muster/activate", "/etc/muster/lib leads to /usr/lib/muster/.., which is no version"},
	} {
		m.run("chmod 0770 /etc/muster")
		m.is(doctor, "1")
		m.run("runuser -u muster -- sh -c 'cd /etc/muster && mv server.yml kept && " + how.link + "'")
		m.refused(how.activate, how.says)
		m.is("stat --format='%U:%G %a' /etc/muster /etc/shadow", "root:muster 750\n"+shadow)
		m.run("cd /etc/muster && rm -f server.yml && mv kept server.yml")
	}
	m.run("chmod 0770 /etc/muster && ln -sfn /usr/lib/muster/1.0.0 /etc/muster/lib")
	m.run("apt-get install --yes " + m.deb("muster", second))
	m.serves(second)
	m.is("stat --format='%U:%G %a' /etc/muster /etc/muster/server.yml", "root:muster 750\nroot:muster 640")
	m.is("runuser -u muster -- ln -sfn /tmp /etc/muster/lib 2>/dev/null || echo refused", "refused")
}

// A port that is taken does not fail the installation, which says what to change.
func TestServerIsInstalledWhileItsPortIsTaken(t *testing.T) {
	m := boot(t, nspawn.Options{Name: "port"})
	// If somebody else has it, it is taken as well.
	if l, err := net.Listen("tcp", ":8221"); err == nil {
		defer l.Close()
	}
	out := m.run("apt-get install --yes " + m.deb("muster", first))
	for _, want := range []string{"address already in use", "Correct /etc/muster/server.yml, such as a port that is taken, then run: sudo systemctl restart muster"} {
		if !strings.Contains(out, want) {
			t.Errorf("installing does not say %q", want)
		}
	}
	m.configure()
	m.run("systemctl restart muster")
	m.serves(first)
}

// In a chroot or a container without systemd the packages are installed, and say how to start
// what they brought. A package of another architecture is refused.
func TestWithoutSystemd(t *testing.T) {
	m := boot(t, nspawn.Options{Name: "chroot"})
	// A view of the same system in which systemd does not run.
	in := "unshare --mount --pid --fork sh -c 'mount -t tmpfs none /run && mount -t proc proc /proc && "
	out := m.run(in + "apt-get install --yes " + m.deb("muster", first) + " " + m.deb("muster-agent", first) + "'")
	for _, want := range []string{"systemd does not run here", "runuser -u muster -- muster server --config /etc/muster/server.yml", "muster-agent install --prefix /usr"} {
		if !strings.Contains(out, want) {
			t.Errorf("installing does not say %q", want)
		}
	}
	m.is("runuser -u muster -- muster server --check --config /etc/muster/server.yml", "Version 1.0.0 accepts the configuration /etc/muster/server.yml.")
	m.run(in + "apt-get purge --yes muster muster-agent'")
	m.is("ls -d /etc/muster /var/lib/muster /usr/lib/muster /usr/lib/muster-agent 2>/dev/null", "")
}
