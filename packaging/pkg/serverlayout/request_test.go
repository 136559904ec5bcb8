//go:build unix

package serverlayout

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestParseRequest(t *testing.T) {
	for line, want := range map[string]struct {
		request Request
		says    string
	}{
		"switch 1.2.0":               {Request{true, "1.2.0"}, ""},
		"check 1.2.0-rc.1":           {Request{false, "1.2.0-rc.1"}, ""},
		"":                           {says: "want check or switch, and a version"},
		"1.2.0":                      {says: "want check or switch, and a version"},
		"remove 1.2.0":               {says: "want check or switch, and a version"},
		"switch":                     {says: "want check or switch, and a version"},
		"switch ":                    {says: `version is ""`},
		"switch 1.2.0 --force":       {says: "version is"},
		"switch  1.2.0":              {says: "version is"},
		"switch ..":                  {says: "version is"},
		"switch 1.2.0/../../x":       {says: "version is"},
		"switch /tmp/1.2.0":          {says: "version is"},
		"switch ../1.2.0":            {says: "version is"},
		"switch latest":              {says: "version is"},
		"switch 1.2.0\r":             {says: "version is"},
		"switch 1.2.0\x00":           {says: "version is"},
		"switch 1.2.0-" + "a/b":      {says: "version is"},
		"switch 1.2.0-..":            {says: "version is"},
		"switch -1.2.0":              {says: "version is"},
		"Switch 1.2.0":               {says: "want check or switch"},
		"switch\t1.2.0":              {says: "want check or switch"},
		"switch 1.2.0\nswitch 1.1.0": {says: "version is"},
	} {
		got, err := ParseRequest(line)
		if got != want.request || (err == nil) != (want.says == "") || err != nil && !strings.Contains(err.Error(), want.says) {
			t.Errorf("%q: %+v, %v, want %+v, %q", line, got, err, want.request, want.says)
		}
	}
}

// installation is one of 1.0.0 and 1.1.0 on the disk of this machine.
func installation(t *testing.T) *Layout {
	t.Helper()
	top, err := os.MkdirTemp("", "layout-") // the path of a socket is limited to 104 bytes
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(top)) })
	top, err = filepath.EvalSymlinks(top)
	must(t, err)
	l := at(disk.OS{})
	l.Prefix, l.SysConfDir, l.Run = filepath.Join(top, "usr"), filepath.Join(top, "etc"), filepath.Join(top, "run")
	for _, dir := range []string{l.Prefix, l.SysConfDir, l.Run} {
		must(t, os.MkdirAll(dir, 0o755))
	}
	for _, v := range []string{"1.0.0", "1.1.0"} {
		from := filepath.Join(top, v)
		must(t, os.WriteFile(from, []byte("muster "+v), 0o755))
		_, err := l.Install(t.Context(), v, from)
		must(t, err)
	}
	return l
}

// ask sends a line to root's side, and returns the answer.
func ask(t *testing.T, l *Layout, line string) string {
	t.Helper()
	ours, theirs := net.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := l.Answer(t.Context(), theirs, os.Getuid())
		done <- errors.Join(err, theirs.Close())
	}()
	if _, err := io.WriteString(ours, line); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(ours)
	must(t, errors.Join(err, <-done))
	return strings.TrimSuffix(string(answer), "\n")
}

