package launch

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/windows"
)

// A job keeps its processes unless it says otherwise.
func TestProgramStartsFromAJobThatLetsNoProcessLeave(t *testing.T) {
	job, err := windows.CreateJobObject(nil, nil)
	if err == nil {
		err = windows.AssignProcessToJobObject(job, windows.CurrentProcess())
	}
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "started")
	var out strings.Builder
	cmd.Stdout = &out
	if err := Detached(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || strings.TrimSpace(out.String()) != "started" {
		t.Errorf("it printed %q, %v", out.String(), err)
	}
}
