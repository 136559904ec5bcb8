package packagecmd

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/packaging/trust/tuf"
	"github.com/muster-fleet/muster/packaging/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/testing/fakepkg"
)

// fakeServer takes what a real one would: it runs the same rules.
type fakeServer struct {
	keys  tuf.Online
	state tuf.Repository
	// offered replaces what it says it has, when it lies.
	offered [][]byte
	down    error
}

func (f *fakeServer) OnlineKeys(context.Context) ([]tuf.PublicKey, error) {
	return tuftest.Public(f.keys...), f.down
}

func (f *fakeServer) Files(context.Context) ([][]byte, error) {
	if f.offered != nil {
		return f.offered, f.down
	}
	files := append([][]byte{}, f.state.Roots...)
	if f.state.Targets != nil {
		files = append(files, f.state.Targets)
	}
	return files, f.down
}

func (f *fakeServer) Publish(_ context.Context, files ...[]byte) (string, error) {
	if f.down != nil {
		return "", f.down
	}
	next, err := tuf.Accept(f.state, time.Now(), files...)
	if err == nil {
		next, err = f.keys.Sign(next, time.Now())
	}
	if err != nil {
		return "", err
	}
	f.state = next
	return tuf.Digest(next.Root()), nil
}

func (f *fakeServer) Show(_ context.Context, w io.Writer, _ bool) error {
	_, err := io.WriteString(w, "the server\n")
	return err
}

// desk is a folder of a publisher and the server they publish on.
type desk struct {
	release
	server *fakeServer
}

func newDesk(t *testing.T) desk {
	t.Helper()
	return desk{newRelease(t), &fakeServer{keys: tuf.Online{tuftest.Key(t, "server")}}}
}

func (d desk) try(args ...string) (string, error) {
	d.t.Helper()
	var out, errOut bytes.Buffer
	cmd := New()
	AddTrust(cmd, d.server)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SilenceErrors = true
	err := cmd.ExecuteContext(d.t.Context())
	return out.String(), err
}

func (d desk) run(args ...string) string {
	d.t.Helper()
	out, err := d.try(args...)
	if err != nil {
		d.t.Fatalf("package %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (d desk) refuses(words []string, args ...string) {
	d.t.Helper()
	_, err := d.try(args...)
	if err == nil {
		d.t.Errorf("package %s works, want an error", strings.Join(args, " "))
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			d.t.Errorf("package %s says\n%v\nwithout %q", strings.Join(args, " "), err, word)
		}
	}
}

func (d desk) says(text string, words ...string) {
	d.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			d.t.Errorf("%q is not in\n%s", word, text)
		}
	}
}

func (d desk) archive(version string) string {
	d.t.Helper()
	return fakepkg.Write(d.t, d.dir, "muster-agent-"+version+"-linux-amd64.tar.gz", fakepkg.Sound(d.t, fakepkg.Describe(version)))
}

func TestKeysAreLockedByAPassword(t *testing.T) {
	d := newDesk(t)
	d.refuses([]string{"--no-password", passwordEnv}, "keys", "init")
	if files := strings.Join(d.files(), " "); strings.Contains(files, "key") || strings.Contains(files, "json") {
		t.Errorf("an init that failed left %s", files)
	}
	// One key alone: each guess at a password is made to take its time.
	d.write("password.txt", "correct horse\n", 0o600)
	d.run("keys", "generate", "--key", "tina.key", "--password-file", "password.txt")
	d.run("keys", "init", "--no-password", "--targets-keys", "0", "--targets-pub", "tina.pub")
	key, err := os.ReadFile("tina.key")
	if err != nil || !tuf.NeedsPassword(key) {
		t.Fatalf("the key is not locked: %v", err)
	}
	archive := d.archive("1.1.0")
	t.Setenv(passwordEnv, "wrong")
	_, err = d.try("add", archive, "--targets-key", "tina.key")
	if !errors.Is(err, trust.ErrWrongPassword) {
		t.Errorf("with the wrong password: %v", err)
	}
	d.says(d.run("add", archive, "--targets-key", "tina.key", "--password-file", "password.txt"), "published 1.targets.json")
	d.refuses([]string{"1.root.json exists", "never written over"}, "keys", "init", "--no-password")
	d.refuses([]string{"contradict"}, "keys", "generate", "--key", "x.key", "--no-password", "--password-file", "password.txt")
}