// Root's side runs and points to a version only if nobody else can change anything on the way.
func TestRequestsAreAnsweredForWhatOnlyRootCanChange(t *testing.T) {
	chmod := func(mode os.FileMode, of func(*Layout) string) func(*testing.T, *Layout) {
		return func(t *testing.T, l *Layout) { must(t, os.Chmod(of(l), mode)) }
	}
	for name, c := range map[string]struct {
		line   string
		spoil  func(*testing.T, *Layout)
		answer string
		then   string
	}{
		"a version":                {"switch 1.1.0\n", nil, "yes", "1.1.0"},
		"a question":               {"check 1.1.0\n", nil, "yes", "1.0.0"},
		"the present one":          {"switch 1.0.0\n", nil, "yes", "1.0.0"},
		"none that is there":       {"switch 1.1.1\n", nil, "no version 1.1.1 is not installed in", "1.0.0"},
		"a name that leads away":   {"switch ../../tmp\n", nil, `no version is "../../tmp"`, "1.0.0"},
		"an absolute path":         {"switch /tmp/1.1.0\n", nil, `no version is "/tmp/1.1.0"`, "1.0.0"},
		"another request":          {"remove 1.1.0\n", nil, "no request is", "1.0.0"},
		"a version that is a link": {"switch 1.1.1\n", func(t *testing.T, l *Layout) { must(t, os.Symlink(l.Home("1.1.0"), l.Home("1.1.1"))) }, "no ", "1.0.0"},
		"another major version": {"switch 2.0.0\n", func(t *testing.T, l *Layout) {
			must(t, os.MkdirAll(filepath.Dir(l.Program("2.0.0")), 0o755))
			must(t, os.WriteFile(l.Program("2.0.0"), []byte("muster 2.0.0"), 0o755))
		}, "no version 2.0.0 cannot follow 1.0.0", "1.0.0"},
		"a program of others":        {"switch 1.1.0\n", chmod(0o757, func(l *Layout) string { return l.Program("1.1.0") }), "no ", "1.0.0"},
		"a version of others":        {"check 1.1.0\n", chmod(0o757, func(l *Layout) string { return l.Home("1.1.0") }), "no ", "1.0.0"},
		"versions of everybody":      {"switch 1.1.0\n", chmod(0o757, (*Layout).folder), "no ", "1.0.0"},
		"a prefix of others":         {"switch 1.1.0\n", chmod(0o757, func(l *Layout) string { return l.Prefix }), "no ", "1.0.0"},
		"a pointer of others":        {"switch 1.1.0\n", chmod(0o757, func(l *Layout) string { return filepath.Dir(l.pointer()) }), "no ", "1.0.0"},
		"a folder above the pointer": {"switch 1.1.0\n", chmod(0o777, func(l *Layout) string { return l.SysConfDir }), "no ", "1.0.0"},
	} {
		t.Run(name, func(t *testing.T) {
			l := installation(t)
			if c.spoil != nil {
				c.spoil(t, l)
			}
			answer := ask(t, l, c.line)
			if answer != c.answer && (c.answer == "yes" || !strings.HasPrefix(answer, c.answer)) || len(answer) < 3 {
				t.Errorf("the answer is %q, want %q", answer, c.answer)
			}
			if current, err := l.Current(); err != nil || current != c.then {
				t.Errorf("the pointer leads to %s, %v, want %s", current, err, c.then)
			}
		})
	}
}

// What is no request is not waited for, and not read to its end.
func TestEndlessRequestIsCutOff(t *testing.T) {
	ours, theirs := net.Pipe()
	go func() { _, _ = io.Copy(ours, strings.NewReader("switch "+strings.Repeat("1", 1<<20))); ours.Close() }()
	if _, _, err := installation(t).Answer(t.Context(), theirs, os.Getuid()); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an endless line: %v", err)
	}
}

// A version of another user's, whatever its modes are.
func TestVersionOfAnotherUserIsRefused(t *testing.T) {
	require.Root(t)
	const service = 65534
	l := installation(t)
	must(t, os.Chown(filepath.Dir(l.pointer()), 0, service))
	must(t, os.Chmod(filepath.Dir(l.pointer()), 0o770))
	if answer := ask(t, l, "switch 1.1.0\n"); !strings.HasPrefix(answer, "no ") || !strings.Contains(answer, "(mode 0770)") {
		t.Errorf("the folder of the pointer is of the server's group: %q", answer)
	}
	for _, of := range []func(*Layout) string{
		func(l *Layout) string { return l.Program("1.1.0") }, func(l *Layout) string { return l.Home("1.1.0") },
		(*Layout).folder, func(l *Layout) string { return filepath.Dir(l.pointer()) },
	} {
		l := installation(t)
		must(t, os.Chown(of(l), service, service))
		if answer := ask(t, l, "switch 1.1.0\n"); !strings.HasPrefix(answer, "no ") || !strings.Contains(answer, of(l)+" belongs to the user 65534") {
			t.Errorf("%s of another user: %q", of(l), answer)
		}
	}
}

