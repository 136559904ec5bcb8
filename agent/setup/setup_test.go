package setup

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/agent/control"
	"github.com/muster-fleet/muster/agent/daemon"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/build"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf/tuftest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
)

// publisher builds signed packages. Its servers have no signed metadata, so a copy lies
// beside the packages.
type publisher struct {
	*tuftest.Repo
	root string // file name
}

func newPublisher(t *testing.T) publisher {
	t.Helper()
	return publisherOf(t, tuftest.New(t))
}

func publisherOf(t *testing.T, r *tuftest.Repo) publisher {
	t.Helper()
	dir := t.TempDir()
	r.Copy(dir)
	return publisher{r, filepath.Join(dir, "1.root.json")}
}

// pack signs a package whose programs hold their name and content.
func (p publisher) pack(t *testing.T, goos, content string) string {
	t.Helper()
	dir := t.TempDir()
	spec := build.Spec{Manifest: manifest.Package{Version: "1.0.0", OS: goos, Arch: runtime.GOARCH}}
	for _, name := range []string{layout.AgentLink, layout.WatcherLink} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(name+content), 0o755); err != nil {
			t.Fatal(err)
		}
		spec.Files = append(spec.Files, build.File{Name: name, Path: path, Mode: 0o755})
	}
	var buf bytes.Buffer
	if _, err := build.Build(context.Background(), spec, &buf); err != nil {
		t.Fatal(err)
	}
	archive := filepath.Join(dir, manifest.ArchiveName("1.0.0", goos, runtime.GOARCH, "tar.gz"))
	if err := os.WriteFile(archive, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	p.SignFile(archive)
	p.Copy(dir)
	return archive
}

// manager is a service manager that records its calls.
type manager struct {
	asked              []string
	checkErr, startErr error
}

func (m *manager) Check(layout.Roots) error { return m.checkErr }

func (m *manager) Install(layout.Roots) (string, error) {
	m.asked = append(m.asked, "install")
	return "muster-test", nil
}

func (m *manager) Start(name string, _ layout.Roots) error {
	m.asked = append(m.asked, "start "+name)
	return m.startErr
}

func (m *manager) Remove(name string, _ layout.Roots) error {
	m.asked = append(m.asked, "remove "+name)
	return nil
}

