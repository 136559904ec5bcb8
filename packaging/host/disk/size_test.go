package disk

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSizeIsTheSumOfAllFiles(t *testing.T) {
	dir := t.TempDir()
	for name, bytes := range map[string]int{"a": 10, "b/c": 200, "b/d/e": 3000, "b/empty": 0} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, make([]byte, bytes), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if n, err := Size(OS{}, "test", dir); err != nil || n != 3210 {
		t.Errorf("size %d, %v; want 3210", n, err)
	}
	if n, err := Size(OS{}, "test", filepath.Join(dir, "missing")); err == nil {
		t.Errorf("a missing folder has %d bytes", n)
	}
}
