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

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// fakeServer accepts and refuses files by the rules of a real server.
type fakeServer struct {
	keys  tuf.Online
	state tuf.Repository
	// offered, if set, replaces the files it returns.
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
	for _, data := range [][]byte{f.state.Targets, f.state.Snapshot, f.state.Timestamp} {
		if data != nil {
			files = append(files, data)
		}
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

// publisher is a release with the server that it is published on.
type publisher struct {
	release
	server *fakeServer
}

func newPublisher(t *testing.T) publisher {
	t.Helper()
	return publisher{newRelease(t), &fakeServer{keys: tuf.Online{tuftest.Key(t, "server")}}}
}

func (p publisher) try(args ...string) (string, error) {
	p.t.Helper()
	var out, errOut bytes.Buffer
	cmd := New()
	AddKeyCommands(cmd, p.server)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(""))
	cmd.SetOut(&out)
	cmd.SetErr(&errOut)
	cmd.SilenceErrors = true
	err := cmd.ExecuteContext(p.t.Context())
	return out.String(), err
}

func (p publisher) run(args ...string) string {
	p.t.Helper()
	out, err := p.try(args...)
	if err != nil {
		p.t.Fatalf("package %s: %v", strings.Join(args, " "), err)
	}
	return out
}

func (p publisher) refuses(words []string, args ...string) {
	p.t.Helper()
	_, err := p.try(args...)
	if err == nil {
		p.t.Errorf("package %s works, want an error", strings.Join(args, " "))
		return
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			p.t.Errorf("package %s says\n%v\nwithout %q", strings.Join(args, " "), err, word)
		}
	}
}

func (p publisher) says(text string, words ...string) {
	p.t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			p.t.Errorf("%q is not in\n%s", word, text)
		}
	}
}

func (p publisher) archive(version string) string {
	p.t.Helper()
	return fakepkg.Write(p.t, p.dir, "muster-agent-"+version+"-linux-amd64.tar.gz", fakepkg.Sound(p.t, fakepkg.Describe(version)))
}

func TestPrivateKeysNeedAPassword(t *testing.T) {
	p := newPublisher(t)
	p.refuses([]string{"--no-password", passwordEnv}, "keys", "init")
	if files := strings.Join(p.files(), " "); strings.Contains(files, "key") || strings.Contains(files, "json") {
		t.Errorf("a failed init left %s", files)
	}
	// One key alone: deriving a key from a password is slow.
	p.write("password.txt", "correct horse\n", 0o600)
	p.run("keys", "generate", "--key", "tina.key", "--password-file", "password.txt")
	p.run("keys", "init", "--no-password", "--targets-keys", "0", "--targets-pub", "tina.pub")
	key, err := os.ReadFile("tina.key")
	if err != nil || !tuf.NeedsPassword(key) {
		t.Fatalf("the key is not locked: %v", err)
	}
	archive := p.archive("1.1.0")
	t.Setenv(passwordEnv, "wrong")
	_, err = p.try("add", archive, "--targets-key", "tina.key")
	if !errors.Is(err, trust.ErrWrongPassword) {
		t.Errorf("with the wrong password: %v", err)
	}
	p.says(p.run("add", archive, "--targets-key", "tina.key", "--password-file", "password.txt"), "published 1.targets.json")
	p.refuses([]string{"1.root.json exists", "never overwritten"}, "keys", "init", "--no-password")
	p.refuses([]string{"exclude each other"}, "keys", "generate", "--key", "x.key", "--no-password", "--password-file", "password.txt")
}