func TestInstallEnrolAndUninstall(t *testing.T) {
	s, p, m := fakeserver.New(t), newPublisher(t), &manager{}
	top := filepath.Join(t.TempDir(), "h")
	i := Installation{
		Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), Services: m,
		Enrollment: &Enrollment{URL: s.URL + "/", Token: fakeserver.Token, CAPin: s.CAPin, TrustRoot: p.root},
	}
	done, err := i.Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	id, err := identity.Load(disk.OS{}, top)
	if err != nil || id.AgentID != "agent-1" || id.ServerURL != s.URL || id.CAFingerprint != s.CAPin ||
		!strings.Contains(id.CAPEM, "BEGIN CERTIFICATE") {
		t.Errorf("identity %+v, %v", id, err)
	}
	if done.Version.Version != "1.0.0" || done.Service != "muster-test" {
		t.Errorf("installed %+v", done)
	}
	for _, link := range []string{layout.AgentLink, layout.WatcherLink} {
		target, err := os.Readlink(filepath.Join(top, link))
		if err != nil || filepath.IsAbs(target) {
			t.Errorf("%s leads to %q, %v; want a relative target", link, target, err)
		}
		if _, err := os.Stat(filepath.Join(top, link)); err != nil {
			t.Error(err)
		}
	}
	if _, err := i.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "muster-agent upgrade VERSION") {
		t.Errorf("installed twice: %v", err)
	}

	if err := os.WriteFile(filepath.Join(top, "notes.txt"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(control.StagingDir(top), 0o700); err != nil { // of an agent that was killed as it started
		t.Fatal(err)
	}
	r := Removal{
		Disk: disk.OS{}, Top: top, Services: m, Lock: daemon.FileLock, Running: done.Version,
		Components: func(context.Context) ([]string, error) { return nil, nil },
	}
	release, err := daemon.FileLock(layout.Path(top, layout.WatcherLockFile), "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "being watched") {
		t.Errorf("uninstalled under a watcher: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	out, err := r.Run(context.Background())
	if err != nil || out.ReportErr != nil || !slices.Equal(out.Left, []string{"notes.txt"}) {
		t.Errorf("removed %+v, %v", out, err)
	}
	if want := []string{"install", "start muster-test", "remove muster-test"}; !slices.Equal(m.asked, want) {
		t.Errorf("service manager was asked %v, want %v", m.asked, want)
	}
	if _, err := r.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "no agent is installed") {
		t.Errorf("uninstalled twice: %v", err)
	}
}

// adminPort answers as the admin API does without a login, with the web UI beside it.
func adminPort(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/api/") {
			w.WriteHeader(http.StatusBadRequest) // it has another version
		}
		_, _ = w.Write([]byte("<html>"))
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestFailedInstallationLeavesNothing(t *testing.T) {
	p := newPublisher(t)
	for _, c := range []struct {
		name  string
		spoil func(*testing.T, *Installation, *manager)
		want  string
	}{
		{"wrong token", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.Token = "bm90OmFrZXk=" }, "--token: server answered 401"},
		{"token that is none", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.Token = "x" }, "--token is no enrollment token: copy it whole"},
		{"the port of the admin API", func(t *testing.T, i *Installation, _ *manager) {
			i.Enrollment.URL, i.Enrollment.CAPin = adminPort(t), ""
		}, "is not the port for agents: pass that one, 8220"},
		{"the port of the admin API, with a root", func(t *testing.T, i *Installation, _ *manager) {
			i.Enrollment.URL, i.Enrollment.CAPin, i.Enrollment.TrustRoot = adminPort(t), "", "sha256:"+strings.Repeat("0", 64)
		}, "is not the port for agents: pass that one, 8220"},
		{"no token", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.Token = "" }, "MUSTER_ENROLLMENT_TOKEN"},
		{"wrong CA", func(t *testing.T, i *Installation, _ *manager) { i.Enrollment.CAPin = fakeserver.New(t).CAPin }, "compare --ca-pin"},
		{"pin that is none", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.CAPin = "abc" }, "64 hexadecimal digits"},
		{"no publisher", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.TrustRoot = "" }, "could never upgrade"},
		{"another publisher", func(t *testing.T, i *Installation, _ *manager) {
			i.Enrollment.TrustRoot = newPublisher(t).root
		}, "0 of 1 signatures by the keys of root 1"},
		{"key in the clear", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.URL = "http://fleet.example.com:8220" }, "use https"},
		{"nobody listens", func(_ *testing.T, i *Installation, _ *manager) { i.Enrollment.URL = "https://127.0.0.1:1" }, "nothing listens there"},
		{"a root that a Fleet Server lacks", func(_ *testing.T, i *Installation, _ *manager) {
			i.Enrollment.TrustRoot = p.TrustRoot()
		}, "pass the publishers' root file itself"},
		{"no signed metadata", func(t *testing.T, i *Installation, _ *manager) {
			if err := os.Remove(filepath.Join(filepath.Dir(i.Package), tuf.TimestampFile)); err != nil {
				t.Fatal(err)
			}
		}, "muster package keys mirror"},
		{"a component's package", func(t *testing.T, i *Installation, _ *manager) {
			c := fakepkg.DescribeComponent(fakepkg.Component("web"), "1.0.0")
			i.Package = fakepkg.Write(t, t.TempDir(), c.ArchiveName("tar.gz"), fakepkg.SoundComponent(t, c))
			p.SignFile(i.Package)
			p.Copy(filepath.Dir(i.Package))
		}, "one of component web, want an agent's"},
		{"another platform", func(t *testing.T, i *Installation, _ *manager) { i.Package = p.pack(t, "plan9", "") }, "package is for plan9"},
		{"no package", func(t *testing.T, i *Installation, _ *manager) {
			i.Package, i.Executable = "", filepath.Join(t.TempDir(), layout.AgentLink)
		}, "pass --package"},
		{"service that cannot be", func(_ *testing.T, _ *Installation, m *manager) { m.checkErr = errors.New("read-only") }, "read-only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, m := fakeserver.New(t), &manager{}
			top := filepath.Join(t.TempDir(), "h")
			i := Installation{
				Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), Services: m,
				Enrollment: &Enrollment{URL: s.URL, Token: fakeserver.Token, CAPin: s.CAPin, TrustRoot: p.root},
			}
			c.spoil(t, &i, m)
			_, err := i.Run(context.Background())
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if _, err := os.Lstat(top); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s is left: %v", top, err)
			}
			if slices.Contains(m.asked, "install") != slices.Contains(m.asked, "remove muster-test") {
				t.Errorf("service manager was asked %v", m.asked)
			}
		})
	}
}