func TestAReleaseOnAMachineWithoutANetwork(t *testing.T) {
	d := newDesk(t)
	d.run("keys", "init", "--no-password")
	d.server.down = errors.New("no route to host")
	archive := d.archive("1.1.0")
	d.refuses([]string{"no route to host", "--offline"}, "add", archive, "--targets-key", "targets-1.key")
	d.says(d.run("add", archive, "--targets-key", "targets-1.key", "--floor", "1.0.0", "--offline"), "1.targets.json", "1 of 1 signatures", "keys publish")
	d.server.down = nil
	d.says(d.run("keys", "publish", "1.root.json", "1.targets.json"), "published 1.root.json, 1.targets.json", "--trust-root sha256:")
	// What was signed offline and never published goes up with the next command.
	d.run("floor", "1.1.0", "--targets-key", "targets-1.key", "--offline")
	d.says(d.run("floor", "1.1.0", "--targets-key", "targets-1.key"), "published 2.targets.json")
	d.says(d.run("floor", "1.1.0", "--targets-key", "targets-1.key"), "targets version 2 says so already")
	said, err := tuf.ContentsOf(d.server.state.Targets)
	if err != nil || said.Floor != "1.1.0" || len(said.Targets) != 1 || said.Targets[0].Unpacked == 0 {
		t.Errorf("the server has %+v, %v", said, err)
	}
}

// The publisher is not to sign on top of what a thief made of the server.
func TestAPublisherBelievesNoServer(t *testing.T) {
	d := newDesk(t)
	d.run("keys", "init", "--no-password")
	add := func(version string) []string {
		return []string{"add", d.archive(version), "--targets-key", "targets-1.key"}
	}
	d.run(add("1.1.0")...)
	root, first := d.server.state.Root(), d.server.state.Targets
	d.run(add("1.2.0")...)
	second := d.server.state.Targets

	d.server.offered = [][]byte{root, bytes.Replace(second, []byte(`"version": 2`), []byte(`"version": 3`), 1)}
	d.refuses([]string{"3.targets.json cannot be believed", "still needs one of: targets-1 ("}, add("1.3.0")...)
	d.server.offered = [][]byte{root, bytes.Replace(second, []byte("1.2.0"), []byte("1.2.9"), 1)}
	d.refuses([]string{"is not the one in", "find out who signed it"}, add("1.3.0")...)
	other := newDesk(t)
	other.run("keys", "init", "--no-password")
	t.Chdir(d.dir)
	forged, err := os.ReadFile(filepath.Join(other.dir, "1.root.json"))
	if err != nil {
		t.Fatal(err)
	}
	d.server.offered = [][]byte{bytes.Replace(forged, []byte(`"version": 1`), []byte(`"version": 2`), 1)}
	d.refuses([]string{"2.root.json cannot be believed"}, add("1.3.0")...)
	// An old state is passed over: what is on the shelf is newer.
	d.server.offered = [][]byte{root, first}
	d.run(add("1.3.0")...)
	said, err := tuf.ContentsOf(d.server.state.Targets)
	if err != nil || said.Version != 3 || len(said.Targets) != 3 {
		t.Errorf("the server has %+v, %v", said, err)
	}
}

