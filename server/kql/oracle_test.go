package kql_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/kql"
)

// The oracle decides whether a document matches a tree. It is as simple as is correct
// for the values below, and does not use Filter.

// versionOrder are the versions in order.
var versionOrder = []string{"8.9.0", "8.10.0-SNAPSHOT", "8.10.0", "9.0.0"}

// moments are the dates, as the first millisecond and the last.
var moments = map[string][2]time.Time{
	"2026-03-14":    {date(14, 0, 0, 0, 0), date(14, 23, 59, 59, 999)},
	"2026-03-15T10": {date(15, 10, 0, 0, 0), date(15, 10, 59, 59, 999)},
	"now":           {now, now},
	"now-1d/d":      {date(14, 0, 0, 0, 0), date(14, 23, 59, 59, 999)},
	"now-3m":        {now.Add(-3 * time.Minute), now.Add(-3 * time.Minute)},
}

func date(day, hour, minute, second, millisecond int) time.Time {
	return time.Date(2026, 3, day, hour, minute, second, millisecond*1_000_000, time.UTC)
}

type oracle struct{ document document }

func (o oracle) says(n kql.Node) bool {
	switch n := n.(type) {
	case kql.All:
		return true
	case kql.And:
		return !slices.ContainsFunc(n, func(n kql.Node) bool { return !o.says(n) })
	case kql.Or:
		return slices.ContainsFunc(n, o.says)
	case kql.Not:
		return !o.says(n.Node)
	case kql.Range:
		return slices.ContainsFunc(o.document[n.Field.Text], func(value any) bool { return o.compares(n.Field.Text, value, n.Op, n.Value.Text) })
	case kql.Is:
		if n.Field == nil || n.Field.Text == "*" {
			return n.Value.Text == "*" && n.Value.Kind == kql.Pattern ||
				slices.ContainsFunc(schema.Fields, func(f *kql.Field) bool { return o.is(f.Name, n.Value) })
		}
		return o.is(n.Field.Text, n.Value)
	}
	panic("the oracle does not know this node")
}

func (o oracle) is(field string, l kql.Literal) bool {
	values := o.document[field]
	if field == "status" {
		values = []any{"unenrolled"}
		if slices.Contains(o.document["active"], any(true)) {
			values = []any{"offline"}
			if seen := o.document["last_checkin"]; len(seen) > 0 && !seen[0].(time.Time).Before(now.Add(-5*time.Minute)) {
				values = []any{"online"}
			}
		}
	}
	return slices.ContainsFunc(values, func(value any) bool {
		text, isText := value.(string)
		switch {
		case isText && text == "":
			return false
		case l.Kind == kql.Pattern && l.Text == "*":
			return true
		case l.Kind == kql.Pattern:
			return isText && slices.ContainsFunc(patterns(l), func(pattern string) bool { return fits(field, pattern, text) })
		case field == "local_metadata.host.hostname":
			want, have := simpleWords(l.Text), simpleWords(text)
			if l.Kind == kql.Phrase {
				return len(want) > 0 && strings.Contains(" "+strings.Join(have, " ")+" ", " "+strings.Join(want, " ")+" ")
			}
			return slices.ContainsFunc(want, func(word string) bool { return slices.Contains(have, word) })
		case isText:
			return text == l.Text
		}
		switch value := value.(type) {
		case bool:
			return strconv.FormatBool(value) == l.Text
		case float64:
			n, err := strconv.ParseFloat(l.Text, 64)
			return err == nil && n == value
		case time.Time:
			m, known := moments[l.Text]
			return known && !value.Before(m[0]) && !value.After(m[1])
		}
		return false
	})
}

// patterns returns the words of a pattern, with \x00 for its wildcards.
func patterns(l kql.Literal) []string {
	return strings.Fields(strings.Join(l.Parts, "\x00"))
}

