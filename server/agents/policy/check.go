package policy

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

var (
	invalidNamespace = regexp.MustCompile(`[*\\/?"<>|\s,#:-]`)
	// Decoders of JSON match the names of fields in any case.
	inputsOverride     = regexp.MustCompile(`(?i)^inputs(\.|$)`)
	componentsOverride = regexp.MustCompile(`(?i)^components(\.|$)`)
)

// checkPolicy returns what is wrong with a policy. Its errors name the field of the request, and
// have Kibana's words where clients know them.
func checkPolicy(p *fleet.Policy) error {
	for _, check := range []func(*fleet.Policy) error{checkNameAndID, checkNamespace, checkTimeouts, checkMonitoring, checkTags, checkVersions, checkWindows, checkComponents, checkObjects, checkDeployment} {
		if err := check(p); err != nil {
			return err
		}
	}
	return nil
}

func checkNameAndID(p *fleet.Policy) error {
	if strings.TrimSpace(p.Name) == "" {
		return fleet.FieldError("body.name", "is missing: give the policy a name")
	}
	if p.ID != "" {
		return fleet.CheckID("body.id", p.ID)
	}
	return nil
}

// maxNamespace is Kibana's limit in bytes: a namespace becomes a part of the name of an
// index.
const maxNamespace = 100

func checkNamespace(p *fleet.Policy) error {
	ns := p.Namespace
	switch {
	case strings.TrimSpace(ns) == "":
		return fleet.FieldError("body.namespace", `Namespace is required: say "default"`)
	case ns != strings.ToLower(ns):
		return fleet.FieldError("body.namespace", "Namespace must be lowercase")
	case invalidNamespace.MatchString(ns):
		return fleet.FieldError("body.namespace", "Namespace contains invalid characters")
	case len(ns) > maxNamespace:
		return fleet.FieldError("body.namespace", "Namespace cannot be more than 100 bytes")
	}
	return nil
}

// MaxTimeout is the longest inactivity timeout, in seconds, that fits a time.Duration.
const MaxTimeout = int64(math.MaxInt64 / time.Second)

func checkTimeouts(p *fleet.Policy) error {
	if p.InactivityTimeout < 0 {
		return fleet.FieldError("body.inactivity_timeout", "is below 0")
	}
	if t := p.UnenrollTimeout; t != nil && (*t < 0 || *t > MaxTimeout) {
		return fleet.FieldError("body.unenroll_timeout", "is %d seconds, want 0 to %d", *t, MaxTimeout)
	}
	return nil
}

func checkMonitoring(p *fleet.Policy) error {
	for i, of := range p.MonitoringEnabled {
		if of != "logs" && of != "metrics" && of != "traces" {
			return fleet.FieldError(fmt.Sprintf("body.monitoring_enabled[%d]", i), "is %q, want logs, metrics or traces", of)
		}
	}
	return nil
}

func checkTags(p *fleet.Policy) error {
	var twice, spaced []string
	seen := map[string]bool{}
	for i, tag := range p.GlobalDataTags {
		if !isText(tag.Value) && !isNumber(tag.Value) {
			return fleet.FieldError(fmt.Sprintf("body.global_data_tags[%d].value", i), "want a string or a number")
		}
		if strings.ContainsAny(tag.Name, " \t\r\n\u00a0") {
			spaced = append(spaced, "'"+tag.Name+"'")
		}
		name := strings.TrimSpace(tag.Name)
		if seen[name] {
			twice = append(twice, "'"+name+"'")
		}
		seen[name] = true
	}
	var wrong []string
	if len(twice) > 0 {
		wrong = append(wrong, fmt.Sprintf("Found duplicate tag names: [%s], duplicate tag names are not allowed.", strings.Join(twice, ", ")))
	}
	if len(spaced) > 0 {
		wrong = append(wrong, fmt.Sprintf("Found tag names with spaces: [%s], tag names with spaces are not allowed.", strings.Join(spaced, ", ")))
	}
	if len(wrong) > 0 {
		return fleet.FieldError("body.global_data_tags", "%s", strings.Join(wrong, " "))
	}
	return nil
}

