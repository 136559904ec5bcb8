package kql_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/kql"
)

// literals returns a tree's literals in the order of the query.
func literals(n kql.Node) []kql.Literal {
	var out []kql.Literal
	switch n := n.(type) {
	case kql.And:
		for _, n := range n {
			out = append(out, literals(n)...)
		}
	case kql.Or:
		for _, n := range n {
			out = append(out, literals(n)...)
		}
	case kql.Not:
		return literals(n.Node)
	case kql.Is:
		if n.Field != nil {
			out = append(out, *n.Field)
		}
		out = append(out, n.Value)
	case kql.Range:
		out = append(out, n.Field, n.Value)
	case kql.Nested:
		out = append(append(out, n.Field), literals(n.Query)...)
	}
	return out
}

// unplaced returns a tree without positions.
func unplaced(n kql.Node) kql.Node {
	literal := func(l kql.Literal) kql.Literal {
		l.Pos, l.End = 0, 0
		return l
	}
	switch n := n.(type) {
	case kql.And:
		out := make(kql.And, len(n))
		for i := range n {
			out[i] = unplaced(n[i])
		}
		return out
	case kql.Or:
		out := make(kql.Or, len(n))
		for i := range n {
			out[i] = unplaced(n[i])
		}
		return out
	case kql.Not:
		return kql.Not{Node: unplaced(n.Node)}
	case kql.Is:
		if n.Field != nil {
			field := literal(*n.Field)
			n.Field = &field
		}
		return kql.Is{Field: n.Field, Value: literal(n.Value)}
	case kql.Range:
		return kql.Range{Field: literal(n.Field), Op: n.Op, Value: literal(n.Value)}
	case kql.Nested:
		return kql.Nested{Field: literal(n.Field), Query: unplaced(n.Query)}
	}
	return n
}

func TestLiteralPositions(t *testing.T) {
	for _, test := range []struct {
		query string
		want  []string
	}{
		{`foo`, []string{`foo`}},
		{`  foo bar  and "b c":  x* y `, []string{`foo bar`, `"b c"`, `x* y`}},
		{`tags : (ä or not "é")`, []string{`tags`, `ä`, `tags`, `"é"`}},
		{"size\u00a0>=\u00a012\u00a0", []string{`size`, `12`}},
		{`a:{ \(b : null }`, []string{`a`, `\(b`, `null`}},
	} {
		n, err := kql.Parse(test.query)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, l := range literals(n) {
			got = append(got, test.query[l.Pos:l.End])
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("literals of %s: %q, want %q", test.query, got, test.want)
		}
	}
}

func TestQueryBounds(t *testing.T) {
	// A pasted list of ids: some hundred are accepted, thousands are not.
	ids := func(n int) string {
		list := make([]string, n)
		for i := range list {
			list[i] = fmt.Sprintf("id-%04d", i)
		}
		return "tags: (" + strings.Join(list, " or ") + ")"
	}
	for _, test := range []struct {
		what, query string
		wrong       string // "" for none
		pos         int
	}{
		{"a list of ids", ids(800), "", 0},
		{"a query of the largest size", strings.Repeat("a", kql.MaxBytes), "", 0},
		{"a query that is larger", strings.Repeat("a", kql.MaxBytes+1), "10001 bytes, and 10000 are allowed", kql.MaxBytes},
		{"blanks", "a" + strings.Repeat(" ", kql.MaxBytes-2) + "b", "", 0},
		{"parentheses", strings.Repeat("(", 100) + "a" + strings.Repeat(")", 100), "", 0},
		{"deep parentheses", strings.Repeat("(", 101) + "a" + strings.Repeat(")", 101), "101 deep here, and 100 are allowed", 100},
		{"deep lists", "tags:" + strings.Repeat("(", 3000), "101 deep", 105},
		{"deep nested queries", strings.Repeat("a:{", 3000), "101 deep", 302},
		{"many patterns", "tags: (" + strings.Repeat("*a*1*b or ", 699) + "*a*1*b)", "more than 1000 comparisons, counted to here, where one with a wildcard counts for 5", len("tags: (") + 200*len("*a*1*b or ")},
		{"many wildcards", "tags: x or tags: " + strings.Repeat("*a", 17), "this has 17 wildcards, and 16 are allowed", len("tags: x or tags: ")},
		{"as many as there may be", "tags: " + strings.Repeat("*a", 16), "", 0},
		{"a long pattern", "tags: *" + strings.Repeat("a", 500), "this has a wildcard and 501 bytes, and 500 are allowed", len("tags: ")},
		{"a wildcard in a long field", strings.Repeat("a", 500) + "*: x", "501 bytes", 0},
		{"many comparisons", strings.Repeat("a or ", 300) + "a", "more than 1000 comparisons", 0},
		{"many comparisons with one field", "tags: (" + strings.Repeat("a or ", 1000) + "a)", "more than 1000 comparisons", 0},
		{"many words", "local_metadata.host.hostname: " + strings.Repeat("a ", 1001), "more than 1000 comparisons", 0},
	} {
		_, err := kql.Compile(test.query, schema, now)
		if test.wrong == "" {
			if err != nil {
				t.Errorf("%s: %v", test.what, err)
			}
			continue
		}
		var e *kql.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, test.wrong) {
			t.Errorf("%s: error %v, want one that says %q", test.what, err, test.wrong)
		} else if test.pos != 0 && e.Pos != test.pos {
			t.Errorf("%s: the error is at %d, want %d", test.what, e.Pos, test.pos)
		}
	}
}

