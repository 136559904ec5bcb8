//go:build !linux && !darwin

package process

import (
	"errors"
	"testing"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

func TestSystemWithoutSupportIsUnavailable(t *testing.T) {
	r := &runtime.Release{Name: "web", Dir: t.TempDir()}
	if err := New(Options{Disk: disk.OS{}}).Check(t.Context(), r); !errors.Is(err, runtime.ErrUnavailable) {
		t.Errorf("error is %v", err)
	}
}