func checkVersions(p *fleet.Policy) error {
	refuse := func(format string, args ...any) error {
		return fleet.Errorf(fleet.Invalid, "Policy %q failed required_versions validation: %s", p.Name, fmt.Sprintf(format, args...))
	}
	seen := map[string]bool{}
	sum := 0.0
	for i, v := range p.RequiredVersions {
		if v.Percentage < 0 || v.Percentage > 100 {
			return fleet.FieldError(fmt.Sprintf("body.required_versions[%d].percentage", i), "is %v, want 0 to 100", v.Percentage)
		}
		if seen[v.Version] {
			return refuse("duplicate versions not allowed")
		}
		seen[v.Version] = true
		sum += v.Percentage
	}
	for _, v := range p.RequiredVersions {
		if v.Percentage == 0 {
			return refuse("percentage is required")
		}
	}
	for _, v := range p.RequiredVersions {
		if _, err := manifest.ParseVersion(v.Version); err != nil {
			return refuse("invalid semver version %s", v.Version)
		}
	}
	if sum > 100 {
		return refuse("sum of percentages cannot exceed 100")
	}
	return nil
}

func checkWindows(p *fleet.Policy) error {
	return fleet.CheckWindows("body.upgrade_windows", p.UpgradeWindows)
}

func checkComponents(p *fleet.Policy) error {
	if err := fleet.CheckComponents("body.components", p.Components); err != nil {
		return err
	}
	for i, c := range p.Components {
		for n, check := range c.Health.Checks {
			if !check.Remote && !loopbackOnly(check) {
				return fleet.FieldError(fmt.Sprintf("body.components[%d].health.checks[%d]", i, n), "asks another place than the host's loopback addresses, which hosts refuse: ask 127.0.0.1 or localhost, or say remote: true if checks.allow in the agent.yml of each host lists the address")
			}
		}
		if err := fleet.CheckVariables(p.ComponentVariables[c.Name]); err != nil {
			return fleet.FieldError(fmt.Sprintf("body.components[%d].variables", i), "%w", err)
		}
	}
	return nil
}

// loopbackOnly reports whether a valid check asks the host itself. Only addresses and localhost
// show that: any other name is resolved on the host.
func loopbackOnly(c agentapi.ComponentCheck) bool {
	host := ""
	if c.HTTP != "" {
		u, err := url.Parse(c.HTTP)
		if err != nil {
			return false
		}
		host = u.Hostname()
	} else if name, _, err := net.SplitHostPort(c.TCP); err == nil {
		host = name
	} else {
		return false
	}
	if host == "" && c.TCP != "" || strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && (addr.Unmap().IsLoopback() || addr.IsUnspecified())
}

// checkDeployment refuses settings that only some of Elastic's deployments have: other
// spaces, and agentless policies.
func checkDeployment(p *fleet.Policy) error {
	for i, id := range p.SpaceIDs {
		if id != "default" {
			return fleet.FieldError(fmt.Sprintf("body.space_ids[%d]", i), "is %q: the server has one space, default", id)
		}
	}
	if p.SupportsAgentless != nil && *p.SupportsAgentless {
		return fleet.Errorf(fleet.Invalid, "supports_agentless is only allowed in serverless and cloud environments that support the agentless feature")
	}
	return nil
}

// A rule returns an error if the JSON value of the field at is not valid.
type rule func(at string, raw json.RawMessage) error

// value returns a rule for values that fit.
func value(want string, fits func(json.RawMessage) bool) rule {
	return func(at string, raw json.RawMessage) error {
		if !fits(raw) {
			return fleet.FieldError(at, "is %s, want %s", raw, want)
		}
		return nil
	}
}

// object returns a rule for objects that have no other fields than these.
func object(fields map[string]rule) rule {
	return func(at string, raw json.RawMessage) error {
		var in map[string]json.RawMessage
		if json.Unmarshal(raw, &in) != nil || in == nil {
			return fleet.FieldError(at, "is %s, want an object", raw)
		}
		for _, name := range slices.Sorted(maps.Keys(in)) {
			check := fields[name]
			if check == nil {
				return fleet.FieldError(at+"."+name, "is not a known key, want one of %s", strings.Join(slices.Sorted(maps.Keys(fields)), ", "))
			}
			if err := check(at+"."+name, in[name]); err != nil {
				return err
			}
		}
		return nil
	}
}

// orNull returns a rule that accepts null too.
func orNull(r rule) rule {
	return func(at string, raw json.RawMessage) error {
		if string(raw) == "null" {
			return nil
		}
		return r(at, raw)
	}
}

func as[T any](raw json.RawMessage) (v T, ok bool) {
	if string(raw) == "null" {
		return v, false
	}
	return v, json.Unmarshal(raw, &v) == nil
}

