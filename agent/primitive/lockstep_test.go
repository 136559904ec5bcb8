package primitive

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// A boot starts a unit of the host, so the start of its component cannot be withheld.
func TestUnitOfTheHostIsRefusedWhereNoBootMayStartIt(t *testing.T) {
	for _, c := range []struct {
		runtime string
		own     bool
		held    bool
		refused bool
	}{
		{"systemd", false, true, true},
		{"systemd", true, true, false},
		{"docker", false, true, false},
		{"process", false, true, false},
		{"systemd", false, false, false},
	} {
		r := &runtime.Release{Name: "web", Identity: manifest.Identity{Version: "1.0.0"}, Component: manifest.Component{Runtime: c.runtime, Settings: map[string]any{"unit": "web.service"}}}
		if c.own {
			r.Component.Settings["unit_file"] = "web.service"
		}
		err := (&Change{Journal: &Journal{Desired: Desired{WithheldAtBoot: c.held}}}).checkLockstep(r)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "let its package bring the unit as settings.unit_file") {
			t.Errorf("%+v: the error is %v", c, err)
		}
	}
}
