package plan

import (
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
)

// Platform is an operating system and an architecture, in Go's names.
type Platform struct{ OS, Arch string }

// Fits reports whether a package for os and arch runs on a platform; an empty os or
// arch fits any.
func Fits(os, arch string, at Platform) bool {
	return (os == "" || os == at.OS) && (arch == "" || arch == at.Arch)
}

// HasChecksum reports whether a package has the checksum sha512:… or sha256:….
func HasChecksum(p fleet.Package, sum string) bool {
	return (p.SHA512 != "" && strings.EqualFold(sum, "sha512:"+p.SHA512)) || (p.SHA256 != "" && strings.EqualFold(sum, "sha256:"+p.SHA256))
}

// ShortChecksum returns enough of a checksum to distinguish two.
func ShortChecksum(sum string) string {
	const shown = len("sha512:") + 12
	if len(sum) > shown {
		return sum[:shown] + "…"
	}
	return sum
}

func (p Platform) String() string {
	name := func(s string) string {
		if s == "" {
			return "any"
		}
		return s
	}
	return name(p.OS) + "/" + name(p.Arch)
}
