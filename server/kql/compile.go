package kql

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

const (
	// MaxComparisons bounds a filter, because stores look up each comparison. It has room
	// for a list of some hundred ids, and is below every limit of Elasticsearch.
	MaxComparisons = 1000
	// patternCost is how many comparisons one with a wildcard counts for: no index helps, and
	// the embedded store matches it in Go.
	patternCost = 5
)

// Compile resolves a query against a schema. now is the time that dates such as now-1h
// refer to. Errors are *Error.
func Compile(query string, s *Schema, now time.Time) (Filter, error) {
	n, err := Parse(query)
	if err != nil {
		return nil, err
	}
	c := compiler{query: query, schema: s, now: now, left: MaxComparisons}
	f, err := c.node(n)
	if err != nil {
		return nil, err
	}
	return Simplify(f), nil
}

type compiler struct {
	query  string
	schema *Schema
	now    time.Time
	left   int // comparisons left of MaxComparisons
}

func (c *compiler) fail(l *Literal, format string, args ...any) error {
	return errorAt(c.query, l.Pos, format, args...)
}

func (c *compiler) node(n Node) (Filter, error) {
	switch n := n.(type) {
	case And:
		parts, err := c.nodes(n)
		return AllOf(parts), err
	case Or:
		parts, err := c.nodes(n)
		return AnyOf(parts), err
	case Not:
		f, err := c.node(n.Node)
		return NotOf{f}, err
	case Is:
		return c.is(n)
	case Range:
		return c.inRange(n)
	case Nested:
		return nil, c.fail(&n.Field, "nothing in %s is nested, so it is asked for without braces: write %s",
			quote(n.Field.Text), cut(within(n.Field, n.Query).String(), 200))
	}
	return Everything{}, nil
}

