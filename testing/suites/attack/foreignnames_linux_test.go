package attack

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/muster-fleet/muster/agent/primitive"
	componentruntime "github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/statecopy"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/require"
)

const (
	// nobody is the account of the component that attacks.
	nobody = 65534
	// swapTime is how long names are swapped beside the agent's work in each case: some 50 turns.
	swapTime = 2 * time.Second
	// maxPause bounds the time between two swaps: about as long as a turn takes.
	maxPause = 20 * time.Millisecond
)

// ground has a folder of root's, which the attack is to change, and one of the component's account.
// Both have the same names in them, so that a link from one to the other leads somewhere.
type ground struct {
	t                *testing.T
	roots, srv, kept string // kept is where the agent keeps its own files
}

// Both have the same length: the size in a header is that of one, the content may be that of the other.
const (
	secret = "only for root"
	public = "of the others"
)

func newGround(t *testing.T) *ground {
	t.Helper()
	require.Root(t)
	dir := t.TempDir()
	// Others may pass, as on the way to /etc and /srv.
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chmod(filepath.Dir(dir), 0o755)); err != nil {
		t.Fatal(err)
	}
	g := &ground{t, filepath.Join(dir, "roots"), filepath.Join(dir, "srv"), filepath.Join(dir, "kept")}
	for _, in := range []string{g.roots, g.srv} {
		for _, file := range []string{"app/state/form", "app/state/sub/deep/file", "app/conf/web.conf", "app/conf/old.conf"} {
			name := filepath.Join(in, filepath.FromSlash(file))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(secret), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	err := filepath.WalkDir(g.srv, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			err = os.WriteFile(path, []byte(public), 0o600)
		}
		return errors.Join(err, os.Lchown(path, nobody, nobody))
	})
	if err := errors.Join(err, os.Mkdir(g.kept, 0o700)); err != nil {
		t.Fatal(err)
	}
	return g
}

// listing describes what is below a folder, with inodes, so that a file that was replaced is noticed.
func (g *ground) listing(dir string) []string {
	g.t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Lstat(path)
		if err != nil {
			return err
		}
		st := fi.Sys().(*syscall.Stat_t)
		content := ""
		if fi.Mode().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(data)
		}
		out = append(out, fmt.Sprintf("%s %s %d:%d inode %d %q", strings.TrimPrefix(path, dir), fi.Mode(), st.Uid, st.Gid, st.Ino, content))
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

// unchanged runs act, and fails the test if root's folder is not as before, or if what was only for
// root has become somebody else's.
func (g *ground) unchanged(act func()) {
	g.t.Helper()
	before := g.listing(g.roots)
	act()
	after := g.listing(g.roots)
	for _, line := range before {
		if !slices.Contains(after, line) {
			g.t.Errorf("root's folder had\n  %s", line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			g.t.Errorf("root's folder has\n  %s", line)
		}
	}
	for _, line := range g.listing(g.srv) {
		if strings.Contains(line, secret) && strings.Contains(line, fmt.Sprintf(" %d:%d ", nobody, nobody)) {
			g.t.Errorf("the component's account has got what is only for root: %s", line)
		}
	}
}

// as runs act as the component's account, which Linux keeps for each thread, until act returns.
func as(uid int, act func()) (done chan error) {
	done = make(chan error, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked, so that the thread ends with its user
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, errno := unix.RawSyscall(call, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
				done <- errno
				return
			}
		}
		act()
		done <- nil
	}()
	return done
}

// swap has the component's account swap a name in its folder for a link while work is repeated.
func (g *ground) swap(path, target string, work func()) {
	g.t.Helper()
	var stop atomic.Bool
	swaps := 0
	aside := path + ".aside"
	attacker := as(nobody, func() {
		for !stop.Load() {
			// The name may be missing, a link, or a folder of either account. What fails is done by the
			// next turn.
			_ = unix.Symlink(target, aside)
			if unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, aside, unix.RENAME_EXCHANGE) == nil {
				swaps++
			}
			_ = unix.Symlink(target, path)
			// Some swaps follow at once; others leave the agent the time to come to a later step.
			if rand.IntN(2) == 0 {
				time.Sleep(rand.N(maxPause))
			}
		}
	})
	works := 0
	for end := time.Now().Add(swapTime); time.Now().Before(end); works++ {
		work()
	}
	stop.Store(true)
	if err := <-attacker; err != nil {
		g.t.Fatal(err)
	}
	g.t.Logf("%d swaps beside %d turns of the agent's work", swaps, works)
	if swaps == 0 || works == 0 {
		g.t.Error("nothing was swapped, or nothing done: this shows nothing")
	}
}