// Agents request an archive by one name, which the targets file includes.
func TestAddRefusesPackagesThatHostsRefuse(t *testing.T) {
	p := newPublisher(t)
	p.run("keys", "init", "--no-password")
	refuses := func(name string, words ...string) {
		t.Helper()
		p.refuses(words, "add", name, "--targets-key", "targets-1.key")
	}
	copyOf := func(archive, name string) {
		t.Helper()
		p.write(name, read(t, archive), 0o644)
	}
	archive := filepath.Base(p.archive("1.1.0"))
	copyOf(archive, "latest.tar.gz")
	refuses("latest.tar.gz", "mv latest.tar.gz "+archive)
	// The platform of a legacy package, and with it the name, is read from its program.
	writeLegacy(t, p.dir, fakepkg.DescribeLegacy("1.1.0-SNAPSHOT"))
	refuses("download.tar.gz", "mv download.tar.gz muster-agent-1.1.0-SNAPSHOT-linux-arm64.tar.gz")
	// Under another name it would be another component's, or an agent's.
	described := fakepkg.DescribeComponent(fakepkg.Component("web"), "2.4.0")
	web := described.ArchiveName("tar.gz")
	fakepkg.Write(t, p.dir, web, fakepkg.SoundComponent(t, described))
	for _, name := range []string{"muster-component-db-2.4.0-linux-amd64.tar.gz", "muster-agent-2.4.0-linux-amd64.tar.gz"} {
		copyOf(web, name)
		refuses(name, "mv "+name+" "+web)
	}
	p.write("text.tar.gz", "no archive", 0o644)
	refuses("text.tar.gz", "neither a tar.gz nor a zip")
	for _, evil := range fakepkg.EvilPackages(t, "1.1.0") {
		if evil.Name == "symbolic link" {
			fakepkg.Write(t, p.dir, archive, evil.Entries)
			refuses(archive, evil.Why)
			p.refuses([]string{evil.Why}, "inspect", archive)
		}
	}
	if p.server.state.Targets != nil {
		t.Error("what was refused is published")
	}
}

// A host verifies the folder that keys mirror has written, as a source without a server.
func TestMirrorIsACopyThatHostsAccept(t *testing.T) {
	p := newPublisher(t)
	p.refuses([]string{"--out is missing"}, "keys", "mirror")
	p.run("keys", "init", "--no-password")
	p.refuses([]string{"keys publish"}, "keys", "mirror", "--out", "copy")
	p.run("add", p.archive("1.1.0"), "--targets-key", "targets-1.key")
	p.run("keys", "generate", "--key", "online.key", "--name", "here", "--no-password")
	p.refuses([]string{"does not hold the key", "server ("}, "keys", "mirror", "--out", "copy", "--online-key", "online.key")
	if _, err := os.Lstat("copy"); err == nil {
		t.Error("what was refused has written something")
	}
	// accepts verifies a version with the copy alone.
	accepts := func(version string) {
		t.Helper()
		pinned, err := os.ReadFile("1.root.json")
		dir := t.TempDir()
		if err == nil {
			err = tuf.Pin(disk.OS{}, dir, pinned)
		}
		if err != nil {
			t.Fatal(err)
		}
		client := &tuf.Client{Disk: disk.OS{}, Dir: dir}
		expect, err := client.Expect(t.Context(), "muster-agent-"+version+"-linux-amd64.tar.gz", func(_ context.Context, name string, _ int64) ([]byte, error) {
			return os.ReadFile(filepath.Join("copy", name))
		})
		if err != nil {
			t.Fatal(err)
		}
		archive, err := os.Open(filepath.Join(p.dir, "muster-agent-"+version+"-linux-amd64.tar.gz"))
		if err != nil {
			t.Fatal(err)
		}
		defer archive.Close()
		if _, err := expect.Verify(archive); err != nil {
			t.Error(err)
		}
	}
	p.says(p.run("keys", "mirror", "--out", "copy"), "1.root.json", "1.targets.json", "snapshot.json", tuf.TimestampFile)
	accepts("1.1.0")

	// The next root names a key that is on no server, and the server is gone.
	p.run("keys", "rotate", "--key", "root-1.key", "--online-key", "online.pub")
	p.server.down = errors.New("no route to host")
	p.run("add", p.archive("1.2.0"), "--targets-key", "targets-1.key", "--offline")
	p.refuses([]string{"no route to host"}, "keys", "mirror", "--out", "copy")
	p.run("keys", "mirror", "--out", "copy", "--online-key", "online.key")
	accepts("1.2.0")

	// A server that offers what its publishers have not signed.
	p.server.down = nil
	p.refuses([]string{"newest root is not the one in"}, "keys", "mirror", "--out", "copy")
	stranger := tuftest.New(t)
	stranger.Release("9.9.9", "evil")
	p.server.offered = [][]byte{stranger.State.Root(), stranger.State.Targets, stranger.State.Snapshot, stranger.State.Timestamp}
	p.refuses([]string{"newest root is not the one in"}, "keys", "mirror", "--out", "copy")
}

