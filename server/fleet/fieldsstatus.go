package fleet

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// StatusRule selects the agents that have a status, provided that no earlier rule
// selects them.
type StatusRule struct {
	Status Status
	When   kql.Filter
}

// StatusRules expresses the rules of [StatusFacts.StatusAt] as filters, in order. An
// agent that no rule selects is online. A property test checks that both agree.
func StatusRules(timeouts map[string]time.Duration, now time.Time) []StatusRule {
	equals := func(f *kql.Field, v any) kql.Filter { return kql.Equals{Field: f, Value: v} }
	return []StatusRule{
		{StatusUnenrolled, kql.NotOf{Filter: equals(fieldActive, true)}},
		{StatusInactive, silentTooLong(timeouts, now)},
		{StatusUninstalled, equals(fieldAudit, "uninstall")},
		{StatusOrphaned, equals(fieldAudit, "orphaned")},
		{StatusOffline, seenBefore(now.Add(-OfflineAfter))},
		{StatusUpdating, kql.AnyOf{
			kql.NotOf{Filter: kql.Exists{Field: fieldPolicyRev}},
			kql.AllOf{kql.Compare{Field: fieldUpgradeStart, Op: kql.LessEqual, Value: now}, kql.NotOf{Filter: kql.Exists{Field: fieldUpgradedAt}}},
		}},
		{StatusEnrolling, kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}},
		{StatusUnenrolling, kql.Exists{Field: fieldUnenrolling}},
		{StatusError, equals(fieldCheckinStatus, "error")},
		{StatusDegraded, equals(fieldCheckinStatus, "degraded")},
	}
}

// ProgressRules expresses the rules of [Agent.ProgressStateAt] as filters, in order. An agent
// that no rule selects has no progress, and so have those of a rule of ProgressNone.
func ProgressRules(now time.Time) []Rule[ProgressState] {
	phase := func(states ...agentapi.UpgradeState) kql.Filter {
		return inPhase(FieldUpgradeState, fieldUpgradeFailedState, states...)
	}
	started, upgraded, phased := kql.Exists{Field: fieldUpgradeStart}, kql.Exists{Field: fieldUpgradedAt}, kql.Exists{Field: FieldUpgradeState}
	upgrading := func(more ...kql.Filter) kql.Filter {
		return append(kql.AllOf{started, kql.NotOf{Filter: upgraded}}, more...)
	}
	ended := func(s UpgradeStatus) kql.Filter { return kql.Equals{Field: FieldUpgradeStatus, Value: string(s)} }
	offline := seenBefore(now.Add(-OfflineAfter))
	watched := kql.AllOf{upgraded, phased, kql.NotOf{Filter: kql.AnyOf{reported(FieldUpgradeState, agentapi.UpgradeFailed), reported(FieldUpgradeState, agentapi.UpgradeRollback)}}}
	return []Rule[ProgressState]{
		{ProgressNone, kql.NotOf{Filter: kql.Equals{Field: fieldActive, Value: true}}},
		{ProgressScheduled, upgrading(kql.Compare{Field: fieldUpgradeStart, Op: kql.More, Value: now})},
		{ProgressWaitingForHost, upgrading(offline)},
		{ProgressScheduled, upgrading(phase(agentapi.UpgradeScheduled))},
		{ProgressDownloading, upgrading(phase(agentapi.UpgradeDownloading))},
		{ProgressInstalling, upgrading(phase(agentapi.UpgradeExtracting, agentapi.UpgradeReplacing))},
		{ProgressRestarting, upgrading(phase(agentapi.UpgradeRestarting))},
		{ProgressWatching, upgrading(phase(agentapi.UpgradeWatching))},
		{ProgressAccepted, upgrading(phased)},
		{ProgressSent, upgrading()},
		{ProgressFailed, ended(UpgradeFailed)},
		{ProgressRolledBack, ended(UpgradeRolledBack)},
		{ProgressWaitingForHost, append(slices.Clone(watched), notDueLater(now), offline)},
		{ProgressWatching, watched},
		{ProgressCommitted, upgraded},
	}
}