func isText(raw json.RawMessage) bool   { _, ok := as[string](raw); return ok }
func isNumber(raw json.RawMessage) bool { _, ok := as[float64](raw); return ok }
func isBool(raw json.RawMessage) bool   { _, ok := as[bool](raw); return ok }

func matches(form string) func(json.RawMessage) bool {
	re := regexp.MustCompile(form)
	return func(raw json.RawMessage) bool {
		s, ok := as[string](raw)
		return ok && re.MatchString(s)
	}
}

func isWhole(raw json.RawMessage) bool {
	n, ok := as[float64](raw)
	return ok && n >= 0 && n == math.Trunc(n)
}

var (
	textRule     = value("a string", isText)
	numberRule   = value("a number", isNumber)
	wholeRule    = value("a whole number that is not below 0", isWhole)
	boolRule     = value("true or false", isBool)
	durationRule = value("a string with a time unit, e.g. 30s, 5m, 2h", matches(`^(\d+[smh])?$`))

	// advancedSettings are those of Kibana's agent policies.
	advancedSettings = object(map[string]rule{
		"agent_limits_go_max_procs":             orNull(wholeRule),
		"agent_download_timeout":                orNull(durationRule),
		"agent_download_target_directory":       orNull(textRule),
		"agent_logging_metrics_period":          orNull(durationRule),
		"agent_logging_level":                   orNull(value("error, warning, info or debug", matches(`^(error|warning|info|debug)$`))),
		"agent_logging_to_files":                orNull(boolRule),
		"agent_logging_files_rotateeverybytes":  orNull(wholeRule),
		"agent_logging_files_keepfiles":         orNull(wholeRule),
		"agent_logging_files_interval":          orNull(durationRule),
		"agent_monitoring_runtime_experimental": orNull(value("process, otel or an empty string", matches(`^(process|otel)?$`))),
		"agent_internal":                        orNull(value("a valid YAML string with a map", isYAML)),
	})
	monitoringHTTP = object(map[string]rule{
		"enabled": boolRule,
		"host":    textRule,
		"port": value("a port", func(raw json.RawMessage) bool {
			n, ok := as[float64](raw)
			return ok && n >= 0 && n <= 65353 // Kibana's bound
		}),
		"buffer": object(map[string]rule{"enabled": boolRule}),
	})
	monitoringDiagnostics = object(map[string]rule{
		"limit":    object(map[string]rule{"interval": textRule, "burst": numberRule}),
		"uploader": object(map[string]rule{"max_retries": numberRule, "init_dur": textRule, "max_dur": textRule}),
	})
	agentless = object(map[string]rule{
		"resources": object(map[string]rule{"requests": object(map[string]rule{
			"memory": value("a size such as 256Mi or 1Gi", matches(`^\d+(Mi|Gi)$`)),
			"cpu":    value("a number of cores such as 1, 0.5 or 500m", matches(`^(\d+m|\d+(\.\d+)?)$`)),
		})}),
	})
	overridesRule rule = func(at string, raw json.RawMessage) error {
		in, ok := as[map[string]json.RawMessage](raw)
		if !ok {
			return fleet.FieldError(at, "is %s, want an object", raw)
		}
		for name := range in {
			if inputsOverride.MatchString(name) {
				return fleet.FieldError(at, "inputs overrides is not allowed")
			}
			if componentsOverride.MatchString(name) {
				return fleet.FieldError(at, "has components: give them as components of the policy, where they are checked")
			}
		}
		return nil
	}
)

func isYAML(raw json.RawMessage) bool {
	text, ok := as[string](raw)
	var m map[string]any
	return ok && yamltext.Unmarshal([]byte(text), &m) == nil
}

func checkObjects(p *fleet.Policy) error {
	for _, part := range []struct {
		name string
		raw  json.RawMessage
		rule rule
	}{
		{"advanced_settings", p.AdvancedSettings, advancedSettings},
		{"agentless", p.Agentless, agentless},
		{"monitoring_diagnostics", p.MonitoringDiagnostics, monitoringDiagnostics},
		{"monitoring_http", p.MonitoringHTTP, monitoringHTTP},
		{"overrides", p.Overrides, overridesRule},
	} {
		if len(part.raw) == 0 {
			continue
		}
		if err := part.rule("body."+part.name, part.raw); err != nil {
			return err
		}
	}
	return nil
}
