package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// On Windows a locked file can neither be written nor read through another handle.
func TestTheHolderOfALockIsReadable(t *testing.T) {
	lock := filepath.Join(t.TempDir(), "agent.lock")
	release, err := FileLock(lock, "4711\n")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(layout.LockPID(lock)); err != nil || strings.TrimSpace(string(got)) != "4711" {
		t.Errorf("the holder is %q, %v", got, err)
	}
	if _, err := FileLock(lock, "4712\n"); !errors.Is(err, ErrLocked) {
		t.Errorf("the second lock: %v", err)
	}
	if err := release(); err != nil {
		t.Fatal(err)
	}
	if release, err = FileLock(lock, ""); err != nil {
		t.Fatal(err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}
