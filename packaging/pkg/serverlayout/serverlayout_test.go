package serverlayout

import (
	"context"
	"errors"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/simdisk"
)

// at is a machine with builds of versions in /build, which are texts such as "muster 1.1.0".
func at(d disk.Disk) *Layout {
	return &Layout{Disk: d, Prefix: "/usr", SysConfDir: "/etc", Version: func(_ context.Context, program string) (string, error) {
		b, err := d.ReadFile(op, program)
		_, version, ok := strings.Cut(string(b), "muster ")
		if err == nil && !ok {
			err = errors.New("exec format error")
		}
		return version, err
	}}
}

func view(fs *simdisk.FS) disk.Disk { return fs.View(func(simdisk.Call) error { return nil }) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func machine(t *testing.T, versions ...string) *simdisk.FS {
	t.Helper()
	fs := simdisk.New()
	d := view(fs)
	for _, dir := range []string{"/usr", "/etc", "/build"} {
		must(t, d.MkdirAll(op, dir, 0o755))
	}
	for _, v := range versions {
		must(t, disk.WriteFile(d, op, "/build/"+v, []byte("muster "+v), 0o755))
	}
	fs.SyncAll()
	return fs
}

func install(t *testing.T, l *Layout, version string) {
	t.Helper()
	if fresh, err := l.Install(t.Context(), version, "/build/"+version); err != nil || !fresh {
		t.Fatalf("%s: %v, %v", version, fresh, err)
	}
}

// runs follows the links to the program that is run.
func runs(d disk.Disk) string {
	b, err := d.ReadFile(op, "/usr/bin/muster")
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func list(t *testing.T, l *Layout) string {
	t.Helper()
	all, err := l.List(t.Context())
	must(t, err)
	var out []string
	for _, i := range all {
		s := i.Version
		if i.Current {
			s += " current"
		}
		if i.Problem != "" {
			s += ": " + i.Problem
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

func TestVersionsAreBesideEachOtherAndThePointerSaysWhichRuns(t *testing.T) {
	fs := machine(t, "1.0.0", "1.1.0")
	d := view(fs)
	l := at(d)
	if got := list(t, l); got != "" {
		t.Errorf("before the first installation there is %s", got)
	}
	install(t, l, "1.0.0")
	install(t, l, "1.1.0")
	if got := list(t, l); got != "1.1.0, 1.0.0 current" || runs(d) != "muster 1.0.0" {
		t.Errorf("there are %s, and %s runs", got, runs(d))
	}
	for link, want := range map[string]string{
		"/usr/bin/muster": "/usr/lib/muster/default/bin/muster", "/usr/lib/muster/default": "/etc/muster/lib", "/etc/muster/lib": "/usr/lib/muster/1.0.0",
	} {
		if got, err := d.Readlink(op, link); err != nil || got != want {
			t.Errorf("%s leads to %s, want %s (%v)", link, got, want, err)
		}
	}

	// A switch writes nothing below the prefix, which may be read-only.
	readOnly := at(fs.View(func(c simdisk.Call) error {
		if c.Kind != simdisk.Read && strings.HasPrefix(c.Path, "/usr") {
			t.Errorf("the switch writes %s", c.Path)
		}
		return nil
	}))
	must(t, readOnly.Switch(t.Context(), "1.1.0", false))
	if got := list(t, l); got != "1.1.0 current, 1.0.0" || runs(d) != "muster 1.1.0" {
		t.Errorf("after the switch there are %s, and %s runs", got, runs(d))
	}
	if fresh, err := l.Install(t.Context(), "1.0.0", "/build/1.0.0"); fresh || err != nil || runs(d) != "muster 1.1.0" {
		t.Errorf("a second installation: %v, %v; %s runs", fresh, err, runs(d))
	}
	must(t, l.Remove("1.0.0"))
	if got := list(t, l); got != "1.1.0 current" {
		t.Errorf("after the removal there are %s", got)
	}
	if prefix, version := Locate("/usr/lib/muster/1.1.0/bin/muster"); prefix != "/usr" || version != "1.1.0" {
		t.Errorf("located are %q and %q", prefix, version)
	}
	if of, err := Of(d, "/usr/lib/muster/1.1.0/bin/muster", l.Version); err != nil || of.Prefix != "/usr" || of.SysConfDir != "/etc" || of.CurrentProgram() != "/usr/lib/muster/default/bin/muster" {
		t.Errorf("the program is of the layout %+v, %v", of, err)
	}
	if of, err := Of(d, "/srv/src/muster/server/bin/muster", l.Version); of != nil || err != nil {
		t.Errorf("a program elsewhere is of the layout %+v, %v", of, err)
	}
	for _, path := range []string{"/usr/bin/muster", "/srv/src/muster/server/bin/muster", "/usr/lib/muster/default/bin/muster"} {
		if prefix, version := Locate(path); prefix != "" || version != "" {
			t.Errorf("%s is located at %q, %q", path, prefix, version)
		}
	}
}

func TestUnitsRunTheCurrentVersion(t *testing.T) {
	l := at(view(machine(t)))
	for config, flag := range map[string]string{"": "", "/etc/muster/server.yml": " --config /etc/muster/server.yml"} {
		units := l.Units("fleet", config)
		has := map[string][]string{
			"muster.service": {
				"User=fleet", "Group=fleet", "ExecStart=/usr/bin/muster server" + flag, "ExecStartPre=-/usr/bin/muster server upgrade --resume" + flag,
				"Wants=network-online.target muster-switch.socket", "After=network-online.target muster-switch.socket", "ProtectSystem=strict",
			},
			"muster-switch.socket":   {"ListenStream=/run/muster-switch-etc.sock", "SocketUser=root", "SocketGroup=fleet", "SocketMode=0660", "Accept=yes"},
			"muster-switch@.service": {"ExecStart=/usr/bin/muster server versions answer", "ReadWritePaths=/etc/muster", "CapabilityBoundingSet="},
		}
		if len(units) != len(has) {
			t.Errorf("there are %d units", len(units))
		}
		for _, u := range units {
			for _, want := range has[u.Name] {
				if !strings.Contains(u.Text, "\n"+want+"\n") {
					t.Errorf("with the configuration %q %s has no %s:\n%s", config, u.Name, want, u.Text)
				}
			}
			if regexp.MustCompile("@[A-Z]").MatchString(u.Text) {
				t.Errorf("%s has a place that is not filled:\n%s", u.Name, u.Text)
			}
		}
		if strings.Contains(units[0].Text, "ReadWritePaths") {
			t.Errorf("the server may write elsewhere than to its data:\n%s", units[0].Text)
		}
	}
}

func TestNothingIsSwitchedToThatCannotRun(t *testing.T) {
	fs := machine(t, "1.0.0", "1.1.0")
	d := view(fs)
	l := at(d)
	install(t, l, "1.0.0")
	install(t, l, "1.1.0")
	refused := func(err error, want string) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	refused(l.Switch(t.Context(), "1.2.0", false), "version 1.2.0 is not installed in /usr/lib/muster: run `muster server install` of that version")
	refused(l.Remove("1.2.0"), "version 1.2.0 is not installed")
	refused(l.Remove("1.0.0"), "version 1.0.0 is the current one")
	refused(l.Remove("../lib"), "../lib")
	must(t, disk.WriteFile(d, op, l.Program("1.1.0"), []byte("\x7fELF"), 0o755))
	refused(l.Switch(t.Context(), "1.1.0", false), "does not start: exec format error")
	_, err := l.Install(t.Context(), "1.1.0", "/build/1.1.0")
	refused(err, "remove it first with `muster server versions remove 1.1.0`")
	must(t, disk.WriteFile(d, op, l.Program("1.1.0"), []byte("muster 1.0.0"), 0o755))
	refused(l.Switch(t.Context(), "1.1.0", false), "is version 1.0.0")
	must(t, disk.WriteFile(d, op, l.Program("1.1.0"), []byte("muster 1.1.0"), 0o644))
	refused(l.Switch(t.Context(), "1.1.0", false), "is no program")
	if got := list(t, l); got != "1.1.0: /usr/lib/muster/1.1.0/bin/muster is no program, 1.0.0 current" || runs(d) != "muster 1.0.0" {
		t.Errorf("there are %s, and %s runs", got, runs(d))
	}
	_, err = l.Install(t.Context(), "latest", "/build/1.1.0")
	refused(err, "only released versions are installed")

	// Links of something else stay.
	other := view(machine(t, "1.0.0"))
	must(t, other.MkdirAll(op, "/usr/bin", 0o755))
	must(t, other.Symlink(op, "/opt/other/muster", "/usr/bin/muster"))
	_, err = at(other).Install(t.Context(), "1.0.0", "/build/1.0.0")
	refused(err, "/usr/bin/muster leads to /opt/other/muster")
	must(t, disk.Point(d, op, "/opt/other", "/etc/muster/lib"))
	_, err = l.Current()
	refused(err, "/etc/muster/lib leads to /opt/other, which is no version in /usr/lib/muster")
	refused(l.Switch(t.Context(), "1.0.0", false), "leads to /opt/other")
	for _, target := range []string{"/usr/lib/muster/..", "/usr/lib/muster/1.0.0/../1.1.0", "/usr/lib/muster", "1.0.0", "/usr/lib/muster/latest"} {
		must(t, disk.Point(d, op, target, "/etc/muster/lib"))
		_, err = l.Current()
		refused(err, "which is no version in /usr/lib/muster")
	}
	must(t, l.Switch(t.Context(), "1.0.0", true))
	must(t, disk.WriteFile(d, op, "/build/2.0.0", []byte("muster 2.0.0"), 0o755))
	install(t, l, "2.0.0")
	refused(l.Switch(t.Context(), "2.0.0", false), "version 2.0.0 cannot follow 1.0.0: their major versions differ")
	must(t, l.Switch(t.Context(), "2.0.0", true))
}

// The process is killed, and the power is cut, before each call of an installation, of a switch
// and of a removal: a version that was whole before runs at any time, and repeating the command
// completes it.
func TestInterruptedAtAnyCall(t *testing.T) {
	require.Time(t, "interrupts it at every call")
	begin := machine(t, "1.0.0", "1.1.0")
	install(t, at(view(begin)), "1.0.0")
	begin.SyncAll()
	both := begin.Clone()
	install(t, at(view(both)), "1.1.0")
	both.SyncAll()
	for name, c := range map[string]struct {
		begin *simdisk.FS
		do    func(*Layout) error
		want  string
	}{
		"first installation": {machine(t, "1.0.0"), func(l *Layout) error { _, err := l.Install(t.Context(), "1.0.0", "/build/1.0.0"); return err }, "1.0.0 current"},
		"installation":       {begin, func(l *Layout) error { _, err := l.Install(t.Context(), "1.1.0", "/build/1.1.0"); return err }, "1.1.0, 1.0.0 current"},
		"switch":             {both, func(l *Layout) error { return l.Switch(t.Context(), "1.1.0", false) }, "1.1.0 current, 1.0.0"},
		"removal": {both, func(l *Layout) error {
			err := l.Remove("1.1.0")
			if err != nil && strings.Contains(err.Error(), "is not installed") {
				return nil // the first try has removed it
			}
			return err
		}, "1.0.0 current"},
	} {
		t.Run(name, func(t *testing.T) {
			points := 0
			check := func(left *simdisk.FS, how string, call simdisk.Call) {
				points++
				d := view(left)
				if ran := runs(d); name != "first installation" && ran != "muster 1.0.0" && ran != "muster 1.1.0" {
					t.Fatalf("%s before %s %s: %q runs", how, call.Name, call.Path, ran)
				}
				if err := c.do(at(d)); err != nil {
					t.Fatalf("%s before %s %s: repeated: %v", how, call.Name, call.Path, err)
				}
				if got := list(t, at(d)); got != c.want {
					t.Fatalf("%s before %s %s: there are %s, want %s", how, call.Name, call.Path, got, c.want)
				}
				for path := range left.Tree("/") {
					if strings.HasPrefix(filepath.Base(path), ".unpack-") && name != "removal" {
						t.Fatalf("%s before %s %s: %s is left", how, call.Name, call.Path, path)
					}
				}
			}
			fs := c.begin.Clone()
			must(t, c.do(at(fs.View(func(call simdisk.Call) error {
				if call.Kind != simdisk.Read {
					check(fs.Killed(), "killed", call)
					for _, cut := range fs.Cuts() {
						check(fs.After(cut), cut.String(), call)
					}
				}
				return nil
			}))))
			for _, cut := range fs.Cuts() {
				check(fs.After(cut), cut.String(), simdisk.Call{Name: "the end"})
			}
			if points < 10 {
				t.Errorf("only %d points", points)
			}
		})
	}
}
