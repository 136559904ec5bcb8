package handoff

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

func TestStopsAreCounted(t *testing.T) {
	top := t.TempDir()
	if err := os.Mkdir(filepath.Join(top, layout.DataDir), 0o700); err != nil {
		t.Fatal(err)
	}
	count := func(want int) {
		t.Helper()
		if err := CountStop(disk.OS{}, top); err != nil {
			t.Fatal(err)
		}
		if n := Stops(disk.OS{}, top); n != want {
			t.Errorf("%d are counted, want %d", n, want)
		}
	}
	if n := Stops(disk.OS{}, top); n != 0 {
		t.Errorf("%d are counted without a record", n)
	}
	count(1)
	count(2)
	for _, damaged := range []string{"", "-7\n", "x"} {
		if err := os.WriteFile(layout.Path(top, layout.StopsFile), []byte(damaged), 0o600); err != nil {
			t.Fatal(err)
		}
		if n := Stops(disk.OS{}, top); n != 0 {
			t.Errorf("%d are counted by %q", n, damaged)
		}
		count(1)
	}
}
