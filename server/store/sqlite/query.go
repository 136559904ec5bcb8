package sqlite

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// query is a kql.Filter as a condition in SQL, on facts as f, agent_last_seen as l and
// agents as a. Every part of it evaluates to 0 or 1, never to NULL: NOT NULL is NULL, and
// would exclude agents that a query with NOT must find.
type query struct {
	where         string
	lastSeen, doc bool  // whether it uses agent_last_seen, and agents
	args          []any // in the order of their parameters
}

func compile(f kql.Filter) (query, error) {
	var q query
	var err error
	q.where, err = q.filter(f)
	return q, err
}

func (q *query) filter(f kql.Filter) (string, error) {
	switch f := f.(type) {
	case kql.Everything:
		return "1", nil
	case kql.Nothing:
		return "0", nil
	case kql.AllOf:
		return q.join(f, " AND ", "1")
	case kql.AnyOf:
		return q.join(mergeEquals(f), " OR ", "0")
	case kql.NotOf:
		inner, err := q.filter(f.Filter)
		return "NOT " + inner, err
	case kql.Exists:
		return q.leaf(f.Field, func(s source) string { return q.exists(s, f.Field.Type) })
	case kql.Equals:
		return q.leaf(f.Field, func(s source) string { return q.equals(s, f.Value) })
	case oneOf:
		return q.leaf(f.field, func(s source) string {
			return q.anyValue(s, func(v string) string { return v + " IN (SELECT value FROM json_each(" + q.arg(f.list) + "))" })
		})
	case kql.Like:
		return q.matches(f.Field, leaf{Like: f.Pattern, Text: f.Field.Type == kql.TypeText})
	case kql.HasWord:
		return q.matches(f.Field, leaf{Words: f.Words})
	case kql.HasPhrase:
		return q.matches(f.Field, leaf{Phrase: f.Words})
	case kql.Compare:
		return q.leaf(f.Field, func(s source) string { return q.compare(s, f) })
	}
	return "", fleet.Errorf(fleet.Internal, "the store does not support filters of type %T", f)
}

// join combines parts as a balanced tree. SQLite accepts an expression of at most 1,000
// levels, and a chain would have one for each part.
func (q *query) join(parts []kql.Filter, op, none string) (string, error) {
	switch len(parts) {
	case 0:
		return none, nil
	case 1:
		return q.filter(parts[0])
	}
	left, err := q.join(parts[:len(parts)/2], op, none)
	if err != nil {
		return "", err
	}
	right, err := q.join(parts[len(parts)/2:], op, none)
	return "(" + left + op + right + ")", err
}

// oneOf is an AnyOf of Equals of one field, such as a thousand ids, which costs one lookup
// for each agent.
type oneOf struct {
	kql.Filter
	field *kql.Field
	list  string // a JSON list of texts
}

// mergeEquals merges the Equals of an AnyOf by their field.
func mergeEquals(parts kql.AnyOf) []kql.Filter {
	texts := map[*kql.Field][]string{}
	for _, p := range parts {
		if e, ok := p.(kql.Equals); ok {
			if s, ok := e.Value.(string); ok && s != "" {
				texts[e.Field] = append(texts[e.Field], s)
			}
		}
	}
	var out []kql.Filter
	for _, p := range parts {
		e, ok := p.(kql.Equals)
		if !ok || len(texts[e.Field]) < 2 {
			if ok && texts[e.Field] == nil && isText(e.Field.Type) {
				continue // the empty text, which no agent has, or merged already
			}
			out = append(out, p)
			continue
		}
		list, err := json.Marshal(texts[e.Field])
		if err != nil {
			return parts // strings can be encoded
		}
		out = append(out, oneOf{field: e.Field, list: string(list)})
		delete(texts, e.Field)
	}
	return out
}

func isText(t kql.Type) bool {
	return t == kql.TypeKeyword || t == kql.TypeVersion || t == kql.TypeText
}

func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "?"
}

// source locates the values of a field.
type source struct {
	column   string // of facts or agent_last_seen
	key      string // the column of facts that versions are compared by
	nullable bool   // whether column may be NULL
	list     bool   // whether column is a JSON list
	flag     string // the column that tells whether there is a value, if column does not
	path     string // in the document, of a field without a column
	metadata bool   // whether path is in the host's metadata, whose values have any type
	// components means that path is in each of the agent's components, of which only texts
	// are values.
	components bool
	// copied is a column with the field's only value in the rows where copiedIf is true.
	// The values of other rows are in the document.
	copied, copiedIf string
}

