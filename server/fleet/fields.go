package fleet

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// KeywordSuffix ends the name of the keyword sub-field of a text field, as in an
// Elasticsearch multi-field: last_checkin_message is searched word by word, and
// last_checkin_message.keyword matches the whole value, case included.
const KeywordSuffix = ".keyword"

// The fields an agent's status is derived from.
var (
	fieldActive        = &kql.Field{Name: "active", Type: kql.TypeBool, Description: "false once it is unenrolled"}
	fieldPolicyID      = keyword("policy_id", "the policy it belongs to")
	fieldPolicyRev     = number("policy_revision_idx", "the revision of its policy it has")
	fieldEnrolledAt    = date("enrolled_at", "when it enrolled")
	fieldLastCheckin   = date("last_checkin", "when it was last seen")
	fieldCheckinStatus = keyword("last_checkin_status", "what it says of itself", "online", "degraded", "error", "starting")
	fieldUnenrolling   = date("unenrollment_started_at", "when it was asked to leave")
	fieldAudit         = keyword("audit_unenrolled_reason", "why it left its host", "uninstall", "orphaned", "key_revoked")
	fieldUpgradeStart  = date("upgrade_started_at", "when its last upgrade began")
	fieldUpgradedAt    = date("upgraded_at", "when its last upgrade reached its version")
)

// FieldUpgradeEnded is the field of when the last upgrade ended.
var FieldUpgradeEnded = date("upgrade_ended_at", "when its last upgrade was committed, rolled back or cancelled, or failed")

// FieldUpgradeAction is the field of the action of the last upgrade.
var FieldUpgradeAction = keyword("upgrade_action_id", "the action of its last upgrade")

// FieldTags is the field of an agent's tags.
var FieldTags = keyword("tags", "what it is tagged with")

// FieldVersion is the field of the version that an agent runs.
var FieldVersion = version("agent.version", "the version that runs; < and > compare versions, not texts")

// FieldOS is the field of the kind of an agent's operating system.
var FieldOS = keyword("local_metadata.os.type", "such as linux")

// FieldPolicyID is the field of an agent's policy.
var FieldPolicyID = fieldPolicyID

// FieldUpgradeStatus is the field of how an agent's last upgrade stands, and FieldUpgradeState
// that of the phase that its host reports.
var (
	FieldUpgradeStatus = keyword("upgrade_status", "how its last upgrade stands", string(UpgradeStarted), string(UpgradeFailed), string(UpgradeRolledBack))
	FieldUpgradeState  = keyword("upgrade_details.state", "the phase of its upgrade", upgradeStates...)

	fieldUpgradeFailedState = keyword("upgrade_details.metadata.failed_state", "the phase its upgrade failed in", upgradeStates...)
)

// FieldEnrollmentID is the field by which a host that enrols again is found.
var FieldEnrollmentID = keyword("enrollment_id", "what it called its enrolment")

// agentAliases are short names of the fields that people ask for most.
var agentAliases = []*kql.Field{
	alias("host", "local_metadata.host.hostname"+KeywordSuffix, "the host's name, whole and by case; host: web-* has a wildcard"),
	alias("version", "agent.version", "the version that runs; < and > compare versions"),
	alias("policy", fieldPolicyID.Name, "the id of its policy"),
	alias("tag", FieldTags.Name, "what it is tagged with"),
	alias("os", "local_metadata.os.type", "such as linux"),
	{Name: SiteLabel, Type: kql.TypeKeyword, Of: FieldTags, Prefix: SiteLabel + "=", Description: "its tag site=…, without labels in the metadata that its host reports"},
}

func alias(name, of, description string) *kql.Field {
	i := slices.IndexFunc(agentFields, func(f *kql.Field) bool { return f.Name == of })
	f := *agentFields[i]
	f.Name, f.Of, f.Description = name, agentFields[i], description
	return &f
}

