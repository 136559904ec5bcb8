package manifest

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	goversion "github.com/hashicorp/go-version"
)

// versionForm is stricter than the library that ParseVersion uses, which also accepts
// "9.1", "v9.1.0" and "09.1.0": two spellings of one version would give two archive
// names and two homes.
var versionForm = regexp.MustCompile(`^(0|[1-9][0-9]{0,8})(\.(0|[1-9][0-9]{0,8})){2}(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`)

// maxVersionLength keeps archive and folder names far below the limits of file
// systems.
const maxVersionLength = 100

// ParseVersion parses a semantic version with exactly three numbers.
func ParseVersion(s string) (*goversion.Version, error) {
	if len(s) > maxVersionLength {
		return nil, fmt.Errorf("version has %d characters, want at most %d", len(s), maxVersionLength)
	}
	v, err := goversion.NewSemver(s)
	if err != nil || !versionForm.MatchString(s) {
		return nil, fmt.Errorf("version is %q, want three numbers such as 1.2.3 or 1.2.3-rc.1", s)
	}
	return v, nil
}

// SplitSnapshot splits a full version such as 1.1.0-SNAPSHOT into version and flag.
func SplitSnapshot(full string) (version string, snapshot bool) {
	return strings.CutSuffix(full, "-SNAPSHOT")
}

// SortVersions sorts full versions, newest first and invalid ones last.
func SortVersions(versions []string) {
	slices.SortFunc(versions, func(a, b string) int {
		return cmp.Or(strings.Compare(VersionKey(b), VersionKey(a)), strings.Compare(b, a))
	})
}

// CompareVersions compares two full versions by Semantic Versioning. If all else is
// equal it compares the build metadata, since a rebuilt package is newer.
func CompareVersions(a, b string) (int, error) {
	for _, v := range []string{a, b} {
		if _, err := ParseVersion(v); err != nil {
			return 0, err
		}
	}
	return strings.Compare(VersionKey(a), VersionKey(b)), nil
}

// VersionKey returns a text that sorts as versions do, for stores that can only
// compare text. The key of an invalid version is empty and sorts first.
//
// [CompareVersions] compares keys too, because the library's order of prereleases is
// not transitive (rc < rc.1 < rc.a < rc).
func VersionKey(version string) string {
	v, err := ParseVersion(version)
	if err != nil {
		return ""
	}
	var key strings.Builder
	for _, n := range v.Segments64() {
		key.WriteString(numberKey(strconv.FormatInt(n, 10)))
	}
	key.WriteString(prereleaseKey(v.Prerelease()))
	// The space sorts below all characters of a prerelease, so that a prerelease
	// sorts before one that continues it. The length makes build10 sort above
	// build2.
	meta := v.Metadata()
	fmt.Fprintf(&key, " %04d%s", len(meta), meta)
	return key.String()
}

// numberKey returns a text that sorts as the number does. Two digits are enough for
// the length, since a version has at most 100 characters.
func numberKey(digits string) string { return fmt.Sprintf("%02d%s", len(digits), digits) }

// prereleaseKey prefixes each part with a digit, so that numbers sort below words, and
// both below no prerelease at all.
func prereleaseKey(pre string) string {
	if pre == "" {
		return "3"
	}
	parts := strings.Split(pre, ".")
	for i, p := range parts {
		if strings.Trim(p, "0123456789") != "" {
			parts[i] = "2" + p
		} else {
			parts[i] = "1" + numberKey(cmp.Or(strings.TrimLeft(p, "0"), "0"))
		}
	}
	return strings.Join(parts, "!") // below all characters of a part
}
