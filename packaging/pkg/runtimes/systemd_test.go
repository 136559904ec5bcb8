package runtimes

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

func TestSettingsNameAUnitAndAFileOfThePackage(t *testing.T) {
	for _, test := range []struct {
		settings map[string]any
		want     string // in the error, "" if there is none
	}{
		{map[string]any{"unit": "web.service"}, ""},
		{map[string]any{"unit": "postgresql@15-main.service"}, ""},
		{map[string]any{"unit": "web.service", "unit_file": "units/web.service"}, ""},
		{map[string]any{}, `settings.unit: is ""`},
		{map[string]any{"unit": "web"}, `settings.unit: is "web", want the name of a service such as web.service`},
		{map[string]any{"unit": "web.socket"}, "want the name of a service"},
		{map[string]any{"unit": "web@.service"}, "want the name of a service"},
		{map[string]any{"unit": "--all.service"}, "want the name of a service"},
		{map[string]any{"unit": "*.service"}, "want the name of a service"},
		{map[string]any{"unit": "../web.service"}, "want the name of a service"},
		{map[string]any{"unit": strings.Repeat("w", maxUnitName) + ".service"}, "want the name of a service"},
		{map[string]any{"unit": "web@1.service", "unit_file": "web.service"}, "name the unit without @"},
		{map[string]any{"unit": "web.service", "unit_file": "../../etc/passwd"}, "want a file of the package"},
		{map[string]any{"unit": "web.service", "unit_file": "/etc/passwd"}, "want a file of the package"},
		{map[string]any{"unit": "web.service", "reload": true}, "settings.reload: is no setting, want one of unit, unit_file"},
		{map[string]any{"unit": 1}, `settings.unit: is 1, want text, such as "1"`},
	} {
		err := Decode(&manifest.Component{Settings: test.settings}, new(Systemd))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q in it", test.settings, err, test.want)
		}
	}
}