func TestAddOfflineIsPublishedLater(t *testing.T) {
	p := newPublisher(t)
	p.run("keys", "init", "--no-password")
	p.server.down = errors.New("no route to host")
	archive := p.archive("1.1.0")
	p.refuses([]string{"no route to host", "--offline"}, "add", archive, "--targets-key", "targets-1.key")
	p.says(p.run("add", archive, "--targets-key", "targets-1.key", "--floor", "1.0.0", "--offline"), "1.targets.json", "1 of 1 signatures", "keys publish")
	p.server.down = nil
	p.says(p.run("keys", "publish", "1.root.json", "1.targets.json"), "published 1.root.json, 1.targets.json", "--trust-root sha256:")
	// The next command publishes a file that was signed offline.
	p.run("floor", "1.1.0", "--targets-key", "targets-1.key", "--offline")
	p.says(p.run("floor", "1.1.0", "--targets-key", "targets-1.key"), "published 2.targets.json")
	p.says(p.run("floor", "1.1.0", "--targets-key", "targets-1.key"), "targets version 2 is up to date")
	said, err := tuf.ContentsOf(p.server.state.Targets)
	if err != nil || said.Floor != "1.1.0" || len(said.Targets) != 1 || said.Targets[0].Unpacked == 0 {
		t.Errorf("the server has %+v, %v", said, err)
	}
}

func TestPublisherAllowsADowngrade(t *testing.T) {
	p := newPublisher(t)
	p.run("keys", "init", "--no-password")
	p.run("add", p.archive("1.1.0"), "--targets-key", "targets-1.key")
	p.refuses([]string{"1.0.0", "add its archive first"}, "allow-downgrade", "1.0.0", "--targets-key", "targets-1.key")
	p.refuses([]string{"--for is 0s"}, "allow-downgrade", "1.1.0", "--for", "0", "--targets-key", "targets-1.key")
	p.refuses([]string{"want one version"}, "allow-downgrade")
	p.says(p.run("allow-downgrade", "1.1.0", "--for", "1h", "--targets-key", "targets-1.key"), "published 2.targets.json")
	said, err := tuf.ContentsOf(p.server.state.Targets)
	if err != nil || len(said.Downgrades) != 1 || said.Downgrades[0].Version != "1.1.0" || time.Until(said.Downgrades[0].Until) > time.Hour {
		t.Errorf("the server has %+v, %v", said, err)
	}
	p.says(p.run("keys", "show", "2.targets.json"), "hosts may go back to 1.1.0 until ")
	p.says(p.run("allow-downgrade", "1.1.0", "--end", "--targets-key", "targets-1.key"), "published 3.targets.json")
	if said, err := tuf.ContentsOf(p.server.state.Targets); err != nil || len(said.Downgrades) != 0 {
		t.Errorf("the server has %+v, %v", said, err)
	}
}

func TestComponentsHaveFloorsOfTheirOwn(t *testing.T) {
	p := newPublisher(t)
	p.run("keys", "init", "--no-password")
	component := func(name, version string) string {
		described := fakepkg.DescribeComponent(fakepkg.Component(name), version)
		return fakepkg.Write(t, p.dir, described.ArchiveName("tar.gz"), fakepkg.SoundComponent(t, described))
	}
	agent, web := p.archive("1.1.0"), component("web", "2.4.0")
	signing := func(args ...string) []string { return append(args, "--targets-key", "targets-1.key") }
	p.refuses([]string{"each has its own floor", "--component NAME"}, signing("add", agent, web, "--floor", "1.1.0")...)
	p.run(signing("add", agent, web)...)
	p.run(signing("add", component("web", "2.5.0"), "--floor", "2.4.0")...)
	p.run(signing("floor", "1.0.0")...)
	p.refuses([]string{"add its archive first"}, signing("allow-downgrade", "2.4.0")...)
	p.run(signing("allow-downgrade", "2.4.0", "--component", "web")...)
	p.refuses([]string{"--component: ", `"Web"`}, signing("floor", "1.0.0", "--component", "Web")...)
	said, err := tuf.ContentsOf(p.server.state.Targets)
	if err != nil || said.Floor != "1.0.0" || said.LimitsOf("web").Floor != "2.4.0" || len(said.Downgrades) != 0 || len(said.LimitsOf("web").Downgrades) != 1 || len(said.Targets) != 3 {
		t.Errorf("the server has %+v, %v", said, err)
	}
	p.says(p.run("keys", "show", "4.targets.json"), "floor 1.0.0", "component web: floor 2.4.0", "component web: hosts may go back to 2.4.0 until ", "muster-component-web-2.5.0-linux-amd64.tar.gz")
	p.says(p.run(signing("floor", "2.4.0", "--component", "web")...), "targets version 4 is up to date")
	p.says(p.run(signing("floor", "none", "--component", "web")...), "published 5.targets.json")
}