// ComponentProgressRules are the rules of the agents whose component an action is upgrading, by how
// that stands; an agent that no rule selects has not answered. If the agent upgrades another
// component at the same moment, the phase of that one may be the one that counts.
func ComponentProgressRules(actionID string, now time.Time) []Rule[ProgressState] {
	reports := kql.Equals{Field: componentField("upgrade_details.action_id"), Value: actionID}
	state, failed := componentField("upgrade_details.state"), componentField("upgrade_details.metadata.failed_state")
	rules := []Rule[ProgressState]{{ProgressWaitingForHost, seenBefore(now.Add(-OfflineAfter))}}
	for _, in := range []agentapi.UpgradeState{
		agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting, agentapi.UpgradeWatching, agentapi.UpgradeScheduled,
	} {
		rules = append(rules, Rule[ProgressState]{detailsStates[in], kql.AllOf{reports, inPhase(state, failed, in)}})
	}
	return append(rules, Rule[ProgressState]{ProgressAccepted, reports})
}

// inPhase selects the upgrades that shownPhase says are in one of the phases. state and failed are
// the fields of what the host reports.
func inPhase(state, failed *kql.Field, phases ...agentapi.UpgradeState) kql.Filter {
	var of kql.AnyOf
	for _, p := range phases {
		of = append(of, reported(state, p), kql.AllOf{reported(state, agentapi.UpgradeRollback), reported(failed, p)})
	}
	return of
}

func reported(f *kql.Field, s agentapi.UpgradeState) kql.Filter {
	return kql.Equals{Field: f, Value: string(s)}
}

func componentField(path string) *kql.Field {
	i := slices.IndexFunc(componentFields, func(f *kql.Field) bool { return f.Name == ComponentsPrefix+path })
	return componentFields[i]
}

// notDueLater selects the agents whose upgrade does not start after now.
func notDueLater(now time.Time) kql.Filter {
	return kql.NotOf{Filter: kql.Compare{Field: fieldUpgradeStart, Op: kql.More, Value: now}}
}

// progressFilter is the Derive function of the progress field.
func progressFilter(fits func(string) bool, now time.Time) kql.Filter {
	var f kql.Filter = kql.Nothing{}
	for _, rule := range slices.Backward(ProgressRules(now)) {
		f = firstOf(rule.When, rule.Value != ProgressNone && fits(string(rule.Value)), f)
	}
	return f
}

// healthFilter returns the Derive function of the health field.
func healthFilter(timeouts map[string]time.Duration) func(fits func(string) bool, now time.Time) kql.Filter {
	return func(fits func(string) bool, now time.Time) kql.Filter {
		f := wholly(fits(string(HealthHealthy)))
		for _, rule := range slices.Backward(HealthRules(timeouts, now)) {
			f = firstOf(rule.When, fits(string(rule.Value)), f)
		}
		return f
	}
}

// statusFilter returns the Derive function of the status field.
func statusFilter(timeouts map[string]time.Duration) func(fits func(string) bool, now time.Time) kql.Filter {
	return func(fits func(string) bool, now time.Time) kql.Filter {
		f := wholly(fits(string(StatusOnline)))
		for _, rule := range slices.Backward(StatusRules(timeouts, now)) {
			f = firstOf(rule.When, fits(string(rule.Status)), f)
		}
		return f
	}
}

// wholly returns a filter that matches every document, or none.
func wholly(all bool) kql.Filter {
	if all {
		return kql.Everything{}
	}
	return kql.Nothing{}
}

// firstOf returns a filter that matches the documents of when if fits is set, and those
// documents of rest that when does not match.
func firstOf(when kql.Filter, fits bool, rest kql.Filter) kql.Filter {
	switch rest := rest.(type) {
	case kql.Everything:
		if fits {
			return rest
		}
		return kql.NotOf{Filter: when}
	case kql.Nothing:
		if fits {
			return when
		}
		return rest
	case kql.AnyOf:
		if fits {
			return append(kql.AnyOf{when}, rest...)
		}
	case kql.AllOf:
		if !fits {
			return append(kql.AllOf{kql.NotOf{Filter: when}}, rest...)
		}
	}
	if fits {
		return kql.AnyOf{when, rest}
	}
	return kql.AllOf{kql.NotOf{Filter: when}, rest}
}