// agentFields are all fields but those that are derived, in the order in which they are suggested.
var agentFields = slices.Concat(
	[]*kql.Field{
		FieldVersion,
		FieldTags,
		FieldPolicyID,
	},
	text("local_metadata.host.hostname", "the host's name"),
	text("local_metadata.host.name", "the host's other name"),
	text("local_metadata.host.ip", "the host's addresses"),
	text("local_metadata.host.mac", "the host's hardware addresses"),
	[]*kql.Field{
		keyword("local_metadata.host.architecture", "such as x86_64"),
		keyword("local_metadata.host.id", "the machine's id"),
		keyword("local_metadata.os.platform", "such as debian"),
		keyword("local_metadata.os.family", "such as debian, of ubuntu too"),
		FieldOS,
	},
	text("local_metadata.os.kernel", "the kernel's version"),
	text("local_metadata.os.name", "such as Ubuntu"),
	text("local_metadata.os.version", "such as 24.04"),
	text("local_metadata.os.full", "name and version of the system"),
	[]*kql.Field{
		keyword("local_metadata.elastic.agent.id", "the agent's id, as it says"),
		{Name: "local_metadata.elastic.agent.version", Type: kql.TypeText, Description: "the version that runs, without -SNAPSHOT"},
		version("local_metadata.elastic.agent.version"+KeywordSuffix, "the same, whole"),
		{Name: "local_metadata.elastic.agent.snapshot", Type: kql.TypeBool, Description: "true of a snapshot"},
		{Name: "local_metadata.elastic.agent.upgradeable", Type: kql.TypeBool, Description: "false where something else upgrades it"},
		{Name: "local_metadata.elastic.agent.unprivileged", Type: kql.TypeBool, Description: "true if it runs without root's rights"},
		keyword("local_metadata.elastic.agent.log_level", "what it logs, such as info"),
	},
	text("local_metadata.elastic.agent.build.original", "its build: version, commit and time"),
	[]*kql.Field{
		fieldLastCheckin,
		fieldCheckinStatus,
		keyword("unhealthy_reason", "what of it is unhealthy", unhealthyInput, unhealthyOutput, unhealthyOther),
	},
	text("last_checkin_message", "what it says of itself, in words"),
	[]*kql.Field{
		FieldUpgradeStatus,
		FieldUpgradeAction,
		FieldUpgradeState,
		version("upgrade_details.target_version", "the version it is being upgraded to"),
		version("upgrade_details.target_version"+KeywordSuffix, "the same"),
		keyword("upgrade_details.action_id", "the action that upgrades it"),
		fieldUpgradeFailedState,
		keyword("upgrade_details.metadata.reason_code", "why it was rolled back, such as crash_loop"),
		number("upgrade_details.metadata.download_percent", "how much of the package has come"),
		number("upgrade_details.metadata.download_rate", "bytes a second"),
		number("upgrade_details.metadata.retry_attempt", "attempts after the first"),
		number("upgrade_details.metadata.retry_limit", "how many of them there are at most"),
		date("upgrade_details.metadata.scheduled_at", "when its upgrade begins"),
		date("upgrade_details.metadata.retry_until", "when no attempt begins any more"),
	},
	text("upgrade_details.metadata.error_msg", "why its upgrade failed"),
	text("upgrade_details.metadata.retry_error_msg", "why its last attempt failed"),
	text("upgrade_details.metadata.reason", "why it was rolled back, in words"),
	componentFields,
	[]*kql.Field{
		FieldStagedVersions,
		FieldComponentActions,
		FieldComponentsSince,
		fieldUpgradeStart,
		fieldUpgradedAt,
		FieldUpgradeEnded,
		keyword("upgrade_by", "who ordered its last upgrade"),
		keyword("agent.id", "its id"),
		keyword("type", "how long it stays", "PERMANENT", "EPHEMERAL", "TEMPORARY"),
		fieldActive,
		fieldPolicyRev,
		number("policy_coordinator_idx", "the coordinator's number of the revision that it acknowledged"),
		FieldEnrollmentID,
		fieldEnrolledAt,
		fieldUnenrolling,
		date("unenrolled_at", "when it was unenrolled"),
		keyword("unenrolled_reason", "why it was unenrolled"),
		fieldAudit,
		date("audit_unenrolled_time", "when it left its host"),
		keyword("access_api_key_id", "the id of its key"),
		number("action_seq_no", "the number of the last action that it has received"),
		date("updated_at", "when it was last seen, or enrolled"),
		{Name: "namespaces", Type: kql.TypeKeyword, Constant: true, Values: []string{"default"}, Description: "the spaces that it is in"},
	},
	absent(kql.TypeKeyword,
		"packages", "policy_output_permissions_hash", "default_api_key", "default_api_key_id", "agent.type", "capabilities",
		"effective_config_hash", "effective_config_label",
		"config.description", "config.name", "deployment.environment.name", "elastic.collector.group", "elastic.collector.group_name", "elastic.display.name",
		"host.arch", "host.name", "os.description", "os.type", "service.instance.id", "service.name", "service.version",
		"identifying_attributes.service.instance.id", "identifying_attributes.service.name", "identifying_attributes.service.version",
		"non_identifying_attributes.config.description", "non_identifying_attributes.config.name", "non_identifying_attributes.deployment.environment.name",
		"non_identifying_attributes.elastic.collector.group", "non_identifying_attributes.elastic.collector.group_name", "non_identifying_attributes.elastic.display.name",
		"non_identifying_attributes.host.arch", "non_identifying_attributes.host.name", "non_identifying_attributes.os.description", "non_identifying_attributes.os.type",
	),
	absent(kql.TypeNumber, "sequence_num"),
	absent(kql.TypeDate, "last_updated", "upgrade_attempts"),
)

