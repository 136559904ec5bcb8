package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storetest"
)

// The cost of a check-in must not grow with the fleet: no query scans a table, except those
// that need all of its rows.
func TestQueriesFindTheirRowsByIndex(t *testing.T) {
	t.Parallel()
	s, ctx := fresh(t), t.Context()
	now := time.Now()
	must := func(err error) {
		t.Helper()
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			t.Fatal(err)
		}
	}
	// Call everything once, so that the statements are cached.
	must(s.Agents().Create(ctx, fleet.Agent{ID: "a", AccessKeyID: "k"}))
	a, err := s.Agents().Get(ctx, "a")
	must(err)
	_, err = s.Agents().Update(ctx, a)
	must(err)
	_, err = s.Agents().ByAccessKey(ctx, "k")
	must(err)
	_, err = s.Agents().GetMany(ctx, []string{"a"})
	must(err)
	_, err = s.Agents().Upgrading(ctx, store.UpgradingSince{}, 1)
	must(err)
	_, err = s.Agents().Leavers(ctx, "", 1)
	must(err)
	must(s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: now}, {AgentID: "a", At: now.Add(-1), ActionSeq: 1}}))
	_, err = s.Actions().Create(ctx, fleet.Action{ID: "x", Agents: []string{"a"}})
	must(err)
	_, err = s.Actions().Create(ctx, fleet.Action{ID: "x"})
	if fleet.KindOf(err) != fleet.Conflict {
		t.Fatal(err)
	}
	_, err = s.Actions().Get(ctx, "x")
	must(err)
	must(s.Actions().Cancel(ctx, "none", now))
	_, err = s.Actions().Pending(ctx, "a", 0, now, 1)
	must(err)
	_, err = s.Actions().After(ctx, 0, 1)
	must(err)
	_, err = s.Actions().List(ctx, store.ActionQuery{Limit: 1})
	must(err)
	_, err = s.Actions().LastSeq(ctx)
	must(err)
	for _, text := range []string{"", "failed"} {
		_, err = s.Results().Put(ctx, []fleet.Result{{ActionID: "x", AgentID: "a", Error: text}})
		must(err)
	}
	_, err = s.Results().Get(ctx, "x", "a")
	must(err)
	_, err = s.Results().Errors(ctx, "x", 1)
	must(err)
	_, err = s.Results().Counts(ctx, []string{"x"})
	must(err)
	for _, agents := range [][]string{nil, {"a"}} {
		must(s.Results().OfAction(ctx, "x", agents, func(fleet.Result) {}))
		must(s.History().OfAction(ctx, store.ActionHistory{ActionID: "x", AgentIDs: agents}, func(fleet.HistoryRecord) {}))
	}
	must(s.Policies().Create(ctx, fleet.Policy{ID: "p"}))
	p, err := s.Policies().Get(ctx, "p")
	must(err)
	storetest.Update(t, s.Policies(), p)
	_, _, err = s.Policies().List(ctx, 0, 1)
	must(err)
	must(s.Policies().Delete(ctx, "p"))
	must(s.Events().Append(ctx, []fleet.Event{{}}))
	_, err = s.Events().After(ctx, 0, 1)
	must(err)
	_, _, err = s.Events().Bounds(ctx)
	must(err)
	must(s.Events().Trim(ctx, 0))
	_, err = s.Settings().GetOrPut(ctx, "n", nil)
	must(err)
	_, err = s.Settings().Get(ctx, "n")
	must(err)
	must(s.Settings().Delete(ctx, "n"))
	must(s.Agents().Census(ctx, func(fleet.Census) {}))
	must(s.Agents().Delete(ctx, "a"))
	must(s.Rollouts().Create(ctx, fleet.Rollout{ID: "r"}))
	r, err := s.Rollouts().Get(ctx, "r")
	must(err)
	storetest.Update(t, s.Rollouts(), r)
	_, err = s.Rollouts().Active(ctx)
	must(err)
	target := fleet.Target{RolloutID: "r", AgentID: "a"}
	must(s.Targets().Create(ctx, []fleet.Target{target}))
	_, _, err = s.Targets().UpdateMany(ctx, []fleet.Target{target})
	must(err)
	_, err = s.Targets().Get(ctx, "r", "a")
	must(err)
	_, err = s.Targets().GetMany(ctx, "r", []string{"a"})
	must(err)
	must(s.Targets().Each(ctx, "r", func(fleet.Target) {}))
	_, err = s.Targets().ByAgent(ctx, "a", 1)
	must(err)
	must(s.Rollouts().Delete(ctx, "r"))
	must(s.Audit().Append(ctx, []fleet.AuditEntry{{ID: "e"}}))

	queries := map[string]bool{}
	for q := range s.readers.stmts {
		queries[q] = true
	}
	must(s.writer.run(ctx, func(x *tx) error {
		for q := range x.w.stmts {
			queries[q] = true
		}
		return nil
	}))
	for _, by := range []store.AgentSort{store.ByEnrolledAt, store.ByHostname, store.ByVersion, store.ByPolicy} {
		page, _, _, err := listQueries(store.AgentQuery{Sort: by, Desc: true})
		must(err)
		queries[page] = true
	}
	for _, q := range []string{targetCount, targetPage, rolloutPage} {
		queries[q] = true
	}
	for _, subject := range []string{"", "r"} {
		page, total, _ := auditQueries(store.AuditQuery{Subject: subject})
		queries[page], queries[total] = true, true
	}
	if len(queries) < 60 {
		t.Fatalf("only %d queries were cached", len(queries))
	}
	for q := range queries {
		if word, _, _ := strings.Cut(strings.TrimSpace(q), " "); word != "SELECT" && word != "WITH" && word != "UPDATE" && word != "DELETE" {
			continue
		}
		for _, step := range plan(t, s, q) {
			if strings.HasPrefix(step, "SCAN") && !scanAllowed(step, q) {
				t.Errorf("%s\nof %s", step, strings.Join(strings.Fields(q), " "))
			}
		}
	}
}