func fits(field, pattern, text string) bool {
	wild := strings.Contains(pattern, "\x00")
	values := []string{text}
	if field == "local_metadata.host.hostname" {
		values, pattern = simpleWords(text), strings.ToLower(pattern)
		if !wild {
			return slices.ContainsFunc(simpleWords(pattern), func(word string) bool { return slices.Contains(values, word) })
		}
		if strings.Trim(pattern, "\x00") == "" {
			return true
		}
	}
	parts := strings.Split(pattern, "\x00")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	r := regexp.MustCompile("^" + strings.Join(parts, ".*") + "$")
	return slices.ContainsFunc(values, r.MatchString)
}

var simpleWord = regexp.MustCompile(`[a-z0-9]+`)

func simpleWords(text string) []string { return simpleWord.FindAllString(strings.ToLower(text), -1) }

func (o oracle) compares(field string, value any, op kql.Op, bound string) bool {
	holds := func(order int) bool {
		return map[kql.Op]bool{kql.Less: order < 0, kql.LessEqual: order <= 0, kql.More: order > 0, kql.MoreEqual: order >= 0}[op]
	}
	switch value := value.(type) {
	case string:
		if field == "agent.version" {
			have := slices.Index(versionOrder, value)
			return have >= 0 && holds(have-slices.Index(versionOrder, bound))
		}
		return value != "" && holds(strings.Compare(value, bound))
	case float64:
		n, _ := strconv.ParseFloat(bound, 64)
		return holds(int(2 * (value - n)))
	case time.Time:
		// After an hour means after its last millisecond, before means before its first.
		edge := moments[bound][0]
		if op == kql.More || op == kql.LessEqual {
			edge = moments[bound][1]
		}
		return holds(value.Compare(edge))
	}
	return false
}

var (
	tagValues     = []string{"web", "db", "web eu", "w*b", "Web", "2026-03-14", "true", "offline", ""}
	hostValues    = []string{"web-1 eu", "DB", "eu web", "-", "Web", "2 true", ""}
	momentValues  = []time.Time{date(14, 0, 0, 0, 0), date(14, 23, 59, 59, 999), date(15, 0, 0, 0, 0), date(15, 10, 0, 0, 0), now, now.Add(time.Millisecond), now.Add(-3 * time.Minute), now.Add(-5 * time.Minute)}
	numberValues  = []float64{1, 2, 2.5}
	versionValues = append([]string{"no version", ""}, versionOrder...)
)

func documents() *rapid.Generator[document] {
	return rapid.Custom(func(t *rapid.T) document {
		d := document{}
		some := func(name string, most int, draw func() any) {
			for range rapid.IntRange(0, most).Draw(t, name+" has") {
				d[name] = append(d[name], draw())
			}
		}
		some("tags", 2, func() any { return rapid.SampledFrom(tagValues).Draw(t, "tag") })
		some("local_metadata.host.hostname", 2, func() any { return rapid.SampledFrom(hostValues).Draw(t, "host") })
		some("agent.version", 1, func() any { return rapid.SampledFrom(versionValues).Draw(t, "version") })
		some("active", 1, func() any { return rapid.Bool().Draw(t, "active") })
		some("policy_revision", 2, func() any { return rapid.SampledFrom(numberValues).Draw(t, "number") })
		some("last_checkin", 1, func() any { return rapid.SampledFrom(momentValues).Draw(t, "moment") })
		return d
	})
}