// attack has a name in the component's folder be a link to root's, first for good and then at every
// instant.
func attack(t *testing.T, name string, work func(g *ground) (once func() error)) {
	t.Helper()
	t.Run("link", func(t *testing.T) {
		g := newGround(t)
		once := work(g)
		path := filepath.Join(g.srv, name)
		if err := errors.Join(os.Rename(path, path+".aside"), os.Symlink(filepath.Join(g.roots, name), path), os.Lchown(path, nobody, nobody)); err != nil {
			t.Fatal(err)
		}
		g.unchanged(func() { t.Log(once()) })
	})
	t.Run("swaps", func(t *testing.T) {
		g := newGround(t)
		once := work(g)
		g.unchanged(func() {
			g.swap(filepath.Join(g.srv, name), filepath.Join(g.roots, name), func() { _ = once() })
		})
	})
}

// A component swaps the folder of its state, or one above it, for a link to a folder of root's, while
// the agent copies its state.
func TestStateIsNotCopiedThroughTheLinksOfItsComponent(t *testing.T) {
	for _, name := range []string{"app", "app/state", "app/state/sub", "app/state/form"} {
		t.Run(name, func(t *testing.T) {
			attack(t, name, func(g *ground) func() error {
				paths := []string{filepath.Join(g.srv, "app", "state")}
				archive := filepath.Join(g.kept, "state.tar")
				return func() error {
					if err := statecopy.Save(g.t.Context(), disk.OS{}, archive, paths); err != nil {
						return err
					}
					return g.noSecret(archive)
				}
			})
		})
	}
}

// noSecret fails the test if an archive gives the component's account what is only for root: putting
// it back would.
func (g *ground) noSecret(archive string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	for in := tar.NewReader(f); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		content, err := io.ReadAll(in)
		if err != nil {
			return err
		}
		if h.Uid == nobody && string(content) == secret {
			g.t.Errorf("the copy has %s as the component's, with the content of a file of root's", h.Name)
		}
	}
}

// A component swaps the folder of its state, or the one above, while the agent puts its state back:
// root's folder would be emptied, filled and given to its account.
func TestStateIsNotPutBackThroughTheLinksOfItsComponent(t *testing.T) {
	for _, name := range []string{"app", "app/state"} {
		t.Run(name, func(t *testing.T) {
			attack(t, name, func(g *ground) func() error {
				paths := []string{filepath.Join(g.srv, "app", "state")}
				archive := filepath.Join(g.kept, "state.tar")
				if err := statecopy.Save(g.t.Context(), disk.OS{}, archive, paths); err != nil {
					g.t.Fatal(err)
				}
				return func() error { return statecopy.Restore(g.t.Context(), disk.OS{}, archive, paths) }
			})
		})
	}
}

// A component swaps the folder of its configuration, or one above it, while the agent checks, writes
// and takes back its files: root's folder would get files of its account, and lose others.
func TestConfigurationIsNotWrittenThroughTheLinksOfItsComponent(t *testing.T) {
	for _, name := range []string{"app", "app/conf"} {
		t.Run(name, func(t *testing.T) {
			attack(t, name, func(g *ground) func() error {
				do := g.upgrade()
				return func() error {
					var errs []error
					for _, step := range []string{primitive.BackupState, primitive.VerifyArtifact, primitive.WriteConfigs} {
						s := do[step]
						errs = append(errs, s.Do(g.t.Context()))
					}
					return errors.Join(append(errs, do[primitive.WriteConfigs].Undo(g.t.Context()))...)
				}
			})
		})
	}
}