func TestMatchExamples(t *testing.T) {
	web := document{
		"tags": {"web", "eu west"}, "local_metadata.host.hostname": {"Web-01.example.com"}, "agent.version": {"8.10.0-SNAPSHOT"},
		"active": {true}, "policy_revision": {3.0}, "last_checkin": {now.Add(-time.Minute)}, "policy_id": {""},
	}
	for query, want := range map[string]bool{
		"":                                       true,
		"tags: web":                              true,
		"tags: Web":                              false,
		"tags: eu":                               false,
		`tags: "eu west"`:                        true,
		"tags: eu*":                              true,
		"tags: *st":                              true,
		"tags: e*w*t":                            true,
		"tags: eu west*":                         false, // eu, or a tag that begins with west
		"tags: (web and eu*)":                    true,
		"tags: (web and not eu*)":                false,
		"tags > v and tags < x":                  true,
		"policy_id: *":                           false, // an empty string is no value
		"policy_id < z":                          false,
		"not policy_id: p1":                      true,
		"local_metadata.host.hostname: WEB":      true,
		"local_metadata.host.hostname: web-02":   true, // any word
		`local_metadata.host.hostname: "web-02"`: false,
		`local_metadata.host.hostname: "web-01"`: true,
		`local_metadata.host.hostname: "web-01.example"`: false, // example.com is one word
		"local_metadata.host.hostname: ex*":              true,
		"local_metadata.host.hostname: web-*":            false, // matches no single word
		"agent.version < 8.10.0":                         true,
		"agent.version > 8.9.3":                          true, // false if compared as strings
		"agent.version: 8.10.0":                          false,
		"agent.version: 8.10.*":                          true,
		"active: true":                                   true,
		"not active: false":                              true,
		"policy_revision: 3":                             true,
		"policy_revision >= 4":                           false,
		"last_checkin > now-5m":                          true,
		"last_checkin: 2026-03-15":                       true,
		"last_checkin < now-1m":                          false,
		"last_checkin <= now-1m":                         true,
		"upgrade_details.state: *":                       false,
		"not upgrade_details.state: *":                   true,
		"status: online":                                 true,
		"status: o*ine and not status: offline":          true,
		"online":                                         true,
		"offline":                                        false,
		"west*":                                          false,
		`"example.com"`:                                  true,
	} {
		f, err := kql.Compile(query, schema, now)
		if err != nil {
			t.Errorf("%s: %v", query, err)
		} else if got := kql.Match(f, web.doc); got != want {
			t.Errorf("%s: match = %v, want %v (%s)", query, got, want, showFilter(f))
		}
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                      nil,
		" -_- ":                 nil,
		"web-1":                 {"web", "1"},
		"Web_01":                {"web_01"},
		"agent 8.15.0-SNAPSHOT": {"agent", "8.15.0", "snapshot"},
		"a.b a,b 1,5 a:b":       {"a.b", "a", "b", "1,5", "a:b"},
		"web1.example.com":      {"web1", "example.com"},
		"it's O’Neill's":        {"it's", "o’neill's"},
		"10.0.0.1 fe80::1":      {"10.0.0.1", "fe80", "1"},
		"ÄRGER Straße İ":        {"ärger", "straße", "i"},
		"東京 ひら カタカナ":            {"東", "京", "ひ", "ら", "カタカナ"},
		"e\u0301tude":           {"e\u0301tude"},
		"Ⅷ ⓐ ½ ०१":              {"ⅷ", "ⓐ", "०१"},
		"C:\\Windows\\x":        {"c", "windows", "x"},
		"bad \xff\xfe utf8":     {"bad", "utf8"},
		"user@example.com":      {"user", "example.com"},
		"🦊a 1🦊🦊 ★_🦊":            {"🦊", "a", "1", "🦊", "🦊", "★", "🦊"},
		"👍🏽 👩🏽\u200d🚀x ☎\ufe0e❤\ufe0f":           {"👍🏽", "👩🏽\u200d🚀", "x", "☎", "❤\ufe0f"},
		"a\u200d🦊 🇩🇪🇫🇷🇩 1\ufe0f⃣ #⃣*\ufe0f⃣ # *": {"a\u200d", "🦊", "🇩🇪", "🇫🇷", "1\ufe0f⃣", "#⃣", "*\ufe0f⃣"},
		strings.Repeat("é", 255) + ",":           {strings.Repeat("é", 255)},
		// Longer words are split where a word could end.
		strings.Repeat("ä", 300):                            {strings.Repeat("ä", 255), strings.Repeat("ä", 45)},
		strings.Repeat("𝐀", 200):                            {strings.Repeat("𝐀", 127), strings.Repeat("𝐀", 73)},
		strings.Repeat("a", 250) + strings.Repeat(".b", 10): {strings.Repeat("a", 250) + ".b.b", "b.b.b.b.b.b.b.b"},
	} {
		if got := kql.Words(text); !slices.Equal(got, want) {
			t.Errorf("words of %q: %q, want %q", text, got, want)
		}
	}
}

