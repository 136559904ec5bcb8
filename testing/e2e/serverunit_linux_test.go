package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/nspawn"
)

// serverUnit is a machine with a real systemd, which runs the server by its own unit.
type serverUnit struct {
	*nspawn.Machine
	t *testing.T
}

func (m *serverUnit) run(args ...string) string {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), args...)
	if err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

func (m *serverUnit) close() {
	if m.t.Failed() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit) // the test's own context has ended
		defer cancel()
		journal, _ := m.Run(ctx, "journalctl", "--no-pager", "--lines=200", "--unit=muster")
		m.t.Logf("journal of the server:\n%s", journal)
	}
	check(m.t, m.Close())
}

// upgradeIs waits until the last upgrade is in a phase or has ended in it.
func (m *serverUnit) upgradeIs(phase fleet.ServerPhase, to string) (u fleet.ServerUpgrade) {
	m.t.Helper()
	eventually(m.t, fmt.Sprintf("the upgrade to %s is %s", to, phase), func() error {
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
	nspawn.Require(t)
	built, err := serverVersions()
	check(t, err)
	vm, err := nspawn.New(t.Context(), t.TempDir(), "muster-01", binDir)
	check(t, err)
	m := &serverUnit{vm, t}
	t.Cleanup(m.close)
	check(t, m.Boot(t.Context()))
	for _, version := range []string{oldServer, newServer} {
		m.run(built[version], "server", "install")
	}
	m.run("useradd", "--system", "--home-dir", "/var/lib/muster", "--shell", "/usr/sbin/nologin", "muster")
	m.run("sh", "-c", "chgrp muster /etc/muster && chmod 0770 /etc/muster")
	m.run("sh", "-c", "muster server unit > /etc/systemd/system/muster.service && systemd-analyze verify --man=no /etc/systemd/system/muster.service && systemctl daemon-reload && systemctl enable --now muster && sync")
	runs := func(version string) {
		t.Helper()
		eventually(t, "systemd runs "+version, func() error {
			out, err := m.Run(t.Context(), "sh", "-c", "readlink /proc/$(systemctl show --property=MainPID --value muster)/exe")
			if err == nil && strings.TrimSpace(out) != "/usr/lib/muster/"+version+"/bin/muster" {
				err = fmt.Errorf("it runs %s", out)
			}
			return err
		})
	}
	runs(oldServer)
	to := newServer
	for _, phase := range []fleet.ServerPhase{fleet.ServerStop, fleet.ServerBackup, fleet.ServerMigrate, fleet.ServerStart} {
		since := m.run("date", "+@%s")
		eventually(t, "the upgrade begins", func() error { // a server that has just started does not list itself yet
			out, err := m.Run(t.Context(), "runuser", "-u", "muster", "--", "muster", "server", "upgrade", "--to", to, "--detach")
			if err != nil {
				err = fmt.Errorf("%w: %s", err, out)
			}
			return err
		})
		seen := fmt.Sprintf(`journalctl --unit=muster --no-pager --follow --since=%s | grep --max-count=1 'phase=%s from=.* to=%s '`, since, phase, to)
		m.run("timeout", "120", "sh", "-c", seen)
		check(t, m.PowerCut())
		check(t, m.Boot(t.Context()))
		u := m.upgradeIs(fleet.ServerDone, to)
		runs(to)
		t.Logf("the power was cut in the phase %s: %s, problem %q", phase, u.Phase, u.Problem)
		to = map[string]string{newServer: oldServer, oldServer: newServer}[to]
	}
}
