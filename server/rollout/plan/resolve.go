package plan

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// UpgradeManifest is the content of upgrades/<profile>/<id>.yaml.
type UpgradeManifest struct {
	Profile     string           `json:"profile"`
	ID          string           `json:"id"`
	Description string           `json:"description,omitempty"`
	Version     string           `json:"version"`
	Source      string           `json:"source_version,omitempty"`
	SourceURI   string           `json:"source_uri,omitempty"`
	Artifacts   []fleet.Artifact `json:"artifacts,omitempty"`
	Migration   fleet.Migration  `json:"migration,omitzero"`
	// The component that is upgraded; absent: the agents themselves
	Component string `json:"component,omitempty"`
	// Configuration files of the component that the server renders for each host
	ConfigFiles []fleet.ConfigTemplate `json:"config_files,omitempty"`
	// Override the variables of policies
	VariableOverrides map[string]string `json:"variable_overrides,omitempty"`
	// sha256:… of the file's raw bytes; with templates, of what `sha256sum` prints for the file and
	// them
	ContentHash string `json:"content_hash"`
	// Why plans cannot name the upgrade manifest; absent if they can
	Error string `json:"error,omitempty"` // then only its name is set; only lists have such manifests
}

// Resolve sets what a plan omits: the values of its upgrade manifest (nil if it names
// none), artifacts from the catalog, and defaults, so that the stored plan is complete. The
// catalog has the packages of agents, or of the plan's component.
// Resolving again changes nothing.
func Resolve(p *fleet.Plan, manifest *UpgradeManifest, c fleet.Catalog) error {
	if manifest != nil {
		if err := applyUpgradeManifest(p, manifest); err != nil {
			return err
		}
	} else if p.UpgradeID != "" {
		return fleet.FieldError(field("upgrade_id"), "names the upgrade manifest %s/%s, which was not found", p.Profile, p.UpgradeID)
	}
	if err := pinArtifacts(p, c); err != nil {
		return err
	}
	*p = WithDefaults(*p)
	return nil
}

// applyManifest copies the values of an upgrade manifest. A value that the plan gives
// too must be the same, since otherwise it is unclear which is intended.
func applyUpgradeManifest(p *fleet.Plan, m *UpgradeManifest) error {
	name := m.Profile + "/" + m.ID
	if p.UpgradeManifestHash != "" && p.UpgradeManifestHash != m.ContentHash {
		return ruled(ErrUpgradeManifestHash, field("manifest_hash"), "is %s, but the upgrade manifest %s has %s: it was changed meanwhile, look at it again", ShortChecksum(p.UpgradeManifestHash), name, ShortChecksum(m.ContentHash))
	}
	if p.Component != "" && m.Component == "" {
		return fleet.FieldError(field("component"), "is %q, but the upgrade manifest %s is one of agents: name another manifest, or none", p.Component, name)
	}
	for _, v := range []struct {
		field     string
		plan      *string
		manifests string
	}{
		{"component", &p.Component, m.Component},
		{"version", &p.Version, m.Version},
		{"source_version", &p.SourceVersion, m.Source},
		{"source_uri", &p.SourceURI, m.SourceURI},
		{"migration.recovery_plan", &p.Migration.RecoveryPlan, m.Migration.RecoveryPlan},
		{"migration.type", (*string)(&p.Migration.Type), string(cmp.Or(m.Migration.Type, fleet.MigrationNone))},
	} {
		if *v.plan != "" && v.manifests != "" && *v.plan != v.manifests {
			return fleet.FieldError(field("%s", v.field), "is %q, but the upgrade manifest %s says %q: leave it out", *v.plan, name, v.manifests)
		}
		*v.plan = cmp.Or(*v.plan, v.manifests)
	}
	if len(m.Artifacts) > 0 {
		own := slices.Clone(m.Artifacts)
		if len(p.Artifacts) > 0 && !sameArtifacts(p.Artifacts, own) {
			return fleet.FieldError(field("artifacts"), "differ from those of the upgrade manifest %s: leave them out", name)
		}
		p.Artifacts = own
	}
	p.Profile, p.UpgradeID, p.UpgradeManifestHash = m.Profile, m.ID, m.ContentHash
	return nil
}

