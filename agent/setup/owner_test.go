//go:build unix

package setup

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestTopFolderMustBelongToRootAlone(t *testing.T) {
	for _, c := range []struct {
		mode     fs.FileMode
		uid, gid uint32
		says     string // empty if it is accepted
	}{
		{fs.ModeDir | 0o755, 0, 0, ""},
		{fs.ModeDir | 0o700, 0, 50, ""},
		{fs.ModeDir | 0o775, 0, 0, ""}, // the group is root's
		{fs.ModeDir | 0o755, 1000, 1000, "belongs to the user with id 1000, who could replace the agent, which root runs: choose another folder, or run `chown root /srv/x`"},
		{fs.ModeDir | 0o700, 1000, 0, "belongs to the user with id 1000"},
		{fs.ModeDir | 0o775, 0, 50, "chmod go-w /srv/x"},
		{fs.ModeDir | 0o757, 0, 0, "chmod go-w /srv/x"},
		{fs.ModeDir | fs.ModeSticky | 0o777, 0, 0, "/srv/x is shared by all users, who could replace the agent, which root runs: choose another folder"},
	} {
		err := checkOwner("/srv/x", c.mode, &syscall.Stat_t{Uid: c.uid, Gid: c.gid})
		if (err == nil) != (c.says == "") || (err != nil && !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%v of %d:%d: %v, want %q", c.mode, c.uid, c.gid, err, c.says)
		}
	}
}

func TestInstallAsRootRefusesAFolderThatOthersCanChange(t *testing.T) {
	require.Root(t)
	shared := t.TempDir()
	if err := errors.Join(os.Chmod(shared, 0o777|fs.ModeSticky), os.Mkdir(filepath.Join(shared, "empty"), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, top := range []string{filepath.Join(shared, "not", "yet"), filepath.Join(shared, "empty")} {
		_, err := Installation{Disk: disk.OS{}, Top: top, Executable: os.Args[0]}.Run(t.Context())
		if err == nil || !strings.Contains(err.Error(), "is shared by all users") {
			t.Errorf("%s: error is %v", top, err)
		}
	}
	if err := checkOwners("--top", "/opt/muster"); err != nil {
		t.Error(err)
	}
}
