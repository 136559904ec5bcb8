package fleet

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/kql"
)

// Fleet's mappings, by which Kibana checks queries (common/constants/mappings.ts of its Fleet
// plugin). A text has a sub-field .keyword where a name is marked with it.
const (
	agentMapping = `
		keyword access_api_key_id agent.id agent.type default_api_key default_api_key_id enrollment_id last_checkin_status
		keyword local_metadata.elastic.agent.id local_metadata.elastic.agent.log_level local_metadata.host.architecture local_metadata.host.id
		keyword local_metadata.os.family local_metadata.os.platform namespaces packages policy_id policy_output_permissions_hash tags type
		keyword unenrolled_reason unhealthy_reason upgrade_status upgrade_details.action_id upgrade_details.state upgrade_details.metadata.failed_state
		keyword capabilities effective_config_hash effective_config_label config.description config.name deployment.environment.name
		keyword elastic.collector.group elastic.collector.group_name elastic.display.name host.arch host.name os.description os.type
		keyword service.instance.id service.name service.version
		keyword identifying_attributes.service.instance.id identifying_attributes.service.name identifying_attributes.service.version
		keyword non_identifying_attributes.config.description non_identifying_attributes.config.name non_identifying_attributes.deployment.environment.name
		keyword non_identifying_attributes.elastic.collector.group non_identifying_attributes.elastic.collector.group_name
		keyword non_identifying_attributes.elastic.display.name non_identifying_attributes.host.arch non_identifying_attributes.host.name
		keyword non_identifying_attributes.os.description non_identifying_attributes.os.type
		text last_checkin_message.keyword local_metadata.elastic.agent.build.original.keyword local_metadata.elastic.agent.version.keyword
		text local_metadata.host.hostname.keyword local_metadata.host.ip.keyword local_metadata.host.mac.keyword local_metadata.host.name.keyword
		text local_metadata.os.full.keyword local_metadata.os.kernel.keyword local_metadata.os.name.keyword local_metadata.os.version.keyword
		text upgrade_details.metadata.error_msg.keyword upgrade_details.metadata.retry_error_msg.keyword
		version agent.version upgrade_details.target_version upgrade_details.target_version.keyword local_metadata.elastic.agent.version.keyword
		date enrolled_at last_checkin last_updated unenrolled_at unenrollment_started_at updated_at upgrade_attempts upgrade_started_at upgraded_at
		date upgrade_details.metadata.scheduled_at upgrade_details.metadata.retry_until
		number action_seq_no policy_coordinator_idx policy_revision_idx sequence_num
		number upgrade_details.metadata.download_percent upgrade_details.metadata.download_rate
		bool active local_metadata.elastic.agent.snapshot local_metadata.elastic.agent.unprivileged local_metadata.elastic.agent.upgradeable
		derived status`
	policyMapping = `
		keyword agent_features.name data_output_id download_source_id fleet_server_host_id is_preconfigured monitoring_enabled monitoring_output_id
		keyword name namespace status updated_by
		text description
		version schema_version
		date updated_at
		number inactivity_timeout revision unenroll_timeout
		bool agent_features.enabled is_default is_default_fleet_server is_managed is_protected supports_agentless`
	keyMapping = `
		keyword api_key api_key_id name policy_id
		date created_at expire_at updated_at
		bool active hidden`
)

var typeNames = map[string]kql.Type{
	"keyword": kql.TypeKeyword, "text": kql.TypeText, "version": kql.TypeVersion, "date": kql.TypeDate, "number": kql.TypeNumber, "bool": kql.TypeBool, "derived": kql.TypeDerived,
}