func TestWhatPublishersGetWrong(t *testing.T) {
	d := newDesk(t)
	archive := d.archive("1.1.0")
	d.write("hello.json", "hello", 0o644)
	d.refuses([]string{"holds no root file", "keys init"}, "add", archive)
	d.refuses([]string{"--root-keys is -1"}, "keys", "init", "--root-keys", "-1", "--no-password")
	d.refuses([]string{"root.threshold"}, "keys", "init", "--root-threshold", "2", "--no-password")
	d.refuses([]string{"targets.keys: there are none"}, "keys", "init", "--targets-keys", "0", "--no-password")
	d.refuses([]string{"--root-pub nobody.pub", "muster-tuf-ed25519"}, "keys", "init", "--root-pub", "nobody.pub", "--no-password")
	d.refuses([]string{"also a key of the server"}, "keys", "init", "--root-pub", d.server.keys[0].Public().String(), "--no-password")
	d.server.down = errors.New("no route to host")
	d.refuses([]string{"online key", "--online-key"}, "keys", "init", "--no-password")
	d.server.down = nil
	d.refuses([]string{"--key is missing"}, "keys", "generate")
	d.refuses([]string{"key name"}, "keys", "generate", "--key", "x.key", "--name", "two words", "--no-password")

	d.run("keys", "init", "--no-password", "--targets-keys", "2", "--targets-threshold", "2")
	d.refuses([]string{"no archive is named"}, "add")
	d.refuses([]string{"none.key", "keys init"}, "add", archive, "--targets-key", "none.key")
	d.refuses([]string{"PEM"}, "add", archive, "--targets-key", "hello.json")
	d.refuses([]string{"is none of", "targets-1 ("}, "add", archive, "--targets-key", "root-1.key")
	d.refuses([]string{"floor", "newest"}, "floor", "newest", "--targets-key", "targets-1.key")
	d.refuses([]string{`want one version, or "none"`}, "floor")
	d.refuses([]string{"--root", "nowhere"}, "floor", "1.0.0", "--root", "nowhere")
	d.refuses([]string{"want signed files", "--server"}, "keys", "show")
	d.refuses([]string{"want signed files", "--server"}, "keys", "show", "1.root.json", "--server")
	d.refuses([]string{"hello.json", "not JSON"}, "keys", "show", "hello.json")
	d.refuses([]string{"no signed file is named"}, "keys", "publish")
	d.refuses([]string{"0 files are named"}, "keys", "sign")
	d.refuses([]string{"--key is missing"}, "keys", "sign", "1.root.json")
	d.refuses([]string{"is none of"}, "keys", "sign", "1.root.json", "--key", "targets-1.key")
	d.refuses([]string{"1 files are named, want two"}, "keys", "merge", "1.root.json")
	d.refuses([]string{"--trust-root", "64"}, "keys", "fetch", "--trust-root", "abc")
	for flag, words := range map[string][]string{
		"--add=tester=x": {"want root=… or targets=…"}, "--add=root": {"want root=… or targets=…"}, "--add=root=nobody.pub": {"neither a file"},
		"--add=targets=targets-1.pub": {"is there twice"}, "--remove=root=bob": {"is none of the keys root-1 ("}, "--remove=root=root-1": {"there are none"},
		"--replace=root=root-1": {"KEY:PUBLIC_KEY"}, "--threshold=targets=3": {"targets.threshold", "1 to 2"}, "--threshold=targets=x": {"want a number"},
		"--online-key=nobody.pub": {"--online-key nobody.pub"}, "--key=targets-1.key": {"is none of"},
	} {
		d.refuses(words, "keys", "rotate", flag)
	}
	if _, err := os.Stat("2.root.json"); err == nil {
		t.Error("a rotation that failed left a root")
	}

	d.run("keys", "publish", "1.root.json")
	d.says(d.run("keys", "show", "--server"), "the server")
	d.says(d.run("keys", "show", "1.root.json"), "1 of 1 signatures", "--trust-root sha256:", "targets: 2 of these keys sign", "targets-2")
	d.run("add", archive, "--targets-key", "targets-1.key")
	d.says(d.run("keys", "show", "1.targets.json"), "still needs one of: targets-2 (", "muster-agent-1.1.0-linux-amd64.tar.gz")
	d.refuses([]string{"one file is a root"}, "keys", "merge", "1.root.json", "1.targets.json")
	if err := os.Rename("1.targets.json", "7.targets.json"); err != nil {
		t.Fatal(err)
	}
	d.refuses([]string{"7.targets.json: holds 1.targets.json"}, "add", archive)
}

func TestKeysThatPeopleMadeThemselves(t *testing.T) {
	d := newDesk(t)
	for _, name := range []string{"ann", "bob", "eve"} {
		d.says(d.run("keys", "generate", "--key", name+".key", "--name", name, "--no-password"), name+".pub", "muster-tuf-ed25519 ")
	}
	d.write("server.pub", d.server.keys[0].Public().String()+"\n", 0o644)
	d.server.down = errors.New("nobody is asked")
	said := d.run("keys", "init", "--dir", "release", "--root-keys", "0", "--root-pub", "ann.pub", "--root-pub", "bob.pub", "--root-pub", "eve.pub",
		"--targets-keys", "0", "--targets-pub", "ann.pub", "--online-key", "server.pub")
	d.says(said, "0 of 2 signatures", "keys sign release/1.root.json")
	if strings.Contains(said, "trust-root") {
		t.Error("a root that will change is said to be one to trust")
	}
	d.refuses([]string{"0 of 2 signatures", "keys sign"}, "add", d.archive("1.1.0"), "--root", "release", "--targets-key", "ann.key")
	d.run("keys", "sign", "release/1.root.json", "--key", "ann.key")
	d.says(d.run("keys", "sign", "release/1.root.json", "--key", "eve.key"), "2 of 2 signatures")
	d.server.down = nil
	d.says(d.run("add", d.archive("1.1.0"), "--root", "release", "--targets-key", "ann.key"), "published 1.targets.json")
	// A root file alone is enough to check a colleague's work.
	d.says(d.run("keys", "show", "release/1.targets.json", "--root", "release/1.root.json"), "1 of 1 signatures")
}