// sameArtifacts compares what is pinned. It ignores sizes and the default runtime,
// which are set when a plan is resolved.
func sameArtifacts(a, b []fleet.Artifact) bool {
	bare := func(in []fleet.Artifact) []fleet.Artifact {
		out := slices.Clone(in)
		for i := range out {
			out[i].Size, out[i].Runtime = 0, cmp.Or(out[i].Runtime, fleet.RuntimeSelf)
		}
		sortArtifacts(out)
		return out
	}
	return reflect.DeepEqual(bare(a), bare(b))
}

func sortArtifacts(a []fleet.Artifact) {
	slices.SortStableFunc(a, func(a, b fleet.Artifact) int { return cmp.Or(cmp.Compare(a.OS, b.OS), cmp.Compare(a.Arch, b.Arch)) })
}

// pinArtifacts sets the checksums that the plan does not give, and the sizes, from the
// published packages.
func pinArtifacts(p *fleet.Plan, c fleet.Catalog) error {
	var published fleet.Catalog
	for _, pkg := range c {
		if pkg.Version == p.Version && p.Version != "" && (pkg.Withheld == "" || p.Force) {
			published = append(published, pkg)
		}
	}
	slices.SortFunc(published, func(a, b fleet.Package) int { return cmp.Compare(a.File, b.File) })
	p.Artifacts = slices.Clone(p.Artifacts)
	for i := range p.Artifacts {
		a := &p.Artifacts[i]
		at := slices.IndexFunc(published, func(pkg fleet.Package) bool { return HasChecksum(pkg, a.Checksum) })
		if a.Size == 0 && at >= 0 {
			a.Size = published[at].Size
		}
		if a.Runtime == "" && at >= 0 {
			a.Runtime = runtimeOf(published[at])
		}
	}
	if p.SourceURI != "" || p.Version == "" {
		return nil
	}
	if len(published) == 0 {
		return unpublished(p, c)
	}
	if len(p.Artifacts) > 0 {
		return nil
	}
	seen := map[Platform]bool{}
	for _, pkg := range published {
		at := Platform{pkg.OS, pkg.Arch}
		if seen[at] || (pkg.SHA512 == "" && pkg.SHA256 == "") {
			continue
		}
		seen[at] = true
		p.Artifacts = append(p.Artifacts, artifactOf(pkg))
	}
	sortArtifacts(p.Artifacts)
	return nil
}

// artifactOf pins a published package. A container's is pinned by its image, which the signed
// package names.
func artifactOf(pkg fleet.Package) fleet.Artifact {
	a := fleet.Artifact{OS: pkg.OS, Arch: pkg.Arch, Runtime: runtimeOf(pkg), Size: pkg.Size}
	switch {
	case a.Runtime == fleet.RuntimeDocker && pkg.Image != "":
		a.URL, a.Checksum = pkg.Image, pkg.Image[strings.LastIndexByte(pkg.Image, '@')+1:]
	case pkg.SHA512 != "":
		a.Checksum = "sha512:" + pkg.SHA512
	default:
		a.Checksum = "sha256:" + pkg.SHA256
	}
	return a
}

func runtimeOf(pkg fleet.Package) fleet.Runtime {
	return fleet.Runtime(cmp.Or(pkg.Runtime, string(fleet.RuntimeSelf)))
}

