package kql_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// now is a Sunday.
var now = time.Date(2026, 3, 15, 10, 20, 30, 400_000_000, time.UTC)

// schema has a field of each type, with the names of agents' fields.
var schema = newSchema()

func newSchema() *kql.Schema {
	seen := &kql.Field{Name: "last_checkin", Type: kql.TypeDate}
	active := &kql.Field{Name: "active", Type: kql.TypeBool}
	return &kql.Schema{
		Fields: []*kql.Field{
			{Name: "agent.version", Type: kql.TypeVersion, Key: fleet.VersionKey, Description: "what it runs"},
			{Name: "policy_id", Type: kql.TypeKeyword},
			{Name: "tags", Type: kql.TypeKeyword, Description: "its labels"},
			{Name: "upgrade_details.state", Type: kql.TypeKeyword, Values: []string{"UPG_DOWNLOADING", "UPG_FAILED"}},
			{Name: "local_metadata.host.hostname", Type: kql.TypeText},
			{Name: "local_metadata.host.hostname.keyword", Type: kql.TypeKeyword},
			seen,
			active,
			{Name: "policy_revision", Type: kql.TypeNumber},
			{Name: "status", Type: kql.TypeDerived, Values: []string{"online", "offline", "unenrolled"}, Derive: func(fits func(string) bool, now time.Time) kql.Filter {
				fresh := kql.Compare{Field: seen, Op: kql.MoreEqual, Value: now.Add(-5 * time.Minute)}
				var f kql.AnyOf
				if fits("online") {
					f = append(f, kql.AllOf{kql.Equals{Field: active, Value: true}, fresh})
				}
				if fits("offline") {
					f = append(f, kql.AllOf{kql.Equals{Field: active, Value: true}, kql.NotOf{Filter: fresh}})
				}
				if fits("unenrolled") {
					f = append(f, kql.NotOf{Filter: kql.Equals{Field: active, Value: true}})
				}
				return f
			}},
		},
		Trim: []string{"attributes.", "fleet-agents."},
	}
}

// showNode formats a tree as in the scripts: texts in ', phrases in ", patterns in /.
func showNode(n kql.Node) string {
	all := func(name string, nodes []kql.Node) string {
		parts := []string{name}
		for _, n := range nodes {
			parts = append(parts, showNode(n))
		}
		return "(" + strings.Join(parts, " ") + ")"
	}
	switch n := n.(type) {
	case kql.All:
		return "(all)"
	case kql.And:
		return all("and", n)
	case kql.Or:
		return all("or", n)
	case kql.Not:
		return all("not", []kql.Node{n.Node})
	case kql.Is:
		if n.Field == nil {
			return showLiteral(n.Value)
		}
		return "(is " + showLiteral(*n.Field) + " " + showLiteral(n.Value) + ")"
	case kql.Range:
		return "(" + string(n.Op) + " " + showLiteral(n.Field) + " " + showLiteral(n.Value) + ")"
	case kql.Nested:
		return "(nested " + showLiteral(n.Field) + " " + showNode(n.Query) + ")"
	}
	return fmt.Sprintf("%T?", n)
}

func showLiteral(l kql.Literal) string {
	mark := "'"
	switch l.Kind {
	case kql.True, kql.False, kql.Null:
		return l.Text
	case kql.Phrase:
		mark = `"`
	case kql.Pattern:
		parts := slices.Clone(l.Parts)
		for i := range parts {
			parts[i] = strings.ReplaceAll(parts[i], "*", `\*`)
		}
		l.Text, mark = strings.Join(parts, "*"), "/"
	}
	return mark + strings.NewReplacer("\t", `\t`, "\n", `\n`, "\r", `\r`).Replace(l.Text) + mark
}

// versionOf maps the keys of versions, which are not readable, to versions.
var versionOf = func() map[string]string {
	names := map[string]string{}
	for _, version := range []string{"8.0.0", "8.9.0", "8.10.0-SNAPSHOT", "8.10.0", "8.15.0", "9.0.0"} {
		names[fleet.VersionKey(version)] = version
	}
	return names
}()

func showFilter(f kql.Filter) string {
	all := func(name string, filters []kql.Filter) string {
		var parts []string
		for _, f := range filters {
			parts = append(parts, showFilter(f))
		}
		return "(" + strings.Join(parts, " "+name+" ") + ")"
	}
	switch f := f.(type) {
	case kql.Everything:
		return "everything"
	case kql.Nothing:
		return "nothing"
	case kql.AllOf:
		return all("and", f)
	case kql.AnyOf:
		return all("or", f)
	case kql.NotOf:
		return "not " + showFilter(f.Filter)
	case kql.Exists:
		return f.Field.Name + " exists"
	case kql.Equals:
		return fmt.Sprintf("%s = %#v", f.Field.Name, f.Value)
	case kql.Like:
		return fmt.Sprintf("%s like %q", f.Field.Name, []string(f.Pattern))
	case kql.HasWord:
		return fmt.Sprintf("%s has any of %q", f.Field.Name, f.Words)
	case kql.HasPhrase:
		return fmt.Sprintf("%s has phrase %q", f.Field.Name, f.Words)
	case kql.Compare:
		if t, ok := f.Value.(time.Time); ok {
			return fmt.Sprintf("%s %s %s", f.Field.Name, f.Op, t.Format("2006-01-02T15:04:05.999999999Z07:00"))
		}
		if f.Field.Type == kql.TypeVersion {
			return fmt.Sprintf("%s %s %s", f.Field.Name, f.Op, versionOf[f.Value.(string)])
		}
		return fmt.Sprintf("%s %s %#v", f.Field.Name, f.Op, f.Value)
	}
	return fmt.Sprintf("%T?", f)
}

// document maps names of fields to values.
type document map[string][]any

func (d document) doc(f *kql.Field) []any { return d[f.Name] }
