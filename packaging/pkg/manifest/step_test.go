package manifest

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCheckStep(t *testing.T) {
	for _, c := range []struct{ from, to, want string }{
		{"1.2.0", "1.2.0", ""},
		{"1.2.0", "1.2.7", ""},
		{"1.2.7", "1.2.0", ""},
		{"1.2.0", "1.3.0", ""},
		{"1.2.0", "1.9.0-rc.1", ""},
		{"1.2.5", "1.1.9", ""},
		{"1.0.0", "1.0.0-SNAPSHOT", ""},
		{"1.2.0", "1.0.0", "version 1.0.0 cannot follow 1.2.0: state goes back by one minor version at a time, to 1.1 first"},
		{"1.9.0", "2.0.0", "version 2.0.0 cannot follow 1.9.0: their major versions differ"},
		{"2.0.0", "1.9.0", "their major versions differ"},
		{"2", "1.9.0", `version is "2"`},
		{"2.0.0", "latest", `version is "latest"`},
	} {
		err := CheckStep(c.from, c.to)
		if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("from %s to %s: %v, want %q", c.from, c.to, err, c.want)
		}
	}
}

// Every version of a major one can be reached from every other, going back a minor version at a
// time.
func TestStepsLeadFromAnyVersionToAnyOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minor, patch := rapid.IntRange(0, 20), rapid.IntRange(0, 3)
		from, to := minor.Draw(t, "from"), minor.Draw(t, "to")
		version := func(minor int) string { return fmt.Sprintf("3.%d.%d", minor, patch.Draw(t, "patch")) }
		steps, at := 0, from
		for is := version(from); at != to; steps++ {
			next := max(to, at-1)
			v := version(next)
			if err := CheckStep(is, v); err != nil {
				t.Fatal(err)
			}
			is, at = v, next
		}
		if want := max(from-to, min(to-from, 1)); steps != want && from != to {
			t.Errorf("from %d to %d in %d steps, want %d", from, to, steps, want)
		}
		if from-to > 1 && CheckStep(version(from), version(to)) == nil {
			t.Errorf("from %d to %d in one step", from, to)
		}
	})
}
