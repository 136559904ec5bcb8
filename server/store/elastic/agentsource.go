package elastic

import (
	"encoding/json"

	"github.com/muster-fleet/muster/server/fleet"
)

// agentSource is a whole document.
func agentSource(a *fleet.Agent, rev int64, last fleet.LastSeen) (map[string]any, error) {
	p, err := pack("agent", a.ID, a)
	if err != nil {
		return nil, err
	}
	host := a.Host()
	fields := map[string]any{
		"id": a.ID, "rev": rev, "agent": map[string]any{"id": a.ID, "version": text(a.Version)},
		"type": text(a.Type), "active": a.Active, "policy_id": text(a.PolicyID), "policy_revision_idx": a.PolicyRev,
		"enrollment_id": text(a.EnrollmentID), "access_api_key_id": text(a.AccessKeyID), "tags": a.Tags,
		"enrolled_at": a.EnrolledAt, "unenrolled_at": a.UnenrolledAt, "unenrolled_reason": text(a.UnenrolledReason),
		"unenrollment_started_at": a.UnenrollmentStartedAt, "audit_unenrolled_reason": text(a.AuditUnenrolledReason),
		"audit_unenrolled_time": a.AuditUnenrolledTime, "upgrade_started_at": a.UpgradeStartedAt, "upgraded_at": a.UpgradedAt,
		"upgrade_status": text(string(a.UpgradeStatus)), "local_metadata": searchableMetadata(a.LocalMetadata),
		"hostname": text(a.HostnameOn(host)), "version_key": text(fleet.VersionKey(a.Version)),
		"version_since": a.VersionSince, "healthy_since": a.HealthySince,
	}
	if d := a.UpgradeDetails; d != nil {
		fields["upgrade_details"] = map[string]any{
			"target_version": text(d.TargetVersion), "action_id": text(d.ActionID), "state": text(string(d.State)),
			"metadata": d.Metadata,
		}
	}
	if a.Upgrading() {
		fields["upgrading_since"] = a.UpgradeStartedAt
	}
	// Longer ones are read from the document; see Census.
	if labels := fleet.EncodeLabels(a.LabelsOn(host)); len(labels) <= maxKeyword {
		fields["labels"] = labels
	}
	for k, v := range touchFields(last, a.EnrolledAt) {
		fields[k] = v
	}
	return withPacked(fields, p), nil
}

// searchableMetadata is what the mapping has of an agent's local metadata. Agents
// send what they like: of another shape it is left out.
func searchableMetadata(raw json.RawMessage) map[string]any {
	var sent map[string]any
	if json.Unmarshal(raw, &sent) != nil {
		return nil
	}
	return choose(metadataFields, sent)
}

// choose keeps what the properties of a mapping have a place for.
func choose(properties body, sent map[string]any) map[string]any {
	out := map[string]any{}
	for name, p := range properties {
		v, ok := sent[name]
		if !ok {
			continue
		}
		property, _ := p.(body)
		if inner, ok := property["properties"].(body); ok {
			if m, ok := v.(map[string]any); ok {
				out[name] = choose(inner, m)
			}
			continue
		}
		if kept := fit(property["type"], v); kept != nil {
			out[name] = kept
		}
	}
	return out
}

// fit is a value, or the values of a list, that a type of field takes; nil: none.
func fit(kind, v any) any {
	switch v := v.(type) {
	case bool:
		return v // of a text: its word
	case string:
		if v != "" && kind != "boolean" {
			return v
		}
	case float64:
		if kind != "boolean" {
			return v
		}
	case []any:
		var list []any
		for _, one := range v {
			if _, nested := one.([]any); nested {
				continue
			}
			if kept := fit(kind, one); kept != nil {
				list = append(list, kept)
			}
		}
		if len(list) > 0 {
			return list
		}
	}
	return nil
}
