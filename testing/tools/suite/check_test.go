package suite

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// A contributor has committed on a branch, and has more that is not committed.
func TestWhatABranchChangesIsFound(t *testing.T) {
	dir := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		c := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"}, args...)...)
		c.Dir = dir
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	write := func(name string) {
		t.Helper()
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git("init", "-q", "-b", "main")
	write("a/a.go")
	write("same/same.go")
	git("add", ".")
	git("commit", "-qm", "begin")
	if files, err := changedFiles(t.Context(), dir); err != nil || len(files) > 0 {
		t.Fatalf("on main: %v, %v", files, err)
	}
	git("checkout", "-qb", "mine")
	write("b/testdata/deep/with space.txt")
	git("add", ".")
	git("commit", "-qm", "more")
	write("c/c.go")
	if err := os.Remove(filepath.Join(dir, "a", "a.go")); err != nil {
		t.Fatal(err)
	}
	files, err := changedFiles(t.Context(), dir)
	if want := []string{"a/a.go", "b/testdata/deep/with space.txt", "c/c.go"}; err != nil || !slices.Equal(slices.Sorted(slices.Values(files)), want) {
		t.Fatalf("on the branch: %q, %v; want %q", files, err, want)
	}
	got := changedPackages(files, []string{"./a", "./b", "./c", "./same"})
	if want := []string{"./a", "./b", "./c"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("packages %v, want %v", got, want)
	}
}
