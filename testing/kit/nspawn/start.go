//go:build linux

package nspawn

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/require"
)

// showTimeout bounds the reading of a failed test's journal.
const showTimeout = time.Minute

// Require requires what machines with an init system need.
func Require(t testing.TB, i Init) {
	t.Helper()
	require.Root(t)
	for _, program := range []string{"debootstrap", "systemd-nspawn", "nsenter", "mkfs.ext4"} {
		require.Program(t, program)
	}
	_, err := Prepare(t.Context(), i)
	require.Made(t, err, "let this machine reach its own package source")
}

// Start returns a machine that is on, and that ends with the test. If the test fails, it shows
// the journal of Muster's units, and the files of Options.Logs.
func Start(t testing.TB, o Options) *Machine {
	t.Helper()
	Require(t, o.Init)
	m, err := New(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	m.t = t
	t.Cleanup(func() {
		if t.Failed() {
			m.show()
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	m.On()
	return m
}

func (m *Machine) show() {
	ctx, cancel := context.WithTimeout(context.Background(), showTimeout) // the test's own context has ended
	defer cancel()
	if m.Init == Systemd {
		journal, _ := m.Run(ctx, "journalctl", "--no-pager", "--lines=200", "--unit=muster*")
		m.t.Logf("journal of %s:\n%s", m.Name, journal)
	}
	for _, file := range m.Logs {
		text, _ := os.ReadFile(m.Path(file))
		m.t.Logf("%s of %s:\n%s", file, m.Name, text)
	}
}

// On boots the machine.
func (m *Machine) On() {
	m.t.Helper()
	if err := m.Boot(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
}

// Must runs a program in the machine, and returns its standard output without the space around it.
func (m *Machine) Must(args ...string) string {
	m.t.Helper()
	out, err := m.Run(m.t.Context(), args...)
	if err != nil {
		m.t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(out)
}

// Property returns a property of a unit.
func (m *Machine) Property(unit, name string) string {
	m.t.Helper()
	return m.Must("systemctl", "show", "--property="+name, "--value", unit)
}
