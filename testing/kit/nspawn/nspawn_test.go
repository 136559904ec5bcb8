//go:build linux

package nspawn

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func machine(t *testing.T, name string) *Machine {
	t.Helper()
	m, err := New(t.Context(), t.TempDir(), Options{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	m.t = t
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if left := leftOf(t, m); left != "" {
			t.Errorf("after Close there is still %s", left)
		}
	})
	return m
}

// leftOf returns what a machine has left on its host.
func leftOf(t *testing.T, m *Machine) string {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), m.dir) {
		return "a mount"
	}
	if m.inUse() {
		return "a loop device"
	}
	for _, g := range m.groups {
		if _, err := os.Stat(g); err == nil {
			return g
		}
		// The container may have created a group where it got none.
		if more, _ := filepath.Glob(filepath.Join("/sys/fs/cgroup/*", filepath.Base(g))); len(more) > 0 {
			return more[0]
		}
	}
	return ""
}

func TestPowerCutKeepsOnlySyncedData(t *testing.T) {
	Require(t, Systemd)
	t.Parallel()
	m := machine(t, "cut")
	m.On()
	m.Must("systemd-run", "--unit=sleeper", "sleep", "1000")
	m.Must("sh", "-c", `
		echo kept >/srv/synced; sync
		echo lost >/srv/written
		mv /srv/synced /srv/renamed`)
	if _, err := os.Stat(m.Path("/srv/renamed")); err != nil {
		t.Errorf("seen from outside while it runs: %v", err)
	}
	if err := m.PowerCut(); err != nil {
		t.Fatal(err)
	}
	if left := leftOf(t, m); left != "" {
		t.Errorf("after the cut there is still %s", left)
	}
	if _, err := m.Run(t.Context(), "true"); err == nil {
		t.Error("a program ran in a machine that is off")
	}
	m.On()
	// The rename and the second file were only in memory.
	if got := m.Must("sh", "-c", "cd /srv; cat synced; ls renamed written 2>/dev/null || true"); got != "kept" {
		t.Errorf("after a power cut: %q, want only what was synced, under its name", got)
	}
	if got := m.Must("systemctl", "show", "--property=LoadState", "--value", "sleeper"); got != "not-found" {
		t.Errorf("the service of before the cut is %s", got)
	}
}

func TestMachinesAreIsolated(t *testing.T) {
	Require(t, Systemd)
	t.Parallel()
	a, b := machine(t, "one"), machine(t, "two")
	for _, m := range []*Machine{a, b} {
		m.On()
		if got := m.Must("uname", "-n"); got != m.Name {
			t.Errorf("%s calls itself %s", m.Name, got)
		}
	}
	a.Must("systemd-run", "--unit=only-here", "sleep", "1000")
	a.Must("touch", "/srv/only-here")
	if got := b.Must("sh", "-c", "systemd-cgls --no-pager | grep only-here; ls /srv"); got != "" {
		t.Errorf("the second machine has %q of the first", got)
	}
	if err := a.PowerOff(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := b.Must("systemctl", "is-system-running"); got != "running" {
		t.Errorf("after the first was switched off the second is %s", got)
	}
	a.On()
	if got := a.Must("ls", "/srv"); got != "only-here" {
		t.Errorf("after an orderly shutdown: %q, want the file", got)
	}
}

func TestFailedPrepareLeavesNoImage(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("PATH", t.TempDir()) // no debootstrap there
	if _, err := Prepare(t.Context(), Systemd); err == nil || !strings.Contains(err.Error(), "debootstrap") {
		t.Errorf("without debootstrap: %v", err)
	}
	cache, _ := os.UserCacheDir()
	left, _ := filepath.Glob(filepath.Join(cache, "muster", "nspawn", "build-*"))
	if len(left) > 0 {
		t.Errorf("a failed build left %v", left)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	<-ctx.Done()
	if _, err := Prepare(ctx, Systemd); err == nil {
		t.Error("an image was made after its time")
	}
}

func TestSourceIsTheOneOfThisMachine(t *testing.T) {
	for _, test := range []struct {
		what, extension, text, mirror, keyring string
	}{
		{"a stanza", ".sources", "Types: deb\n# a remark\nURIs: http://deb.example.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /usr/share/keyrings/a.gpg\n", "http://deb.example.org/debian", "/usr/share/keyrings/a.gpg"},
		{"the second stanza", ".sources", "Types: deb\nURIs: https://a.example.org\nSuites: nodistro\nComponents: main\n\nTypes: deb deb-src\nURIs: file:/srv/a https://b.example.org/debian\nSuites: bookworm\nComponents: contrib main\n", "https://b.example.org/debian", ""},
		{"a stanza that is switched off", ".sources", "Enabled: no\nTypes: deb\nURIs: http://a.example.org\nSuites: bookworm\nComponents: main\n", "", ""},
		{"security alone is no release", ".sources", "Types: deb\nURIs: http://a.example.org\nSuites: bookworm-security\nComponents: main\n", "", ""},
		{"a key in the stanza", ".sources", "Types: deb\nURIs: http://a.example.org\nSuites: bookworm\nComponents: main\nSigned-By:\n -----BEGIN PGP PUBLIC KEY BLOCK-----\n .\n", "http://a.example.org", ""},
		{"a line", ".list", "# deb http://old.example.org bookworm main\ndeb http://a.example.org/debian bookworm main contrib\n", "http://a.example.org/debian", ""},
		{"a line with options", ".list", "deb [arch=amd64 signed-by=/k.gpg] http://a.example.org bookworm contrib main\n", "http://a.example.org", ""},
		{"only sources", ".list", "deb-src http://a.example.org bookworm main\n", "", ""},
		{"another release", ".list", "deb http://a.example.org trixie main\n", "", ""},
		{"a disc", ".list", "deb cdrom:[x]/ bookworm main\n", "", ""},
		{"options that do not end", ".list", "deb [arch=amd64 http://a.example.org bookworm main\n", "", ""},
	} {
		mirror, keyring := source(test.extension, test.text, "bookworm")
		if mirror != test.mirror || keyring != test.keyring {
			t.Errorf("%s: %q with keyring %q, want %q with %q", test.what, mirror, keyring, test.mirror, test.keyring)
		}
	}
	if got := value("NAME=\"Debian\"\nVERSION_CODENAME=bookworm\n", "VERSION_CODENAME"); got != "bookworm" {
		t.Errorf("code name %q", got)
	}
}

func TestControlGroupsAreCreatedInSystemdsHierarchies(t *testing.T) {
	const (
		mixed = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n" +
			"40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		unified = "31 23 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
	)
	for _, test := range []struct{ what, mounts, own, want string }{
		{"both versions", mixed, "9:name=systemd:/a\n5:devices:/b\n0::/c\n", "/sys/fs/cgroup/systemd/a /sys/fs/cgroup/unified/c"},
		{"version 2", unified, "0::/user.slice/x.scope\n", "/sys/fs/cgroup/user.slice/x.scope"},
		{"version 1 without systemd's", "36 31 0:33 / /sys/fs/cgroup/devices rw - cgroup cgroup rw,devices\n", "5:devices:/b\n", ""},
		{"none", "1 1 0:1 / / rw - ext4 /dev/vda rw\n", "", ""},
	} {
		if got := strings.Join(hierarchies(test.mounts, test.own), " "); got != test.want {
			t.Errorf("%s: %q, want %q", test.what, got, test.want)
		}
	}
}