// Otherwise the publisher would sign on top of the files of a server that was taken over.
func TestUnsignedOrOlderFilesOfTheServerAreRefused(t *testing.T) {
	p := newPublisher(t)
	p.run("keys", "init", "--no-password")
	add := func(version string) []string {
		return []string{"add", p.archive(version), "--targets-key", "targets-1.key"}
	}
	p.run(add("1.1.0")...)
	root, first := p.server.state.Root(), p.server.state.Targets
	p.run(add("1.2.0")...)
	second := p.server.state.Targets

	p.server.offered = [][]byte{root, bytes.Replace(second, []byte(`"version": 2`), []byte(`"version": 3`), 1)}
	p.refuses([]string{"3.targets.json cannot be trusted", "still needs one of: targets-1 ("}, add("1.3.0")...)
	p.server.offered = [][]byte{root, bytes.Replace(second, []byte("1.2.0"), []byte("1.2.9"), 1)}
	p.refuses([]string{"differs from the one in", "find out who signed it"}, add("1.3.0")...)
	other := newPublisher(t)
	other.run("keys", "init", "--no-password")
	t.Chdir(p.dir)
	forged, err := os.ReadFile(filepath.Join(other.dir, "1.root.json"))
	if err != nil {
		t.Fatal(err)
	}
	p.server.offered = [][]byte{bytes.Replace(forged, []byte(`"version": 1`), []byte(`"version": 2`), 1)}
	p.refuses([]string{"2.root.json cannot be trusted"}, add("1.3.0")...)
	// Older files are ignored: the folder has newer ones.
	p.server.offered = [][]byte{root, first}
	p.run(add("1.3.0")...)
	said, err := tuf.ContentsOf(p.server.state.Targets)
	if err != nil || said.Version != 3 || len(said.Targets) != 3 {
		t.Errorf("the server has %+v, %v", said, err)
	}
}

