package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/serverlayout"
	"github.com/muster-fleet/muster/server/app"
)

// A version that would not start with the server's configuration is refused before anything changes.
func TestUpgradeChecksTheConfigurationWithTheOtherVersion(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "server.yml")
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		return path
	}
	write("server.yml", "old_key: 1\n")
	m := &upgradeMachine{config: app.Config{File: file, Data: dir}}
	for name, c := range map[string]struct{ program, says string }{
		"accepts it": {"#!/bin/sh\n[ \"$1 $2\" = 'server --check' ] && [ \"$6\" = '" + file + "' ]\n", ""},
		"refuses it": {"#!/bin/sh\necho 'old_key: is no key' >&2; exit 2\n", "old_key: is no key"},
		"none":       {"", "does not accept"},
	} {
		program := filepath.Join(dir, "missing")
		if c.program != "" {
			program = write("muster-"+strings.ReplaceAll(name, " ", "-"), c.program)
		}
		err := m.checkConfig(t.Context(), program)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
}

// The commands about versions find the pointer of the installation, and write no other one.
func TestVersionsFindThePointerOfTheInstallation(t *testing.T) {
	top := t.TempDir()
	prefix, etc := filepath.Join(top, "opt"), filepath.Join(top, "conf")
	lib := filepath.Join(prefix, "lib", "muster")
	for _, d := range []string{lib, filepath.Join(etc, "muster")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := (&layoutFlags{}).pointerFolder(prefix); err != nil || got != "/etc" {
		t.Errorf("before the installation: %s, %v", got, err)
	}
	if err := os.Symlink(filepath.Join(etc, "muster", "lib"), filepath.Join(lib, "default")); err != nil {
		t.Fatal(err)
	}
	for given, want := range map[string]string{"": etc, etc: etc, filepath.Join(top, "other"): "error"} {
		got, err := (&layoutFlags{sysconfdir: given}).pointerFolder(prefix)
		if want == "error" && (err == nil || !strings.Contains(err.Error(), etc)) || want != "error" && (err != nil || got != want) {
			t.Errorf("--sysconfdir %q: %s, %v", given, got, err)
		}
	}
	if _, err := serverlayout.SysConfDirOf(disk.OS{}, top); !os.IsNotExist(err) && err == nil {
		t.Errorf("a folder without an installation: %v", err)
	}
}

// Without --sysconfdir the commands about versions find the current one, and so refuse what cannot
// follow it. They once looked for the pointer in /etc, found none, and made one there.
func TestVersionsSwitchRefusesAnotherMajorVersionOfAnInstallationElsewhere(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	prefix, etc := filepath.Join(top, "opt"), filepath.Join(top, "conf")
	build := func(version string) string {
		t.Helper()
		path := filepath.Join(top, "muster-"+version)
		if err := os.WriteFile(path, []byte("#!/bin/sh\necho muster version "+version+"\n"), 0o700); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		return path
	}
	l := &serverlayout.Layout{Disk: disk.OS{}, Prefix: prefix, SysConfDir: etc, Version: programVersion}
	for _, version := range []string{"1.1.0", "1.2.0", "2.0.0"} {
		if _, err := l.Install(t.Context(), version, build(version)); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := New("1.1.0")
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"server", "versions"}, append(args, "--prefix", prefix)...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	current := func(want string) {
		t.Helper()
		if got, err := l.Current(); err != nil || got != want {
			t.Errorf("the pointer leads to %s, %v, want %s", got, err, want)
		}
		if out, err := run("list"); err != nil || !regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(want)+` +current `).MatchString(out) {
			t.Fatalf("current is not %s: %v\n%s", want, err, out)
		}
	}
	current("1.1.0") // else the test ends here: a switch would write to the /etc of this machine
	for _, c := range []struct {
		args []string
		says string // empty: it succeeds
		then string
	}{
		{[]string{"switch", "2.0.0"}, "version 2.0.0 cannot follow 1.1.0: their major versions differ", "1.1.0"},
		{[]string{"switch", "2.0.0", "--sysconfdir", filepath.Join(top, "other")}, "has its pointer in " + etc, "1.1.0"},
		{[]string{"switch", "1.2.0"}, "", "1.2.0"},
		{[]string{"switch", "2.0.0"}, "version 2.0.0 cannot follow 1.2.0", "1.2.0"},
		{[]string{"switch", "2.0.0", "--force"}, "", "2.0.0"},
		{[]string{"switch", "1.2.0"}, "version 1.2.0 cannot follow 2.0.0", "2.0.0"},
	} {
		out, err := run(c.args...)
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v: %v, want %q\n%s", c.args, err, c.says, out)
		}
		current(c.then)
	}
	if _, err := os.Lstat(filepath.Join(top, "other")); !os.IsNotExist(err) {
		t.Errorf("it wrote beside the installation: %v", err)
	}
}

// What systemd needs for a server and its upgrades is written together.
func TestUnitsAreWrittenToAFolder(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (string, error) {
		var out bytes.Buffer
		cmd := New("1.1.0")
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{"server"}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	prefix := filepath.Join(dir, "usr")
	out, err := run("unit", "--prefix", prefix, "--sysconfdir", "/srv/etc", "--user", "fleet", "--dir", dir)
	if err != nil || strings.Count(out, "Wrote "+dir) != 3 {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, want := range map[string]string{
		"muster.service": "User=fleet\n", "muster-switch.socket": "ListenStream=/run/muster-switch-srv-etc.sock\n",
		"muster-switch@.service": "ExecStart=" + prefix + "/bin/muster server versions answer\n",
	} {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q: %v\n%s", name, want, err, text)
		}
	}
	printed, err := run("unit", "--prefix", prefix, "--sysconfdir", "/srv/etc", "--user", "fleet")
	if written, rerr := os.ReadFile(filepath.Join(dir, "muster.service")); err != nil || rerr != nil || printed != string(written) {
		t.Errorf("what is printed differs from what is written: %v, %v\n%s", err, rerr, printed)
	}
	if _, err := run("versions", "answer"); err == nil || !strings.Contains(err.Error(), "does not run from an installation") {
		t.Errorf("a program elsewhere answers requests: %v", err)
	}
}
