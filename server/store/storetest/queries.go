package storetest

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// queriedTimeouts are the inactivity timeouts of the policies of queriedFleet.
var queriedTimeouts = map[string]time.Duration{"default": 48 * time.Hour, "canary": 3 * time.Hour, "edge": 48 * time.Hour, "never": 0}

// queriedAt is the current time of the queries.
var queriedAt = at(24 * time.Hour)

// oddTexts are texts that are easily translated wrongly to another query language:
// wildcards, quotes and escapes of several languages, letters beyond ASCII, white space, and
// the empty text.
var oddTexts = []string{
	"", "prod", "Prod", "PROD", "prod-1", "prod 1", "web-01.example.com", "100%", "a*b", "a?b", "a_b", "[x]", "it's", `"quoted"`, `back\slash`, `'; DROP TABLE agents; --`,
	"äpfel", "ÄPFEL", "東京", "naïve café", "x\ty", "line\nbreak", "null", "true", "1.10.0", "1.9.0", "🦊", "web 👍🏽🦊", "a\u0000b", "İstanbul", "ß", "e\u0301",
	"failed to download: no route to host 10.0.0.1", "Failed to DOWNLOAD", "{}", "[]", "$.x", "é", " ", "-",
}

// oddVersions are versions and texts that are not.
var oddVersions = []string{"", "1.0.0", "1.9.0", "1.10.0", "1.10.0-rc.2", "1.10.0-rc.10", "1.10.0-SNAPSHOT", "1.10.0+build2", "2.0.0", "latest", "1.*"}

