package fleet

import (
	"slices"
	"strings"
	"testing"
)

func TestCheckUpgradeRefusesWithheldPackage(t *testing.T) {
	waiting := Catalog{
		{File: "a", Version: "1.0.0", OS: "linux", Arch: "amd64"},
		{File: "b", Version: "1.1.0", OS: "linux", Arch: "amd64", Withheld: "nobody signed for it"},
		{File: "c", Version: "1.1.0", OS: "linux", Arch: "arm64"},
		{File: "d", Version: "1.2.0", OS: "linux", Arch: "amd64", Withheld: "below the floor"},
	}
	if got := waiting.Versions(); !slices.Equal(got, []string{"1.1.0", "1.0.0"}) {
		t.Errorf("offered are %v", got)
	}
	a := upgradeable("0.9.0")
	for _, row := range []struct {
		name        string
		wish        UpgradeRequest
		order, host string // what each refuses with; "" for nothing
	}{
		{"signed", UpgradeRequest{Version: "1.0.0"}, "", ""},
		{"signed for another platform only", UpgradeRequest{Version: "1.1.0"}, "", "will not install b: nobody signed for it"},
		{"not signed", UpgradeRequest{Version: "1.2.0"}, "body.version]: hosts will not install d: below the floor", "below the floor"},
		{"not signed, forced", UpgradeRequest{Version: "1.2.0", Force: true}, "", ""},
		{"not signed, from elsewhere", UpgradeRequest{Version: "1.2.0", SourceURI: "https://x"}, "", ""},
		{"not there", UpgradeRequest{Version: "1.3.0"}, "no package of version 1.3.0 is published (published are 1.1.0, 1.0.0)", "no package of version 1.3.0"},
	} {
		for what, got := range map[string]struct {
			err  error
			want string
		}{"order": {row.wish.Check("", waiting), row.order}, "host": {a.CheckUpgrade(row.wish, waiting), row.host}} {
			if (got.want == "") != (got.err == nil) || got.err != nil && (KindOf(got.err) != Invalid || !strings.Contains(got.err.Error(), got.want)) {
				t.Errorf("%s, the %s: %v, want %q", row.name, what, got.err, got.want)
			}
		}
	}
}
