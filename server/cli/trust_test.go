package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// host is a machine that trusts a publisher's root. It does what an agent does, over the
// real listener.
type host struct {
	t      *testing.T
	server *apptest.Server
	agent  *apptest.Agent
	client *tuf.Client
}

// newHost enrols a host that trusts the root with this digest.
func newHost(t *testing.T, s *apptest.Server, digest string) *host {
	t.Helper()
	h := &host{t: t, server: s, agent: s.Enroll("web-01", "1.0.0")}
	h.client = &tuf.Client{Disk: disk.OS{}, Dir: filepath.Join(t.TempDir(), "trust"), Fetch: h.fetch}
	root, err := tuf.FetchRoot(t.Context(), h.fetch, digest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Dir(h.client.Dir), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := tuf.Pin(disk.OS{}, h.client.Dir, root); err != nil {
		t.Fatal(err)
	}
	return h
}

func (h *host) fetch(ctx context.Context, name string, limit int64) ([]byte, error) {
	got, err := h.server.Do(ctx, apptest.Request{Method: http.MethodGet, URL: h.server.AgentURL + agentapi.PathTrust + name})
	switch {
	case err != nil:
		return nil, err
	case got.Status == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", got.Body, fs.ErrNotExist)
	case got.Status != http.StatusOK:
		return nil, fmt.Errorf("%s answered %d: %s", name, got.Status, got.Body)
	}
	return got.Body[:min(int64(len(got.Body)), limit)], nil
}

// install does what an agent does before it unpacks a version of itself.
func (h *host) install(version string) error {
	h.t.Helper()
	return h.installArchive(archiveOf(version))
}

func (h *host) installArchive(name string) error {
	h.t.Helper()
	want, err := h.client.Expect(h.t.Context(), name, nil)
	if err != nil {
		return err
	}
	got := h.server.Agents(http.MethodGet, agentapi.PathArtifacts+name, h.agent.Key, nil)
	if got.Status != http.StatusOK {
		return fmt.Errorf("%s answered %d: %s", name, got.Status, got.Body)
	}
	_, err = want.Verify(bytes.NewReader(got.Body))
	return err
}

func (h *host) mustInstall(version string) {
	h.t.Helper()
	if err := h.install(version); err != nil {
		h.t.Errorf("%s is not installed: %v", version, err)
	}
}

func (h *host) mustRefuse(version string, want error) {
	h.t.Helper()
	if err := h.install(version); !errors.Is(err, want) {
		h.t.Errorf("%s: got %v, want %v", version, err, want)
	}
}

func archiveOf(version string) string { return "muster-agent-" + version + "-linux-amd64.tar.gz" }

// archive writes an unsigned package.
func (o operator) archive(version string) string {
	o.t.Helper()
	return fakepkg.Write(o.t, o.t.TempDir(), archiveOf(version), fakepkg.Sound(o.t, fakepkg.Describe(version)))
}

// publisher creates a folder with keys that need no password.
func (o operator) publisher(flags ...string) (dir, digest string) {
	o.t.Helper()
	dir = filepath.Join(o.t.TempDir(), "release")
	got := asJSON[map[string]any](o, append([]string{"package", "keys", "init", "--dir", dir, "--no-password"}, flags...)...)
	return dir, got["trust_root"].(string)
}

func TestHostInstallsPackageSignedInTargets(t *testing.T) {
	o, s := loggedIn(t, quick)
	o.contains(o.run("package", "keys", "show", "--server"), "no root is published", "online key  muster-tuf-ed25519")
	dir := filepath.Join(t.TempDir(), "release")
	said := o.run("package", "keys", "init", "--dir", dir, "--no-password")
	o.contains(said, "root-1.key", "targets-1.key", "keep it offline", "--trust-root sha256:", "only for trying it out", "1 of 1 signatures")
	if info, err := os.Stat(filepath.Join(dir, "root-1.key")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the private key is %v, %v", info, err)
	}

	key := filepath.Join(dir, "targets-1.key")
	archive := o.archive("1.1.0")
	said = o.run("package", "push", archive, "--targets-key", key)
	o.contains(said, "published 1.1.0 for linux/amd64", "published 1.targets.json", "--trust-root sha256:")
	o.contains(o.run("package", "push", archive, "--targets-key", key), "targets version 1 is up to date")
	list := asJSON[adminapi.PackageList](o, "package", "list")
	if len(list.Items) != 1 || list.Items[0].Signed == nil || !*list.Items[0].Signed || list.Items[0].KeyId != "" {
		t.Errorf("the list has %+v", list.Items)
	}
	state := asJSON[adminapi.Trust](o, "package", "keys", "show", "--server")
	if !state.Published || state.TargetCount != 1 || state.Root.Version != 1 || !state.Targets.Keys[0].Signed || len(state.Warnings) != 0 {
		t.Errorf("the state is %+v", state)
	}
	o.contains(o.run("keys", "create"), "--trust-root "+*state.TrustRoot)

	h := newHost(t, s, *state.TrustRoot)
	h.mustInstall("1.1.0")
	h.mustRefuse("1.2.0", tuf.ErrUnknownTarget)

	// The server and the hosts both enforce the floor.
	o.run("package", "push", o.archive("1.0.5"), "--targets-key", key)
	h.mustInstall("1.0.5")
	o.contains(o.run("package", "floor", "1.1.0", "--targets-key", key), "published 3.targets.json")
	want, err := h.client.Expect(t.Context(), archiveOf("1.1.0"), nil)
	if err != nil || want.Floor != "1.1.0" {
		t.Errorf("the host expects %+v, %v", want, err)
	}
	o.fails(1, []string{"agents", "upgrade", h.agent.ID, "--version", "1.0.5"}, "below 1.1.0", "muster: version: ")
	o.contains(o.run("package", "list"), "it is below 1.1.0")

	o.run("package", "withdraw", archiveOf("1.1.0"), "--targets-key", key)
	h.mustRefuse("1.1.0", tuf.ErrUnknownTarget)
	o.contains(o.run("package", "floor", "none", "--targets-key", key), "published 5.targets.json")
	o.contains(o.run("package", "keys", "renew", "--targets-key", key), "published 6.targets.json")
	h.mustInstall("1.0.5")
}

func TestComponentComesFromItsDescriptionToAHost(t *testing.T) {
	o, s := loggedIn(t, quick)
	dir, digest := o.publisher()
	key, work := filepath.Join(dir, "targets-1.key"), t.TempDir()
	file := func(name, body string) string {
		path := filepath.Join(work, name)
		if err := os.WriteFile(path, []byte(body), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	described := file("component.yaml", o.run("package", "example"))
	build := func(version string) string {
		o.run("package", "build", "--component", described, "--version", version, "--os", "linux", "--arch", "amd64", "--out", work+"/",
			"--file", "bin/web="+file("web", "#!/bin/sh\n# "+version), "--file", "web.service="+file("unit", "[Service]\n"), "--file", "conf/web.conf="+file("conf", "port 80\n"))
		return filepath.Join(work, "muster-component-web-"+version+"-linux-amd64.tar.gz")
	}
	old, web := build("2.3.0"), build("2.4.0")
	o.contains(o.run("package", "push", old, web, "--targets-key", key), "published web 2.3.0 for linux/amd64", "published web 2.4.0 for linux/amd64", "published 1.targets.json")
	o.run("package", "push", o.archive("1.1.0"), "--targets-key", key)
	for _, p := range asJSON[adminapi.PackageList](o, "package", "list").Items {
		if p.Signed == nil || !*p.Signed {
			t.Errorf("the list has %+v", p)
		}
	}
	h := newHost(t, s, digest)
	h.mustInstall("1.1.0")
	for _, archive := range []string{old, web} {
		if err := h.installArchive(filepath.Base(archive)); err != nil {
			t.Error(err)
		}
	}

	// The component has a floor of its own.
	o.run("package", "floor", "2.4.0", "--component", "web", "--targets-key", key)
	if floor := h.client.Floor(t.Context(), "web"); floor != "2.4.0" {
		t.Errorf("the floor of the component is %q", floor)
	}
	if floor := h.client.Floor(t.Context(), ""); floor != "" {
		t.Errorf("the floor of the agent is %q", floor)
	}
	o.contains(o.run("package", "list"), filepath.Base(old)+": hosts that trust the root do not install it: it is below 2.4.0")

	o.run("package", "withdraw", filepath.Base(web), "--targets-key", key)
	if err := h.installArchive(filepath.Base(web)); !errors.Is(err, tuf.ErrUnknownTarget) {
		t.Errorf("a withdrawn version: %v", err)
	}
	h.mustInstall("1.1.0")
}

func TestReleaseWithTwoSignatures(t *testing.T) {
	o, s := loggedIn(t, quick)
	dir, digest := o.publisher("--root-keys", "3", "--root-threshold", "2", "--targets-keys", "2", "--targets-threshold", "2")
	ann, bob := filepath.Join(dir, "targets-1.key"), filepath.Join(dir, "targets-2.key")

	// Ann pushes. Hosts do not install the package yet.
	said := o.run("package", "push", o.archive("1.1.0"), "--targets-key", ann, "--floor", "1.0.0")
	file := filepath.Join(dir, "1.targets.json")
	o.contains(said, "do not install it yet", "1 of 2 signatures", "still needs one of: targets-2 (", "muster package keys sign "+file)
	h := newHost(t, s, digest)
	h.mustRefuse("1.1.0", tuf.ErrNotServed)
	o.fails(1, []string{"agents", "upgrade", h.agent.ID, "--version", "1.1.0"}, "have signed no package yet", "muster package add")
	o.contains(o.run("package", "list"), "no", "have signed no package yet")
	o.fails(1, []string{"package", "keys", "publish", file}, "muster: files: ", "still needs one of: targets-2 (")
	o.fails(1, []string{"package", "add", o.archive("1.2.0"), "--targets-key", ann}, file+" exists and waits for signatures", "keys sign")

	// Bob has the file, the root and a key of his own.
	bobsDir := t.TempDir()
	copyOf(t, file, filepath.Join(bobsDir, "1.targets.json"))
	copyOf(t, filepath.Join(dir, "1.root.json"), filepath.Join(bobsDir, "1.root.json"))
	signed := filepath.Join(bobsDir, "1.targets.json")
	said = o.run("package", "keys", "sign", signed, "--key", bob)
	o.contains(said, "+ floor 1.0.0", "+ "+archiveOf("1.1.0"), "2 of 2 signatures", "muster package keys publish "+signed)
	status := asJSON[[]map[string]any](o, "package", "keys", "show", signed)
	if status[0]["complete"] != true {
		t.Errorf("the file is %v", status)
	}
	// Merge both copies.
	o.contains(o.run("package", "keys", "merge", file, signed), "2 of 2 signatures")
	o.run("package", "keys", "publish", file)
	h.mustInstall("1.1.0")

	// The next release builds on the files of the server, in any folder.
	fresh := t.TempDir()
	o.fails(1, []string{"package", "keys", "fetch", "--root", fresh}, "has no root file")
	o.fails(1, []string{"package", "keys", "fetch", "--root", fresh, "--trust-root", "sha256:" + strings.Repeat("0", 64)}, "none of the server's files has this digest")
	o.contains(o.run("package", "keys", "fetch", "--root", fresh, "--trust-root", digest), "1.root.json", "1.targets.json")
	o.contains(o.run("package", "push", o.archive("1.2.0"), "--targets-key", ann, "--targets-key", bob, "--root", fresh), "published 2.targets.json")
	h.mustInstall("1.2.0")
	h.mustInstall("1.1.0")
}

func TestOfflineHostFollowsKeyRotations(t *testing.T) {
	o, s := loggedIn(t, quick)
	dir, digest := o.publisher("--root-keys", "3", "--root-threshold", "2", "--targets-keys", "1")
	targets := filepath.Join(dir, "targets-1.key")
	root := func(n int) string { return filepath.Join(dir, fmt.Sprintf("root-%d.key", n)) }
	file := func(name string) string { return filepath.Join(dir, name) }
	o.run("package", "push", o.archive("1.1.0"), "--targets-key", targets)
	h := newHost(t, s, digest)
	h.mustInstall("1.1.0")

	// A root key is lost and replaced: two others sign, one after the other.
	o.run("package", "keys", "generate", "--key", file("eve.key"), "--name", "eve", "--no-password")
	said := o.run("package", "keys", "rotate", "--root", dir, "--replace", "root=root-3:"+file("eve.pub"), "--key", root(1))
	o.contains(said, "1 of 2 signatures by the keys of root 1", "1 of 2 signatures by the keys of root 2", "keys sign "+file("2.root.json"))
	o.fails(1, []string{"package", "keys", "publish", file("2.root.json")}, "muster: files: ", "still needs one of")
	o.fails(1, []string{"package", "keys", "sign", file("2.root.json"), "--key", targets}, "is none of")
	o.contains(o.run("package", "keys", "sign", file("2.root.json"), "--key", root(2)), "- root key", "root-3", "+ root key", "eve")
	o.run("package", "keys", "publish", file("2.root.json"))

	// The targets key is stolen and replaced, and targets is signed again. The new root
	// alone would leave every host without packages, so it is refused.
	o.run("package", "keys", "generate", "--key", file("tim.key"), "--name", "tim", "--no-password")
	o.run("package", "keys", "rotate", "--root", dir, "--remove", "targets=targets-1", "--add", "targets="+file("tim.pub"), "--key", root(1), "--key", file("eve.key"))
	o.fails(1, []string{"package", "keys", "publish", file("3.root.json")}, "muster: files: ", "publish both together")
	h.mustInstall("1.1.0")
	o.fails(1, []string{"package", "keys", "renew", "--targets-key", targets}, "is none of", "tim (")
	o.contains(o.run("package", "keys", "renew", "--targets-key", file("tim.key"), "--offline"), "1 of 1 signatures by the keys of root 3")
	o.run("package", "keys", "publish", file("3.root.json"), file("2.targets.json"))
	o.run("package", "keys", "rotate", "--root", dir, "--threshold", "root=1", "--key", root(1), "--key", root(2))
	o.run("package", "keys", "publish", file("4.root.json"))
	o.run("package", "push", o.archive("1.2.0"), "--targets-key", file("tim.key"))

	h.mustInstall("1.2.0") // the host had root 1
	o.fails(1, []string{"package", "push", o.archive("1.3.0"), "--targets-key", targets}, "is none of")
	newHost(t, s, digest).mustInstall("1.2.0") // any root may be pinned
}

func TestHostInstallsAfterServerRestart(t *testing.T) {
	o := newOperator(t)
	data, err := os.MkdirTemp("", "m")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	s := apptest.StartOn(t, data, quick)
	o.login(s)
	dir, digest := o.publisher()
	o.run("package", "push", o.archive("1.1.0"), "--targets-key", filepath.Join(dir, "targets-1.key"))
	h := newHost(t, s, digest)
	h.mustInstall("1.1.0")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	h.server = apptest.StartOn(t, data, quick)
	h.mustInstall("1.1.0")
}

// The thief has the server's data folder: its online key and all files it serves.
func TestStolenServerCannotShipCode(t *testing.T) {
	o, s := loggedIn(t, quick)
	dir, digest := o.publisher()
	key := filepath.Join(dir, "targets-1.key")
	o.run("package", "push", o.archive("1.1.0"), "--targets-key", key)
	h := newHost(t, s, digest)
	h.mustInstall("1.1.0")
	th := steal(t, s)
	before := th.repository()
	o.run("package", "push", o.archive("1.2.0"), "--targets-key", key)
	h.mustInstall("1.2.0")
	now := th.repository()

	// Another archive under the same name.
	p, err := s.Store.Packages().Get(t.Context(), archiveOf("1.2.0"))
	if err != nil {
		t.Fatal(err)
	}
	bytesFile := filepath.Join(s.Data, "packages", p.SHA256)
	sound, err := os.ReadFile(bytesFile)
	if err != nil {
		t.Fatal(err)
	}
	evil := bytes.Clone(sound)
	evil[len(evil)/2] ^= 1
	if err := os.WriteFile(bytesFile, evil, 0o600); err != nil {
		t.Fatal(err)
	}
	h.mustRefuse("1.2.0", tuf.ErrMismatch)

	// A forged targets file, with the thief's own snapshot and timestamp.
	th.serve(tuf.Repository{Roots: now.Roots, Snapshot: now.Snapshot, Timestamp: now.Timestamp, Targets: bytes.Replace(
		bytes.Replace(now.Targets, []byte(`"version": 2`), []byte(`"version": 3`), 1), []byte(`"1.2.0"`), []byte(`"1.9.9"`), 1)})
	h.mustRefuse("1.2.0", tuf.ErrThreshold)

	// An older targets file with a new snapshot and timestamp.
	th.serve(tuf.Repository{Roots: now.Roots, Targets: before.Targets, Snapshot: now.Snapshot, Timestamp: now.Timestamp})
	h.mustRefuse("1.1.0", tuf.ErrRollback)
	// The publisher does not sign on top of it.
	o.run("package", "push", o.archive("1.3.0"), "--targets-key", key)
	if said := th.repository(); !bytes.Contains(said.Targets, []byte("1.2.0")) {
		t.Error("a release that the thief had hidden is gone")
	}
	h.mustInstall("1.3.0")
}

// thief has the server's files.
type thief struct {
	t      *testing.T
	server *apptest.Server
	keys   tuf.Online
	served int
}

func steal(t *testing.T, s *apptest.Server) *thief {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(s.Data, "trust", "online.key"))
	if err != nil {
		t.Fatal(err)
	}
	k, err := tuf.DecryptPrivateKey("", data)
	if err != nil {
		t.Fatal(err)
	}
	return &thief{t: t, server: s, keys: tuf.Online{k}}
}

type storedHead struct {
	Files []struct {
		Name   string     `json:"name"`
		Digest string     `json:"digest"`
		Until  *time.Time `json:"until,omitempty"`
	} `json:"files"`
	Timestamp []byte `json:"timestamp"`
}

func (th *thief) head() (fleet.TrustFile, storedHead) {
	th.t.Helper()
	doc, err := th.server.Store.TrustFiles().Get(th.t.Context(), "head")
	if err != nil {
		th.t.Fatal(err)
	}
	var h storedHead
	if err := json.Unmarshal(doc.Data, &h); err != nil {
		th.t.Fatal(err)
	}
	return doc, h
}

func (th *thief) repository() tuf.Repository {
	th.t.Helper()
	_, h := th.head()
	files := [][]byte{h.Timestamp}
	for _, f := range h.Files {
		if f.Until != nil {
			continue
		}
		doc, err := th.server.Store.TrustFiles().Get(th.t.Context(), f.Digest)
		if err != nil {
			th.t.Fatal(err)
		}
		files = append(files, doc.Data)
	}
	r, err := tuf.NewRepository(files...)
	if err != nil {
		th.t.Fatal(err)
	}
	return r
}

// serve signs r and stores it for the server to serve.
func (th *thief) serve(r tuf.Repository) {
	th.t.Helper()
	th.served++                                                                // versions are times
	r, _ = th.keys.Sign(r, time.Now().Add(time.Duration(th.served)*time.Hour)) // the error says that agents would refuse it
	if r.Timestamp == nil {
		th.t.Fatal("the thief could not sign")
	}
	all, err := tuf.Changes(tuf.Repository{}, r)
	if err != nil {
		th.t.Fatal(err)
	}
	doc, h := th.head()
	h.Files, h.Timestamp = nil, r.Timestamp
	for _, f := range all {
		if f.Name == tuf.TimestampFile {
			continue
		}
		digest := tuf.Digest(f.Data)
		h.Files = append(h.Files, struct {
			Name   string     `json:"name"`
			Digest string     `json:"digest"`
			Until  *time.Time `json:"until,omitempty"`
		}{f.Name, digest, nil})
		err := th.server.Store.TrustFiles().Create(th.t.Context(), fleet.TrustFile{ID: digest, Data: f.Data})
		if err != nil && fleet.KindOf(err) != fleet.Conflict {
			th.t.Fatal(err)
		}
	}
	if doc.Data, err = json.Marshal(h); err != nil {
		th.t.Fatal(err)
	}
	if _, err := th.server.Store.TrustFiles().Update(th.t.Context(), doc); err != nil {
		th.t.Fatal(err)
	}
}

func copyOf(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
}
