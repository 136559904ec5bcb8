package upgrade

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/request"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

var errFault = errors.New("fault of the test")

// source is a server with signed packages, and their publisher.
type source struct {
	url   string
	repo  *tuftest.Repo
	files map[string][]byte
	// hangs reports whether the server sends only half of the answer; nil: never.
	hangs func(r *http.Request) bool
}

func newSource(t *testing.T) *source {
	t.Helper()
	s := &source{repo: tuftest.New(t), files: map[string][]byte{}}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		data, ok := s.files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		if s.hangs != nil && s.hangs(r) {
			w.Header().Set("Content-Length", strconv.Itoa(len(data)))
			if r.Method == http.MethodGet {
				_, _ = w.Write(data[:len(data)/2])
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
			return
		}
		w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(len(data))))
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(srv.Close)
	s.url = srv.URL
	return s
}

// publish serves a signed package under the name of version asked, which may differ
// from p's.
func (s *source) publish(t *testing.T, asked string, p manifest.Package, files ...string) {
	t.Helper()
	if len(files) == 0 {
		files = []string{agentName, watcherName}
	}
	dir := t.TempDir()
	spec := build.Spec{Manifest: p}
	for _, name := range files {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+" "+p.Version+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		spec.Files = append(spec.Files, build.File{Name: name, Path: path, Mode: 0o755})
	}
	var buf bytes.Buffer
	if _, err := build.Build(context.Background(), spec, &buf); err != nil {
		t.Fatal(err)
	}
	name := manifest.ArchiveName(asked, "linux", "amd64", archiveFormat)
	s.files[name] = buf.Bytes()
	s.repo.Sign(name, buf.Bytes())
}

func pkg(version, hash string) manifest.Package {
	return manifest.Package{Version: version, Hash: hash, OS: "linux", Arch: "amd64"}
}

// testHost is a host with 1.0.0 installed.
type testHost struct {
	top      string
	system   string // the folder of the prefix and the pointer; empty if they are below top
	executor *Executor
	watchers *fakeWatchers
	reports  []agentapi.UpgradeDetails
}

func version(number, hash string) handoff.Install {
	return handoff.Install{Identity: manifest.Identity{Version: number, Hash: hash}, Home: "data/muster-agent-" + number + "-" + hash}
}

