package tuf_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
)

// host is a client's folder with the first root pinned.
type host struct {
	t    testing.TB
	dir  string
	repo *tuftest.Repo
	now  func() time.Time
}

func newHost(t testing.TB, repo *tuftest.Repo) *host {
	t.Helper()
	h := &host{t: t, dir: filepath.Join(t.TempDir(), "trust"), repo: repo}
	h.now = func() time.Time { return repo.Now }
	if err := tuf.Pin(disk.OS{}, h.dir, repo.State.Roots[0]); err != nil {
		t.Fatal(err)
	}
	return h
}

// clone is another host in the same state.
func (h *host) clone() *host {
	h.t.Helper()
	c := *h
	c.dir = filepath.Join(h.t.TempDir(), "trust")
	if err := os.CopyFS(c.dir, os.DirFS(h.dir)); err != nil {
		h.t.Fatal(err)
	}
	return &c
}

// client returns a new client each time, so that no test depends on state in memory.
func (h *host) client() *tuf.Client {
	return &tuf.Client{Disk: disk.OS{}, Dir: h.dir, Fetch: h.repo.Fetch, Now: h.now}
}

func (h *host) expect(name string) (*trust.Expectation, error) {
	return h.client().Expect(h.t.Context(), name, nil)
}

// installs verifies the bytes that are served for an archive.
func (h *host) installs(name string) error {
	e, err := h.expect(name)
	if err != nil {
		return err
	}
	data, err := h.repo.Fetch(h.t.Context(), name, e.Size)
	if err != nil {
		return err
	}
	_, err = e.Verify(bytes.NewReader(data))
	return err
}

func (h *host) mustInstall(name string) {
	h.t.Helper()
	if err := h.installs(name); err != nil {
		h.t.Fatal(err)
	}
}

// mustRefuse wants an error of that kind whose text contains each of says.
func (h *host) mustRefuse(name string, kind error, says ...string) {
	h.t.Helper()
	err := h.installs(name)
	if !errors.Is(err, kind) {
		h.t.Fatalf("%s: got %v, want an error that is %q", name, err, kind)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			h.t.Errorf("%q does not say %q", err, s)
		}
	}
}

// Where the server has no signed metadata, as a Fleet Server, or there is no server, they are
// beside the archive.
func TestMetadataBesideTheArchiveReplaceThoseThatTheServerLacks(t *testing.T) {
	server, mirror := tuftest.New(t), tuftest.New(t)
	name := mirror.Release("1.1.0", "archive")
	h := newHost(t, mirror)
	errAway := errors.New("no route to host")
	none := func(_ context.Context, name string, _ int64) ([]byte, error) { return nil, fs.ErrNotExist }
	away := func(context.Context, string, int64) ([]byte, error) { return nil, errAway }
	for _, c := range []struct {
		name           string
		server, beside tuf.Fetch
		is             error // nil: the archive is expected
	}{
		{"no server", nil, mirror.Fetch, nil},
		{"a server without metadata", none, mirror.Fetch, nil},
		{"a server with metadata", mirror.Fetch, away, nil},
		{"metadata nowhere", none, none, tuf.ErrNotServed},
		{"metadata nowhere, and no server", nil, none, tuf.ErrNotServed},
		{"a server that is away", away, mirror.Fetch, errAway},
		{"a mirror that is away", none, away, errAway},
		{"another publisher's server", server.Fetch, server.Fetch, tuf.ErrNotServed},
		{"another publisher's mirror", none, func(ctx context.Context, name string, limit int64) ([]byte, error) {
			server.Release("9.9.9", "evil")
			return server.Fetch(ctx, name, limit)
		}, tuf.ErrThreshold},
	} {
		t.Run(c.name, func(t *testing.T) {
			client := h.clone().client()
			client.Fetch = c.server
			e, err := client.Expect(t.Context(), name, c.beside)
			if !errors.Is(err, c.is) || c.is == nil && (err != nil || e.Size != 7) {
				t.Errorf("got %+v, %v", e, err)
			}
		})
	}
}