// Versions are keywords and texts in Fleet, and compare as versions here.
func TestEveryFieldOfFleetCanBeQueried(t *testing.T) {
	for _, row := range []struct {
		mapping string
		schema  *kql.Schema
		prefix  string
	}{
		{agentMapping, AgentSchema(nil), "fleet-agents."},
		{policyMapping, PolicySchema(), "ingest-agent-policies."},
		{keyMapping, EnrollmentKeySchema(), "fleet-enrollment-api-keys."},
	} {
		for line := range strings.Lines(strings.TrimSpace(row.mapping)) {
			names := strings.Fields(line)
			want := typeNames[names[0]]
			for _, name := range names[1:] {
				if base, ok := strings.CutSuffix(name, KeywordSuffix); ok && want == kql.TypeText {
					if f := row.schema.Field(name); f == nil || f.Type == kql.TypeText {
						t.Errorf("%s is %+v, want a keyword", name, f)
					}
					name = base
				}
				for _, asked := range []string{name, row.prefix + name, row.prefix + "attributes." + name} {
					if f := row.schema.Field(asked); f == nil || f.Type != want {
						t.Errorf("%s is %+v, want %s", asked, f, want)
					}
				}
			}
		}
	}
	// Each takes every operator, or refuses it.
	agent, policy, key := valued(), Policy{ID: "p"}, EnrollmentKey{ID: "k"}
	for schema, doc := range map[*kql.Schema]kql.Doc{AgentSchema(nil): agent.Values, PolicySchema(): policy.Values, EnrollmentKeySchema(): key.Values} {
		for _, f := range schema.Fields {
			for _, rest := range []string{": *", ": x", `: "x y"`, ": x*", ": true", ": 1", "> 1", "<= 1.2.3", "< now-1d", ">= x"} {
				filter, err := kql.Compile(f.Name+rest, schema, now)
				if err == nil {
					matched := kql.Match(filter, doc)
					if f.Constant && f.Values == nil && matched {
						t.Errorf("%s%s matches", f.Name, rest)
					}
				}
			}
		}
	}
	// As in Kibana, another name is refused.
	if _, err := kql.Compile("fleet-agents.agent.name: x", AgentSchema(nil), now); err == nil {
		t.Error("a field that Fleet does not have is accepted")
	}
}

func TestFieldsWithoutValuesNeverMatch(t *testing.T) {
	a := valued()
	for query, want := range map[string]bool{
		"sequence_num: 0": false, "sequence_num >= 0": false, "packages: *": false, "not packages: *": true, "upgrade_attempts < now": false,
		"namespaces: default": true, `namespaces: "default" or namespaces: "*"`: true, "namespaces: other": false, "namespaces: d*": true, "not namespaces: *": false,
		"default": false, "de*": true, // the status "degraded", not the space
	} {
		f, err := kql.Compile(query, AgentSchema(nil), now)
		if err != nil {
			t.Errorf("%s: %v", query, err)
			continue
		}
		if got := kql.Match(f, a.Values); got != want {
			t.Errorf("%s matches: %t, want %t", query, got, want)
		}
	}
	// Nor are they suggested.
	for _, c := range kql.Suggest("pack", 4, AgentSchema(nil)).Completions {
		if strings.HasPrefix(c.Text, "packages") {
			t.Errorf("the field %s is suggested", c.Text)
		}
	}
}

func TestUnhealthyReasonIsThatOfFleetServer(t *testing.T) {
	for _, c := range []struct{ status, components, want string }{
		{"online", `[{"status":"HEALTHY","units":[{"type":"input","status":"HEALTHY"}]}]`, ""},
		{"error", `[{"status":"FAILED","units":[{"type":"input","status":"FAILED"}]}]`, "input"},
		{"degraded", `[{"status":"DEGRADED","units":[{"type":"input","status":"HEALTHY"},{"type":"output","status":"DEGRADED"}]}]`, "output"},
		{"degraded", `[{"status":"degraded","units":[{"type":"output","status":"degraded"}]},{"status":"failed","units":[{"type":"input","status":"failed"}]}]`, "input output"},
		{"degraded", `[{"status":"DEGRADED","units":[]}]`, "other"},
		{"DEGRADED", ``, "other"},
		{"online", `[{"status":"HEALTHY","units":[{"type":"input","status":"FAILED"}]}]`, ""},
		{"online", `{"status":"FAILED"}`, ""},
		{"online", `[{"status":"FAILED","units":"none"}]`, "other"},
	} {
		a := Agent{Components: []byte(c.components)}
		if changed := a.ObserveUnhealthy(c.status); strings.Join(a.UnhealthyReason, " ") != c.want || changed != (c.want != "") {
			t.Errorf("%s %s: %q, changed %t, want %q", c.status, c.components, a.UnhealthyReason, changed, c.want)
		}
		if a.ObserveUnhealthy(c.status) {
			t.Errorf("%s %s: changed without a change", c.status, c.components)
		}
		a.Components = nil
		if a.ObserveUnhealthy("online"); a.UnhealthyReason != nil {
			t.Errorf("healthy again, it has the reason %q", a.UnhealthyReason)
		}
	}
}
