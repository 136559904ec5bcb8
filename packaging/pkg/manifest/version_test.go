package manifest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestCompareVersions(t *testing.T) {
	ordered := []string{
		"0.0.9", "0.1.0", "1.0.0-1", "1.0.0-2", "1.0.0-10", "1.0.0-10.a", "1.0.0-SNAPSHOT", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta",
		"1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc", "1.0.0-rc.1", "1.0.0-rc.1.0", "1.0.0-rc.a", "1.0.0-rc-1", "1.0.0-rc1",
		"1.0.0", "1.0.0+build2", "1.0.0+build10", "1.0.1", "1.9.0", "1.10.0", "9.1.0-SNAPSHOT", "9.1.0", "10.0.0", "123456789.0.0",
	}
	for i, a := range ordered {
		for j, b := range ordered {
			got, err := CompareVersions(a, b)
			if err != nil || got != cmp.Compare(i, j) {
				t.Errorf("%s against %s is %d, want %d: %v", a, b, got, cmp.Compare(i, j), err)
			}
		}
	}
}

func TestInvalidVersionHasNoKey(t *testing.T) {
	for _, bad := range []string{"", "1", "1.2", "1.2.3.4", "v1.2.3", "1.2.x", "1.2.3 ", "99999999999999999999.0.0", "1.0.0-" + strings.Repeat("9", 200)} {
		if key := VersionKey(bad); key != "" {
			t.Errorf("%q has the key %q", bad, key)
		}
		if _, err := CompareVersions(bad, "1.0.0"); err == nil {
			t.Errorf("%q was compared", bad)
		}
		if _, err := CompareVersions("1.0.0", bad); err == nil {
			t.Errorf("%q was compared", bad)
		}
	}
}

// semver is a version as the specification describes it, independent of the code under
// test.
type semver struct {
	numbers    [3]int
	prerelease []any // int or string
	build      string
}

func (v semver) String() string {
	s := fmt.Sprintf("%d.%d.%d", v.numbers[0], v.numbers[1], v.numbers[2])
	for i, p := range v.prerelease {
		s += []string{"-", "."}[min(i, 1)] + fmt.Sprint(p)
	}
	if v.build != "" {
		s += "+" + v.build
	}
	return s
}

// precedence implements section 11 of the specification and the rule for build
// metadata.
func precedence(a, b semver) int {
	if c := slices.Compare(a.numbers[:], b.numbers[:]); c != 0 {
		return c
	}
	if len(a.prerelease) == 0 || len(b.prerelease) == 0 {
		// A version without prerelease is the higher one.
		if c := cmp.Compare(min(len(b.prerelease), 1), min(len(a.prerelease), 1)); c != 0 {
			return c
		}
	}
	c := slices.CompareFunc(a.prerelease, b.prerelease, func(x, y any) int {
		xn, xIsNumber := x.(int)
		yn, yIsNumber := y.(int)
		switch {
		case xIsNumber && yIsNumber:
			return cmp.Compare(xn, yn)
		case xIsNumber:
			return -1
		case yIsNumber:
			return 1
		}
		return strings.Compare(x.(string), y.(string))
	})
	return cmp.Or(c, cmp.Compare(len(a.build), len(b.build)), strings.Compare(a.build, b.build))
}

func drawVersion(t *rapid.T, label string) semver {
	number := rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(8, 12), rapid.IntRange(0, 999_999_999))
	part := rapid.OneOf(rapid.Map(number, func(n int) any { return n }), rapid.Map(rapid.StringMatching(`[a-cA-C-][a-b0-2-]{0,2}`), func(s string) any { return s }))
	var v semver
	for i := range v.numbers {
		v.numbers[i] = number.Draw(t, label)
	}
	v.prerelease = rapid.SliceOfN(part, 0, 3).Draw(t, label)
	v.build = rapid.StringMatching(`|[a-b][0-2]{0,2}`).Draw(t, label)
	return v
}

func TestVersionKeysSortAsVersions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawVersion(t, "a"), drawVersion(t, "b")
		if rapid.Bool().Draw(t, "alike") { // else most pairs differ in the first number
			b.numbers = a.numbers
		}
		want := precedence(a, b)
		if got := strings.Compare(VersionKey(a.String()), VersionKey(b.String())); got != want {
			t.Fatalf("keys of %s and %s compare as %d, want %d", a, b, got, want)
		}
		if got, err := CompareVersions(a.String(), b.String()); err != nil || got != want {
			t.Fatalf("%s against %s is %d, want %d: %v", a, b, got, want, err)
		}
	})
}
