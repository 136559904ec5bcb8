package spec

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Bounds of an object, besides MaxDocument and those of plans.
const (
	// maxComponents bounds the parts that one object rolls out one after the other. A host runs
	// a handful of components.
	maxComponents = 50
	// maxVariables bounds the variables of one component, as in policies.
	maxVariables = 200
	// maxAnnotations is Kubernetes' bound of the bytes of all annotations.
	maxAnnotations = MaxDocument
)

var (
	dnsLabel   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelName  = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$`)
	dnsDomain  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	rolloutSum = regexp.MustCompile(`^[0-9a-f]{64}$`)
	// promoteUUID matches a forcePromote of v1alpha1. It is kept, so that clients of both versions
	// read what they wrote, and promotes nothing, since no hash equals it.
	promoteUUID = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)
)

// Check returns all that is wrong with an object, whatever the fleet and the packages are. A
// version that is not published yet is no problem: tools apply objects before a package is pushed.
func Check(f *Fleet) Problems {
	var ps Problems
	checkMetadata(&ps, &f.Metadata)
	checkParts(&ps, &f.Spec)
	checkVariables(&ps, &f.Spec)
	if h := f.Spec.ForcePromote; h != "" && !rolloutSum.MatchString(h) && !promoteUUID.MatchString(h) {
		ps.add("spec.forcePromote", "is %q, want the hash of a rollout as in status.requestedRolloutHash: 64 hex digits", h)
	}
	checkPlans(&ps, f)
	return ps
}

func checkMetadata(ps *Problems, m *Metadata) {
	if err := CheckName(m.Name); err != nil {
		ps.add("metadata.name", "%s", err.Error())
	}
	for _, name := range sortedKeys(m.Labels) {
		at := "metadata.labels." + name
		if err := checkQualified(name); err != nil {
			ps.add(at, "%s", err.Error())
		}
		if v := m.Labels[name]; v != "" && !labelName.MatchString(v) {
			ps.add(at, "has the value %q, want at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends", v)
		}
	}
	size := 0
	for _, name := range sortedKeys(m.Annotations) {
		if err := checkQualified(strings.ToLower(name)); err != nil {
			ps.add("metadata.annotations."+name, "%s", err.Error())
		}
		size += len(name) + len(m.Annotations[name])
	}
	if size > maxAnnotations {
		ps.add("metadata.annotations", "have %d bytes, want at most %d", size, maxAnnotations)
	}
}

// CheckName returns an error if no object can have the name: it must be a DNS label.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is missing: give the object a name")
	case !dnsLabel.MatchString(name):
		return fmt.Errorf("is %q, want at most 63 lower-case letters, digits and dashes, with a letter or digit at both ends", name)
	}
	return nil
}

// checkQualified checks the name of a label: an optional domain and a slash before the name.
func checkQualified(name string) error {
	domain, rest, ok := strings.Cut(name, "/")
	if !ok {
		domain, rest = "", name
	}
	switch {
	case ok && (len(domain) > 253 || !dnsDomain.MatchString(domain)):
		return fmt.Errorf("has the prefix %q, want a domain such as example.com", domain)
	case !labelName.MatchString(rest):
		return fmt.Errorf("has the name %q, want at most 63 letters, digits, dashes, dots and underscores, with a letter or digit at both ends", rest)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func checkParts(ps *Problems, s *Spec) {
	if s.Agent == nil && len(s.Components) == 0 {
		ps.add("spec", "desires nothing: give agent, components or both")
	}
	if s.Agent != nil {
		checkDesired(ps, "spec.agent", *s.Agent)
		if plan.Together(s.Strategy.Kind) {
			ps.add("spec.strategy.kind", "is %s, which upgrades components only: declare agent in another object", s.Strategy.Kind)
		}
	}
	if len(s.Components) > maxComponents {
		ps.add("spec.components", "are %d, want at most %d", len(s.Components), maxComponents)
		return
	}
	seen := map[string]int{}
	for i, c := range s.Components {
		at := fmt.Sprintf("spec.components[%d]", i)
		first, again := seen[c.Name]
		switch {
		case c.Name == "":
			ps.add(at+".name", "is missing: name the component as its policies do")
		case again:
			ps.add(at+".name", "is %q, as that of spec.components[%d]: name each component once", c.Name, first)
		default:
			if err := manifest.ValidComponentName(c.Name); err != nil {
				ps.add(at+".name", "%s", err.Error())
			}
			seen[c.Name] = i
		}
		checkDesired(ps, at, c.Desired)
	}
}

func checkDesired(ps *Problems, at string, d Desired) {
	switch {
	case d.Version == "" && d.UpgradeManifest == nil:
		ps.add(at, "has neither version nor manifest: give one of them")
	case d.Version != "" && d.UpgradeManifest != nil:
		ps.add(at, "has both version and manifest: give one of them")
	case d.Version != "":
		if _, err := manifest.ParseVersion(d.Version); err != nil {
			ps.add(at+".version", "%s", err.Error())
		}
	default:
		if d.UpgradeManifest.Profile == "" {
			ps.add(at+".manifest.profile", "is missing: it is the folder that the upgrade manifest is in")
		}
		if d.UpgradeManifest.ID == "" {
			ps.add(at+".manifest.id", "is missing: it is the name of the upgrade manifest without .yaml")
		}
	}
}

func checkVariables(ps *Problems, s *Spec) {
	for _, component := range sortedKeys(s.Configuration.Variables) {
		at := "spec.configuration.variables." + component
		if !slices.ContainsFunc(s.Components, func(c Component) bool { return c.Name == component }) {
			ps.add(at, "are variables of a component that spec.components does not have")
		}
		variables := s.Configuration.Variables[component]
		if len(variables) > maxVariables {
			ps.add(at, "are %d, want at most %d", len(variables), maxVariables)
		}
		if _, ok := variables[""]; ok {
			ps.add(at, "have one without a name")
		}
	}
}

// placeholder stands for what a plan gets only when its rollout is created: the version of an
// upgrade manifest, and the packages.
const placeholder = "1.0.0"

// checkPlans applies the rules of plans to each part, and adds the first problem of each that is
// not the same as that of an earlier part.
func checkPlans(ps *Problems, f *Fleet) {
	parts := f.Spec.Parts()
	if len(parts) == 0 {
		parts = []Part{{}}
	}
	for _, part := range parts {
		if part.Component == "" && plan.Together(f.Spec.Strategy.Kind) && f.Spec.Agent != nil {
			continue // refused above
		}
		p := f.Plan(part)
		p.Name, p.Version, p.Profile, p.UpgradeID = "fleet", placeholder, "", ""
		artifact := fleet.Artifact{Checksum: "sha256:" + strings.Repeat("0", 64)}
		if part.Component != "" {
			p.Component, artifact.Runtime = "component", fleet.RuntimeProcess // the name is checked above
		}
		p.Artifacts = []fleet.Artifact{artifact}
		p = plan.WithDefaults(p)
		var refused *fleet.Error
		if !errors.As(plan.Check(&p), &refused) {
			continue
		}
		problem := strict.Fault{Path: PathOf(refused.Field), Text: refused.Message}
		if !slices.Contains(*ps, problem) {
			*ps = append(*ps, problem)
		}
	}
}

// PathOf returns the path in an object of a field of a rollout's plan, as errors of plans name it:
// spec.selector.kuery for body.plan.select.kuery. The path of anything else is spec.
func PathOf(field string) string {
	name, ok := strings.CutPrefix(field, "body.plan.")
	if !ok {
		return "spec"
	}
	head, rest, _ := strings.Cut(name, ".")
	if rest != "" {
		rest = "." + rest
	}
	switch head {
	case "select":
		return "spec.selector" + rest
	case "strategy", "limits", "failure", "health", "pace":
		return "spec." + head + rest
	}
	return "spec"
}
