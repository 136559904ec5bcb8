package primitivetest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/runtime/runtimetest"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// script is the program of all hooks. It writes down what it was called for, and its migrations
// change the state, the one to 1.2.0 only by half.
const script = `#!/bin/sh
state=$2
echo "$1 $MUSTER_COMPONENT $MUSTER_FROM $MUSTER_TO $MUSTER_MIGRATION" >> "$state.log"
case $1 in
backup) cp "$state/form" "$MUSTER_BACKUP/dump" ;;
up) rm -r "$state"/*; echo "$MUSTER_MIGRATION" > "$state/form" ;;
down) echo down > "$state/form" ;;
esac
test "$MUSTER_MIGRATION" != 1.2.0
`

// withHooks adds hooks for state in a folder to a version.
func withHooks(t *testing.T, state string) func(*runtime.Release, *manifest.Component) {
	return func(r *runtime.Release, c *manifest.Component) {
		if err := os.WriteFile(filepath.Join(r.Home, "hook"), []byte(script), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
		hook := func(name string) *manifest.Hook {
			return &manifest.Hook{Exec: []string{"hook", name, state}, Timeout: time.Minute}
		}
		c.StatePaths = []string{state}
		c.Hooks = &manifest.Hooks{Drain: hook("drain"), Undrain: hook("undrain"), Backup: hook("backup")}
		for _, v := range []string{"1.1.0", "1.2.0"} {
			if v <= r.Version {
				c.Migrations = append(c.Migrations, manifest.Migration{Version: v, Up: *hook("up"), Down: hook("down")})
			}
		}
	}
}

// testHooks upgrades a component whose second migration fails, and finds its state as it was.
// Then the copy is put back once more, by hand.
func testHooks(t *testing.T, newHost func(t *testing.T) runtimetest.Host) {
	w := &world{t: t, host: newHost(t)}
	t.Cleanup(func() { w.remove(t) })
	state := filepath.Join(t.TempDir(), "state")
	fill(t, state)
	w.from, w.to = w.version("1.0.0", withHooks(t, state)), w.version("1.2.0", withHooks(t, state))
	w.install()
	before := listing(t, state)
	j := &primitive.Journal{Desired: w.order(), From: &w.from.installed, Runs: true}
	run := w.run(w.host.Agent(), j)
	step, err := run.Do(t.Context())
	if step != primitive.MigrateUp || err == nil || !strings.Contains(err.Error(), "migrate-up to the state of 1.2.0: hook: exit status 1") {
		t.Fatalf("failed at %s: %v", step, err)
	}
	if is := listing(t, state); slices.Equal(is, before) {
		t.Fatal("the migration has changed nothing")
	}
	if err := run.Fail(step, err); err != nil {
		t.Fatal(err)
	}
	w.expect(w.from)
	if is := listing(t, state); !slices.Equal(is, before) {
		t.Errorf("the state is %q, before it was %q", is, before)
	}
	log, err := os.ReadFile(state + ".log")
	want := "drain web 1.0.0 1.2.0 \nbackup web 1.0.0 1.2.0 \nup web 1.0.0 1.2.0 1.1.0\nup web 1.0.0 1.2.0 1.2.0\nundrain web 1.0.0 1.2.0 \n"
	if err != nil || string(log) != want {
		t.Errorf("hooks were called for %q, %v; want %q", log, err, want)
	}
	backup := primitive.Backup(w.from.Dir, j.Desired.ID)
	if dump, err := os.ReadFile(filepath.Join(backup, "data", "dump")); err != nil || string(dump) != "old\n" {
		t.Errorf("the hook backup has written %q, %v", dump, err)
	}
	byHand(t, filepath.Join(backup, "RESTORE.txt"))
	if is := listing(t, state); !slices.Equal(is, before) {
		t.Errorf("by hand the state became %q, before it was %q", is, before)
	}
}

// byHand does what a backup says about its state.
func byHand(t *testing.T, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "rm ") || strings.HasPrefix(line, "tar ") {
			commands++
			if out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", line, err, out)
			}
		}
	}
	if commands != 2 {
		t.Errorf("%d commands in:\n%s", commands, text)
	}
}

// fill makes state of all kinds that are kept.
func fill(t *testing.T, dir string) {
	t.Helper()
	long := filepath.Join(dir, strings.Repeat("deep/", 40))
	err := errors.Join(
		os.MkdirAll(long, 0o750),
		os.WriteFile(filepath.Join(dir, "form"), []byte("old\n"), 0o640),
		os.WriteFile(filepath.Join(long, "large"), make([]byte, 3<<20), 0o600),
		os.WriteFile(filepath.Join(dir, "name with 'quotes'"), nil, 0o400),
		os.Symlink("form", filepath.Join(dir, "link")),
		os.Symlink("/nowhere", filepath.Join(dir, "dangling")),
		os.Mkdir(filepath.Join(dir, "closed"), 0o500),
		os.Chmod(filepath.Join(dir, "form"), 0o604),
	)
	if os.Geteuid() == 0 {
		err = errors.Join(err, os.Chown(filepath.Join(dir, "form"), 12, 34), os.Chown(filepath.Join(dir, "closed"), 12, 34))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listing describes a tree: kinds, modes, owners, targets of links and contents.
func listing(t *testing.T, dir string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", `find . -printf '%p %M %U:%G %l\n'; find . -type f -exec cksum '{}' '+'`)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	lines := strings.Split(string(out), "\n")
	slices.Sort(lines)
	return lines
}