// A pipe in the place of a file would be waited for until its writer comes.
func TestAgentDoesNotWaitForPipesOfAComponent(t *testing.T) {
	g := newGround(t)
	conf := filepath.Join(g.srv, "app", "conf", "old.conf")
	form := filepath.Join(g.srv, "app", "state", "form")
	for _, path := range []string{conf, form} {
		if err := errors.Join(os.Remove(path), unix.Mkfifo(path, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	do := g.upgrade()
	ended := make(chan error, 1)
	go func() {
		err := do[primitive.BackupState].Do(t.Context())
		err = errors.Join(err, do[primitive.VerifyArtifact].Do(t.Context()))
		ended <- errors.Join(err, statecopy.Save(t.Context(), disk.OS{}, filepath.Join(g.kept, "state.tar"), []string{filepath.Dir(form)}))
	}()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "is no regular file") {
			t.Errorf("a pipe as configuration: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("the agent waits for a pipe")
		for _, path := range []string{conf, form} { // lets it go on
			if f, err := os.OpenFile(path, os.O_RDWR, 0); err == nil {
				defer f.Close()
			}
		}
	}
}

// A second name of a file of root's keeps its owner and its content, whatever is done with the first.
func TestHardLinkOfAComponentChangesNoFileOfRoots(t *testing.T) {
	g := newGround(t)
	conf := filepath.Join(g.srv, "app", "conf", "web.conf")
	form := filepath.Join(g.srv, "app", "state", "form")
	for path, to := range map[string]string{conf: "app/conf/web.conf", form: "app/state/form"} {
		// As root: the kernel may forbid it to others (fs.protected_hardlinks).
		if err := errors.Join(os.Remove(path), os.Link(filepath.Join(g.roots, to), path)); err != nil {
			t.Fatal(err)
		}
	}
	do := g.upgrade()
	g.unchanged(func() {
		archive, paths := filepath.Join(g.kept, "state.tar"), []string{filepath.Dir(form)}
		err := errors.Join(
			do[primitive.BackupState].Do(t.Context()), do[primitive.VerifyArtifact].Do(t.Context()),
			do[primitive.WriteConfigs].Do(t.Context()), do[primitive.WriteConfigs].Undo(t.Context()),
			statecopy.Save(t.Context(), disk.OS{}, archive, paths), statecopy.Restore(t.Context(), disk.OS{}, archive, paths),
		)
		if err != nil {
			t.Error(err)
		}
	})
}

// adapter is a runtime that refuses nothing.
type adapter struct{ componentruntime.Adapter }

func (adapter) Verify(context.Context, *componentruntime.Release) error         { return nil }
func (adapter) Check(context.Context, *componentruntime.Release) error          { return nil }
func (adapter) Backup(context.Context, *componentruntime.Release, string) error { return nil }

// upgrade returns the actions of an upgrade that writes a file to the component's folder and removes
// another.
func (g *ground) upgrade() map[string]steps.Step {
	g.t.Helper()
	conf := func(name string) string { return filepath.Join(g.srv, "app", "conf", name) }
	dir := filepath.Join(g.kept, "components", "web")
	version := func(number, file string) primitive.Installed {
		c := fakepkg.Component("web")
		c.ConfigFiles = []manifest.ConfigFile{{Path: file, From: "conf/web.conf", Mode: "0644", Owner: "component"}}
		p := fakepkg.DescribeComponent(c, number)
		m := manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: p}
		text, err := m.Encode()
		home := filepath.Join(dir, filepath.FromSlash(p.Home()))
		err = errors.Join(
			err, os.MkdirAll(filepath.Join(home, "conf"), 0o755), os.WriteFile(filepath.Join(home, "conf", "web.conf"), []byte("new"), 0o600),
			os.WriteFile(filepath.Join(home, manifest.FileName), text, 0o600), install.RecordDigests(disk.OS{}, home),
		)
		if err != nil {
			g.t.Fatal(err)
		}
		return primitive.Installed{Identity: p.Identity(), Home: p.Home(), Archive: number, Files: []string{file}}
	}
	from := version("1.0.0", conf("old.conf"))
	j := &primitive.Journal{
		Desired: primitive.Desired{ID: "one", Component: "web", Version: "2.0.0"},
		From:    &from, To: version("2.0.0", conf("web.conf")),
	}
	c := &primitive.Change{
		Disk: disk.OS{}, Adapter: adapter{}, Top: g.kept, Dir: dir, GOOS: "linux", GOARCH: "amd64", Journal: j,
		Save: func() error { return nil }, Report: func(agentapi.UpgradeMetadata) {},
		Account: func(string, string) (disk.Owner, error) { return disk.Owner{UID: nobody, GID: nobody}, nil },
		Log:     slog.New(slog.DiscardHandler),
	}
	do := map[string]steps.Step{}
	for _, s := range c.Steps() {
		do[s.Name] = s
	}
	return do
}
