package elastic

import (
	"github.com/muster-fleet/muster/server/fleet"
)

// agentSource returns the source of an agent: the fields that queries, lists and the census
// use, and the packed document.
func agentSource(a *fleet.Agent, rev int64, last fleet.LastSeen) (map[string]any, error) {
	a = new(a.Readable())
	p, err := pack("agent", a.ID, a)
	if err != nil {
		return nil, err
	}
	host := a.Host()
	fields := map[string]any{}
	queryValues(fields, a)
	for name, v := range map[string]any{
		"id": a.ID, "rev": rev, "access_api_key_id": text(a.AccessKeyID), "enrolled_at": a.EnrolledAt,
		"hostname": text(a.HostnameOn(host)), "version_key": text(fleet.VersionKey(a.Version)),
		"version_since": a.VersionSince, "healthy_since": a.HealthySince, "orders_ended_at": a.OrdersEndedAt,
	} {
		fields[name] = v
	}
	if a.Upgrading() {
		fields["upgrading_since"] = a.UpgradeStartedAt
	}
	// Census reads longer labels from the document.
	if labels := fleet.EncodeLabels(a.LabelsOn(host)); len(labels) <= maxKeyword {
		fields["labels"] = labels
	}
	for k, v := range touchFields(last, a.EnrolledAt) {
		fields[k] = v
	}
	return withPacked(fields, p), nil
}