// columns are the fields with columns in facts and agent_last_seen. A query of only these
// reads no document.
var columns = map[string]source{
	"agent.id":                {column: "f.id"},
	"agent.version":           {column: "f.version", key: "f.version_key"},
	"active":                  {column: "f.active"},
	"policy_id":               {column: "f.policy_id"},
	"tags":                    {column: "f.tags", list: true},
	"enrolled_at":             {column: "f.enrolled_at"},
	"audit_unenrolled_reason": {column: "f.audit_unenrolled"},
	"upgrade_started_at":      {column: "f.upgrade_started_at", nullable: true},
	"upgraded_at":             {column: "f.upgraded_at", nullable: true},
	"unenrollment_started_at": {path: `$."unenrollment_started_at"`, flag: "f.unenrolling"},
	"policy_revision_idx":     {column: "f.policy_rev", nullable: true},
	"enrollment_id":           {column: "f.enrollment_id", nullable: true},
	"last_checkin":            {column: "l.last_checkin", nullable: true},
	"last_checkin_status":     {column: "l.status"},
	"last_checkin_message":    {column: "l.message"},
	"action_seq_no":           {column: "l.action_seq_no"},
	"updated_at":              {column: "coalesce(l.last_checkin, f.enrolled_at)"}, // fleet.Agent.LastActivity
	// Hosts do not send these lists, but their form in the document is that of hosts' lists.
	"unhealthy_reason":             {path: `$."unhealthy_reason"`, metadata: true},
	"component_actions":            {path: `$."component_actions"`, metadata: true},
	"staged_versions":              {path: `$."staged_versions"`, metadata: true},
	"component_upgrade_started_at": {column: "f.components_since", nullable: true},
	"upgrade_status":               {column: "f.upgrade_status"},
	"upgrade_details.state":        {column: "f.upgrade_phase"},
}

// inDocuments are the names of the fields that documents have values of. A field without a column
// is read there; its name is the path.
var inDocuments = func() map[string]bool {
	names := map[string]bool{}
	for _, f := range fleet.AgentSchema(nil).Fields {
		if f.Type != kql.TypeDerived && !f.Constant {
			names[strings.TrimSuffix(f.Name, fleet.KeywordSuffix)] = true
		}
	}
	return names
}()

func jsonPath(name string) string { return `$."` + strings.ReplaceAll(name, ".", `"."`) + `"` }

// eachComponent is the FROM clause of an agent's components. A host may have sent anything in
// the list, and JSON functions refuse what is no object, so the tests below come in an order
// that CASE guarantees.
const eachComponent = `json_each(CASE json_type(` + agentDoc + `, '$.components') WHEN 'array' THEN ` + agentDoc + ` -> '$.components' ELSE '[]' END)`

// agentDoc is the agent's document for JSON functions. They refuse a document that is no JSON, or
// is too deep, and the whole query with it. SQLite parses it once for all of them.
const agentDoc = `iif(json_valid(a.doc), a.doc, '{}')`

// componentText returns the SQL of a component's text at path, NULL if it has none.
func componentText(path string) string {
	return "CASE c.type WHEN 'object' THEN CASE json_type(c.value, '" + path + "') WHEN 'text' THEN c.value ->> '" + path + "' END END"
}

func sourceOf(f *kql.Field) (source, error) {
	name := strings.TrimSuffix(f.Name, fleet.KeywordSuffix)
	if s, ok := columns[name]; ok {
		return s, nil
	}
	if !inDocuments[name] {
		return source{}, fleet.FieldError("query.kuery", "agents have no field %q that can be queried", f.Name)
	}
	if path, ok := strings.CutPrefix(name, fleet.ComponentsPrefix); ok {
		return source{path: jsonPath(path), components: true}, nil
	}
	s := source{
		path:     jsonPath(name),
		metadata: strings.HasPrefix(name, "local_metadata."),
	}
	switch name {
	case hostnameField.Name:
		s.copied, s.copiedIf = "f.hostname", "f.host_named"
	case osTypeField.Name:
		s.copied, s.copiedIf = "f.os_type", "f.os_type IS NOT NULL"
	}
	return s, nil
}

// hostnameField is the field of the metadata that queries use most; facts has a copy.
var hostnameField = &kql.Field{Name: "local_metadata.host.hostname", Type: kql.TypeText}

// osTypeField is the field of the metadata by which hosts are counted.
var osTypeField = &kql.Field{Name: "local_metadata.os.type", Type: kql.TypeKeyword}

func (q *query) leaf(f *kql.Field, write func(source) string) (string, error) {
	s, err := sourceOf(f)
	if err != nil {
		return "", err
	}
	return write(s), nil
}

// matches returns a condition that evaluates l in Go, by kql.Match.
func (q *query) matches(f *kql.Field, l leaf) (string, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return "", fleet.Errorf(fleet.Internal, "encode a part of the query: %w", err) // strings can be encoded
	}
	return q.leaf(f, func(s source) string {
		return q.anyValue(s, func(v string) string { return "muster_matches(" + q.arg(string(text)) + ", " + v + ")" })
	})
}