func TestInvalidKeyArgumentsAreRefused(t *testing.T) {
	p := newPublisher(t)
	archive := p.archive("1.1.0")
	p.write("hello.json", "hello", 0o644)
	p.refuses([]string{"has no root file", "keys init"}, "add", archive)
	p.refuses([]string{"--root-keys is -1"}, "keys", "init", "--root-keys", "-1", "--no-password")
	p.refuses([]string{"root.threshold"}, "keys", "init", "--root-threshold", "2", "--no-password")
	p.refuses([]string{"targets.keys: there are none"}, "keys", "init", "--targets-keys", "0", "--no-password")
	p.refuses([]string{"--root-pub nobody.pub", "muster-tuf-ed25519"}, "keys", "init", "--root-pub", "nobody.pub", "--no-password")
	p.refuses([]string{"also a key of the server"}, "keys", "init", "--root-pub", p.server.keys[0].Public().String(), "--no-password")
	p.server.down = errors.New("no route to host")
	p.refuses([]string{"online key", "--online-key"}, "keys", "init", "--no-password")
	p.server.down = nil
	p.refuses([]string{"--key is missing"}, "keys", "generate")
	p.refuses([]string{"key name"}, "keys", "generate", "--key", "x.key", "--name", "two words", "--no-password")

	p.run("keys", "init", "--no-password", "--targets-keys", "2", "--targets-threshold", "2")
	p.refuses([]string{"no archive is named"}, "add")
	p.refuses([]string{"none.key", "keys init"}, "add", archive, "--targets-key", "none.key")
	p.refuses([]string{"PEM"}, "add", archive, "--targets-key", "hello.json")
	p.refuses([]string{"is none of", "targets-1 ("}, "add", archive, "--targets-key", "root-1.key")
	p.refuses([]string{"floor", "newest"}, "floor", "newest", "--targets-key", "targets-1.key")
	p.refuses([]string{`want one version, or "none"`}, "floor")
	p.refuses([]string{"--root", "nowhere"}, "floor", "1.0.0", "--root", "nowhere")
	p.refuses([]string{"want signed files", "--server"}, "keys", "show")
	p.refuses([]string{"want signed files", "--server"}, "keys", "show", "1.root.json", "--server")
	p.refuses([]string{"hello.json", "not JSON"}, "keys", "show", "hello.json")
	p.refuses([]string{"no signed file is named"}, "keys", "publish")
	p.refuses([]string{"0 files are named"}, "keys", "sign")
	p.refuses([]string{"--key is missing"}, "keys", "sign", "1.root.json")
	p.refuses([]string{"is none of"}, "keys", "sign", "1.root.json", "--key", "targets-1.key")
	p.refuses([]string{"1 files are named, want two"}, "keys", "merge", "1.root.json")
	p.refuses([]string{"--trust-root", "64"}, "keys", "fetch", "--trust-root", "abc")
	for flag, words := range map[string][]string{
		"--add=tester=x": {"want root=… or targets=…"}, "--add=root": {"want root=… or targets=…"}, "--add=root=nobody.pub": {"neither a file"},
		"--add=targets=targets-1.pub": {"is there twice"}, "--remove=root=bob": {"is not one of the keys root-1 ("}, "--remove=root=root-1": {"there are none"},
		"--replace=root=root-1": {"KEY:PUBLIC_KEY"}, "--threshold=targets=3": {"targets.threshold", "1 to 2"}, "--threshold=targets=x": {"want a number"},
		"--online-key=nobody.pub": {"--online-key nobody.pub"}, "--key=targets-1.key": {"is none of"},
	} {
		p.refuses(words, "keys", "rotate", flag)
	}
	if _, err := os.Stat("2.root.json"); err == nil {
		t.Error("a failed rotation left a root")
	}

	p.run("keys", "publish", "1.root.json")
	p.says(p.run("keys", "show", "--server"), "the server")
	p.says(p.run("keys", "show", "1.root.json"), "1 of 1 signatures", "--trust-root sha256:", "targets: needs 2 of these keys", "targets-2")
	p.run("add", archive, "--targets-key", "targets-1.key")
	p.says(p.run("keys", "show", "1.targets.json"), "still needs one of: targets-2 (", "muster-agent-1.1.0-linux-amd64.tar.gz")
	p.refuses([]string{"one file is a root"}, "keys", "merge", "1.root.json", "1.targets.json")
	if err := os.Rename("1.targets.json", "7.targets.json"); err != nil {
		t.Fatal(err)
	}
	p.refuses([]string{"7.targets.json: contains 1.targets.json"}, "add", archive)
}

func TestInitAcceptsPublicKeysThatPeopleGenerated(t *testing.T) {
	p := newPublisher(t)
	for _, name := range []string{"ann", "bob", "eve"} {
		p.says(p.run("keys", "generate", "--key", name+".key", "--name", name, "--no-password"), name+".pub", "muster-tuf-ed25519 ")
	}
	p.write("server.pub", p.server.keys[0].Public().String()+"\n", 0o644)
	p.server.down = errors.New("the server must not be asked")
	said := p.run("keys", "init", "--dir", "release", "--root-keys", "0", "--root-pub", "ann.pub", "--root-pub", "bob.pub", "--root-pub", "eve.pub",
		"--targets-keys", "0", "--targets-pub", "ann.pub", "--online-key", "server.pub")
	p.says(said, "0 of 2 signatures", "keys sign release/1.root.json")
	if strings.Contains(said, "trust-root") {
		t.Error("init prints the digest of a root that will change")
	}
	p.refuses([]string{"0 of 2 signatures", "keys sign"}, "add", p.archive("1.1.0"), "--root", "release", "--targets-key", "ann.key")
	p.run("keys", "sign", "release/1.root.json", "--key", "ann.key")
	p.says(p.run("keys", "sign", "release/1.root.json", "--key", "eve.key"), "2 of 2 signatures")
	p.server.down = nil
	p.says(p.run("add", p.archive("1.1.0"), "--root", "release", "--targets-key", "ann.key"), "published 1.targets.json")
	// A root file alone is enough to check signatures.
	p.says(p.run("keys", "show", "release/1.targets.json", "--root", "release/1.root.json"), "1 of 1 signatures")
}