// The server that may not write to the folder of the pointer asks, and says what to do if nobody answers.
func TestServerAsksWhereItMayNotWrite(t *testing.T) {
	require.Root(t) // it may, wherever it is
	l := installation(t)
	must(t, l.CheckMove(t.Context(), "1.1.0"))
	must(t, l.Move(t.Context(), "1.1.0"))
	must(t, l.Move(t.Context(), "1.0.0"))

	const service = "65534"
	asServer := func(version string) (string, error) {
		c := exec.CommandContext(t.Context(), "setpriv", "--reuid="+service, "--regid="+service, "--clear-groups", os.Args[0], "-test.run=^TestMoveOfTheOwner$")
		c.Env = append(os.Environ(), "MUSTER_TEST_MOVE="+version, "MUSTER_TEST_PREFIX="+l.Prefix, "MUSTER_TEST_SYSCONFDIR="+l.SysConfDir, "MUSTER_TEST_RUN="+l.Run)
		out, err := c.CombinedOutput()
		return string(out), err
	}
	// Another user has to reach the installation and this program.
	for _, path := range []string{filepath.Dir(l.Run), os.Args[0], filepath.Dir(os.Args[0]), filepath.Dir(filepath.Dir(os.Args[0]))} {
		must(t, os.Chmod(path, 0o755))
	}
	out, err := asServer("1.1.0")
	if err == nil || !strings.Contains(out, "sudo systemctl start muster-switch.socket") || !strings.Contains(out, l.Socket()+" does not answer") {
		t.Errorf("without a unit: %v\n%s", err, out)
	}

	unit, err := net.Listen("unix", l.Socket())
	must(t, err)
	defer unit.Close()
	must(t, os.Chmod(l.Socket(), 0o666))
	go func() {
		for {
			conn, err := unit.Accept()
			if err != nil {
				return
			}
			_, _, _ = l.Answer(context.Background(), conn, 0) // the answer says it
			_ = conn.Close()
		}
	}()
	if out, err := asServer("1.1.0"); err != nil {
		t.Errorf("with a unit: %v\n%s", err, out)
	}
	if current, err := l.Current(); err != nil || current != "1.1.0" {
		t.Errorf("the pointer leads to %s, %v", current, err)
	}
	must(t, os.Chown(l.Home("1.0.0"), 65534, 65534))
	if out, err := asServer("1.0.0"); err == nil || !strings.Contains(out, "muster-switch.socket refuses to check 1.0.0: ") || !strings.Contains(out, "belongs to the user 65534") {
		t.Errorf("to a version of its own: %v\n%s", err, out)
	}
}

// The owner of an installation moves the pointer itself. TestServerAsksWhereItMayNotWrite runs this test
// as another user, with its own installation.
func TestMoveOfTheOwner(t *testing.T) {
	var l *Layout
	version := os.Getenv("MUSTER_TEST_MOVE")
	if version == "" {
		l, version = installation(t), "1.1.0"
	} else {
		l = at(disk.OS{})
		l.Prefix, l.SysConfDir, l.Run = os.Getenv("MUSTER_TEST_PREFIX"), os.Getenv("MUSTER_TEST_SYSCONFDIR"), os.Getenv("MUSTER_TEST_RUN")
	}
	must(t, l.CheckMove(t.Context(), version))
	must(t, l.Move(t.Context(), version))
	if current, err := l.Current(); err != nil || current != version {
		t.Errorf("the pointer leads to %s, %v, want %s", current, err, version)
	}
}