// ComponentsPrefix begins the names of the fields of what an agent runs. Such a field has the
// values of all components, as in an Elasticsearch index of objects in a list: two conditions
// may match two components.
const ComponentsPrefix = "components."

// componentFields are texts. Other values are in documents only.
var componentFields = slices.Concat(
	[]*kql.Field{
		FieldComponentName,
		version(ComponentsPrefix+"version", "the version of one"),
		keyword(ComponentsPrefix+"status", "how a component is", "HEALTHY", "DEGRADED", "FAILED", "STARTING", "CONFIGURING", "STOPPING", "STOPPED"),
		keyword(ComponentsPrefix+"runtime", "how it is run, such as systemd"),
		keyword(ComponentsPrefix+"id", "the agent's id of a component"),
		keyword(ComponentsPrefix+"type", "what kind it is"),
		keyword(ComponentsPrefix+"upgrade_details.state", "the phase of a component's upgrade", upgradeStates...),
		version(ComponentsPrefix+"upgrade_details.target_version", "the version it is being upgraded to"),
		keyword(ComponentsPrefix+"upgrade_details.action_id", "the action that upgrades it"),
		keyword(ComponentsPrefix+"upgrade_details.metadata.phase", "what is done to it", componentPhases...),
		keyword(ComponentsPrefix+"upgrade_details.metadata.failed_state", "the phase its upgrade failed in", upgradeStates...),
		keyword(ComponentsPrefix+"upgrade_details.metadata.reason_code", "why it was rolled back, such as FAILED_ROLLBACK"),
	},
	text(ComponentsPrefix+"upgrade_details.metadata.error_msg", "why its upgrade failed"),
)

// FieldComponentName is the field of the names of the components.
var FieldComponentName = keyword(ComponentsPrefix+"name", "a component that Muster's agent runs")

// FieldStagedVersions is the field of the versions that hosts have staged.
var FieldStagedVersions = keyword("staged_versions", "a version that the host has staged: 1.2.0 of the agent, or web 2.4.0 of a component")

// The fields of upgrades of components that are under way.
var (
	// FieldComponentActions is the field of their actions.
	FieldComponentActions = keyword("component_actions", "the actions that upgrade its components now")
	// FieldComponentsSince is the field of when the first of them began.
	FieldComponentsSince = date("component_upgrade_started_at", "when the upgrade of a component began that is under way")
)