// queriedFleet returns agents with odd values in many fields. The seed is fixed, so that
// failures are reproducible.
func queriedFleet() []fleet.Agent {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // spread, not secret
	pick := func(from []string) string { return from[r.IntN(len(from))] }
	maybe := func() *time.Time {
		switch r.IntN(6) {
		case 0, 1:
			return nil
		case 2:
			return atPtr(24*time.Hour - fleet.OfflineAfter) // to the nanosecond
		case 3:
			return atPtr(time.Duration(r.IntN(50)) * time.Hour / 2)
		}
		return atPtr(24*time.Hour - time.Duration(r.IntN(200))*time.Second - time.Duration(r.IntN(3))*time.Millisecond)
	}
	metadata := []string{
		`null`, `{}`, `{"host":null}`, `{"host":"x"}`, `{"host":{"hostname":7,"name":true}}`, `{"host":{"hostname":["a*b","","prod",7,null,{"prod":"prod"}]}}`,
		`{"host":{"hostname":{"prod":"prod"}}}`, `{"os":[{"platform":"prod"}]}`, `{"elastic":{"agent":{"snapshot":"true","upgradeable":[true],"version":["1.10.0","2.0.0"]}}}`,
		`{"host":{"hostname":"prod","hostname":"Prod"}}`, `{"host":{"Hostname":"prod","ip":[["prod"]]}}`,
	}
	components := []string{
		``, `[]`, `{"status":"FAILED"}`, `[null,7,"prod",["prod"],{"id":7,"status":null,"name":["prod"]}]`, `[{"name":"prod","name":"Prod"}]`, `[{"upgrade_details":"x"}]`,
		`[{"upgrade_details":{"metadata":["x"],"state":"UPG_FAILED"}}]`, `[{"status":{"status":"FAILED"}}]`, `[{"Status":"FAILED","id":"a.b","a.b":"c"}]`,
	}
	var list []fleet.Agent
	for i := range 200 {
		a := agent(fmt.Sprintf("agent-%03d", i*37%200))
		a.Type = pick([]string{"PERMANENT", "EPHEMERAL"})
		a.Active = i%8 != 0
		a.PolicyID = pick([]string{"default", "canary", "edge", "never", "gone", ""})
		a.PolicyRev = int64(i % 4)
		if i%5 > 0 {
			a.PolicyCoordinator = new(int64(i % 3))
		}
		a.Version = pick(oddVersions)
		a.EnrollmentID, a.UnenrolledReason = pick(oddTexts), pick(oddTexts)
		a.EnrolledAt = at(time.Duration(r.IntN(1440)) * time.Minute)
		if r.IntN(2) == 0 {
			a.EnrolledAt = at(24*time.Hour - time.Minute)
		}
		a.UnenrolledAt, a.UnenrollmentStartedAt, a.AuditUnenrolledTime = maybe(), maybe(), maybe()
		a.AuditUnenrolledReason = pick([]string{"", "", "", "", "", "", "uninstall", "orphaned", "key_revoked"})
		if seen := maybe(); seen != nil || r.IntN(3) > 0 {
			a.Last = fleet.LastSeen{At: seen, Status: pick([]string{"online", "error", "degraded", ""}), Message: pick(oddTexts)}
		}
		for range i % 4 {
			a.Tags = append(a.Tags, pick(oddTexts))
		}
		for _, reason := range []string{"input", "output", "other"}[i%3:] {
			if i%5 > 1 {
				a.UnhealthyReason = append(a.UnhealthyReason, reason)
			}
		}
		a.Last.ActionSeq = int64(i % 4)
		a.UpgradeStatus = fleet.UpgradeStatus(pick([]string{"", "started", "failed", "rolled_back"}))
		a.UpgradeStartedAt, a.UpgradedAt = maybe(), maybe()
		if i%3 == 1 {
			a.UpgradeDetails = &agentapi.UpgradeDetails{
				TargetVersion: pick(oddVersions), ActionID: pick(oddTexts), State: agentapi.UpgradeState(pick([]string{"UPG_DOWNLOADING", "UPG_FAILED", "UPG_WATCHING"})),
				Metadata: agentapi.UpgradeMetadata{
					ScheduledAt: maybe(), RetryUntil: maybe(), DownloadPercent: float64(i%5) * 12.5, DownloadRate: agentapi.Rate(i % 3), RetryAttempt: i % 3,
					RetryErrorMsg: pick(oddTexts), ErrorMsg: pick(oddTexts), Reason: pick(oddTexts), ReasonCode: pick(oddTexts),
				},
			}
		}
		if i%4 == 0 {
			a.LocalMetadata = []byte(pick(metadata))
		} else {
			a.LocalMetadata = []byte(asText(map[string]any{
				"elastic": map[string]any{"agent": map[string]any{
					"id": a.ID, "version": pick(oddVersions), "snapshot": i%2 == 0, "upgradeable": i%5 == 0,
					"unprivileged": i%3 == 0, "log_level": pick(oddTexts), "build": map[string]any{"original": pick(oddTexts)},
				}},
				"host": map[string]any{"hostname": pick(oddTexts), "name": pick(oddTexts), "ip": []string{pick(oddTexts), "10.0.0.1/24"}, "mac": []string{pick(oddTexts)}, "architecture": "x86_64"},
				"os":   map[string]any{"platform": pick(oddTexts), "name": pick(oddTexts), "version": pick(oddTexts), "kernel": pick(oddTexts)},
			}))
		}
		if i%5 == 0 {
			a.Components = []byte(components[i/5%len(components)])
		} else {
			// By i, so that the rest of the fleet stays as it is.
			odd := func(n int) string { return oddTexts[(i*7+n)%len(oddTexts)] }
			var running []any
			for n := range i % 3 {
				running = append(running, map[string]any{
					"id": odd(n), "type": "component", "status": []string{"HEALTHY", "DEGRADED", "FAILED"}[(i+n)%3], "message": odd(n), "name": odd(n + 1),
					"runtime": []string{"systemd", "docker"}[n], "version": oddVersions[(i+n)%len(oddVersions)], "units": []any{map[string]any{"status": "FAILED"}},
					"upgrade_details": map[string]any{
						"state": []string{"UPG_FAILED", "UPG_WATCHING"}[i%2], "target_version": oddVersions[(i+n+1)%len(oddVersions)], "action_id": odd(n + 2),
						"metadata": map[string]any{"phase": "VERIFYING", "failed_state": "UPG_REPLACING", "reason_code": odd(n + 3), "error_msg": odd(n + 4), "download_percent": 5},
					},
				})
			}
			a.Components = []byte(asText(running))
		}
		if i%6 == 0 {
			a.ComponentsSince = atPtr(24*time.Hour - time.Duration(i%12)*time.Minute)
			a.ComponentActions = []string{oddTexts[i%len(oddTexts)], "act"}[i%12/6:]
		}
		if i%4 > 0 {
			a.StagedVersions = []string{oddTexts[i%len(oddTexts)], "web 2.5.0"}[i%8/4*2:]
		}
		list = append(list, a)
	}
	return list
}