// conditions draws leaves without errors.
func conditions() *rapid.Generator[kql.Node] {
	text := func(s string) kql.Literal {
		switch s {
		case "true":
			return kql.Literal{Kind: kql.True, Text: s}
		case "false":
			return kql.Literal{Kind: kql.False, Text: s}
		}
		return kql.Literal{Text: s}
	}
	phrase := func(s string) kql.Literal { return kql.Literal{Kind: kql.Phrase, Text: s} }
	pattern := func(parts ...string) kql.Literal {
		return kql.Literal{Kind: kql.Pattern, Text: strings.Join(parts, "*"), Parts: parts}
	}
	anything := pattern("", "")
	dates := []string{"2026-03-14", "2026-03-15T10", "now", "now-1d/d", "now-3m"}
	op := rapid.SampledFrom([]kql.Op{kql.Less, kql.LessEqual, kql.More, kql.MoreEqual})
	return rapid.Custom(func(t *rapid.T) kql.Node {
		one := func(values ...string) string { return rapid.SampledFrom(values).Draw(t, "value") }
		written := func(s string) kql.Literal {
			if s != "" && rapid.Bool().Draw(t, "unquoted") {
				return text(s)
			}
			return phrase(s)
		}
		patterns := rapid.SampledFrom([]kql.Literal{
			anything, pattern("w", ""), pattern("", "b"), pattern("w", "b"), pattern("", "e", ""), pattern("W", ""), pattern("db w", ""), pattern("", " x"), pattern("web-", ""), pattern("w*", ""), pattern("o", "", "ine"), pattern("-", "9"),
		})
		word := func() kql.Literal {
			if rapid.Bool().Draw(t, "pattern") {
				return patterns.Draw(t, "literal")
			}
			return written(one(slices.Concat(tagValues, hostValues)...))
		}
		field := text(one("tags", "local_metadata.host.hostname", "agent.version", "active", "policy_revision", "last_checkin", "status", ""))
		order := rapid.IntRange(0, 2).Draw(t, "order") == 0
		var value kql.Literal
		switch field.Text {
		case "":
			value = word()
			if rapid.Bool().Draw(t, "any field") {
				return kql.Is{Field: &anything, Value: value}
			}
			return kql.Is{Value: value}
		case "tags":
			if order {
				return kql.Range{Field: field, Op: op.Draw(t, "op"), Value: written(one("a", "web", "w*b", "z"))}
			}
			value = word()
		case "local_metadata.host.hostname":
			value = word()
		case "agent.version":
			if order {
				return kql.Range{Field: field, Op: op.Draw(t, "op"), Value: written(one(versionOrder...))}
			}
			value = written(one(versionValues...))
		case "active":
			value = written(one("true", "false"))
		case "policy_revision":
			value = written(one("1", "2", "2.5", "3"))
			if order {
				return kql.Range{Field: field, Op: op.Draw(t, "op"), Value: value}
			}
		case "last_checkin":
			value = written(one(dates...))
			if order {
				return kql.Range{Field: field, Op: op.Draw(t, "op"), Value: value}
			}
		case "status":
			value = written(one("online", "offline", "unenrolled"))
			if rapid.Bool().Draw(t, "pattern") {
				value = pattern("o", "", "ine")
			}
		}
		if rapid.IntRange(0, 5).Draw(t, "exists") == 0 {
			value = anything
		}
		return kql.Is{Field: &field, Value: value}
	})
}

func conditionTrees(depth int) *rapid.Generator[kql.Node] {
	if depth == 0 {
		return conditions()
	}
	inner := conditionTrees(depth - 1)
	return rapid.OneOf(conditions(),
		rapid.Map(rapid.SliceOfN(inner, 2, 3), func(n []kql.Node) kql.Node { return kql.And(n) }),
		rapid.Map(rapid.SliceOfN(inner, 2, 3), func(n []kql.Node) kql.Node { return kql.Or(n) }),
		rapid.Map(inner, func(n kql.Node) kql.Node { return kql.Not{Node: n} }))
}

func TestMatchAgreesWithOracle(t *testing.T) {
	matched, missed := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		tree := conditionTrees(2).Draw(t, "tree")
		f, err := kql.Compile(tree.String(), schema, now)
		if err != nil {
			t.Fatalf("%s: %v", tree, err)
		}
		for _, d := range rapid.SliceOfN(documents(), 1, 8).Draw(t, "documents") {
			want := oracle{d}.says(tree)
			if got := kql.Match(f, d.doc); got != want {
				t.Fatalf("%s of %v: match = %v, want %v\n%s", tree, d, got, want, showFilter(f))
			}
			if want {
				matched++
			} else {
				missed++
			}
		}
	})
	if matched == 0 || missed == 0 {
		t.Errorf("%d documents matched and %d did not: the test shows nothing", matched, missed)
	}
}