var componentPhases = []string{agentapi.PhasePreparing, agentapi.PhaseStopped, agentapi.PhaseMutating, agentapi.PhaseStarting, agentapi.PhaseVerifying}

// absent returns fields of Fleet that no document here has a value for: those of packages, of
// outputs' keys and of collectors without an agent, and what Fleet Server does not write
// either. Queries written for Fleet may name them.
func absent(t kql.Type, names ...string) []*kql.Field {
	var out []*kql.Field
	for _, name := range names {
		out = append(out, &kql.Field{Name: name, Type: t, Key: VersionKey, Constant: true, Description: "always without a value"})
	}
	return out
}

var upgradeStates = []string{
	string(agentapi.UpgradeRequested), string(agentapi.UpgradeScheduled), string(agentapi.UpgradeDownloading), string(agentapi.UpgradeExtracting),
	string(agentapi.UpgradeReplacing), string(agentapi.UpgradeRestarting), string(agentapi.UpgradeWatching), string(agentapi.UpgradeRollback), string(agentapi.UpgradeFailed),
}

func keyword(name, description string, values ...string) *kql.Field {
	return &kql.Field{Name: name, Type: kql.TypeKeyword, Description: description, Values: values}
}

func date(name, description string) *kql.Field {
	return &kql.Field{Name: name, Type: kql.TypeDate, Description: description}
}

func number(name, description string) *kql.Field {
	return &kql.Field{Name: name, Type: kql.TypeNumber, Description: description}
}

func version(name, description string) *kql.Field {
	return &kql.Field{Name: name, Type: kql.TypeVersion, Key: VersionKey, Description: description}
}

// text returns a full-text field and its keyword sub-field.
func text(name, description string) []*kql.Field {
	return []*kql.Field{{Name: name, Type: kql.TypeText, Description: description}, keyword(name+KeywordSuffix, "the same, whole and by case")}
}

// Names of derived fields of agents.
const (
	FieldHealth   = "health"
	FieldProgress = "progress"
	fieldStatus   = "status"
)

// AgentSchema returns the schema for queries about agents, with Fleet's field names.
// timeouts are the inactivity timeouts by policy, on which the status depends.
func AgentSchema(timeouts map[string]time.Duration) *kql.Schema {
	health := &kql.Field{Name: FieldHealth, Type: kql.TypeDerived, Derive: healthFilter(timeouts), Description: "whether it is well, whatever its upgrade does"}
	for _, h := range Healths {
		health.Values = append(health.Values, string(h))
	}
	progress := &kql.Field{Name: FieldProgress, Type: kql.TypeDerived, Optional: true, Derive: progressFilter, Description: "how its last upgrade stands; only committed is a success"}
	for _, s := range ProgressStates {
		progress.Values = append(progress.Values, string(s))
	}
	status := &kql.Field{Name: fieldStatus, Type: kql.TypeDerived, Derive: statusFilter(timeouts), Description: "what Kibana shows of it, which mixes the two"}
	for _, s := range Statuses {
		status.Values = append(status.Values, string(s))
	}
	return &kql.Schema{
		Fields: slices.Concat([]*kql.Field{health, progress, status}, agentFields), Aliases: agentAliases,
		Trim: []string{"fleet-agents.", "attributes."},
	}
}

// Values implements [kql.Doc] for the fields of AgentSchema.
func (a *Agent) Values(f *kql.Field) []any { return a.values(f, a.componentTexts) }

// EachValue is Values for a caller that asks for all fields: it decodes the components once.
func (a *Agent) EachValue() func(*kql.Field) []any {
	components := a.componentTexts()
	return func(f *kql.Field) []any { return a.values(f, func() map[string][]string { return components }) }
}