// filterOf generates filters on the fields, up to depth levels deep.
func filterOf(fields []*kql.Field, depth int) *rapid.Generator[kql.Filter] {
	return rapid.Custom(func(t *rapid.T) kql.Filter {
		parts := func() []kql.Filter {
			return rapid.SliceOfN(filterOf(fields, depth-1), 0, 4).Draw(t, "parts")
		}
		kind := 9
		if depth > 0 {
			kind = rapid.IntRange(0, 9).Draw(t, "kind")
		}
		switch kind {
		case 0:
			return kql.AllOf(parts())
		case 1:
			return kql.AnyOf(parts())
		case 2:
			return kql.NotOf{Filter: filterOf(fields, depth-1).Draw(t, "not")}
		case 3:
			// Any of several values of one field, which a store may merge.
			f := rapid.SampledFrom(fields).Draw(t, "field")
			var anyOf kql.AnyOf
			for range rapid.IntRange(2, 5).Draw(t, "values") {
				anyOf = append(anyOf, leafOf(f).Draw(t, "leaf"))
			}
			return anyOf
		}
		return leafOf(rapid.SampledFrom(fields).Draw(t, "field")).Draw(t, "leaf")
	})
}

func leafOf(f *kql.Field) *rapid.Generator[kql.Filter] {
	return rapid.Custom(func(t *rapid.T) kql.Filter {
		if rapid.IntRange(0, 6).Draw(t, "exists") == 0 {
			return kql.Exists{Field: f}
		}
		op := rapid.SampledFrom([]kql.Op{kql.Less, kql.LessEqual, kql.More, kql.MoreEqual}).Draw(t, "op")
		text := rapid.SampledFrom(slices.Concat(oddTexts, oddVersions, f.Values, []string{"default", "canary", "agent-007"})).Draw(t, "text")
		compare := rapid.Bool().Draw(t, "compare")
		switch f.Type {
		case kql.TypeDate:
			nearby := []time.Duration{0, time.Millisecond, -time.Millisecond, -fleet.OfflineAfter, -time.Minute, -12 * time.Hour, 250 * 365 * 24 * time.Hour}
			return kql.Compare{Field: f, Op: op, Value: queriedAt.Add(rapid.SampledFrom(nearby).Draw(t, "at"))}
		case kql.TypeBool:
			return kql.Equals{Field: f, Value: rapid.Bool().Draw(t, "bool")}
		case kql.TypeNumber:
			n := rapid.SampledFrom([]float64{0, 1, 2, 12.5, 25, 37.25, -1}).Draw(t, "number")
			if compare {
				return kql.Compare{Field: f, Op: op, Value: n}
			}
			return kql.Equals{Field: f, Value: n}
		case kql.TypeText:
			words := kql.Words(text + " " + rapid.SampledFrom(oddTexts).Draw(t, "and"))
			switch rapid.IntRange(0, 2).Draw(t, "words") {
			case 0:
				if text != "" {
					return kql.Like{Field: f, Pattern: wildcardOf(strings.ToLower(text)).Draw(t, "pattern")}
				}
			case 1:
				if len(words) > 0 {
					return kql.HasPhrase{Field: f, Words: words}
				}
			}
			return kql.HasWord{Field: f, Words: words}
		case kql.TypeVersion:
			if key := f.Key(text); compare && key != "" {
				return kql.Compare{Field: f, Op: op, Value: key}
			}
		case kql.TypeKeyword:
			if compare {
				return kql.Compare{Field: f, Op: op, Value: text}
			}
		}
		if text != "" && rapid.Bool().Draw(t, "like") {
			return kql.Like{Field: f, Pattern: wildcardOf(text).Draw(t, "pattern")}
		}
		return kql.Equals{Field: f, Value: text}
	})
}

// wildcardOf generates patterns from parts of a text, so that some of them match. The text
// must not be empty, and the pattern is not either; see kql.Wildcard.
func wildcardOf(text string) *rapid.Generator[kql.Wildcard] {
	return rapid.Custom(func(t *rapid.T) kql.Wildcard {
		runes := []rune(text)
		from := rapid.IntRange(0, len(runes)).Draw(t, "from")
		to := rapid.IntRange(from, len(runes)).Draw(t, "to")
		pattern := kql.Wildcard{string(runes[:from]), string(runes[to:])}
		switch rapid.IntRange(0, 3).Draw(t, "shape") {
		case 0:
			pattern = kql.Wildcard{string(runes[:from]), ""}
		case 1:
			pattern = kql.Wildcard{"", string(runes[from:])}
		case 2:
			pattern = kql.Wildcard{"", string(runes[from:to]), ""}
		}
		if strings.Join(pattern, "") == "" {
			return kql.Wildcard{text, ""}
		}
		return pattern
	})
}

