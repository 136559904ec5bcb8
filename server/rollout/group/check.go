package group

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// Codes of errors that clients distinguish.
const (
	ErrFailurePolicy   = "group_failure_policy_missing"
	ErrDesiredVersions = "group_desired_versions_missing"
	ErrOrder           = "group_order_incomplete"
	ErrDuplicate       = "group_member_duplicate"
	ErrDrift           = "group_drift"
)

const (
	// maxMembers bounds a group: its status reads the rollouts of all members.
	maxMembers = 20
	// maxNamed bounds the agents that all plans of a group name, since its document is
	// written at each step. A label selects more.
	maxNamed = 10_000
	maxName  = 200    // bytes: a line
	maxText  = 20_000 // bytes of the description: some pages
	// maxSoak bounds the wait after a member: beyond it, two groups are clearer.
	maxSoak = 30 * 24 * time.Hour
)

// memberName is a name that needs no quotes in commands.
var memberName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,59}$`)

func field(name string, args ...any) string { return "body.plan." + fmt.Sprintf(name, args...) }

func ruled(code, at, format string, args ...any) error {
	e := fleet.FieldError(at, format, args...)
	e.Code = code
	return e
}

// Check returns what is wrong with a group's own part of a plan. The plans of members are
// checked when they are resolved. Its errors name the field.
func Check(p *fleet.GroupPlan) error {
	switch {
	case strings.TrimSpace(p.Name) == "":
		return fleet.FieldError(field("name"), "is missing: give the group a name")
	case len(p.Name) > maxName:
		return fleet.FieldError(field("name"), "has %d bytes, want at most %d", len(p.Name), maxName)
	case len(p.Description) > maxText:
		return fleet.FieldError(field("description"), "has %d bytes, want at most %d", len(p.Description), maxText)
	}
	switch p.FailurePolicy {
	case fleet.PartialOK, fleet.RollbackAll, fleet.ManualPolicy:
	case "":
		return ruled(ErrFailurePolicy, field("failure_policy"), "is missing, and has no default: say what happens to the members that are done when one fails: partial_ok, rollback_all or manual")
	default:
		return fleet.FieldError(field("failure_policy"), "is %q, want partial_ok, rollback_all or manual", p.FailurePolicy)
	}
	switch {
	case len(p.DesiredVersions) == 0:
		return ruled(ErrDesiredVersions, field("desired_versions"), "is empty: give the version of each member, such as {db: 1.2.0, app: 3.0.0}")
	case len(p.Members) == 0:
		return ruled(ErrOrder, field("members"), "is empty: list what is upgraded, in its order")
	case len(p.Members) > maxMembers:
		return fleet.FieldError(field("members"), "has %d entries, want at most %d: make several groups", len(p.Members), maxMembers)
	}
	return checkMembers(p)
}

func checkMembers(p *fleet.GroupPlan) error {
	seen := map[string]int{}
	named := 0
	for i := range p.Members {
		m := &p.Members[i]
		at := func(name string) string { return field("members[%d].%s", i, name) }
		switch {
		case m.Name == "":
			return fleet.FieldError(at("name"), "is missing: give each member a name, by which desired_versions and commands refer to it")
		case !memberName.MatchString(m.Name):
			return fleet.FieldError(at("name"), "is %q, want at most 60 lower-case letters, digits, dots, dashes and underscores", m.Name)
		}
		if first, ok := seen[m.Name]; ok {
			return ruled(ErrDuplicate, at("name"), "is %q, as is members[%d].name: each member has one place in the order", m.Name, first)
		}
		seen[m.Name] = i
		version := p.DesiredVersions[m.Name]
		switch {
		case version == "":
			return ruled(ErrOrder, field("desired_versions"), "has no version for members[%d], %s: give one", i, m.Name)
		case m.Plan.Version != "" && m.Plan.Version != version:
			return fleet.FieldError(at("plan.version"), "is %s, but desired_versions says %s: leave it out", m.Plan.Version, version)
		case plan.Together(m.Plan.Strategy.Kind) && p.FailurePolicy == fleet.RollbackAll:
			return fleet.FieldError(field("failure_policy"), "is rollback_all, and members[%d], %s, is in lockstep, which is not rolled back: that would run mixed versions. Say manual or partial_ok", i, m.Name)
		case m.Soak < 0 || m.Soak.D() > maxSoak:
			return fleet.FieldError(at("soak"), "is %s, want 0s to %s", m.Soak, maxSoak)
		}
		named += len(m.Plan.Select.Agents) + len(m.Plan.Select.ExcludeAgents)
	}
	for _, name := range sortedNames(p.DesiredVersions) {
		if _, ok := seen[name]; !ok {
			return ruled(ErrOrder, field("members"), "does not have %s, for which desired_versions has a version: say when it is upgraded", name)
		}
	}
	if named > maxNamed {
		return fleet.FieldError(field("members"), "name %d agents, want at most %d: choose them by a label", named, maxNamed)
	}
	return nil
}

func sortedNames(versions map[string]string) []string {
	names := make([]string, 0, len(versions))
	for name := range versions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
