package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// serverUnit is a machine with a real systemd, which runs the server by its own unit.
type serverUnit struct {
	*nspawn.Machine
	t *testing.T
}

// upgradeIs waits until the last upgrade is in a phase or has ended in it.
func (m *serverUnit) upgradeIs(phase fleet.ServerPhase, to string) (u fleet.ServerUpgrade) {
	m.t.Helper()
	harness.Eventually(m.t, fmt.Sprintf("the upgrade to %s is %s", to, phase), func() error {
		out, err := m.Run(m.t.Context(), "runuser", "-u", "muster", "--", "muster", "server", "upgrade", "--status", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &u)
		}
		if err == nil && (u.Phase != phase || u.To != to) {
			err = fmt.Errorf("it is %s: %s", u.Phase, u.Problem)
		}
		return err
	})
	return u
}

// The unit that Muster ships runs the server from a read-only prefix. The power is cut during
// an upgrade, before and after the schema of the store has changed, and at the next boot the
// server continues.
func TestUpgradeOfServersGoesOnAfterAPowerCut(t *testing.T) {
	t.Parallel()
	nspawn.Require(t, nspawn.Systemd)
	built, err := serverVersions()
	check(t, err)
	m := &serverUnit{nspawn.Start(t, nspawn.Options{Name: "muster-01", Share: []string{filepath.Dir(filepath.Dir(built[oldServer]))}}), t}
	for _, version := range []string{oldServer, newServer} {
		m.Must(built[version], "server", "install")
	}
	m.Must("useradd", "--system", "--home-dir", "/var/lib/muster", "--shell", "/usr/sbin/nologin", "muster")
	m.Must("sh", "-c", "muster server unit --dir /etc/systemd/system && systemd-analyze verify --man=no /etc/systemd/system/muster.service /etc/systemd/system/muster-switch.socket && systemctl daemon-reload && systemctl enable --now muster && sync")
	runs := func(version string) {
		t.Helper()
		harness.Eventually(t, "systemd runs "+version, func() error {
			out, err := m.Run(t.Context(), "sh", "-c", "readlink /proc/$(systemctl show --property=MainPID --value muster)/exe")
			if err == nil && strings.TrimSpace(out) != "/usr/lib/muster/"+version+"/bin/muster" {
				err = fmt.Errorf("it runs %s", out)
			}
			return err
		})
	}
	runs(oldServer)
	m.rootsOwn()
	to := newServer
	for _, phase := range []fleet.ServerPhase{fleet.ServerStop, fleet.ServerBackup, fleet.ServerMigrate, fleet.ServerStart} {
		since := m.Must("date", "+@%s")
		harness.Eventually(t, "the upgrade begins", func() error { // a server that has just started does not list itself yet
			out, err := m.Run(t.Context(), "runuser", "-u", "muster", "--", "muster", "server", "upgrade", "--to", to, "--detach")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		seen := fmt.Sprintf(`journalctl --unit=muster --no-pager --follow --since=%s | grep --max-count=1 'phase=%s from=.* to=%s '`, since, phase, to)
		m.Must("timeout", "120", "sh", "-c", seen)
		check(t, m.PowerCut())
		m.On()
		u := m.upgradeIs(fleet.ServerDone, to)
		runs(to)
		t.Logf("the power was cut in the phase %s: %s, problem %q", phase, u.Phase, u.Problem)
		to = map[string]string{newServer: oldServer, oldServer: newServer}[to]
	}
}

// rootsOwn proves that the server's user cannot choose what root runs as muster: neither on its disk,
// nor by what it asks root's unit.
func (m *serverUnit) rootsOwn() {
	m.t.Helper()
	const socket = "/run/muster-switch-etc.sock"
	for command, want := range map[string]string{
		"stat --format='%U:%G %a' /etc/muster " + socket: "root:root 755\nroot:muster 660",
		// What the user may write to, on the way to each program that root runs.
		`runuser -u muster -- sh -c 'for p in / /usr /usr/bin /usr/bin/muster /usr/lib /usr/lib/muster /usr/lib/muster/default /usr/lib/muster/default/bin /usr/lib/muster/*/bin/muster /etc /etc/muster /etc/muster/lib /etc/systemd/system/muster* /run; do [ ! -w $p ] || echo $p; done'`: "",
		"runuser -u muster -- ln -sfn /tmp /etc/muster/lib 2>/dev/null || echo refused":       "refused",
		"muster doctor -o json | grep -c 'only its owner can change what /usr/bin/muster is'": "1",
	} {
		if out, err := m.Run(m.t.Context(), "sh", "-c", command); strings.TrimSpace(out) != want {
			m.t.Errorf("%s: %q, %v, want %q", command, out, err, want)
		}
	}
	ask := func(request string) string {
		m.t.Helper()
		conn, err := net.Dial("unix", m.Path(socket))
		check(m.t, err)
		defer conn.Close()
		check(m.t, conn.SetDeadline(time.Now().Add(harness.WaitLimit)))
		_, err = fmt.Fprintln(conn, request)
		check(m.t, err)
		answer, err := io.ReadAll(conn)
		check(m.t, err)
		return string(answer)
	}
	for request, want := range map[string]string{
		"check " + newServer:             "yes\n",
		"switch ../../../var/lib/muster": `no version is "../../../var/lib/muster", want three numbers`,
		"switch /tmp/1.0.0":              `no version is "/tmp/1.0.0", want three numbers`,
		"switch 9.0.0":                   "no version 9.0.0 is not installed in /usr/lib/muster",
		"remove " + newServer:            `no request is "remove ` + newServer + `"`,
	} {
		if got := ask(request); !strings.HasPrefix(got, want) {
			m.t.Errorf("%q is answered %q, want %q", request, got, want)
		}
	}
	m.Must("sh", "-c", "journalctl --no-pager --unit='muster-switch@*' | grep --quiet 'request for a version is refused.*9.0.0'")

	// A version that the server's user can change is not run by root, and says so before anything changes.
	m.Must("chown", "muster", "/usr/lib/muster/"+newServer)
	harness.Eventually(m.t, "the upgrade to a version of the server's user is refused", func() error { // a server that has just started does not list itself yet
		out, err := m.Run(m.t.Context(), "sh", "-c", "exec 2>&1; runuser -u muster -- muster server upgrade --to "+newServer)
		if want := "muster-switch.socket refuses to check " + newServer + ": /usr/lib/muster/" + newServer + " belongs to the user "; err == nil || !strings.Contains(out, want) {
			return fmt.Errorf("refused: %t, and the output is %s", err != nil, out)
		}
		return nil
	})
	m.Must("chown", "root", "/usr/lib/muster/"+newServer)
	m.is("readlink /etc/muster/lib", "/usr/lib/muster/"+oldServer)
}

func (m *serverUnit) is(command, want string) {
	m.t.Helper()
	if out := m.Must("sh", "-c", command); out != want {
		m.t.Errorf("%s: %q, want %q", command, out, want)
	}
}