// loseAnswers makes the server close the connection of the enrolments from..to-1 after it has
// enrolled the host.
func loseAnswers(s *fakeserver.Server, from, to int) {
	enrolling, n := false, 0
	s.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		if enrolling || r.URL.Path != agentapi.PathEnroll {
			return false
		}
		if n++; n <= from || n > to {
			return false
		}
		enrolling = true
		s.ServeHTTP(httptest.NewRecorder(), r)
		enrolling = false
		panic(http.ErrAbortHandler)
	}
}

// However often the answer is lost, and whatever ends the installer in between, the host asks
// with one enrollment_id until it is enrolled, and with another one after that.
func TestLostAnswersAreFollowedByTheSameEnrollmentID(t *testing.T) {
	s, p, m := fakeserver.New(t), newPublisher(t), &manager{}
	top := filepath.Join(t.TempDir(), "h")
	i := Installation{
		Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), Services: m,
		Enrollment: &Enrollment{URL: s.URL, Token: fakeserver.Token, CAPin: s.CAPin, TrustRoot: p.root},
	}
	loseAnswers(s, 0, 2)
	for range 2 {
		if _, err := i.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "run the same command again") {
			t.Fatalf("after a lost answer the error is %v", err)
		}
		if entries, err := os.ReadDir(top); err != nil || len(entries) != 1 || entries[0].Name() != layout.EnrollmentFile {
			t.Errorf("the folder holds %v, %v; want the enrolment alone", entries, err)
		}
	}
	// A refusal says nothing about the earlier tries.
	refused := i
	refused.Enrollment = new(*i.Enrollment)
	refused.Enrollment.Token = "bm90OmFrZXk="
	if _, err := refused.Run(t.Context()); err == nil {
		t.Fatal("a wrong token is accepted")
	}
	// The server has enrolled the host, and then the service does not start.
	m.startErr = errors.New("masked")
	if _, err := i.Run(t.Context()); err == nil {
		t.Fatal("an installation whose service does not start succeeds")
	}
	m.startErr = nil
	if _, err := i.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(layout.Path(top, layout.EnrollmentFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the enrolment is left: %v", err)
	}
	if _, err := Enroll(t.Context(), disk.OS{}, top, *i.Enrollment, manifest.Identity{Version: "1.0.0"}, host.Read()); err != nil {
		t.Fatal(err)
	}
	sent := s.State().Enrolled()
	if len(sent) != 5 || sent[0].EnrollmentID == "" {
		t.Fatalf("the server was asked %+v", sent)
	}
	for n, r := range sent {
		if same := r.EnrollmentID == sent[0].EnrollmentID; same != (n < 4) {
			t.Errorf("request %d has the enrollment_id %s, the first %s", n, r.EnrollmentID, sent[0].EnrollmentID)
		}
	}
}