func TestWildcards(t *testing.T) {
	for _, test := range []struct {
		pattern   kql.Wildcard
		fits, not []string
	}{
		{kql.Wildcard{"a", ""}, []string{"a", "ab"}, []string{"", "ba"}},
		{kql.Wildcard{"", "a"}, []string{"a", "ba"}, []string{"", "ab"}},
		{kql.Wildcard{"ab", "ba"}, []string{"abba", "ab-ba"}, []string{"aba", "ab", "abbab"}},
		{kql.Wildcard{"", "b", ""}, []string{"b", "abc"}, []string{"", "ac"}},
		{kql.Wildcard{"a", "b", "b"}, []string{"abb", "a-b-b"}, []string{"ab", "abba"}},
		{kql.Wildcard{"*", "?"}, []string{"*?", "*x?"}, []string{"xx", "x?"}},
	} {
		for _, text := range test.fits {
			if !test.pattern.Match(text) {
				t.Errorf("%q does not fit %q", test.pattern, text)
			}
		}
		for _, text := range test.not {
			if test.pattern.Match(text) {
				t.Errorf("%q fits %q", test.pattern, text)
			}
		}
	}
}

// Simplified filters have a shape that stores rely on.
func TestSimplifyPreservesMeaning(t *testing.T) {
	field := schema.Field("tags")
	leaf := rapid.SampledFrom([]kql.Filter{
		kql.Everything{},
		kql.Nothing{},
		kql.AllOf{},
		kql.AnyOf{},
		kql.Equals{Field: field, Value: "a"},
		kql.Equals{Field: field, Value: "b"},
		kql.Equals{Field: field, Value: "c"},
		kql.Exists{Field: field},
	})
	var filters func(depth int) *rapid.Generator[kql.Filter]
	filters = func(depth int) *rapid.Generator[kql.Filter] {
		if depth == 0 {
			return leaf
		}
		inner := filters(depth - 1)
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(f []kql.Filter) kql.Filter { return kql.AllOf(f) }),
			rapid.Map(rapid.SliceOfN(inner, 0, 4), func(f []kql.Filter) kql.Filter { return kql.AnyOf(f) }),
			rapid.Map(inner, func(f kql.Filter) kql.Filter { return kql.NotOf{Filter: f} }))
	}
	rapid.Check(t, func(t *rapid.T) {
		f := filters(4).Draw(t, "filter")
		simple := kql.Simplify(f)
		checkSimple(t, simple, true)
		for _, values := range [][]any{nil, {"a"}, {"b"}, {"c"}, {"a", "b"}, {"a", "b", "c"}, {"d"}} {
			d := document{"tags": values}
			if got, want := kql.Match(simple, d.doc), kql.Match(f, d.doc); got != want {
				t.Fatalf("of tags %v %s is %v, and simplified %s is %v", values, showFilter(f), want, showFilter(simple), got)
			}
		}
	})
}

