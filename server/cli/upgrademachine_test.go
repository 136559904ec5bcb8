package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/serverlayout"
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
		"too old":    {"#!/bin/sh\necho 'unknown flag: --check' >&2; exit 2\n", ""},
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