func TestExpectReturnsTheSignedTarget(t *testing.T) {
	repo := tuftest.New(t)
	repo.Release("1.0.0", "old")
	name := repo.Release("1.1.0", "archive")
	repo.PublishTargets(func(e *tuf.Edit) error { return e.SetFloor("", "1.0.0") })
	h := newHost(t, repo)
	e, err := h.expect(name)
	if err != nil {
		t.Fatal(err)
	}
	if e.Size != 7 || e.Unpacked != 21 || len(e.SHA512) != 128 || e.Floor != "1.0.0" {
		t.Errorf("expectation is %+v", e)
	}
	s, err := e.Verify(strings.NewReader("archive"))
	if err != nil {
		t.Fatal(err)
	}
	if s.FileName != name || len(strings.Split(s.KeyID, ",")) != 3 || !strings.Contains(s.Comment, "ted (") || !strings.Contains(s.Comment, "version 3") {
		t.Errorf("statement is %+v", s)
	}
	for content, says := range map[string]string{"archivE": "changed or damaged", "archive and more": "more than the 7 bytes", "arch": "4 bytes, the publishers signed 7"} {
		s, err := e.Verify(strings.NewReader(content))
		if !errors.Is(err, tuf.ErrMismatch) || !strings.Contains(err.Error(), says) || s != (trust.Statement{}) {
			t.Errorf("%q: got %+v, %v", content, s, err)
		}
	}
	errDisk := errors.New("input/output error")
	if _, err := e.Verify(iotest.ErrReader(errDisk)); !errors.Is(err, errDisk) || errors.Is(err, tuf.ErrMismatch) {
		t.Errorf("a read error became %v", err)
	}
}

func TestDowngradeIsAllowedUntilItsTime(t *testing.T) {
	repo := tuftest.New(t)
	old, other := repo.Release("1.0.0", "old"), repo.Release("1.0.1", "other")
	repo.PublishTargets(func(e *tuf.Edit) error { return e.AllowDowngrade("", "1.0.0", repo.Now.Add(2*time.Hour)) })
	h := newHost(t, repo)
	want := func(name string, allowed bool) {
		t.Helper()
		if e, err := h.expect(name); err != nil || e.Downgrade != allowed {
			t.Errorf("%s: %+v, %v; want allowed %v", name, e, err, allowed)
		}
	}
	want(old, true)
	want(other, false)
	repo.Now = repo.Now.Add(2 * time.Hour)
	want(old, false)
	repo.PublishTargets(func(e *tuf.Edit) error { return e.AllowDowngrade("", "1.0.0", repo.Now.Add(time.Hour)) })
	want(old, true)
	repo.PublishTargets(func(e *tuf.Edit) error { return e.AllowDowngrade("", "1.0.0", time.Time{}) })
	want(old, false)
}

// The floor binds a rollback also if the server withholds files or they have expired.
func TestFloorIsTheLastOneThatWasVerified(t *testing.T) {
	repo := tuftest.New(t)
	name := repo.Release("1.0.0", "x")
	h := newHost(t, repo)
	want := func(floor string) {
		t.Helper()
		if got := h.client().Floor(t.Context(), ""); got != floor {
			t.Errorf("the floor is %q, want %q", got, floor)
		}
	}
	want("")
	repo.PublishTargets(func(e *tuf.Edit) error { return e.SetFloor("", "1.0.0") })
	want("1.0.0")

	served := repo.Served()
	repo.Restore(nil)
	want("1.0.0")
	repo.Now = repo.Now.Add(2 * tuf.TargetsLife)
	want("1.0.0")
	repo.Restore(served)
	repo.PublishTargets(func(e *tuf.Edit) error { return e.SetFloor("", "1.1.0") })
	want("1.1.0")
	h.mustInstall(name) // the floor is compared by the agent
}

func TestUnknownTargetListsSignedVersions(t *testing.T) {
	repo := tuftest.New(t)
	for _, v := range []string{"1.0.0", "1.2.0", "1.10.0"} {
		repo.Release(v, v)
	}
	h := newHost(t, repo)
	_, err := h.expect("muster-agent-9.9.9-linux-amd64.tar.gz")
	var unknown *tuf.UnknownTargetError
	if !errors.As(err, &unknown) || !errors.Is(err, tuf.ErrUnknownTarget) || strings.Join(unknown.Versions, " ") != "1.10.0 1.2.0 1.0.0" {
		t.Errorf("got %v", err)
	}
	_, err = h.expect("muster-agent-1.0.0-plan9-mips.tar.gz")
	if !errors.Is(err, tuf.ErrUnknownTarget) || !strings.Contains(err.Error(), "none for this platform") {
		t.Errorf("got %v", err)
	}
}

