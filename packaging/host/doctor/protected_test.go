//go:build unix

package doctor

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestProtected(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin, etc, program := filepath.Join(top, "bin"), filepath.Join(top, "etc"), filepath.Join(top, "lib", "muster")
	for _, dir := range []string{bin, etc, filepath.Dir(program)} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(bin, "muster")
	is := func(level Level, found, mend string) {
		t.Helper()
		f := Protected(link, bin)
		if f.Level != level || !strings.Contains(f.Found, found) || f.Mend != mend {
			t.Errorf("found %+v, want %s, %q and %q", f, level, found, mend)
		}
	}
	is("", "", "") // nothing is installed
	for _, l := range [][2]string{{filepath.Join(etc, "muster"), link}, {program, filepath.Join(etc, "muster")}} {
		if err := os.Symlink(l[0], l[1]); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(program, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	is(OK, "only its owner can change what "+link+" is", "")
	if err := os.Chmod(etc, 0o757); err != nil {
		t.Fatal(err)
	}
	is(Problem, "others can change what "+link+" is: "+etc+" may be written to by others", "sudo chmod go-w "+etc)
	if err := os.Chmod(etc, 0o755); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() != 0 {
		return
	}
	if err := os.Chown(program, 65534, -1); err != nil {
		t.Fatal(err)
	}
	is(Problem, program+" belongs to the user 65534", "find out who changed it, and do not run "+link+" as root before; then: sudo chown --no-dereference 0 "+program)
}
