package logfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/disk"
)

func TestLogFileStaysBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data", "agent.log")
	line := strings.Repeat("x", 99)
	for run := range 3 { // it appends over restarts
		f, err := Open(disk.OS{}, path, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 9 {
			if _, err := fmt.Fprintf(f, "%02d%s\n", 10*run+i, line[2:]); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	now, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path + ".1")
	if err != nil {
		t.Fatal(err)
	}
	if len(now) > 1000 || len(before) > 1000 {
		t.Errorf("%d and %d bytes", len(now), len(before))
	}
	lines := strings.Split(strings.TrimSpace(string(before)+string(now)), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "28") || len(lines) < 11 {
		t.Errorf("%d lines, the last is %.4q", len(lines), last)
	}
	if _, err := os.Stat(path + ".2"); err == nil {
		t.Error("there is a third file")
	}
}
