package elastic

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// maxNested is the nesting depth that Elasticsearch allows (30), less the levels around a
// query.
const maxNested = 26

var (
	matchAll  = body{"match_all": body{}}
	matchNone = body{"match_none": body{}}
)

// dsl translates a filter to Elasticsearch's query DSL. Elasticsearch does not analyse its
// texts again: the filter has words and times already.
func dsl(f kql.Filter) (body, error) { return nested(f, 0) }

func nested(f kql.Filter, depth int) (body, error) {
	if depth > maxNested {
		return nil, fleet.FieldError("query.kuery", "has conditions nested %d deep, Elasticsearch allows %d: nest them less", depth, maxNested)
	}
	switch f := f.(type) {
	case kql.Everything:
		return matchAll, nil
	case kql.Nothing:
		return matchNone, nil
	case kql.AllOf:
		parts, err := nestedAll(f, depth)
		return body{"bool": body{"filter": parts}}, err
	case kql.AnyOf:
		if len(f) == 0 {
			return matchNone, nil
		}
		parts, err := nestedAll(f, depth)
		return body{"bool": body{"should": parts, "minimum_should_match": 1}}, err
	case kql.NotOf:
		part, err := nested(f.Filter, depth+1)
		return body{"bool": body{"must_not": []any{part}}}, err
	case kql.Exists:
		return onField(f.Field, func(name string) body { return body{"exists": body{"field": name}} })
	case kql.Equals:
		return onField(f.Field, func(name string) body { return equals(name, f.Value) })
	case kql.Like:
		return onField(f.Field, func(name string) body { return body{"wildcard": body{name: body{"value": pattern(f.Pattern)}}} })
	case kql.HasWord:
		return onField(f.Field, func(name string) body { return anyWord(name, f.Words) })
	case kql.HasPhrase:
		return onField(f.Field, func(name string) body { return phraseQuery(name, f.Words) })
	case kql.Compare:
		return onField(f.Field, func(name string) body { return compare(name, f) })
	}
	return nil, fleet.Errorf(fleet.Internal, "the store does not support filters of type %T", f)
}

func nestedAll(list []kql.Filter, depth int) ([]any, error) {
	parts := make([]any, len(list))
	for i, f := range list {
		part, err := nested(f, depth+1)
		if err != nil {
			return nil, err
		}
		parts[i] = part
	}
	return parts, nil
}

func onField(f *kql.Field, write func(name string) body) (body, error) {
	if !queryable[f.Name] {
		return nil, notQueryable(f)
	}
	return write(propertyName(f.Name)), nil
}

// kernel is the one field that the first schemas had as a keyword, and that is a text with a
// keyword sub-field. Since the type of a property cannot change, the text is its sub-field.
const (
	kernel     = "local_metadata.os.kernel"
	kernelText = "text"
)

// propertyName returns the property that a field is queried by, which is usually that of its
// name.
func propertyName(field string) string {
	switch field {
	case "updated_at":
		return "last_activity" // fleet.Agent.LastActivity
	case kernel:
		return kernel + "." + kernelText
	}
	// A keyword has no sub-field for what it is itself.
	if base, ok := strings.CutSuffix(field, fleet.KeywordSuffix); ok && (base == kernel || agentSchema.Field(base).Type != kql.TypeText) {
		return base
	}
	return field
}

func notQueryable(f *kql.Field) error {
	return fleet.FieldError("query.kuery", "agents have no field %q that can be queried", f.Name)
}

func equals(name string, value any) body {
	if value == "" {
		return matchNone // an empty text is no value
	}
	return body{"term": body{name: body{"value": value}}}
}