// A copy of a host whose enrolment has begun enrols for itself.
func TestEnrolmentOfAnotherMachineIsNotContinued(t *testing.T) {
	top := t.TempDir()
	id := func(machine string) string {
		t.Helper()
		p, err := identity.BeginEnrollment(disk.OS{}, top, machine)
		if err != nil {
			t.Fatal(err)
		}
		return p.EnrollmentID
	}
	first := id("m1")
	if again := id("m1"); again != first {
		t.Errorf("the same machine asks with %s and %s", first, again)
	}
	if copied := id("m2"); copied == first {
		t.Errorf("a copy asks with %s too", copied)
	}
	// A damaged file is as none.
	if err := os.WriteFile(layout.Path(top, layout.EnrollmentFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(layout.Path(top, layout.EnrollmentFile) + layout.PreviousSuffix); err != nil {
		t.Fatal(err)
	}
	if id("m2") == "" {
		t.Error("there is no id after a damaged file")
	}
}

func TestInstallRefusesAFolderWithOtherFiles(t *testing.T) {
	p, top := newPublisher(t), t.TempDir()
	if err := os.WriteFile(filepath.Join(top, "thesis.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Installation{Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), TrustRoot: p.root}.Run(context.Background())
	if err == nil || !strings.Contains(err.Error(), "thesis.txt") {
		t.Errorf("error %v", err)
	}
	if entries, _ := os.ReadDir(top); len(entries) != 1 {
		t.Errorf("in the folder: %v", entries)
	}
}

func TestInstallFromTheUnpackedPackage(t *testing.T) {
	p := newPublisher(t)
	first := filepath.Join(t.TempDir(), "h")
	i := Installation{Disk: disk.OS{}, Top: first, UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), TrustRoot: p.root}
	if _, err := i.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	exe, err := filepath.EvalSymlinks(layout.Path(first, layout.AgentLink))
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(filepath.Dir(exe), "run", "queue")
	if err := errors.Join(os.MkdirAll(filepath.Dir(state), 0o700), os.WriteFile(state, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	second := filepath.Join(t.TempDir(), "h")
	if _, err := (Installation{Disk: disk.OS{}, Top: second, UnsafeTop: true, Executable: exe}).Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(second, layout.DataDir, filepath.Base(filepath.Dir(exe)))
	if _, err := os.Stat(filepath.Join(home, manifest.FileName)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(home, "run")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the other host's state came along")
	}
}

// swappingDisk puts another file under the package's name once it has been opened, as the
// owner of its folder can.
type swappingDisk struct {
	disk.OS
	archive string
	evil    []byte
	opened  int
}

func (d *swappingDisk) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	f, err := d.OS.OpenFile(op, path, flag, perm)
	if err == nil && path == d.archive {
		d.opened++
		err = errors.Join(os.Remove(path), os.WriteFile(path, d.evil, 0o600))
	}
	return f, err
}

func TestInstallUnpacksTheFileThatItHasVerified(t *testing.T) {
	p, top := newPublisher(t), filepath.Join(t.TempDir(), "h")
	d := &swappingDisk{archive: p.pack(t, runtime.GOOS, "good")}
	evil, err := os.ReadFile(p.pack(t, runtime.GOOS, "evil"))
	if err != nil {
		t.Fatal(err)
	}
	d.evil = evil
	i := Installation{Disk: d, Top: top, UnsafeTop: true, Package: d.archive, TrustRoot: p.root}
	if _, err := i.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{layout.AgentLink, layout.WatcherLink} {
		if got, err := os.ReadFile(filepath.Join(top, program)); err != nil || string(got) != program+"good" {
			t.Errorf("installed %q, %v", got, err)
		}
	}
	if d.opened != 1 {
		t.Errorf("the package was opened %d times, want once", d.opened)
	}
	if _, err := os.Lstat(layout.Path(top, layout.DownloadsDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the copy of the package is left (%v)", err)
	}
}