func (a *Agent) values(f *kql.Field, components func() map[string][]string) []any {
	name := strings.TrimSuffix(f.Name, KeywordSuffix)
	if path, ok := strings.CutPrefix(name, ComponentsPrefix); ok {
		return texts(components()[path]...)
	}
	if path, ok := strings.CutPrefix(name, "local_metadata."); ok {
		return metadata(a.LocalMetadata, strings.Split(path, "."), f.Type == kql.TypeBool)
	}
	if path, ok := strings.CutPrefix(name, "upgrade_details."); ok {
		return upgradeValues(a.UpgradeDetails, path)
	}
	switch name {
	case "agent.id":
		return texts(a.ID)
	case "agent.version":
		return texts(a.Version)
	case "type":
		return texts(a.Type)
	case "active":
		return []any{a.Active}
	case "policy_id":
		return texts(a.PolicyID)
	case "policy_revision_idx":
		return numbers(float64(a.PolicyRev))
	case "policy_coordinator_idx":
		if a.PolicyCoordinator != nil {
			return []any{float64(*a.PolicyCoordinator)}
		}
	case "enrollment_id":
		return texts(a.EnrollmentID)
	case "enrolled_at":
		return []any{a.EnrolledAt}
	case "unenrolled_at":
		return dates(a.UnenrolledAt)
	case "unenrolled_reason":
		return texts(a.UnenrolledReason)
	case "unenrollment_started_at":
		return dates(a.UnenrollmentStartedAt)
	case "audit_unenrolled_reason":
		return texts(a.AuditUnenrolledReason)
	case "audit_unenrolled_time":
		return dates(a.AuditUnenrolledTime)
	case "last_checkin":
		return dates(a.Last.At)
	case "last_checkin_status":
		return texts(a.Last.Status)
	case "last_checkin_message":
		return texts(a.Last.Message)
	case "tags":
		return texts(a.Tags...)
	case "unhealthy_reason":
		return texts(a.UnhealthyReason...)
	case "access_api_key_id":
		return texts(a.AccessKeyID)
	case "action_seq_no":
		return []any{float64(a.Last.ActionSeq)}
	case "updated_at":
		return []any{a.LastActivity()}
	case "upgrade_status":
		return texts(string(a.UpgradeStatus))
	case "upgrade_action_id":
		return texts(a.UpgradeActionID)
	case "upgrade_started_at":
		return dates(a.UpgradeStartedAt)
	case "staged_versions":
		return texts(a.StagedVersions...)
	case "component_actions":
		return texts(a.ComponentActions...)
	case "component_upgrade_started_at":
		return dates(a.ComponentsSince)
	case "upgraded_at":
		return dates(a.UpgradedAt)
	case "upgrade_ended_at":
		return dates(a.UpgradeEndedAt)
	case "upgrade_by":
		return texts(a.UpgradeBy)
	}
	return nil
}

func upgradeValues(d *agentapi.UpgradeDetails, path string) []any {
	if d == nil {
		return nil
	}
	m := &d.Metadata
	switch path {
	case "target_version":
		return texts(d.TargetVersion)
	case "action_id":
		return texts(d.ActionID)
	case "state":
		return texts(string(d.State))
	case "metadata.scheduled_at":
		return dates(m.ScheduledAt)
	case "metadata.download_percent":
		return numbers(m.DownloadPercent)
	case "metadata.download_rate":
		return numbers(float64(m.DownloadRate))
	case "metadata.retry_error_msg":
		return texts(m.RetryErrorMsg)
	case "metadata.retry_until":
		return dates(m.RetryUntil)
	case "metadata.retry_attempt":
		return numbers(float64(m.RetryAttempt))
	case "metadata.retry_limit":
		return numbers(float64(m.RetryLimit))
	case "metadata.failed_state":
		return texts(string(m.FailedState))
	case "metadata.error_msg":
		return texts(m.ErrorMsg)
	case "metadata.reason":
		return texts(m.Reason)
	case "metadata.reason_code":
		return texts(m.ReasonCode)
	}
	return nil
}