// seenBefore selects the agents whose LastActivity is before t.
func seenBefore(t time.Time) kql.Filter {
	return kql.AnyOf{
		kql.Compare{Field: fieldLastCheckin, Op: kql.Less, Value: t},
		kql.AllOf{kql.NotOf{Filter: kql.Exists{Field: fieldLastCheckin}}, kql.Compare{Field: fieldEnrolledAt, Op: kql.Less, Value: t}},
	}
}

// silentTooLong selects the agents that have been silent for longer than their policy's
// timeout. It checks the shortest timeout first: nearly all agents were seen within it,
// so most need no look-up of their policy.
func silentTooLong(timeouts map[string]time.Duration, now time.Time) kql.Filter {
	policies := map[time.Duration][]string{}
	for id, d := range timeouts {
		if d > 0 {
			policies[d] = append(policies[d], id)
		}
	}
	if len(policies) == 0 {
		return kql.Nothing{}
	}
	var each kql.AnyOf
	durations := slices.Sorted(maps.Keys(policies))
	for _, d := range durations {
		var of kql.AnyOf
		slices.Sort(policies[d])
		for _, id := range policies[d] {
			of = append(of, kql.Equals{Field: fieldPolicyID, Value: id})
		}
		each = append(each, kql.AllOf{seenBefore(now.Add(-d)), of})
	}
	if len(durations) == 1 {
		return each[0]
	}
	return kql.AllOf{seenBefore(now.Add(-durations[0])), each}
}

// QueryError names the field of an error of a query, and keeps its lines, which show the position.
// It uses Kibana's words for a syntax error, since clients of the API know them.
func QueryError(field string, err error) error {
	var syntax *kql.Error
	if errors.As(err, &syntax) {
		return FieldError(field, "Kuery is malformed: %s", syntax.Detail())
	}
	return FieldError(field, "%w", err)
}

// SelectAgents compiles a query as operators mean it when they list agents or act on a
// list: without inactive and unenrolled agents, unless inactive is set.
//
// A query that names one of the two, as a status or as a health, directly or by a wildcard, includes the
// agents that have it. status:* includes the unenrolled agents and not the inactive
// ones, as in Kibana. The errors are *kql.Error.
func SelectAgents(query string, inactive bool, timeouts map[string]time.Duration, now time.Time) (kql.Filter, error) {
	schema := AgentSchema(timeouts)
	hide := map[string]bool{string(StatusInactive): !inactive, string(StatusUnenrolled): !inactive}
	status, health := schema.Field(fieldStatus), schema.Field(FieldHealth)
	derive := status.Derive
	for _, f := range []*kql.Field{status, health} { // the two have the same names in both
		derive := f.Derive
		f.Derive = func(fits func(string) bool, now time.Time) kql.Filter {
			for s := range hide {
				hide[s] = hide[s] && !fits(s)
			}
			return derive(fits, now)
		}
	}
	asked, err := kql.Compile(query, schema, now)
	if err != nil {
		return nil, err
	}
	// status:* matches everything, so Compile never calls Derive for it.
	if n, err := kql.Parse(query); err == nil && asksForAny(n, schema, status) {
		hide[string(StatusUnenrolled)] = false
	}
	shown := derive(func(s string) bool { return !hide[s] }, now)
	if _, all := shown.(kql.Everything); all {
		return asked, nil
	}
	if _, all := asked.(kql.Everything); all {
		return shown, nil
	}
	// The status filter comes first: it needs no document.
	return kql.AllOf{shown, asked}, nil
}

// OfPolicies selects the agents of any of the policies.
func OfPolicies(ids []string) kql.Filter {
	of := make(kql.AnyOf, len(ids))
	for i, id := range ids {
		of[i] = kql.Equals{Field: fieldPolicyID, Value: id}
	}
	return of
}

// asksForAny reports whether field:* occurs in a query.
func asksForAny(n kql.Node, schema *kql.Schema, field *kql.Field) bool {
	some := func(nodes []kql.Node) bool {
		return slices.ContainsFunc(nodes, func(n kql.Node) bool { return asksForAny(n, schema, field) })
	}
	switch n := n.(type) {
	case kql.And:
		return some(n)
	case kql.Or:
		return some(n)
	case kql.Not:
		return asksForAny(n.Node, schema, field)
	case kql.Is:
		return n.Field != nil && n.Value.Kind == kql.Pattern && strings.Trim(n.Value.Text, "*") == "" && schema.Field(n.Field.Text) == field
	}
	return false
}