func (s source) lastSeen() bool {
	return strings.HasPrefix(s.column, "l.") || strings.Contains(s.column, "(l.")
}
func (s source) doc() bool { return s.column == "" && s.copied == "" }

// document returns the SQL for the agent's document. If only a few rows need it, a
// subquery finds it, so that the others are not joined.
func (s source) document() string {
	if s.copied != "" {
		return "(SELECT iif(json_valid(doc), doc, '{}') FROM agents x WHERE x.rid = f.rid)"
	}
	return agentDoc
}

// use records which tables a source needs.
func (q *query) use(s source) { q.lastSeen, q.doc = q.lastSeen || s.lastSeen(), q.doc || s.doc() }

// anyValue returns a condition that is true if test is true of any value of the source.
// test returns the SQL of the test for the SQL of one value; it may be called twice.
func (q *query) anyValue(s source, test func(v string) string) string {
	q.use(s)
	switch {
	case s.list:
		return "EXISTS (SELECT 1 FROM json_each(" + s.column + ") j WHERE " + test("j.value") + ")"
	case s.nullable:
		return "(" + s.column + " IS NOT NULL AND " + test(s.column) + ")"
	case s.column != "":
		return test(s.column)
	case s.components:
		return "EXISTS (SELECT 1 FROM (SELECT " + componentText(s.path) + " AS t FROM " + eachComponent + " c) WHERE t IS NOT NULL AND " + test("t") + ")"
	case s.metadata:
		copied := ""
		if s.copied != "" {
			copied = "WHEN " + s.copiedIf + " THEN " + test(s.copied) + " "
		}
		doc := s.document()
		kind := "json_type(" + doc + ", '" + s.path + "') = "
		return "CASE " + copied + "WHEN " + kind + "'text' THEN " + test("("+doc+" ->> '"+s.path+"')") +
			" WHEN " + kind + "'array' THEN EXISTS (SELECT 1 FROM json_each(" + doc + ", '" + s.path + "') j WHERE j.type = 'text' AND " + test("j.value") + ") ELSE 0 END"
	}
	return "coalesce(" + test("("+agentDoc+" ->> '"+s.path+"')") + ", 0)"
}

func (q *query) exists(s source, t kql.Type) string {
	switch {
	case s.flag != "":
		return s.flag
	case isText(t):
		return q.anyValue(s, func(v string) string { return v + " <> ''" })
	case s.column != "":
		q.use(s)
		return "(" + s.column + " IS NOT NULL)"
	case t == kql.TypeBool:
		q.use(s)
		return "coalesce(json_type(" + agentDoc + ", '" + s.path + "') IN ('true', 'false'), 0)"
	}
	q.use(s)
	return "(" + agentDoc + " ->> '" + s.path + "' IS NOT NULL)"
}

func (q *query) equals(s source, value any) string {
	switch v := value.(type) {
	case string:
		if v == "" {
			return "0" // an empty text is no value
		}
		return q.anyValue(s, func(x string) string { return x + " = " + q.arg(v) })
	case bool:
		if s.column != "" {
			return q.anyValue(s, func(x string) string { return x + " = " + q.arg(v) })
		}
		q.use(s)
		return "coalesce(json_type(" + agentDoc + ", '" + s.path + "') = " + q.arg(fmt.Sprint(v)) + ", 0)"
	case float64:
		return q.anyValue(s, func(x string) string { return "CAST(" + x + " AS REAL) = " + q.arg(v) })
	}
	return "0" // the type of the value does not fit that of the field
}

func (q *query) compare(s source, f kql.Compare) string {
	op := " " + string(f.Op) + " "
	switch v := f.Value.(type) {
	case time.Time:
		return q.anyValue(s, func(x string) string {
			if s.column == "" {
				x = "muster_time(" + x + ")"
			}
			return x + op + q.arg(nanoseconds(v))
		})
	case float64:
		return q.anyValue(s, func(x string) string { return "CAST(" + x + " AS REAL)" + op + q.arg(v) })
	case string:
		if f.Field.Type == kql.TypeVersion {
			if s.key != "" {
				return "(" + s.key + " <> '' AND " + s.key + op + q.arg(v) + ")"
			}
			return q.anyValue(s, func(x string) string {
				return "(muster_version_key(" + x + ") <> '' AND muster_version_key(" + x + ")" + op + q.arg(v) + ")"
			})
		}
		return q.anyValue(s, func(x string) string { return "(" + x + " <> '' AND " + x + op + q.arg(v) + ")" })
	}
	return "0" // the type of the value does not fit that of the field
}

// latest is the last time that fits into nanoseconds.
var latest = time.Unix(0, 1<<63-1)

// nanoseconds is fromTime for the times in queries, which may be later than latest.
func nanoseconds(t time.Time) int64 {
	if t.After(latest) {
		return latest.UnixNano()
	}
	return fromTime(t)
}