// texts returns the strings that are not empty; an empty string counts as no value.
func texts(list ...string) []any {
	var out []any
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

func dates(t *time.Time) []any {
	if t == nil {
		return nil
	}
	return []any{*t}
}

// numbers returns no value for 0, which documents leave out.
func numbers(n float64) []any {
	if n == 0 {
		return nil
	}
	return []any{n}
}

// metadata returns the values at a path of a JSON object: a string, the strings of a
// list, or a boolean. Hosts send what they like, so anything else yields no value, and
// the first of duplicate names counts, as it does for a store that searches the JSON.
func metadata(raw json.RawMessage, path []string, isBool bool) []any {
	dec := json.NewDecoder(bytes.NewReader(raw))
	for _, name := range path {
		if !enter(dec, name) {
			return nil
		}
	}
	var found any
	if dec.Decode(&found) != nil {
		return nil
	}
	switch v := found.(type) {
	case bool:
		if isBool {
			return []any{v}
		}
	case string:
		if !isBool {
			return texts(v)
		}
	case []any:
		var list []string
		for _, e := range v {
			if s, ok := e.(string); ok && !isBool {
				list = append(list, s)
			}
		}
		return texts(list...)
	}
	return nil
}

// componentPaths are the paths of componentFields, within a component.
var componentPaths = func() map[string]bool {
	paths := map[string]bool{}
	for _, f := range componentFields {
		paths[strings.TrimPrefix(strings.TrimSuffix(f.Name, KeywordSuffix), ComponentsPrefix)] = true
	}
	return paths
}()

// componentTexts returns the texts of all components by their path. Agents of other makers
// send what they like, so what is no text yields no value, and the first of duplicate names
// counts, as it does for a store that searches the JSON.
func (a *Agent) componentTexts() map[string][]string {
	if len(a.Components) == 0 {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(a.Components, &list) != nil {
		return nil
	}
	all := map[string][]string{}
	for _, c := range list {
		collect(c, "", all)
	}
	return all
}

// collect adds the texts of an object that are at componentPaths.
func collect(raw json.RawMessage, prefix string, all map[string][]string) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return
	}
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return
		}
		name, _ := key.(string)
		if seen[name] {
			continue
		}
		seen[name] = true
		path := prefix + name
		var text string
		switch {
		case path == "upgrade_details" || path == "upgrade_details.metadata":
			collect(value, path+".", all)
		case componentPaths[path] && json.Unmarshal(value, &text) == nil && value[0] == '"':
			all[path] = append(all[path], text)
		}
	}
}

// enter consumes the object that follows up to the value of name. It reports whether
// name was found.
func enter(dec *json.Decoder, name string) bool {
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil || key == name {
			return err == nil
		}
		var skipped json.RawMessage
		if dec.Decode(&skipped) != nil {
			return false
		}
	}
	return false
}

// FieldAPIKey is the field of an enrollment key's token, which the document has only
// encrypted.
const FieldAPIKey = "api_key"

// EnrollmentKeySchema returns the schema for queries about enrollment keys.
func EnrollmentKeySchema() *kql.Schema {
	return &kql.Schema{
		Fields: []*kql.Field{
			keyword("name", "its name"),
			keyword("policy_id", "the policy it enrols into"),
			{Name: "active", Type: kql.TypeBool, Description: "false once it is revoked"},
			keyword("id", "its id"),
			keyword("api_key_id", "its id"),
			date("created_at", "when it was made"),
			date("expire_at", "when it expires"),
			keyword(FieldAPIKey, "its token"),
			{Name: "hidden", Type: kql.TypeBool, Description: "always false"},
			absent(kql.TypeDate, "updated_at")[0],
		},
		Trim: []string{"fleet-enrollment-api-keys.", "attributes."},
	}
}

// Values implements [kql.Doc] for the fields of EnrollmentKeySchema but FieldAPIKey.
func (k *EnrollmentKey) Values(f *kql.Field) []any {
	switch f.Name {
	case "name":
		return texts(k.Name)
	case "policy_id":
		return texts(k.PolicyID)
	case "active":
		return []any{k.Active}
	case "id", "api_key_id":
		return texts(k.ID)
	case "created_at":
		return []any{k.CreatedAt}
	case "expire_at":
		return dates(k.ExpireAt)
	case "hidden":
		return []any{false}
	}
	return nil
}

