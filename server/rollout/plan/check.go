package plan

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
)

// Codes of errors that clients distinguish.
const (
	ErrChecksumMissing     = "rollout_checksum_missing"
	ErrDockerChecksum      = "rollout_docker_checksum"
	ErrDockerDigest        = "rollout_docker_digest"
	ErrVersionUnchanged    = "rollout_version_unchanged"
	ErrUpgradeManifestHash = "rollout_manifest_hash"
	ErrRecoveryPlanMissing = "rollout_recovery_plan_missing"
	ErrCanaryRequired      = "rollout_canary_required"
	ErrStateRisk           = "rollout_state_risk_unacknowledged"
	ErrRuntime             = "rollout_runtime_unsupported"
)

// Bounds of a plan. It is part of the rollout's document, which is written at each
// step.
const (
	MaxName  = 200    // characters: a line
	maxText  = 20_000 // characters of a description or recovery plan: some pages
	MaxNamed = 10_000 // agents by id; a label selects more
	// maxValues bounds every other list: policies, labels, values, artifacts, windows.
	// Lists written by hand are shorter.
	maxValues = 200
)

// checkedAt is the time for which Check compiles a plan's query; any would do.
var checkedAt = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Check returns what is wrong with a plan, independent of the fleet. Its errors name
// the field. The plan must be resolved.
func Check(p *fleet.Plan) error {
	for _, check := range []func(*fleet.Plan) error{
		checkWords, checkComponent, checkVariables, checkVersion, checkUpgradeManifest, checkArtifacts, checkMigration, checkSelector, checkStrategy, checkStage, checkLimits, checkFailure, checkHealth, checkPace,
	} {
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

// field returns the name of a part of the plan in requests.
func field(name string, args ...any) string { return "body.plan." + fmt.Sprintf(name, args...) }

// ruled returns an error with a code.
func ruled(code, at, format string, args ...any) error {
	e := fleet.FieldError(at, format, args...)
	e.Code = code
	return e
}

func checkWords(p *fleet.Plan) error {
	switch {
	case strings.TrimSpace(p.Name) == "":
		return fleet.FieldError(field("name"), "is missing: give the rollout a name")
	case len(p.Name) > MaxName:
		return fleet.FieldError(field("name"), "has %d bytes, want at most %d", len(p.Name), MaxName)
	case len(p.Description) > maxText:
		return fleet.FieldError(field("description"), "has %d bytes, want at most %d", len(p.Description), maxText)
	}
	return nil
}

func checkComponent(p *fleet.Plan) error {
	if p.Component == "" {
		return nil
	}
	if err := manifest.ValidComponentName(p.Component); err != nil {
		return fleet.FieldError(field("component"), "%w", err)
	}
	return nil
}

func checkVariables(p *fleet.Plan) error {
	if len(p.Variables) > 0 && p.Component == "" {
		return fleet.FieldError(field("variables"), "are for the configuration files of a component: name it in component, or leave them out")
	}
	if err := fleet.CheckVariables(p.Variables); err != nil {
		return fleet.FieldError(field("variables"), "%w", err)
	}
	return nil
}

func checkVersion(p *fleet.Plan) error {
	if p.Version == "" {
		return fleet.FieldError(field("version"), "is missing: name the version to reach, such as 1.2.3, or an upgrade manifest in profile and upgrade_id")
	}
	if _, err := manifest.ParseVersion(p.Version); err != nil {
		return fleet.FieldError(field("version"), "%w", err)
	}
	if err := fleet.CheckSourceURI(field("source_uri"), p.SourceURI); err != nil {
		return err
	}
	if p.SourceVersion == "" {
		return nil
	}
	if _, err := manifest.ParseVersion(p.SourceVersion); err != nil {
		return fleet.FieldError(field("source_version"), "%w", err)
	}
	if p.SourceVersion == p.Version {
		return ruled(ErrVersionUnchanged, field("source_version"), "is the version to reach, %s: nothing would change", p.Version)
	}
	if c, err := manifest.CompareVersions(p.Version, p.SourceVersion); err == nil && c < 0 && !p.Force {
		return fleet.FieldError(field("version"), "is %s, below the source version %s: going down needs force, and hosts that do not keep the version refuse it unless its publishers allow it (`%s`)", p.Version, p.SourceVersion, AllowDowngrade(p, p.Version))
	}
	return nil
}

func checkUpgradeManifest(p *fleet.Plan) error {
	switch {
	case p.UpgradeID != "" && p.Profile == "":
		return fleet.FieldError(field("profile"), "is missing: an upgrade manifest is upgrades/<profile>/<upgrade_id>.yaml")
	case p.Profile != "" && p.UpgradeID == "":
		return fleet.FieldError(field("upgrade_id"), "is missing: an upgrade manifest is upgrades/<profile>/<upgrade_id>.yaml; leave profile out to give version and artifacts here")
	case p.UpgradeID != "" && p.UpgradeManifestHash == "":
		return ruled(ErrUpgradeManifestHash, field("manifest_hash"), "is missing: it is computed when the upgrade manifest is read")
	case p.UpgradeManifestHash != "" && !isChecksum(p.UpgradeManifestHash, "sha256:"):
		return ruled(ErrUpgradeManifestHash, field("manifest_hash"), "is %q, want sha256: and 64 hex digits", p.UpgradeManifestHash)
	}
	return nil
}

// hexDigits is the number of digits of each kind of checksum.
var hexDigits = map[string]int{"sha256:": 64, "sha512:": 128}

func isChecksum(sum, kind string) bool {
	digits, ok := strings.CutPrefix(sum, kind)
	_, err := hex.DecodeString(digits)
	return ok && err == nil && len(digits) == hexDigits[kind]
}

func checkArtifacts(p *fleet.Plan) error {
	if len(p.Artifacts) == 0 {
		return ruled(ErrChecksumMissing, field("artifacts"), "are missing, so nothing says which bytes of %s are meant: publish it with `muster package push`, or give a checksum for each platform", p.Version)
	}
	if len(p.Artifacts) > maxValues {
		return fleet.FieldError(field("artifacts"), "are %d, want at most %d", len(p.Artifacts), maxValues)
	}
	seen := map[Platform]bool{}
	for i, a := range p.Artifacts {
		if err := checkArtifact(p, i, a); err != nil {
			return err
		}
		at := Platform{a.OS, a.Arch}
		if seen[at] {
			return fleet.FieldError(field("artifacts[%d]", i), "is the second one for %s: give one for each platform", at)
		}
		seen[at] = true
	}
	return nil
}

func checkArtifact(p *fleet.Plan, i int, a fleet.Artifact) error {
	sum := field("artifacts[%d].checksum", i)
	docker := a.Runtime == fleet.RuntimeDocker
	switch {
	case strings.TrimSpace(a.Checksum) == "":
		return ruled(ErrChecksumMissing, sum, "is missing: say which bytes are meant, as sha256:… or sha512:…")
	case docker && !isChecksum(a.Checksum, "sha256:"):
		return ruled(ErrDockerChecksum, sum, "is %q, want the image's digest: sha256: and 64 hex digits", a.Checksum)
	case docker && a.URL != a.Checksum && !strings.HasSuffix(a.URL, "@"+a.Checksum): // the id of an image has no name
		return ruled(ErrDockerDigest, field("artifacts[%d].url", i), "is %q, want name@%s: a tag can be moved to another image", a.URL, a.Checksum)
	case !isChecksum(a.Checksum, "sha256:") && !isChecksum(a.Checksum, "sha512:"):
		return fleet.FieldError(sum, "is %q, want sha256: and 64 hex digits, or sha512: and 128", a.Checksum)
	case a.Size < 0:
		return fleet.FieldError(field("artifacts[%d].size", i), "is %d, want bytes, or 0 for not known", a.Size)
	}
	if err := checkRuntime(p, i, a.Runtime); err != nil {
		return err
	}
	if a.URL != "" && !docker {
		return fleet.FieldError(field("artifacts[%d].url", i), "is not read for runtime %s: name the place of the packages in source_uri", a.Runtime)
	}
	return nil
}

// checkRuntime refuses an agent's artifact for a component, and the reverse.
func checkRuntime(p *fleet.Plan, i int, r fleet.Runtime) error {
	at, self := field("artifacts[%d].runtime", i), r == "" || r == fleet.RuntimeSelf
	switch agents := p.Component == ""; {
	case agents && self:
		return nil
	case agents && slices.Contains([]fleet.Runtime{fleet.RuntimeProcess, fleet.RuntimeSystemd, fleet.RuntimeDocker}, r):
		return ruled(ErrRuntime, at, "is %s, which is that of a component: name the component in component, or leave runtime out to upgrade the agents themselves", r)
	case agents:
		return fleet.FieldError(at, "is %q, want self; with a component process, systemd or docker", r)
	case r == "":
		return fleet.FieldError(at, "is missing: say process, systemd or docker, as the package of %s does", p.Component)
	case self:
		return ruled(ErrRuntime, at, "is self, which is the agents' own: component %s runs by process, systemd or docker", p.Component)
	}
	if err := manifest.ValidRuntimeName(string(r)); err != nil {
		return fleet.FieldError(at, "%w", err)
	}
	return nil
}

func checkMigration(p *fleet.Plan) error {
	m := &p.Migration
	if len(m.RecoveryPlan) > maxText {
		return fleet.FieldError(field("migration.recovery_plan"), "has %d bytes, want at most %d: link to the rest", len(m.RecoveryPlan), maxText)
	}
	switch m.Type {
	case "", fleet.MigrationNone, fleet.MigrationCompatible:
		return nil
	case fleet.MigrationBreaking:
	default:
		return fleet.FieldError(field("migration.type"), "is %q, want none, compatible or breaking", m.Type)
	}
	if strings.TrimSpace(m.RecoveryPlan) == "" {
		return ruled(ErrRecoveryPlanMissing, field("migration.recovery_plan"), "is missing: a breaking migration may leave state the old version cannot read, so say how such a host is recovered")
	}
	if err := Of(p).CheckBreaking(p); err != nil {
		return err
	}
	if !m.AcknowledgeStateRisk {
		return ruled(ErrStateRisk, field("migration.acknowledge_state_risk"), "is not set: a breaking migration may leave state that cannot be rolled back; say true when that is understood")
	}
	return nil
}

func checkSelector(p *fleet.Plan) error {
	s := &p.Select
	if s.Kuery != "" && !hasQuery(s) {
		return fleet.FieldError(field("select.kuery"), "is the empty query: say \"*\" to mean all agents")
	}
	if selectsNothing(s) {
		return fleet.FieldError(field("select"), "is empty: name agents, policies or labels, give a kuery, or say all: true")
	}
	if _, err := NewSelector(s, QueryTime{Now: checkedAt}); err != nil {
		return err
	}
	for _, list := range []struct {
		name   string
		values []string
		most   int
	}{
		{"select.agents", s.Agents, MaxNamed},
		{"select.exclude_agents", s.ExcludeAgents, MaxNamed},
		{"select.policies", s.Policies, maxValues},
	} {
		if len(list.values) > list.most {
			return fleet.FieldError(field("%s", list.name), "has %d entries, want at most %d: choose them by a label", len(list.values), list.most)
		}
		if i := slices.Index(list.values, ""); i >= 0 {
			return fleet.FieldError(field("%s[%d]", list.name, i), "is empty")
		}
	}
	if err := checkLabels("select.labels", s.Labels); err != nil {
		return err
	}
	if err := checkLabels("select.exclude", s.Exclude); err != nil {
		return err
	}
	switch p.LateJoiners {
	case "", fleet.LateIgnore, fleet.LateJoin:
		return nil
	}
	return fleet.FieldError(field("late_joiners"), "is %q, want ignore or join", p.LateJoiners)
}

func checkLabels(name string, labels map[string][]string) error {
	if len(labels) > maxValues {
		return fleet.FieldError(field("%s", name), "has %d labels, want at most %d", len(labels), maxValues)
	}
	for label, values := range labels {
		switch {
		case label == "" || label == "tag:":
			return fleet.FieldError(field("%s", name), "has a label without a name")
		case len(values) == 0:
			return fleet.FieldError(field("%s.%s", name, label), "has no values: say which, or leave the label out")
		case len(values) > maxValues:
			return fleet.FieldError(field("%s.%s", name, label), "has %d values, want at most %d", len(values), maxValues)
		}
	}
	return nil
}

// CheckKnown returns an error if a stored rollout has a strategy of a newer version. This
// version must not decide anything for it, nor write its document, which may have fields that
// this version would drop.
func CheckKnown(r *fleet.Rollout) error {
	kind := r.Plan.Strategy.Kind
	if Known(kind) {
		return nil
	}
	return fleet.Errorf(fleet.Conflict, "%s has the strategy %q, which this version of Muster does not know: a newer one made it, and only servers of that version work on it. Upgrade this server, or use one of them", Title(r), kind)
}