// unpublished returns why no package of the version can be used. A malformed version,
// and artifacts of other runtimes, are left for Check to refuse.
func unpublished(p *fleet.Plan, c fleet.Catalog) error {
	for _, a := range p.Artifacts {
		if p.Component == "" && a.Runtime != "" && a.Runtime != fleet.RuntimeSelf || a.Checksum == "" {
			return nil
		}
	}
	for _, pkg := range c {
		if pkg.Version == p.Version {
			return fleet.FieldError(field("version"), "is %s, but hosts will not install %s: %s", p.Version, pkg.File, pkg.Withheld)
		}
	}
	there := "nothing is published yet"
	if v := c.Versions(); len(v) > 0 {
		there = "published are " + fleet.List(v)
	}
	text := fmt.Sprintf("no package of %s is published (%s): publish it with `muster package push`, or say where it is (source_uri, --source-uri)", fleet.PackageName(p.Component, p.Version), there)
	if len(p.Artifacts) == 0 {
		return ruled(ErrChecksumMissing, field("artifacts"), "%s", text)
	}
	return fleet.FieldError(field("version"), "%s", text)
}

// WithDefaults returns the plan with every default but the failure count: a count in
// the plan applies to canaries too, the default does not. It shares nothing that it
// changes with p. Invalid values are left for Check.
func WithDefaults(p fleet.Plan) fleet.Plan {
	p.Artifacts = slices.Clone(p.Artifacts)
	for i := range p.Artifacts {
		if p.Component == "" {
			p.Artifacts[i].Runtime = cmp.Or(p.Artifacts[i].Runtime, fleet.RuntimeSelf)
		}
	}
	p.Migration.Type = cmp.Or(p.Migration.Type, fleet.MigrationNone)
	p.LateJoiners = cmp.Or(p.LateJoiners, fleet.LateIgnore)
	p.Health.Wait = cmp.Or(p.Health.Wait, fleet.Duration(fleet.DefaultHealthWait))
	p.Health.StaleAfter = cmp.Or(p.Health.StaleAfter, fleet.Duration(fleet.DefaultStaleAfter))
	p.Health.SilentAfter = cmp.Or(p.Health.SilentAfter, fleet.Duration(fleet.DefaultSilentAfter))
	p.Health.MaxCrashes = cmp.Or(p.Health.MaxCrashes, fleet.DefaultMaxCrashes)
	Of(&p).Complete(&p)
	if c := p.Strategy.Canary; c != nil {
		p.Strategy.Canary = completeCanaries(*c, p.Migration.Type)
	}
	p.Pace.Windows = slices.Clone(p.Pace.Windows)
	for i := range p.Pace.Windows {
		p.Pace.Windows[i].Zone = cmp.Or(p.Pace.Windows[i].Zone, "UTC")
	}
	if p.Pace.Emergency {
		// An emergency omits what only costs time.
		p.Pace.Soak, p.Pace.Windows = 0, nil
	}
	return p
}

// MaxParallel returns how many agents may be in flight at one time.
func MaxParallel(p *fleet.Plan) int {
	if p.Limits.MaxParallel > 0 {
		return p.Limits.MaxParallel
	}
	return fleet.DefaultMaxParallel
}

func healthWait(p *fleet.Plan) time.Duration {
	if p.Health.Wait > 0 {
		return p.Health.Wait.D()
	}
	return fleet.DefaultHealthWait
}

// NeedsApproval reports whether an operator must approve the batches after the
// canaries.
func NeedsApproval(p *fleet.Plan) bool {
	return p.Migration.Type == fleet.MigrationBreaking && !Together(p.Strategy.Kind) || p.Strategy.Canary != nil && p.Strategy.Canary.Approval
}

// OfferFor returns how long an offer waits for its agent. Where targets go together it waits as long
// as the orders that follow it, of which none may reach a host without it.
func OfferFor(p *fleet.Plan) time.Duration {
	if Together(p.Strategy.Kind) {
		return fleet.LockstepOrderFor
	}
	if d := p.Pace.OfferFor.D(); d > 0 {
		return d
	}
	return fleet.DefaultOfferFor
}