func checkSimple(t *rapid.T, f kql.Filter, top bool) {
	parts := func(parts []kql.Filter) {
		if len(parts) < 2 {
			t.Fatalf("%s has less than two parts", showFilter(f))
		}
		for _, part := range parts {
			if reflect.TypeOf(part) == reflect.TypeOf(f) {
				t.Fatalf("%s holds one of its kind", showFilter(f))
			}
			checkSimple(t, part, false)
		}
	}
	switch f := f.(type) {
	case kql.Everything, kql.Nothing:
		if !top {
			t.Fatalf("%s is a part", showFilter(f))
		}
	case kql.AllOf:
		parts(f)
	case kql.AnyOf:
		parts(f)
	case kql.NotOf:
		if _, twice := f.Filter.(kql.NotOf); twice {
			t.Fatalf("%s negates a negation", showFilter(f))
		}
		checkSimple(t, f.Filter, false)
	}
}

// pieces are fragments of queries, with all characters that are special in them.
var pieces = []string{
	"foo", "tags", "status", "active", "last_checkin", "agent.version", "online", "8.1.0", "now-1d/d", "||", " ", "  ", "\u00a0", "\t", "and", " and ", "or", " or ", "not", "not ",
	" not ", "(", ")", ":", "{", "}", "*", `"`, `\`, `\"`, "<", "<=", ">", ">=", "true", "false", "null", `\u006e`, `\ud83d`, `\t`, `\not`, `\or`, "é", "日", "-", "_", "=", "/", "+", "\x00", "\xff",
}

// queries draws queries, which are mostly malformed.
func queries() *rapid.Generator[string] {
	return rapid.Map(rapid.SliceOfN(rapid.SampledFrom(pieces), 0, 12), func(p []string) string { return strings.Join(p, "") })
}

func TestParseArbitraryText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		query := queries().Draw(t, "query")
		checkQuery(t, query)
		for cursor := -1; cursor <= len(query)+1; cursor++ {
			checkSuggestion(t, query, cursor)
		}
	})
}