const (
	// queriesAtOnce is the number of concurrent callers in long tests.
	queriesAtOnce = 4
	// countedTogether is the number of queries in one call of CountFirst.
	countedTogether = 24
	// comparisonsEach is the number of comparisons that are tried with each field.
	comparisonsEach = 8
)

func testQueries(t *testing.T, cfg Config) {
	ctx := t.Context()
	s := cfg.open(t)
	fleetOf := queriedFleet()
	var creating sync.WaitGroup
	for worker := range queriesAtOnce {
		creating.Go(func() {
			for i := worker; i < len(fleetOf); i += queriesAtOnce {
				if err := s.Agents().Create(ctx, fleetOf[i]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	creating.Wait()
	cfg.eventually(t, func() error {
		_, total, err := s.Agents().List(ctx, store.AgentQuery{})
		if err != nil || total != len(fleetOf) {
			return fmt.Errorf("%d agents, want %d: %w", total, len(fleetOf), err)
		}
		return nil
	})
	for i := range fleetOf { // as they are stored
		fleetOf[i] = value(s.Agents().Get(ctx, fleetOf[i].ID))(t)
	}
	schema := fleet.AgentSchema(queriedTimeouts)

	// found returns the agents that the store finds, after checking that all methods find
	// the same ones.
	found := func(f kql.Filter) ([]string, error) {
		filter := store.AgentFilter{Query: f}
		page, total, err := s.Agents().List(ctx, store.AgentQuery{AgentFilter: filter, Limit: len(fleetOf) + 1, Sort: store.ByHostname})
		if err != nil {
			return nil, err
		}
		list := ids(page)
		if total != len(list) {
			return nil, fmt.Errorf("the list has %d agents, its total is %d", len(list), total)
		}
		var paged []string
		size := max((total+1)/2, 1)
		for offset := 0; offset < total; offset += size {
			page, again, err := s.Agents().List(ctx, store.AgentQuery{AgentFilter: filter, Limit: size, Offset: offset, Sort: store.ByHostname})
			if err != nil {
				return nil, err
			}
			if again != total {
				return nil, fmt.Errorf("the total is %d on one page and %d on another", total, again)
			}
			paged = append(paged, ids(page)...)
		}
		if !slices.Equal(paged, list) {
			return nil, fmt.Errorf("the pages have %v, the whole list has %v", paged, list)
		}
		slices.Sort(list)
		var facts, each []string
		if err := s.Agents().Facts(ctx, filter, func(id string, _ fleet.StatusFacts) { facts = append(facts, id) }); err != nil {
			return nil, err
		}
		if err := s.Agents().Each(ctx, filter, func(a fleet.Agent) { each = append(each, a.ID) }); err != nil {
			return nil, err
		}
		slices.Sort(facts)
		slices.Sort(each)
		if !slices.Equal(facts, list) || !slices.Equal(each, list) {
			return nil, fmt.Errorf("results differ: List %v, Facts %v, Each %v", list, facts, each)
		}
		return list, nil
	}
	matching := func(f kql.Filter) []string {
		list := []string{}
		for _, a := range fleetOf {
			if kql.Match(f, a.Values) {
				list = append(list, a.ID)
			}
		}
		slices.Sort(list)
		return list
	}

	var fields []*kql.Field
	for _, f := range schema.Fields {
		if f.Type != kql.TypeDerived && !f.Constant {
			fields = append(fields, f)
		}
	}

	t.Run("a query finds the agents that kql.Match matches", func(t *testing.T) {
		rapid.Check(t, func(t *rapid.T) {
			f := filterOf(fields, 3).Draw(t, "filter")
			got, err := found(f)
			if want := matching(f); err != nil || !slices.Equal(got, want) {
				t.Fatalf("found %v\nwant  %v: %v", got, want, err)
			}
		})
	})

	// In the test above, one part of a query may hide an error in another.
	t.Run("a comparison with any field finds the agents that kql.Match matches", func(t *testing.T) {
		var some atomic.Int64
		compare := func(field *kql.Field) {
			for seed := range comparisonsEach {
				f := leafOf(field).Example(seed)
				have := matching(f)
				var others []string
				for _, a := range fleetOf {
					if _, has := slices.BinarySearch(have, a.ID); !has {
						others = append(others, a.ID)
					}
				}
				slices.Sort(others)
				for _, ask := range []struct {
					filter kql.Filter
					want   []string
				}{{f, have}, {kql.NotOf{Filter: f}, others}} {
					var got []string
					err := s.Agents().Facts(ctx, store.AgentFilter{Query: ask.filter}, func(id string, _ fleet.StatusFacts) { got = append(got, id) })
					slices.Sort(got)
					if err != nil || !slices.Equal(got, ask.want) {
						t.Errorf("%#v\nfound %v\nwant  %v: %v", ask.filter, got, ask.want, err)
					}
				}
				if len(have) > 0 && len(others) > 0 {
					some.Add(1)
				}
			}
		}
		// Concurrently, because some stores are reached over a network.
		var all sync.WaitGroup
		for worker := range queriesAtOnce {
			all.Go(func() {
				for i := worker; i < len(fields); i += queriesAtOnce {
					compare(fields[i])
				}
			})
		}
		all.Wait()
		if all := len(fields) * comparisonsEach; int(some.Load()) < all/3 {
			t.Errorf("only %d of %d comparisons match some but not all agents: the test proves little", some.Load(), all)
		}
	})

	t.Run("a query may name any field of the schema", func(t *testing.T) {
		values := map[kql.Type]string{
			kql.TypeKeyword: "default", kql.TypeText: "prod", kql.TypeDate: "now/d", kql.TypeVersion: "1.10.0", kql.TypeBool: "true", kql.TypeNumber: "1",
		}
		for _, field := range schema.Fields {
			if field.Type == kql.TypeDerived {
				values[field.Type] = field.Values[0]
			}
			for _, query := range []string{field.Name + ": *", "not " + field.Name + ": *", field.Name + ": " + values[field.Type], "fleet-agents." + field.Name + `: "` + values[field.Type] + `"`} {
				f, err := kql.Compile(query, schema, queriedAt)
				must(t, err)
				got := []string{}
				err = s.Agents().Facts(ctx, store.AgentFilter{Query: f}, func(id string, _ fleet.StatusFacts) { got = append(got, id) })
				slices.Sort(got)
				if want := matching(f); err != nil || !slices.Equal(got, want) {
					t.Errorf("%s\nfound %v\nwant  %v: %v", query, got, want, err)
				}
			}
		}
	})

	t.Run("a query of a status finds the agents that have it", func(t *testing.T) {
		for _, status := range fleet.Statuses {
			f, err := kql.Compile("status: "+string(status), schema, queriedAt)
			must(t, err)
			want := []string{}
			for _, a := range fleetOf {
				if a.Facts().StatusAt(queriedAt, queriedTimeouts[a.PolicyID]) == status {
					want = append(want, a.ID)
				}
			}
			slices.Sort(want)
			if len(want) == 0 {
				t.Errorf("no agent is %s: the test proves nothing", status)
			}
			equal(t, value(found(f))(t), want)
		}
	})

	t.Run("a query of a health or of a progress finds the agents that have it", func(t *testing.T) {
		of := map[string]func(a *fleet.Agent) string{
			fleet.FieldHealth: func(a *fleet.Agent) string {
				return string(a.Facts().HealthAt(queriedAt, queriedTimeouts[a.PolicyID]))
			},
			fleet.FieldProgress: func(a *fleet.Agent) string { return string(a.ProgressStateAt(queriedAt)) },
		}
		counts := map[string]map[string]int{fleet.FieldHealth: {}, fleet.FieldProgress: {}}
		for h, n := range value(store.CountHealth(ctx, s.Agents(), store.AgentFilter{}, queriedTimeouts, queriedAt))(t) {
			counts[fleet.FieldHealth][string(h)] = n
		}
		progress := fleet.ProgressClasses(queriedAt)
		for p, n := range progress.ByValue(value(store.CountFirst(ctx, s.Agents(), store.AgentFilter{}, progress.Filters))(t)) {
			counts[fleet.FieldProgress][string(p)] = n
		}
		for name, of := range of {
			some := 0
			for _, v := range schema.Field(name).Values {
				f, err := kql.Compile(name+": "+v, schema, queriedAt)
				must(t, err)
				want := []string{}
				for i := range fleetOf {
					if of(&fleetOf[i]) == v {
						want = append(want, fleetOf[i].ID)
					}
				}
				slices.Sort(want)
				equal(t, value(found(f))(t), want)
				equal(t, counts[name][v], len(want))
				some += min(len(want), 1)
			}
			if some < 4 {
				t.Errorf("the agents have %d values of %s: the test proves little", some, name)
			}
		}
	})

	t.Run("CountFirst counts the agents that queries find", func(t *testing.T) {
		// By status, as StatusAt computes it from the facts.
		policies := []string{"", "default", "never"}
		for _, policy := range policies {
			filter, want := store.AgentFilter{PolicyID: policy}, map[fleet.Status]int{}
			for _, status := range fleet.Statuses {
				want[status] = 0
			}
			must(t, s.Agents().Facts(ctx, filter, func(_ string, f fleet.StatusFacts) {
				want[f.StatusAt(queriedAt, queriedTimeouts[f.PolicyID])]++
			}))
			equal(t, value(store.CountStatuses(ctx, s.Agents(), filter, queriedTimeouts, queriedAt))(t), want)
		}
		// By random queries, with each kind of filter.
		filters := []store.AgentFilter{
			{},
			{ActiveOnly: true, VersionBelow: "1.10.0"},
			{SeenSince: map[string]time.Time{"default": queriedAt.Add(-time.Hour), "edge": queriedAt}},
			{PolicyID: "edge", Query: leafOf(fields[0]).Example(1)},
		}
		some := 0
		for i, filter := range filters {
			in := map[string]bool{}
			must(t, s.Agents().Facts(ctx, filter, func(id string, _ fleet.StatusFacts) { in[id] = true }))
			var queries []kql.Filter
			for seed := range countedTogether {
				queries = append(queries, filterOf(fields, 2).Example(i*countedTogether+seed))
			}
			want := make([]int, countedTogether+1)
			for q, f := range queries {
				for _, id := range matching(f) {
					if in[id] {
						want[q]++
						delete(in, id)
					}
				}
				if want[q] > 0 && len(in) > 0 {
					some++
				}
			}
			want[countedTogether] = len(in)
			equal(t, value(store.CountFirst(ctx, s.Agents(), filter, queries))(t), want)
		}
		if some < countedTogether/3 {
			t.Errorf("only %d counts match some but not all agents: the test proves little", some)
		}
		equal(t, value(store.CountFirst(ctx, s.Agents(), store.AgentFilter{}, nil))(t), []int{len(fleetOf)})
		_, err := store.CountFirst(ctx, s.Agents(), store.AgentFilter{}, []kql.Filter{kql.Exists{Field: &kql.Field{Name: "secret", Type: kql.TypeKeyword}}})
		wantKind(t, err, fleet.Invalid)
	})

	t.Run("CountPolicies counts the agents by the revision that they have", func(t *testing.T) {
		want := map[fleet.PolicyAt]int{}
		for i := range fleetOf {
			if a := &fleetOf[i]; a.Active && a.PolicyID != "" {
				want[a.Policy()]++
			}
		}
		if got := value(s.Agents().CountPolicies(ctx))(t); !maps.Equal(got, want) || len(want) < 12 {
			t.Errorf("the counts are %v, want %v", got, want)
		}
	})

	for query, some := range map[string]bool{
		"": true,
		"status: (online or degraded) and not tags: prod*":                                            true,
		"agent.version > 1.9.0 and agent.version < 2.0.0":                                             true,
		"agent.version >= 1.10.0-rc.10":                                                               true,
		"tags: (prod or \"a*b\" or \"it's\")":                                                         true,
		"local_metadata.host.hostname: example":                                                       false,
		"local_metadata.host.hostname: web*":                                                          true,
		"last_checkin_message: \"no route\"":                                                          true,
		"last_checkin_message: DOWNLOAD or upgrade_details.metadata.error_msg: download":              true,
		"upgrade_started_at: * and not upgraded_at: *":                                                true,
		"last_checkin < now-12h or not last_checkin: *":                                               true,
		"status:updating AND upgrade_started_at:* AND NOT upgraded_at:* AND upgrade_started_at < now": false,
		"not (active: true and policy_id: (default or canary or edge))":                               true,
		"prod":                             true,
		"\"line\\nbreak\"":                 true,
		"local_metadata.host.ip: 10.0.0.1": true,
		"upgrade_details.metadata.download_percent >= 12.5":                                        true,
		"fleet-agents.policy_id: canary":                                                           true,
		"components.status: FAILED and components.version < 1.10.0 and components.runtime: docker": true,
		"components.name: prod* and not components.upgrade_details.state: UPG_FAILED":              true,
		"components.upgrade_details.metadata.error_msg: route":                                     true,
	} {
		t.Run("query "+query, func(t *testing.T) {
			f, err := kql.Compile(query, schema, queriedAt)
			must(t, err)
			got := value(found(f))(t)
			equal(t, got, matching(f))
			if some && len(got) == 0 {
				t.Error("the query finds no agent: the test proves nothing")
			}
		})
	}

	t.Run("a query is combined with the rest of a filter", func(t *testing.T) {
		f, err := kql.Compile("status: * and not tags: prod", schema, queriedAt)
		must(t, err)
		rest := store.AgentFilter{PolicyID: "edge", ActiveOnly: true, VersionBelow: "2.0.0", SeenSince: map[string]time.Time{"edge": at(time.Hour)}}
		want := []string{}
		for _, a := range selectAgents(fleetOf, rest) {
			if fleet.VersionKey(a.Version) != "" && kql.Match(f, a.Values) {
				want = append(want, a.ID)
			}
		}
		rest.Query = f
		got, total, err := s.Agents().List(ctx, store.AgentQuery{AgentFilter: rest, Limit: 1000})
		must(t, err)
		list := ids(got)
		slices.Sort(list)
		slices.Sort(want)
		equal(t, list, want)
		if total != len(want) || total == 0 {
			t.Errorf("the total is %d", total)
		}
	})

	t.Run("a query may have hundreds of parts", func(t *testing.T) {
		var every, some kql.AnyOf
		for _, a := range fleetOf {
			every = append(every, kql.Equals{Field: schema.Field("agent.id"), Value: a.ID})
			some = append(some, kql.AllOf{kql.Equals{Field: schema.Field("agent.id"), Value: a.ID}, kql.Exists{Field: schema.Field("last_checkin")}})
		}
		equal(t, value(found(every))(t), matching(every))
		equal(t, value(found(slices.Concat(some, some, some)))(t), matching(some))
	})

	t.Run("Values returns distinct values in order up to the limit", func(t *testing.T) {
		for _, name := range []string{"tags", "agent.version", "policy_id", "last_checkin_status", "local_metadata.host.hostname.keyword", "local_metadata.host.hostname", "upgrade_details.state", "type", "components.name", "components.version", "component_actions", "staged_versions"} {
			field := schema.Field(name)
			filter, err := kql.Compile("not policy_id: canary", schema, queriedAt)
			must(t, err)
			for _, prefix := range []string{"", "p", "PROD", "1.1", "ä", "a*"} {
				var want []string
				for _, a := range fleetOf {
					for _, v := range a.Values(field) {
						if s := v.(string); kql.Match(filter, a.Values) && len(s) >= len(prefix) && asciiFold(s[:len(prefix)]) == asciiFold(prefix) {
							want = append(want, s)
						}
					}
				}
				slices.Sort(want)
				want = slices.Compact(want)
				for _, limit := range []int{1000, 2, 0} {
					got, err := s.Agents().Values(ctx, store.AgentFilter{Query: filter}, field, prefix, limit)
					must(t, err)
					if !slices.Equal(got, want[:min(limit, len(want))]) {
						t.Errorf("values of %s with %q are %q, want %q", name, prefix, got, want)
					}
				}
			}
		}
	})

	t.Run("a query of an unknown field is refused", func(t *testing.T) {
		f := kql.Exists{Field: &kql.Field{Name: "components", Type: kql.TypeKeyword}}
		_, _, err := s.Agents().List(ctx, store.AgentQuery{AgentFilter: store.AgentFilter{Query: f}})
		wantKind(t, err, fleet.Invalid)
		_, err = s.Agents().Values(ctx, store.AgentFilter{}, f.Field, "", 1)
		wantKind(t, err, fleet.Invalid)
	})
}

// asciiFold converts ASCII letters to lower case.
func asciiFold(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}
