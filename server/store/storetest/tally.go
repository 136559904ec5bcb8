package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// tallied counts the agents as Agents.Tally must, with kql.Match and Agent.Values.
func tallied(list []fleet.Agent, filter kql.Filter, q store.TallyQuery) store.Tally {
	out := store.Tally{Classes: make([][]int, len(q.Classes)), Values: make([]map[string]store.TallyCount, len(q.Fields))}
	for i, c := range q.Classes {
		out.Classes[i] = make([]int, len(c)+1)
	}
	for i := range q.Fields {
		out.Values[i] = map[string]store.TallyCount{}
	}
	for _, a := range list {
		if filter != nil && !kql.Match(filter, a.Values) {
			continue
		}
		out.Total++
		first := 0
		for i, c := range q.Classes {
			class := slices.IndexFunc(c, func(f kql.Filter) bool { return kql.Match(f, a.Values) })
			if class < 0 {
				class = len(c)
			}
			if i == 0 {
				first = class
			}
			out.Classes[i][class]++
		}
		for i, f := range q.Fields {
			seen := map[string]bool{}
			for _, v := range a.Values(f.Field) {
				if v, ok := strings.CutPrefix(v.(string), f.Prefix); ok && v != "" {
					seen[v] = true
				}
			}
			if len(seen) == 0 {
				seen[""] = true
			}
			for v := range seen {
				c := out.Values[i][v]
				c.Agents++
				if f.ByClass {
					if c.Classes == nil {
						c.Classes = make([]int, len(q.Classes[0])+1)
					}
					c.Classes[first]++
				}
				out.Values[i][v] = c
			}
		}
	}
	return out
}

func testTally(t *testing.T, cfg Config) {
	ctx, s := t.Context(), cfg.open(t)
	list := queriedFleet()
	for i := range list {
		if i%3 > 0 {
			list[i].Tags = append(slices.Clone(list[i].Tags), []string{"site=ams", "site=fra", "site=", "SITE=x", "site=a.b*"}[i%5])
		}
		must(t, s.Agents().Create(ctx, list[i]))
	}
	schema := fleet.AgentSchema(queriedTimeouts)
	var classes []kql.Filter
	for _, r := range fleet.StatusRules(queriedTimeouts, queriedAt) {
		classes = append(classes, r.When)
	}
	var fields []store.TallyField
	for _, name := range []string{"agent.version", "policy_id", "tags", "local_metadata.os.type", "local_metadata.os.platform", "upgrade_status", "upgrade_details.state", "components.status", "last_checkin_status"} {
		fields = append(fields, store.TallyField{Field: schema.Field(name)})
	}
	fields = append(fields, store.TallyField{Field: fleet.FieldTags, Prefix: "site=", ByClass: true}, store.TallyField{Field: schema.Field("agent.version"), ByClass: true})
	for name, q := range map[string]store.TallyQuery{
		"only the total": {},
		"classes":        {Classes: [][]kql.Filter{classes, {kql.Equals{Field: fleet.FieldTags, Value: "prod"}}, {}}},
		"fields":         {Fields: fields[:9]},
		"all together":   {Classes: [][]kql.Filter{classes, {kql.Equals{Field: fleet.FieldTags, Value: "prod"}}}, Fields: fields},
	} {
		for _, query := range []string{"*", "status: online", "tags: prod or upgrade_details.state: *", "not agent.version: *", "last_checkin_message: download", "agent.id: nobody"} {
			t.Run("agents are tallied: "+name+" of "+query, func(t *testing.T) {
				f, err := kql.Compile(query, schema, queriedAt)
				must(t, err)
				want := tallied(list, f, q)
				cfg.eventually(t, func() error {
					got, err := s.Agents().Tally(ctx, store.AgentFilter{Query: f}, q)
					if err != nil {
						return err
					}
					return differs(got, want)
				})
			})
		}
	}
	t.Run("agents are not tallied by a field that cannot be queried", func(t *testing.T) {
		_, err := s.Agents().Tally(ctx, store.AgentFilter{}, store.TallyQuery{Fields: []store.TallyField{{Field: &kql.Field{Name: "nothing", Type: kql.TypeKeyword}}}})
		wantKind(t, err, fleet.Invalid)
	})
}