// FuzzParse is TestParseArbitraryText with the fuzzer's texts.
func FuzzParse(f *testing.F) {
	for _, query := range []string{
		"", " foo bar ", "a and b or not c", `tags: (a or "b c") and not status:o*`, "a:{b:c}", `last_checkin >= "2026-01-31T10:00:00+01:00"`,
		"last_checkin > 2026-01-31||+1M/d", `\u00e4\(\not \and x`, `agent.version<8.15`, "not not x", "a:(", `"\u0041\`, "\u00a0\u2003x", "*:* and ** or f*:*x",
	} {
		f.Add(query, len(query))
	}
	f.Fuzz(func(t *testing.T, query string, cursor int) {
		checkQuery(t, query)
		checkSuggestion(t, query, cursor)
	})
}

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkQuery checks the properties of any text as a query.
func checkQuery(t failer, query string) {
	t.Helper()
	n, err := kql.Parse(query)
	checkError(t, query, err)
	if _, err := kql.Compile(query, schema, now); n == nil || err != nil {
		checkError(t, query, err)
	}
	if err != nil {
		return
	}
	printed := n.String()
	if len(printed) <= kql.MaxBytes { // escapes lengthen the query
		again, err := kql.Parse(printed)
		if err != nil || !reflect.DeepEqual(unplaced(again), unplaced(n)) {
			t.Fatalf("%q is %s, printed %q, which is %v (%v)", query, showNode(n), printed, again, err)
		}
	}
	for _, l := range literals(n) {
		raw := query[l.Pos:l.End]
		alone, err := kql.Parse(raw)
		if l.Text == "" && l.Kind == kql.Text && strings.TrimSpace(raw) == "" {
			continue // a literal of blanks
		}
		if is, ok := alone.(kql.Is); err != nil || !ok || is.Field != nil || is.Value.Kind != l.Kind || is.Value.Text != l.Text {
			t.Fatalf("%q has the literal %s at %d to %d, where %q stands (%v)", query, showLiteral(l), l.Pos, l.End, raw, err)
		}
	}
}

// checkError checks the properties of any error.
func checkError(t failer, query string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	var e *kql.Error
	if !errors.As(err, &e) || e.Query != query || e.Pos < 0 || e.Pos > len(query) || e.Message == "" {
		t.Fatalf("the error of %q is %#v", query, err)
	}
	lines := strings.Split(err.Error(), "\n")
	if n := len(lines); n < 3 || utf8.RuneCountInString(lines[n-2]) > 80 || utf8.RuneCountInString(lines[n-1]) > 81 || strings.Trim(lines[n-1], " ") != "^" {
		t.Fatalf("the error of %q is not a query and a caret:\n%s", query, err)
	}
}

// checkSuggestion applies every suggestion.
func checkSuggestion(t failer, query string, cursor int) {
	t.Helper()
	s := kql.Suggest(query, cursor, schema)
	for _, c := range s.Completions {
		if c.From < 0 || c.To < c.From || c.To > len(query) || c.Text == "" {
			t.Fatalf("Suggest(%q, %d): %+v", query, cursor, c)
		}
		if valid := utf8.ValidString(query); valid && !utf8.ValidString(query[:c.From]+query[c.To:]) {
			t.Fatalf("Suggest(%q, %d) cuts a character: %+v", query, cursor, c)
		}
	}
	if v := s.Values; v != nil && (v.Field == nil || v.From < 0 || v.To < v.From || v.To > len(query)) {
		t.Fatalf("Suggest(%q, %d): %+v", query, cursor, *v)
	}
}

// Parsing the result of Quote yields a phrase of the same text.
func TestQuoteRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringOf(rapid.RuneFrom([]rune("a\\\"\n\t\r ué*:(日"))).Draw(t, "text")
		n, err := kql.Parse("tags: " + kql.Quote(text))
		if is, ok := n.(kql.Is); err != nil || !ok || is.Value.Kind != kql.Phrase || is.Value.Text != text {
			t.Fatalf("%q becomes %q: %v (%v)", text, kql.Quote(text), n, err)
		}
	})
}

// nodes draws trees that Parse can return.
func nodes(depth int, literal *rapid.Generator[kql.Literal]) *rapid.Generator[kql.Node] {
	op := rapid.SampledFrom([]kql.Op{kql.Less, kql.LessEqual, kql.More, kql.MoreEqual})
	leaf := rapid.Custom(func(t *rapid.T) kql.Node {
		field, value := literal.Draw(t, "field"), literal.Draw(t, "value")
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return kql.Is{Value: value}
		case 1:
			return kql.Range{Field: field, Op: op.Draw(t, "op"), Value: value}
		}
		return kql.Is{Field: &field, Value: value}
	})
	if depth == 0 {
		return leaf
	}
	inner := nodes(depth-1, literal)
	return rapid.OneOf(leaf,
		rapid.Map(rapid.SliceOfN(inner, 2, 4), func(n []kql.Node) kql.Node { return kql.And(n) }),
		rapid.Map(rapid.SliceOfN(inner, 2, 4), func(n []kql.Node) kql.Node { return kql.Or(n) }),
		rapid.Map(inner, func(n kql.Node) kql.Node { return kql.Not{Node: n} }),
		rapid.Custom(func(t *rapid.T) kql.Node {
			return kql.Nested{Field: literal.Draw(t, "field"), Query: inner.Draw(t, "query")}
		}))
}

func TestPrintedTreeParsesToItself(t *testing.T) {
	piece := rapid.SampledFrom([]string{"a", "B", "not", "NOT", " or", "And", " and ", " OR ", "not ", " ", "\u00a0", "\t", "\n", "*", "(", ")", ":", "{", "}", "<", ">", `"`, `\`, "u0041", "n", "é", "日", "true", "null"})
	text := rapid.Map(rapid.SliceOfN(piece, 0, 6), func(p []string) string { return strings.Join(p, "") })
	literal := rapid.Custom(func(t *rapid.T) kql.Literal {
		switch kind := rapid.SampledFrom([]kql.LiteralKind{kql.Text, kql.Phrase, kql.Pattern, kql.True, kql.False, kql.Null}).Draw(t, "kind"); kind {
		case kql.True:
			return kql.Literal{Kind: kind, Text: "true"}
		case kql.False:
			return kql.Literal{Kind: kind, Text: "false"}
		case kql.Null:
			return kql.Literal{Kind: kind, Text: "null"}
		case kql.Phrase:
			return kql.Literal{Kind: kind, Text: text.Draw(t, "text")}
		case kql.Pattern:
			parts := rapid.SliceOfN(text, 2, 4).Draw(t, "parts")
			parts[0] = strings.TrimLeft(parts[0], " \t\n\u00a0")
			parts[len(parts)-1] = strings.TrimRight(parts[len(parts)-1], " \t\n\u00a0")
			return kql.Literal{Kind: kind, Text: strings.Join(parts, "*"), Parts: parts}
		}
		s := strings.TrimSpace(text.Draw(t, "text"))
		if s == "true" || s == "null" {
			s = "x" + s
		}
		return kql.Literal{Text: s}
	})
	rapid.Check(t, func(t *rapid.T) {
		n := nodes(3, literal).Draw(t, "tree")
		if len(n.String()) > kql.MaxBytes {
			return
		}
		again, err := kql.Parse(n.String())
		if err != nil || !reflect.DeepEqual(unplaced(again), n) {
			t.Fatalf("%s is printed %q, which is %v (%v)", showNode(n), n, again, err)
		}
	})
}