// PolicySchema returns the schema for queries about policies.
func PolicySchema() *kql.Schema {
	return &kql.Schema{
		Fields: slices.Concat([]*kql.Field{
			keyword("name", "its name"),
			keyword("id", "its id"),
			keyword("namespace", "its namespace"),
		}, text("description", "what it is for"), []*kql.Field{
			keyword("monitoring_enabled", "what of its agents is monitored"),
			keyword("data_output_id", "the output of its agents' data"),
			keyword("monitoring_output_id", "the output of what is monitored"),
			keyword("download_source_id", "where its agents download from"),
			keyword("fleet_server_host_id", "the server that its agents connect to"),
			keyword("agent_features.name", "the features that it switches"),
			{Name: "agent_features.enabled", Type: kql.TypeBool, Description: "whether it switches one on, or off"},
			{Name: "status", Type: kql.TypeKeyword, Constant: true, Values: []string{"active"}, Description: "always active"},
			{Name: "is_managed", Type: kql.TypeBool, Description: "whether it is changed only with force"},
			{Name: "is_default", Type: kql.TypeBool, Description: "whether it is the default policy"},
			{Name: "is_default_fleet_server", Type: kql.TypeBool, Description: "whether it is the default policy of Fleet Servers"},
			{Name: "supports_agentless", Type: kql.TypeBool, Description: "whether it is for agents that Elastic runs"},
			{Name: "is_protected", Type: kql.TypeBool, Description: "whether its agents are protected from being uninstalled"},
			number("inactivity_timeout", "seconds of silence after which its agents are inactive"),
			number("unenroll_timeout", "seconds of silence after which its agents are unenrolled"),
			number("revision", "counts its changes"),
			date("updated_at", "when it last changed"),
			keyword("updated_by", "who changed it last"),
		}, absent(kql.TypeKeyword, "is_preconfigured"), absent(kql.TypeVersion, "schema_version")),
		Trim: []string{"ingest-agent-policies.", "fleet-agent-policies.", "attributes."},
	}
}

// Values implements [kql.Doc] for the fields of PolicySchema.
func (p *Policy) Values(f *kql.Field) []any {
	switch strings.TrimSuffix(f.Name, KeywordSuffix) {
	case "name":
		return texts(p.Name)
	case "id":
		return texts(p.ID)
	case "namespace":
		return texts(p.Namespace)
	case "description":
		return texts(p.Description)
	case "monitoring_enabled":
		return texts(p.MonitoringEnabled...)
	case "data_output_id":
		return texts(p.DataOutputID)
	case "monitoring_output_id":
		return texts(p.MonitoringOutputID)
	case "download_source_id":
		return texts(p.DownloadSourceID)
	case "fleet_server_host_id":
		return texts(p.FleetServerHostID)
	case "agent_features.name":
		var names []string
		for _, f := range p.AgentFeatures {
			names = append(names, f.Name)
		}
		return texts(names...)
	case "agent_features.enabled":
		var out []any
		for _, f := range p.AgentFeatures {
			out = append(out, f.Enabled)
		}
		return out
	case "is_managed":
		return []any{p.Managed}
	case "is_default":
		return []any{p.Default}
	case "is_default_fleet_server":
		return []any{p.DefaultFleetServer}
	case "supports_agentless":
		if p.SupportsAgentless != nil {
			return []any{*p.SupportsAgentless}
		}
	case "unenroll_timeout":
		if p.UnenrollTimeout != nil {
			return []any{float64(*p.UnenrollTimeout)}
		}
	case "is_protected":
		return []any{p.Protected}
	case "inactivity_timeout":
		return []any{p.InactivityTimeout.Seconds()}
	case "revision":
		return []any{float64(p.PolicyRev)}
	case "updated_at":
		return []any{p.UpdatedAt}
	case "updated_by":
		return texts(p.UpdatedBy)
	}
	return nil
}