// scanAllowed reports whether a scan ends early, walks a list of the caller, or must read
// all rows.
func scanAllowed(step, query string) bool {
	switch {
	case strings.HasPrefix(step, "SCAN j VIRTUAL TABLE"): // a list of ids
	case query == censusQuery: // of the whole fleet
	case step == "SCAN rollouts USING COVERING INDEX rollouts_active": // only active rollouts
	case step == "SCAN actions USING COVERING INDEX actions_listed": // from the end, until the page is full
	case step == "SCAN rollouts": // from the end
		return query == rolloutPage
	case strings.HasPrefix(step, "SCAN f USING") && strings.Contains(query, "LIMIT"): // along the index of the sort
	case step == "SCAN p", step == "SCAN n", step == "SCAN page LEFT-JOIN", step == "SCAN CONSTANT ROW": // a page
	case strings.HasPrefix(step, "SCAN (subquery"):
	case step == "SCAN actions", step == "SCAN events", strings.HasPrefix(step, "SCAN events USING"):
		return strings.Contains(query, "ORDER BY seq DESC LIMIT") // from the end
	default:
		return false
	}
	return true
}

func plan(t *testing.T, s *Store, query string) (steps []string) {
	t.Helper()
	return planOf(t, s, query, make([]any, parameters(query)))
}

func planOf(t *testing.T, s *Store, query string, args []any) (steps []string) {
	t.Helper()
	rows, err := s.readers.QueryContext(t.Context(), `EXPLAIN QUERY PLAN `+query, args...)
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	err = s.eachRow(rows, func(scan scan) error {
		var id, parent, unused int
		var step string
		err := scan(&id, &parent, &unused, &step)
		steps = append(steps, step)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return steps
}

// maxParameters is the most parameters of any query.
const maxParameters = 20

// parameters counts the parameters of a query: ?1, ?2, … or each ?.
func parameters(query string) int {
	numbered := 0
	for i := range maxParameters {
		if strings.Contains(query, fmt.Sprintf("?%d", i+1)) {
			numbered = i + 1
		}
	}
	if numbered > 0 {
		return numbered
	}
	return strings.Count(query, "?")
}

// Queries of columns, such as status, tags and version, must not read the documents, which
// have ten times as many pages.
func TestQueriesOfColumnsReadNoDocument(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	timeouts := map[string]time.Duration{"a": time.Hour, "b": time.Hour, "c": time.Minute}
	reads := func(query string) (documents bool, steps []string) {
		t.Helper()
		f, err := fleet.SelectAgents(query, false, timeouts, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		_, total, args, err := listQueries(store.AgentQuery{AgentFilter: store.AgentFilter{Query: f}})
		if err != nil {
			t.Fatal(err)
		}
		steps = planOf(t, s, total, args)
		for _, step := range steps {
			documents = documents || strings.HasPrefix(step, "SEARCH a ") || strings.HasPrefix(step, "SCAN a")
		}
		return documents, steps
	}
	for _, query := range []string{
		"", "*", "status: online", "status: (error or degraded or updating)", "not status: offline", "status: inactive", "status: *", "tags: prod", "tags: pr* and not tags: db",
		"agent.version: 1.1.0", "agent.version: 1.*", "agent.version < 1.10.0", "agent.id: a", "policy_id: (a or b)", "active: false", "enrolled_at > now-1d",
		"last_checkin < now-1h", "last_checkin_status: error", "last_checkin_message: disk", "upgrade_started_at: * and not upgraded_at: *", "upgraded_at >= now-1d",
		"unenrollment_started_at: *", "component_upgrade_started_at: *", "audit_unenrolled_reason: uninstall",
		"local_metadata.host.hostname: web*", "local_metadata.host.hostname.keyword: web-01", // except where host_named is 0
	} {
		if documents, steps := reads(query); documents {
			t.Errorf("%q reads documents: %q", query, steps)
		}
	}
	documents, steps := reads("status: online and local_metadata.os.platform: debian")
	last := ""
	for _, step := range steps {
		if (strings.HasPrefix(step, "SEARCH") || strings.HasPrefix(step, "SCAN")) && !strings.Contains(step, "VIRTUAL TABLE") {
			last = step
		}
	}
	if !documents || !strings.HasPrefix(last, "SEARCH a ") {
		t.Errorf("a query of the metadata does not read documents last: %q", steps)
	}
	if _, steps := reads("policy_id: a"); !strings.Contains(strings.Join(steps, "\n"), "facts_policy (policy_id=?") {
		t.Errorf("a query of a policy scans the whole fleet: %q", steps)
	}
}

// listQueries returns the query for the page, which takes args, the limit and the offset,
// and the query for the total, which takes args.
func listQueries(q store.AgentQuery) (page, total string, args []any, err error) {
	l, err := newListing(q)
	if err != nil {
		return "", "", nil, err
	}
	page, total = l.queries()
	return page, total, l.cond.args, nil
}