func TestErrorWithoutPinnedRootNamesTheFlag(t *testing.T) {
	repo := tuftest.New(t)
	name := repo.Release("1.0.0", "x")
	h := newHost(t, repo)
	h.dir = t.TempDir()
	h.mustRefuse(name, tuf.ErrNotPinned, "--trust-root")
}

func TestSecondRefreshFetchesOnlyRootAndTimestamp(t *testing.T) {
	repo := tuftest.New(t)
	name := repo.Release("1.0.0", "x")
	h := newHost(t, repo)
	var asked []string
	fetch := func(ctx context.Context, name string, limit int64) ([]byte, error) {
		asked = append(asked, name)
		return repo.Fetch(ctx, name, limit)
	}
	for range 2 {
		asked = nil
		c := h.client()
		c.Fetch = fetch
		if _, err := c.Expect(t.Context(), name, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := strings.Join(asked, " "); got != "2.root.json timestamp.json" {
		t.Errorf("the second refresh asks for %s", got)
	}
}

// A damaged file on the host's disk is fetched again. It neither prevents upgrades
// nor makes the host trust another file.
func TestDamagedFilesAreFetchedAgain(t *testing.T) {
	repo := tuftest.New(t)
	h := newHost(t, repo)
	repo.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	name := repo.Release("1.1.0", "y")
	h.mustInstall(name)
	next := repo.Release("1.2.0", "z")
	for _, file := range []string{"root.json", "timestamp.json", "snapshot.json", "targets.json", "pinned-root.json"} {
		for kind, damage := range map[string]func([]byte) []byte{
			"emptied":  func([]byte) []byte { return nil },
			"zeroed":   func(b []byte) []byte { return make([]byte, len(b)) },
			"cut":      func(b []byte) []byte { return b[:len(b)/2] },
			"edited":   func(b []byte) []byte { return bytes.Replace(b, []byte(`"version":`), []byte(`"version":1`), 1) },
			"of nulls": func([]byte) []byte { return []byte(`{"signed":{"_type":"root"},"signatures":null}`) },
		} {
			t.Run(file+" "+kind, func(t *testing.T) {
				h := h.clone()
				h.t = t
				path := filepath.Join(h.dir, file)
				data, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, damage(data), 0o600); err != nil {
					t.Fatal(err)
				}
				h.mustInstall(next)
			})
		}
	}
}

func TestDamagedRootAndPinRefuseAll(t *testing.T) {
	repo := tuftest.New(t)
	name := repo.Release("1.0.0", "x")
	h := newHost(t, repo)
	h.mustInstall(name)
	for _, file := range []string{"root.json", "pinned-root.json"} {
		if err := os.WriteFile(filepath.Join(h.dir, file), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.mustRefuse(name, tuf.ErrNotPinned, "--trust-root")
}

func TestPinRemovesFilesOfAnotherRoot(t *testing.T) {
	first, second := tuftest.New(t), tuftest.New(t)
	h := newHost(t, first)
	first.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	h.mustInstall(first.Release("2.0.0", "x"))
	name := second.Release("1.0.0", "y")
	h.repo = second
	if err := h.installs(name); err == nil {
		t.Fatal("another publisher's package is installed under the first one's root")
	}
	if err := tuf.Pin(disk.OS{}, h.dir, second.State.Roots[0]); err != nil {
		t.Fatal(err)
	}
	h.mustInstall(name)
	if pinned, err := tuf.Pinned(disk.OS{}, h.dir); !pinned || err != nil {
		t.Errorf("pinned is %v, %v", pinned, err)
	}
	if pinned, err := tuf.Pinned(disk.OS{}, t.TempDir()); pinned || err != nil {
		t.Errorf("nothing is pinned, but %v, %v", pinned, err)
	}
}

func TestPinOfTheSameRootKeepsNewerRoots(t *testing.T) {
	repo := tuftest.New(t)
	h := newHost(t, repo)
	repo.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	h.mustInstall(repo.Release("1.0.0", "x"))
	if err := tuf.Pin(disk.OS{}, h.dir, repo.State.Roots[0]); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(h.dir, "root.json")); err != nil || !bytes.Equal(data, repo.State.Root()) {
		t.Errorf("the newest root is gone: %v", err)
	}
	for _, bad := range [][]byte{nil, []byte("{}"), repo.State.Targets} {
		if err := tuf.Pin(disk.OS{}, h.dir, bad); !errors.Is(err, tuf.ErrMalformed) {
			t.Errorf("pinning %.20q: got %v", bad, err)
		}
	}
}

func TestFetchRootFindsTheRootByDigest(t *testing.T) {
	repo := tuftest.New(t)
	repo.Rotate(func(s *tuf.RootSpec) { s.Root.Threshold = 1 })
	for _, root := range repo.State.Roots {
		got, err := tuf.FetchRoot(t.Context(), repo.Fetch, tuf.Digest(root))
		if err != nil || !bytes.Equal(got, root) {
			t.Errorf("got %v", err)
		}
	}
	other := tuftest.New(t)
	if _, err := tuf.FetchRoot(t.Context(), repo.Fetch, tuf.Digest(other.State.Root())); !errors.Is(err, tuf.ErrDigest) || !strings.Contains(err.Error(), "none of the server's 2 root files") {
		t.Errorf("another server's root: got %v", err)
	}
	for _, bad := range []string{"", "sha256:", "sha256:ABC", "md5:" + strings.Repeat("0", 64), strings.Repeat("0", 64)} {
		if _, err := tuf.FetchRoot(t.Context(), repo.Fetch, bad); !errors.Is(err, tuf.ErrDigest) || !strings.Contains(err.Error(), "sha256sum") {
			t.Errorf("%q: got %v", bad, err)
		}
	}
	down := errors.New("connection refused")
	_, err := tuf.FetchRoot(t.Context(), func(context.Context, string, int64) ([]byte, error) { return nil, down }, tuf.Digest(repo.State.Root()))
	if !errors.Is(err, down) {
		t.Errorf("a server that is down: got %v", err)
	}
}

func TestClientFollowsFiveRootRotations(t *testing.T) {
	repo := tuftest.New(t)
	h := newHost(t, repo)
	h.mustInstall(repo.Release("1.0.0", "x"))
	for range 5 {
		// Every key is replaced each time, half a year apart: the roots in between
		// have expired when the agent comes back.
		repo.Now = repo.Now.Add(tuf.RootLife / 2)
		for _, name := range []string{"rosa", "ruth", "rolf"} {
			repo.RootKeys = append(repo.RootKeys, tuftest.Key(t, name))
			repo.TargetsKeys = append(repo.TargetsKeys, tuftest.Key(t, "t"+name))
		}
		repo.Online = append(repo.Online, tuftest.Key(t, "server"))
		repo.Rotate(func(s *tuf.RootSpec) {
			s.Root.Keys = tuftest.Public(repo.RootKeys[len(repo.RootKeys)-3:]...)
			s.Targets.Keys = tuftest.Public(repo.TargetsKeys[len(repo.TargetsKeys)-3:]...)
			s.Snapshot = repo.Online[len(repo.Online)-1].Public()
			s.Timestamp = s.Snapshot
		})
	}
	h.mustInstall(repo.Release("1.1.0", "y"))
	if data, err := os.ReadFile(filepath.Join(h.dir, "root.json")); err != nil || !bytes.Equal(data, repo.State.Roots[5]) {
		t.Errorf("the sixth root is not the one that is kept: %v", err)
	}
	if data, err := os.ReadFile(filepath.Join(h.dir, "pinned-root.json")); err != nil || !bytes.Equal(data, repo.State.Roots[0]) {
		t.Errorf("the pinned root is not the first: %v", err)
	}
}

func TestExpectIsSafeForConcurrentUse(t *testing.T) {
	repo := tuftest.New(t)
	name := repo.Release("1.0.0", "x")
	h := newHost(t, repo)
	c := h.client()
	results := make(chan error)
	for range 4 {
		go func() {
			_, err := c.Expect(t.Context(), name, nil)
			results <- err
		}()
	}
	for range 4 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