func (c *compiler) nodes(nodes []Node) ([]Filter, error) {
	out := make([]Filter, len(nodes))
	for i, n := range nodes {
		var err error
		if out[i], err = c.node(n); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// within returns a nested query with the field's name prefixed to each of its fields.
func within(field Literal, n Node) Node {
	prefixed := func(l Literal) Literal {
		l.Text = field.Text + "." + l.Text
		if l.Kind == Pattern {
			l.Parts = slices.Clone(l.Parts)
			l.Parts[0] = field.Text + "." + l.Parts[0]
		}
		return l
	}
	all := func(nodes []Node) []Node {
		out := make([]Node, len(nodes))
		for i := range nodes {
			out[i] = within(field, nodes[i])
		}
		return out
	}
	switch n := n.(type) {
	case And:
		return And(all(n))
	case Or:
		return Or(all(n))
	case Not:
		return Not{within(field, n.Node)}
	case Is:
		if n.Field != nil {
			l := prefixed(*n.Field)
			return Is{&l, n.Value}
		}
		return Is{&field, n.Value}
	case Range:
		n.Field = prefixed(n.Field)
		return n
	case Nested:
		return within(prefixed(n.Field), n.Query)
	}
	return n
}

// condition returns the filter for one field.
type condition func(f *Field) (Filter, error)

func (c *compiler) is(n Is) (Filter, error) {
	is := func(f *Field) (Filter, error) {
		filter, err := c.has(f, n.Value)
		return decided(f, filter), err
	}
	if n.Field != nil && !n.Field.stars() {
		return c.of(n.Field, &n.Value, is)
	}
	if n.Value.stars() {
		return Everything{}, nil
	}
	if err := c.equals(&n.Value); err != nil {
		return nil, err
	}
	// Not the constant fields: nobody who types a word asks for what all documents have.
	fields := slices.DeleteFunc(slices.Clone(c.schema.Fields), func(f *Field) bool { return f.Constant })
	return c.any(&n.Value, fields, is)
}

// equation matches a comparison in the syntax of other languages.
var equation = regexp.MustCompile(`^([\w.]+)\s*(!?=)=?\s*(\S.*)$`)

// equals rejects a known field followed by "=" and a value. The grammar of KQL makes
// that a text to search for, which would match nothing.
func (c *compiler) equals(l *Literal) error {
	m := equation.FindStringSubmatch(l.Text)
	if l.Kind == Phrase || m == nil || c.schema.Field(m[1]) == nil {
		return nil
	}
	not := ""
	if m[2] == "!=" {
		not = "not "
	}
	return c.fail(l, `"=" compares nothing here: write %s%s: %s, or put it in quotes if it is a text that you look for`, not, m[1], m[3])
}

func (c *compiler) inRange(n Range) (Filter, error) {
	return c.of(&n.Field, &n.Value, func(f *Field) (Filter, error) {
		filter, err := c.compares(f, n.Op, n.Value)
		return decided(f, filter), err
	})
}

// decided returns a filter on f without f if f is constant: all documents match, or none.
func decided(f *Field, filter Filter) Filter {
	if !f.Constant || filter == nil {
		return filter
	}
	values := make([]any, len(f.Values))
	for i, v := range f.Values {
		values[i] = v
	}
	if Match(filter, func(*Field) []any { return values }) {
		return Everything{}
	}
	return Nothing{}
}

// of applies a condition on value to the field that a literal names. A name with wildcards
// means all fields that match it and can have the value.
func (c *compiler) of(name, value *Literal, holds condition) (Filter, error) {
	if name.Kind != Pattern {
		f := c.schema.Field(name.Text)
		if f == nil {
			return nil, c.unknownField(name)
		}
		filter, err := holds(f)
		if err != nil {
			return nil, err
		}
		return c.spend(value, filter)
	}
	pattern := Wildcard(slices.Clone(name.Parts))
	pattern[0] = c.schema.bare(pattern[0])
	matching := slices.Clone(c.schema.Fields)
	matching = slices.DeleteFunc(matching, func(f *Field) bool { return !pattern.Match(f.Name) })
	if len(matching) == 0 {
		return nil, c.fail(name, "no field's name fits %s", quote(name.Text))
	}
	return c.any(value, matching, holds)
}

// any applies a condition to several fields, and skips those that cannot have the
// value.
func (c *compiler) any(at *Literal, fields []*Field, holds condition) (Filter, error) {
	var out AnyOf
	for _, f := range fields {
		filter, err := holds(f)
		if err != nil {
			continue // the field cannot have the value, such as a word in a number field
		}
		if filter, err = c.spend(at, filter); err != nil {
			return nil, err
		}
		out = append(out, filter)
	}
	return out, nil
}

// spend simplifies a filter and counts its comparisons.
func (c *compiler) spend(at *Literal, f Filter) (Filter, error) {
	f = Simplify(f)
	if c.left -= comparisons(f); c.left < 0 {
		return nil, c.fail(at, "the query makes more than %d comparisons, counted to here, where one with a wildcard counts for %d: name fields, or ask in several steps", MaxComparisons, patternCost)
	}
	return f, nil
}

// has compiles field : value.
func (c *compiler) has(f *Field, v Literal) (Filter, error) {
	switch {
	case f.Of != nil && f.Prefix != "":
		return prefixed(f, v), nil
	case f.Of != nil:
		return c.has(f.Of, v)
	}
	if f.Type == TypeDerived {
		return c.derived(f, v)
	}
	if v.stars() {
		return Exists{f}, nil
	}
	switch f.Type {
	case TypeKeyword, TypeVersion:
		if v.Kind != Pattern {
			return keyword(f, v.Text), nil
		}
		var out AnyOf
		for _, word := range patternWords(v) {
			if len(word) == 1 {
				out = append(out, keyword(f, word[0]))
			} else {
				out = append(out, like(f, word))
			}
		}
		return out, nil
	case TypeText:
		return text(f, v), nil
	}
	if v.Kind == Pattern {
		return nil, c.fail(&v, `%s is %s and takes no wildcard but "*" alone, which asks whether there is a value`, quote(f.Name), f.Type)
	}
	switch f.Type {
	case TypeDate:
		s, err := c.date(f, v)
		if err != nil {
			return nil, err
		}
		return AllOf{Compare{f, MoreEqual, s.start}, Compare{f, Less, s.end}}, nil
	case TypeBool:
		switch v.Text {
		case "true":
			return Equals{f, true}, nil
		case "false":
			return Equals{f, false}, nil
		}
		return nil, c.fail(&v, "%s is true or false, and %s is neither", quote(f.Name), quote(v.Text))
	default:
		n, err := c.number(f, v)
		return Equals{f, n}, err
	}
}

// keyword compares a whole string. An empty string counts as no value.
func keyword(f *Field, value string) Filter {
	if value == "" {
		return Nothing{}
	}
	return Equals{f, value}
}

func like(f *Field, pattern Wildcard) Filter {
	if len(pattern) == 2 && pattern[0] == "" && pattern[1] == "" {
		return Exists{f}
	}
	return Like{f, pattern}
}

func text(f *Field, v Literal) Filter {
	if v.Kind != Pattern {
		words := Words(v.Text)
		switch {
		case len(words) == 0:
			return Nothing{}
		case v.Kind == Phrase:
			return HasPhrase{f, words}
		}
		return HasWord{f, words}
	}
	var out AnyOf
	var plain []string
	for _, word := range patternWords(v) {
		if len(word) == 1 {
			plain = append(plain, Words(word[0])...)
		} else {
			out = append(out, like(f, word.lower()))
		}
	}
	if len(plain) > 0 {
		out = append(out, HasWord{f, plain})
	}
	return out
}

// patternWords splits a pattern at blanks, as Elasticsearch does. A result of one part
// has no wildcard.
func patternWords(v Literal) []Wildcard {
	var out []Wildcard
	word := Wildcard{""}
	end := func() {
		if len(word) > 1 || word[0] != "" {
			out = append(out, word)
		}
		word = Wildcard{""}
	}
	for i, part := range v.Parts {
		// Adjacent wildcards count as one.
		if last := len(word) - 1; i > 0 && (last == 0 || word[last] != "") {
			word = append(word, "")
		}
		for {
			i := strings.IndexFunc(part, isWordEnd)
			if i < 0 {
				break
			}
			word[len(word)-1] += part[:i]
			end()
			_, size := utf8.DecodeRuneInString(part[i:])
			part = part[i+size:]
		}
		word[len(word)-1] += part
	}
	end()
	return out
}

func isWordEnd(r rune) bool {
	return r == ' ' || r == '\t' || r == '\r' || r == '\n' || r == '\u3000'
}

// prefixed compiles field : value of a short name of values with a prefix.
func prefixed(f *Field, v Literal) Filter {
	if v.Kind != Pattern {
		if v.Text == "" {
			return Nothing{}
		}
		return keyword(f.Of, f.Prefix+v.Text)
	}
	var out AnyOf
	for _, word := range patternWords(v) {
		word[0] = f.Prefix + word[0]
		if len(word) == 1 {
			out = append(out, keyword(f.Of, word[0]))
		} else {
			out = append(out, like(f.Of, word))
		}
	}
	return out
}

// derived asks a field to express some of its values in terms of other fields.
func (c *compiler) derived(f *Field, v Literal) (Filter, error) {
	var fits func(value string) bool
	if v.Kind == Pattern {
		words := patternWords(v)
		fits = func(value string) bool {
			return slices.ContainsFunc(words, func(word Wildcard) bool { return word.Match(value) })
		}
	} else {
		if !slices.Contains(f.Values, v.Text) {
			return nil, c.fail(&v, "%s is never %s: it is one of %s", quote(f.Name), quote(v.Text), strings.Join(f.Values, ", "))
		}
		fits = func(value string) bool { return value == v.Text }
	}
	some := slices.ContainsFunc(f.Values, fits)
	all := !slices.ContainsFunc(f.Values, func(value string) bool { return !fits(value) })
	switch {
	case all && !f.Optional:
		return Everything{}, nil
	case !some:
		return Nothing{}, nil
	}
	return f.Derive(fits, c.now), nil
}

// compares compiles field op value.
func (c *compiler) compares(f *Field, op Op, v Literal) (Filter, error) {
	switch {
	case f.Of != nil && f.Prefix == "":
		return c.compares(f.Of, op, v)
	case f.Of != nil:
		return nil, c.fail(&v, "%s has no order: ask for it with %q", quote(f.Name), ":")
	case f.Type == TypeText || f.Type == TypeBool || f.Type == TypeDerived:
		return nil, c.fail(&v, "%s is %s and has no order: ask for it with %q", quote(f.Name), f.Type, ":")
	case v.Kind == Pattern:
		return nil, c.fail(&v, `%s compares with one value, and %s has a wildcard: put it in quotes if "*" is meant`, op, quote(v.Text))
	}
	switch f.Type {
	case TypeDate:
		s, err := c.date(f, v)
		if err != nil {
			return nil, err
		}
		op, at := s.within(op)
		return Compare{f, op, at}, nil
	case TypeVersion:
		key := ""
		for _, missing := range []string{"", ".0", ".0.0"} { // 8.15 is 8.15.0
			if key = f.Key(v.Text + missing); key != "" {
				break
			}
		}
		if key == "" {
			return nil, c.fail(&v, "%s is no version: write one such as 8.15.0", quote(v.Text))
		}
		return Compare{f, op, key}, nil
	case TypeKeyword:
		return Compare{f, op, v.Text}, nil
	default:
		n, err := c.number(f, v)
		return Compare{f, op, n}, err
	}
}

func (c *compiler) date(f *Field, v Literal) (span, error) {
	s, err := parseDate(v.Text, c.now)
	if err != nil {
		return s, c.fail(&v, "%s is a date, and %s is none: %v; %s", quote(f.Name), quote(v.Text), err, dateExamples)
	}
	return s, nil
}

func (c *compiler) number(f *Field, v Literal) (float64, error) {
	n, err := strconv.ParseFloat(v.Text, 64)
	if err != nil || math.IsInf(n, 0) || strings.Trim(v.Text, "0123456789+-.eE") != "" {
		return 0, c.fail(&v, "%s is a number, and %s is none", quote(f.Name), quote(v.Text))
	}
	return n, nil
}

// String returns the name of the type, with an article where it needs one.
func (t Type) String() string {
	switch t {
	case TypeKeyword:
		return "a keyword"
	case TypeText:
		return "a text"
	case TypeDate:
		return "a date"
	case TypeVersion:
		return "a version"
	case TypeBool:
		return "true or false"
	case TypeNumber:
		return "a number"
	case TypeDerived:
		return "one of a few values"
	}
	return fmt.Sprintf("Type(%d)", int(t))
}

// empty reports whether no document has a value, so that nobody looks for the field.
func (f *Field) empty() bool { return f.Constant && len(f.Values) == 0 }

// unknownField returns an error that names the most similar field.
func (c *compiler) unknownField(l *Literal) error {
	name := c.schema.bare(l.Text)
	if near := nearest(name, slices.Concat(c.schema.Fields, c.schema.Aliases)); near != "" {
		return c.fail(l, "there is no field %s: did you mean %s?", quote(l.Text), quote(near))
	}
	return c.fail(l, `there is no field %s: if it is a text that you look for, put it in quotes`, quote(l.Text))
}

// nearest returns the field whose name, or the end of it, is most similar to name;
// empty if none is similar.
func nearest(name string, fields []*Field) string {
	const longest = 100 // the cost is the product of the lengths
	if name == "" || len(name) > longest {
		return ""
	}
	name = lower(name)
	best, least := "", max(1, len(name)/3)+1
	for _, f := range fields {
		if f.empty() {
			continue
		}
		full := lower(f.Name)
		d := Distance(name, full)
		// Compare host.name with the end of local_metadata.host.name.
		if end := lastParts(full, strings.Count(name, ".")+1); end != full {
			d = min(d, Distance(name, end))
		}
		if d < least || d == least && best != "" && len(f.Name) < len(best) {
			best, least = f.Name, d
		}
	}
	return best
}

// lastParts returns the last n of the dot-separated parts of a name.
func lastParts(name string, n int) string {
	i := len(name)
	for ; n > 0 && i >= 0; n-- {
		i = strings.LastIndexByte(name[:i], '.')
	}
	return name[i+1:]
}

// Distance returns the Levenshtein distance of two names, in bytes, to suggest the one that was
// meant.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			changed := diagonal
			if a[i] != b[j] {
				changed++
			}
			diagonal = row[j+1]
			row[j+1] = min(changed, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
