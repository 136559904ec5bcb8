package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// An installation on a read-only disk fails before it has anything to undo, and names the command
// that finds what mends it.
func TestInstallOnAReadOnlyDisk(t *testing.T) {
	require.Root(t)
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_RDONLY, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	}()
	p := newPublisher(t)
	archive := p.pack(t, runtime.GOOS, "")
	for _, top := range []string{mount, filepath.Join(mount, "muster")} {
		i := Installation{Disk: disk.OS{}, Top: top, UnsafeTop: true, Package: archive, TrustRoot: p.root}
		_, err := i.Run(t.Context())
		if err == nil {
			t.Fatalf("it was installed in %s", top)
		}
		for _, want := range []string{"--top: ", "read-only file system", "muster-agent doctor --top " + top} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error %q does not have %q", err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("the error has several lines: %s", err)
		}
	}
	left, err := os.ReadDir(mount)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// The service could not start the agent.
func TestInstallWhereNoProgramMayBeStarted(t *testing.T) {
	require.Root(t)
	mount := t.TempDir()
	if err := syscall.Mount("tmpfs", mount, "tmpfs", syscall.MS_NOEXEC, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Unmount(mount, 0); err != nil {
			t.Error(err)
		}
	}()
	p := newPublisher(t)
	i := Installation{Disk: disk.OS{}, Top: filepath.Join(mount, "muster"), UnsafeTop: true, Package: p.pack(t, runtime.GOOS, ""), TrustRoot: p.root}
	_, err := i.Run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "--top: no program may be started from "+mount) || !strings.Contains(err.Error(), "mount -o remount,exec "+mount) {
		t.Errorf("got %v", err)
	}
	left, err := os.ReadDir(mount)
	if err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

// umaskTop has a helper process install there, from the version in umaskTop+".from": the umask is
// that of the process.
const umaskTop = "MUSTER_TEST_UMASK_TOP"

func TestInstalledVersionIsReadableWhateverTheUmask(t *testing.T) {
	if top := os.Getenv(umaskTop); top != "" {
		syscall.Umask(0o077)
		i := Installation{Disk: disk.OS{}, Top: top, UnsafeTop: true, Executable: filepath.Join(top+".from", layout.AgentLink)}
		if _, err := i.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return
	}
	// As unpacked under this umask.
	top := filepath.Join(t.TempDir(), "muster")
	m := manifest.Manifest{APIVersion: manifest.APIVersion, Kind: manifest.Kind, Package: manifest.Package{
		Version: "1.0.0", Hash: "abc123abc123", OS: runtime.GOOS, Arch: runtime.GOARCH, VersionedHome: layout.Home("1.0.0-abc123"),
	}}
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	for name, mode := range map[string]os.FileMode{layout.AgentLink: 0o700, layout.WatcherLink: 0o700, "extra/notes": 0o600, manifest.FileName: 0o600} {
		path := filepath.Join(top+".from", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, text, mode); err != nil {
			t.Fatal(err)
		}
	}
	c := exec.Command(os.Args[0], "-test.run=^TestInstalledVersionIsReadableWhateverTheUmask$")
	c.Env = append(os.Environ(), umaskTop+"="+top)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	home := m.Package.Home()
	for name, want := range map[string]os.FileMode{
		"": 0o755, layout.DataDir: 0o755, home: 0o755, home + "/extra": 0o755, home + "/extra/notes": 0o644,
		home + "/" + layout.AgentLink: 0o755, home + "/" + layout.WatcherLink: 0o755, home + "/" + manifest.FileName: 0o644,
		home + "/" + layout.DigestsFile: 0o644, layout.ConfigFile: 0o644, layout.ActiveCommitFile: 0o644,
	} {
		fi, err := os.Stat(layout.Path(top, name))
		if err != nil {
			t.Error(err)
		} else if fi.Mode().Perm() != want {
			t.Errorf("%s has the mode %v, want %v", name, fi.Mode().Perm(), want)
		}
	}
}