func newHost(t *testing.T, s *source, d disk.Disk) *testHost {
	t.Helper()
	h := &testHost{top: t.TempDir(), watchers: &fakeWatchers{version: handoff.MarkerVersion}}
	running := version("1.0.0", "aaaaaa")
	for name, data := range map[string]string{
		running.Home + "/" + agentName: "agent", running.Home + "/" + watcherName: "watcher",
		running.Home + "/run/queue": "state", running.Home + "/run/deep/file": "more",
		layout.ActiveCommitFile: "aaaaaa\n", "agent.yml": "# none\n", "data/agent.log": "log\n",
	} {
		path := filepath.Join(h.top, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := fs.FileMode(0o644)
		if strings.Contains(name, "/muster-") && !strings.Contains(name, "/run/") {
			mode = 0o755
		}
		if err := os.WriteFile(path, []byte(data), mode); err != nil {
			t.Fatal(err)
		}
	}
	for link, program := range map[string]string{layout.AgentLink: agentName, layout.WatcherLink: watcherName} {
		if err := os.Symlink(filepath.Join(running.Home, program), filepath.Join(h.top, link)); err != nil {
			t.Fatal(err)
		}
	}
	h.executor = h.newExecutor(s, d)
	return h
}

// useSystem moves the running version below a prefix and the links to a folder of
// configuration, as if the host had been installed into the folders of a system.
func (h *testHost) useSystem(t *testing.T) {
	t.Helper()
	h.system = t.TempDir()
	system := layout.System{Prefix: h.system, SysConfDir: filepath.Join(h.system, "etc"), LocalStateDir: "/not used"}
	running, folder := version("1.0.0", "aaaaaa"), system.Version("1.0.0")
	must(t, os.MkdirAll(system.Versions(), 0o755))
	must(t, os.Rename(filepath.Join(h.top, running.Home), folder))
	must(t, install.LinkHome(disk.OS{}, h.top, running.Home, folder))
	must(t, os.Rename(filepath.Join(folder, layout.RunDir), filepath.Join(h.top, running.Home, layout.RunDir)))
	roots := h.roots()
	must(t, os.MkdirAll(roots.Links, 0o755))
	must(t, os.Symlink(h.top, roots.Link(layout.StateLink)))
	for _, name := range []string{agentName, watcherName} {
		must(t, disk.Point(disk.OS{}, "test", roots.Target(running.Home, name), roots.Link(name)))
		must(t, disk.Point(disk.OS{}, "test", roots.Link(name), filepath.Join(h.top, name)))
	}
	found, err := disk.FindRoots(disk.OS{}, h.top)
	if err != nil || found != roots {
		t.Fatalf("the roots are %+v, %v, want %+v", found, err, roots)
	}
	h.executor.Links = roots.Links
}

// roots returns the folders of the installation.
func (h *testHost) roots() layout.Roots {
	if h.system == "" {
		return layout.Roots{Top: h.top}
	}
	return layout.Roots{Top: h.top, Links: filepath.Join(h.system, "etc", "muster-agent")}
}

func (h *testHost) newExecutor(s *source, d disk.Disk) *Executor {
	return &Executor{
		Disk: d, Top: h.top, Links: h.roots().Links, GOOS: "linux", GOARCH: "amd64", Running: version("1.0.0", "aaaaaa"),
		Trust: s.repo.Authority(), Sources: []string{s.url}, Keep: handoff.DefaultLimits(), Watchers: h.watchers, Rules: handoff.DefaultRules(),
		Downloader: &download.Fetcher{Disk: d, Source: download.Source{Other: http.DefaultClient}, Rand: func() float64 { return 0 }},
		Reexec:     func(context.Context, request.Request, string) error { return nil },
		Report:     func(u agentapi.UpgradeDetails, _ bool) { h.reports = append(h.reports, u) },
	}
}

// tree returns every name under the top folder with its content, except those that
// begin with one of skip, and under the folders of the system.
func (h *testHost) tree(t *testing.T, skip ...string) map[string]string {
	t.Helper()
	out := map[string]string{}
	addTree(t, out, h.top, "", skip)
	if h.system != "" {
		addTree(t, out, h.system, "system", nil)
	}
	return out
}

func addTree(t *testing.T, out map[string]string, root, prefix string, skip []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		rel = filepath.Join(prefix, rel)
		for _, s := range skip {
			if strings.HasPrefix(rel, s) {
				return nil
			}
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		what := fi.Mode().String()
		switch {
		case fi.Mode().Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			what += " " + target
		case fi.Mode().IsRegular():
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			what += " " + string(data)
		}
		out[rel] = what
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func sameTree(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, what := range before {
		if after[name] != what {
			t.Errorf("%s was %.80q, is %.80q", name, what, after[name])
		}
	}
	for name := range after {
		if _, ok := before[name]; !ok {
			t.Errorf("%s is new", name)
		}
	}
}

// fakeWatchers implements Watchers with the test's results.
type fakeWatchers struct {
	version          int
	startErr         error
	started, stopped int
}

func (f *fakeWatchers) MarkerVersion(context.Context, string) (int, error) { return f.version, nil }

func (f *fakeWatchers) Start(context.Context, string, string) (Watcher, error) {
	if f.startErr != nil {
		return nil, f.startErr
	}
	f.started++
	return f, nil
}
func (f *fakeWatchers) PID() int { return 4711 }
func (f *fakeWatchers) Stop(context.Context) error {
	f.stopped++
	return nil
}

// faultDisk fails the call with the number failAt, counted from one (zero: none),
// and never waits for the disk. With dead set every later call fails too, as if the
// process had been killed there. With a label in from, calls count from the first one with that
// label on.
type faultDisk struct {
	disk.OS
	failAt int
	dead   bool
	from   string

	mu     sync.Mutex
	calls  int
	failed string // the call that failed
}

func (f *faultDisk) fault(op, call, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calls == 0 && f.from != "" && op != f.from {
		return nil
	}
	f.calls++
	if f.calls == f.failAt || (f.dead && f.failAt > 0 && f.calls > f.failAt) {
		if f.failed == "" {
			f.failed = fmt.Sprintf("%s: %s %s", op, call, filepath.Base(path))
		}
		return &disk.Error{Op: op, Err: errFault}
	}
	return nil
}

func (f *faultDisk) ReadFile(op, path string) ([]byte, error) {
	if err := f.fault(op, "read", path); err != nil {
		return nil, err
	}
	return f.OS.ReadFile(op, path)
}

func (f *faultDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if err := f.fault(op, "open", path); err != nil {
		return nil, err
	}
	file, err := f.OS.OpenFile(op, path, flag, perm)
	if err != nil {
		return nil, err
	}
	return &faultFile{File: file, disk: f, op: op, path: path}, nil
}

func (f *faultDisk) MkdirAll(op, path string, perm fs.FileMode) error {
	if err := f.fault(op, "mkdir", path); err != nil {
		return err
	}
	return f.OS.MkdirAll(op, path, perm)
}

func (f *faultDisk) Rename(op, from, to string) error {
	if err := f.fault(op, "rename", to); err != nil {
		return err
	}
	return f.OS.Rename(op, from, to)
}

func (f *faultDisk) Remove(op, path string) error {
	if err := f.fault(op, "remove", path); err != nil {
		return err
	}
	return f.OS.Remove(op, path)
}

func (f *faultDisk) RemoveAll(op, path string) error {
	if err := f.fault(op, "remove all", path); err != nil {
		return err
	}
	return f.OS.RemoveAll(op, path)
}

func (f *faultDisk) Symlink(op, target, link string) error {
	if err := f.fault(op, "symlink", link); err != nil {
		return err
	}
	return f.OS.Symlink(op, target, link)
}

func (f *faultDisk) Readlink(op, link string) (string, error) {
	if err := f.fault(op, "readlink", link); err != nil {
		return "", err
	}
	return f.OS.Readlink(op, link)
}

func (f *faultDisk) Lstat(op, path string) (fs.FileInfo, error) {
	if err := f.fault(op, "lstat", path); err != nil {
		return nil, err
	}
	return f.OS.Lstat(op, path)
}

func (f *faultDisk) ReadDir(op, path string) ([]fs.DirEntry, error) {
	if err := f.fault(op, "read folder", path); err != nil {
		return nil, err
	}
	return f.OS.ReadDir(op, path)
}

func (f *faultDisk) SyncDir(op, path string) error {
	// The call is counted but not made, to keep hundreds of upgrades fast.
	return f.fault(op, "sync folder", path)
}

func (f *faultDisk) OpenRoot(op, path string) (disk.Root, error) {
	if err := f.fault(op, "open root", path); err != nil {
		return nil, err
	}
	root, err := f.OS.OpenRoot(op, path)
	return quickRoot{root}, err
}

// quickRoot does not sync. The tests of package install fail its calls.
type quickRoot struct{ disk.Root }

func (r quickRoot) SyncDir(string) error { return nil }

func (r quickRoot) OpenFile(name string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := r.Root.OpenFile(name, flag, perm)
	return quickFile{f}, err
}

type quickFile struct{ disk.File }

func (quickFile) Sync() error { return nil }

func (f *faultDisk) Free(op, path string) (int64, error) {
	if err := f.fault(op, "free", path); err != nil {
		return 0, err
	}
	return f.OS.Free(op, path)
}

type faultFile struct {
	disk.File
	disk     *faultDisk
	op, path string
}

func (f *faultFile) Write(p []byte) (int, error) {
	if err := f.disk.fault(f.op, "write", f.path); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *faultFile) Sync() error {
	return f.disk.fault(f.op, "sync", f.path)
}
