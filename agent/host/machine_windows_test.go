package host

import (
	"regexp"
	"testing"
)

func TestMachineHasAnID(t *testing.T) {
	if id := machineID(); !regexp.MustCompile(`^[0-9a-fA-F-]{36}$`).MatchString(id) {
		t.Errorf("it is %q", id)
	}
}