// pattern returns a wildcard in Elasticsearch's syntax.
func pattern(w kql.Wildcard) string {
	parts := make([]string, len(w))
	for i, p := range w {
		parts[i] = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`).Replace(p)
	}
	return strings.Join(parts, "*")
}

func anyWord(name string, words []string) body {
	if len(words) == 0 {
		return matchNone
	}
	return body{"terms": body{name: words}}
}

// phraseQuery matches consecutive words.
func phraseQuery(name string, words []string) body {
	switch len(words) {
	case 0:
		return matchNone
	case 1:
		return body{"term": body{name: body{"value": words[0]}}}
	}
	clauses := make([]any, len(words))
	for i, w := range words {
		clauses[i] = body{"span_term": body{name: w}}
	}
	return body{"span_near": body{"clauses": clauses, "slop": 0, "in_order": true}}
}

// compareOps are the operators of ranges.
var compareOps = map[kql.Op]string{kql.Less: "lt", kql.LessEqual: "lte", kql.More: "gt", kql.MoreEqual: "gte"}

func compare(name string, f kql.Compare) body {
	bound := body{}
	switch v := f.Value.(type) {
	case time.Time:
		bound["format"] = "strict_date_optional_time"
		bound[compareOps[f.Op]] = v.UTC().Format("2006-01-02T15:04:05.000Z")
	default:
		bound[compareOps[f.Op]] = v
	}
	if f.Field.Type == kql.TypeVersion {
		name = versionKey(f.Field.Name)
	}
	return body{"range": body{name: bound}}
}

// versionKey returns the field with the keys by which the versions of a field are compared.
func versionKey(name string) string {
	return "version_keys." + strings.NewReplacer(".", "_", fleet.KeywordSuffix, "").Replace(name)
}

func (g agents) values(ctx context.Context, filter store.AgentFilter, field *kql.Field, prefix string, limit int) ([]string, error) {
	if !queryable[field.Name] {
		return nil, notQueryable(field)
	}
	if limit <= 0 {
		return []string{}, nil
	}
	query, err := filterQuery(filter)
	if err != nil {
		return nil, err
	}
	name := field.Name
	if field.Type == kql.TypeText {
		name += fleet.KeywordSuffix
	}
	name = propertyName(name)
	res, err := g.s.c.search(ctx, "read values of agents", indexAgents, body{
		"query": query, "size": 0, "track_total_hits": false,
		"aggs": body{"values": body{"terms": body{"field": name, "size": min(limit, maxValues), "order": body{"_key": "asc"}, "include": anyCase(prefix) + "@"}}},
	})
	if err != nil {
		return nil, err
	}
	var found struct {
		Values struct {
			Buckets []struct {
				Key string `json:"key"`
			} `json:"buckets"`
		} `json:"values"`
	}
	if err := decodeSource("values", field.Name, res.Aggregations, &found); err != nil {
		return nil, err
	}
	out := make([]string, 0, len(found.Values.Buckets))
	for _, b := range found.Values.Buckets {
		out = append(out, b.Key)
	}
	return out, nil
}

// maxValues bounds one list of values: Elasticsearch makes at most 65,536 buckets.
const maxValues = 60_000

// anyCase returns a Lucene regular expression that matches prefix, ignoring the case of ASCII
// letters.
func anyCase(prefix string) string {
	var b strings.Builder
	for _, r := range prefix {
		switch {
		case 'a' <= r && r <= 'z':
			b.WriteString("[" + string(r) + string(r-'a'+'A') + "]")
		case 'A' <= r && r <= 'Z':
			b.WriteString("[" + string(r-'A'+'a') + string(r) + "]")
		case r < utf8.RuneSelf:
			b.WriteString("\\" + string(r))
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// agentSchema has the fields that can be queried. Timeouts, which only status depends on, are
// not needed: filters have no status field any more.
var agentSchema = fleet.AgentSchema(nil)

// queryable is the set of fields that are indexed for queries.
var queryable = func() map[string]bool {
	names := map[string]bool{}
	for _, f := range agentSchema.Fields {
		names[f.Name] = isStored(f)
	}
	return names
}()

// isStored reports whether documents have values of a field.
func isStored(f *kql.Field) bool { return f.Type != kql.TypeDerived && !f.Constant }

// queryProperties returns the mapping of the fields that can be queried. It is derived from
// the schema, so that Elasticsearch indexes what kql.Match would match.
func queryProperties() body {
	properties := body{}
	hasKeyword := map[string]bool{}
	for _, f := range agentSchema.Fields {
		if base, ok := strings.CutSuffix(f.Name, fleet.KeywordSuffix); ok {
			hasKeyword[base] = true
		}
	}
	for _, f := range agentSchema.Fields {
		if strings.HasSuffix(f.Name, fleet.KeywordSuffix) || !isStored(f) || propertyOwned[f.Name] {
			continue
		}
		in, name := propertyAt(properties, f.Name)
		in[name] = propertyOf(f, hasKeyword[f.Name])
	}
	for _, f := range agentSchema.Fields {
		if f.Type == kql.TypeVersion {
			in, name := propertyAt(properties, versionKey(f.Name))
			in[name] = keyword
		}
	}
	return properties
}

// propertyOwned are the fields whose values agentSource and touchFields write.
var propertyOwned = map[string]bool{"updated_at": true, "access_api_key_id": true, "action_seq_no": true}

func propertyOf(f *kql.Field, withKeyword bool) body {
	if f.Name == kernel {
		return with(body{"fields": body{kernelText: words}}, keyword)
	}
	switch f.Type {
	case kql.TypeText:
		if withKeyword {
			return phrase
		}
		return words
	case kql.TypeDate:
		return date
	case kql.TypeBool:
		return boolean
	case kql.TypeNumber:
		return body{"type": "double"}
	}
	return keyword
}

// propertyAt returns the properties that contain the field with a dotted path, and its name
// there. It creates missing objects.
func propertyAt(properties body, path string) (body, string) {
	for {
		name, rest, deeper := strings.Cut(path, ".")
		if !deeper {
			return properties, name
		}
		inner, ok := properties[name].(body)
		if !ok {
			inner = object(body{})
			properties[name] = inner
		}
		properties, path = inner["properties"].(body), rest
	}
}

// setPath sets the value at a dotted path.
func setPath(source map[string]any, path string, value any) {
	for {
		name, rest, deeper := strings.Cut(path, ".")
		if !deeper {
			source[name] = value
			return
		}
		inner, ok := source[name].(map[string]any)
		if !ok {
			inner = map[string]any{}
			source[name] = inner
		}
		source, path = inner, rest
	}
}

// unwrapSingle returns the element of a list of one, so that a source has no list for it.
func unwrapSingle(list []any) any {
	if len(list) == 1 {
		return list[0]
	}
	return list
}

// queryValues adds the fields that can be queried to the source of an agent.
func queryValues(source map[string]any, a *fleet.Agent) {
	valuesOf := a.EachValue()
	for _, f := range agentSchema.Fields {
		if !isStored(f) || propertyOwned[f.Name] || (strings.HasSuffix(f.Name, fleet.KeywordSuffix) && f.Type != kql.TypeVersion) {
			continue
		}
		values := valuesOf(f)
		if len(values) == 0 {
			continue
		}
		if f.Type == kql.TypeVersion {
			var keys []any
			for _, v := range values {
				if key := f.Key(fmt.Sprint(v)); key != "" {
					keys = append(keys, key)
				}
			}
			if len(keys) > 0 {
				setPath(source, versionKey(f.Name), unwrapSingle(keys))
			}
		}
		if !strings.HasSuffix(f.Name, fleet.KeywordSuffix) {
			setPath(source, f.Name, unwrapSingle(values))
		}
	}
}
