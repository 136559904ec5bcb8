package suite

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

func TestMemoryOfKilledRunsIsFreed(t *testing.T) {
	killed := exec.CommandContext(t.Context(), "sleep", "60")
	if err := killed.Start(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Process.Kill()
	_ = killed.Wait()

	top := t.TempDir()
	left := filepath.Join(top, memoryPrefix+strconv.Itoa(killed.Process.Pid))
	used := filepath.Join(top, memoryPrefix+strconv.Itoa(os.Getpid()))
	others := filepath.Join(top, "m1x")
	for _, dir := range []string{left, used, others} {
		if err := os.MkdirAll(filepath.Join(dir, "data"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removeLeft(top)
	if _, err := os.Stat(left); err == nil {
		t.Error("the folder of a process that has ended is still there")
	}
	for _, dir := range []string{used, others} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a folder that may be in use was removed: %v", err)
		}
	}
}

func TestChosenTemporaryFolderIsKept(t *testing.T) {
	chosen := t.TempDir()
	t.Setenv("TMPDIR", chosen)
	defer useMemory(t.Output())()
	if got := os.TempDir(); got != chosen {
		t.Errorf("temporary files are in %s, want %s", got, chosen)
	}
}
