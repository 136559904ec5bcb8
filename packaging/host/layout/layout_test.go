package layout

import (
	"path/filepath"
	"testing"
)

const newHome = "data/muster-agent-1.1.0-3f2a9c"

func TestLocateFindsTopAndHomeOfAProgram(t *testing.T) {
	for program, want := range map[string][2]string{
		"/opt/muster/" + newHome + "/muster-agent": {"/opt/muster", newHome},
		"/usr/bin/muster-agent":                    {"", ""},
	} {
		top, home := Locate(filepath.FromSlash(program))
		if filepath.ToSlash(top) != want[0] || home != want[1] {
			t.Errorf("Locate(%s) is %q, %q", program, top, home)
		}
	}
}

func TestIsHomeRefusesOtherNames(t *testing.T) {
	for name, want := range map[string]bool{
		newHome: true, Home("3f2a9c"): true, "data/elastic-agent-3f2a9c": true,
		DataDir: false, DownloadsDir: false, DropDir: false, TrustDir: false, DevelopmentDir: false,
		Staging(newHome): false, "data/..": false, "data/a/b": false, "./" + newHome: false, "other/x": false, `data/a\b`: false, "": false,
	} {
		if got := IsHome(name); got != want {
			t.Errorf("IsHome(%q) is %v", name, got)
		}
	}
}
