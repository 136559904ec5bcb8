package runtime

import (
	"errors"
	"os"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Other accounts may make names in /dev/shm before the agent does.
func TestComponentIsStartedWhateverHasTheNameOfItsFolder(t *testing.T) {
	r := &Release{Dir: t.TempDir(), WithheldAtBoot: true}
	at := r.StartedDir()
	t.Cleanup(func() { os.Remove(at) })
	for what, put := range map[string]func() error{
		"nothing":  func() error { return nil },
		"a folder": func() error { return os.Mkdir(at, 0o700) },
		"a file":   func() error { return os.WriteFile(at, nil, 0o600) },
		"a link":   func() error { return os.Symlink("/nowhere", at) },
	} {
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if err := r.LetStart(disk.OS{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if fi, err := os.Lstat(at); err != nil || !fi.IsDir() {
			t.Errorf("%s: there is %v, %v; want a folder", what, fi, err)
		}
		if err := errors.Join(r.RemoveStarted(disk.OS{}), r.RemoveStarted(disk.OS{})); err != nil {
			t.Error(err)
		}
	}
}
