package plan

import (
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Platform is an operating system and an architecture, in Go's names.
type Platform struct{ OS, Arch string }

// Fits reports whether a package for os and arch runs on a platform; an empty os or
// arch fits any.
func Fits(os, arch string, at Platform) bool {
	return (os == "" || os == at.OS) && (arch == "" || arch == at.Arch)
}

// HasChecksum reports whether a package has the checksum sha512:… or sha256:…, or is that of
// the image with this digest.
func HasChecksum(p fleet.Package, sum string) bool {
	return (p.Image != "" && strings.EqualFold(p.Image[strings.LastIndexByte(p.Image, '@')+1:], sum)) ||
		(p.SHA512 != "" && strings.EqualFold(sum, "sha512:"+p.SHA512)) || (p.SHA256 != "" && strings.EqualFold(sum, "sha256:"+p.SHA256))
}

// ArtifactFor returns what the plan installs on a platform; ok is false if it has nothing for
// it.
func ArtifactFor(p *fleet.Plan, at Platform) (i int, ok bool) {
	i = slices.IndexFunc(p.Artifacts, func(a fleet.Artifact) bool { return Fits(a.OS, a.Arch, at) })
	return i, i >= 0
}

// PlatformOf returns the platform of an agent's host.
func PlatformOf(a *Candidate) Platform { return Platform{a.Label("os"), a.Label("arch")} }

// ComponentData is the part of an UPGRADE that makes it that of the plan's component, from the
// artifact of the host's platform; nil for a rollout of agents. Without an artifact, as in a
// rollback, the host installs what the publishers have signed under the version's name.
func ComponentData(p *fleet.Plan, artifact int) *agentapi.ComponentData {
	if p.Component == "" {
		return nil
	}
	d := &agentapi.ComponentData{Name: p.Component}
	if Together(p.Strategy.Kind) {
		d.Lockstep = &agentapi.LockstepData{Until: agentapi.LockstepDrain}
	}
	if artifact < 0 || artifact >= len(p.Artifacts) {
		return d
	}
	a := p.Artifacts[artifact]
	d.Runtime, d.Checksum, d.Size = string(a.Runtime), a.Checksum, a.Size
	if a.Runtime == fleet.RuntimeDocker {
		d.Image = a.URL
		if a.URL == a.Checksum { // an image id, which is no digest of a repository
			d.Checksum = ""
		}
	}
	if p.Migration.Type != fleet.MigrationNone {
		d.Migration = string(p.Migration.Type)
	}
	return d
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
