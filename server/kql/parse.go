package kql

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// MaxBytes bounds a query. It has room for the ids of some hundred agents, and for
	// many times what a person types.
	MaxBytes = 10_000
	// MaxDepth bounds nested parentheses and braces, and thereby the recursion over the
	// tree.
	MaxDepth = 100
	// MaxWildcards bounds the wildcards of one literal: each is another search of every value.
	// Names of hosts and versions have some parts.
	MaxWildcards = 16
	// MaxPattern bounds a literal with wildcards, in bytes: no value that is searched so is
	// longer, but for lines of messages.
	MaxPattern = 500
)

// special characters end an unquoted literal unless escaped by a backslash.
const special = `\():<>"*{}`

// Parse parses a query, in time proportional to its length. Errors are *Error.
func Parse(query string) (Node, error) {
	p := parser{query: query}
	if err := p.checkText(); err != nil {
		return nil, err
	}
	p.spaces()
	if p.atEnd() {
		return All{}, nil
	}
	n, err := p.list(p.condition)
	if err != nil {
		return nil, err
	}
	p.spaces()
	if !p.atEnd() {
		return nil, p.notJoined()
	}
	return n, nil
}

type parser struct {
	query string
	pos   int
	// open are the positions of the parentheses and braces around pos.
	open []int
}

func (p *parser) fail(pos int, format string, args ...any) error {
	return errorAt(p.query, pos, format, args...)
}

// checkText rejects text that no store can search for.
func (p *parser) checkText() error {
	if len(p.query) > MaxBytes {
		return p.fail(MaxBytes, "the query has %d bytes, and %d are allowed: ask in several steps", len(p.query), MaxBytes)
	}
	for i, r := range p.query {
		if r == utf8.RuneError && !strings.HasPrefix(p.query[i:], string(utf8.RuneError)) {
			return p.fail(i, "the query is not valid UTF-8 here")
		}
		if r == 0 {
			return p.fail(i, "no text holds the character 0")
		}
	}
	return nil
}

func (p *parser) atEnd() bool { return p.pos >= len(p.query) }

// at reports whether c is the next byte.
func (p *parser) at(c byte) bool { return p.pos < len(p.query) && p.query[p.pos] == c }

// spaceAt returns the length of the space character at i, 0 if there is none.
func (p *parser) spaceAt(i int) int {
	if i < len(p.query) {
		switch p.query[i] {
		case ' ', '\t', '\r', '\n':
			return 1
		case 0xC2:
			if i+1 < len(p.query) && p.query[i+1] == 0xA0 { // U+00A0
				return 2
			}
		}
	}
	return 0
}

// isSpace reports whether spaceAt treats r as a space.
func isSpace(r rune) bool { return r == ' ' || r == '\t' || r == '\r' || r == '\n' || r == '\u00a0' }

// skip returns the first position from i on that is not a space.
func (p *parser) skip(i int) int {
	for {
		n := p.spaceAt(i)
		if n == 0 {
			return i
		}
		i += n
	}
}

func (p *parser) spaces() { p.pos = p.skip(p.pos) }

// keyword reports whether the word, followed by a space, is at i.
func (p *parser) keyword(i int, word string) bool {
	end := i + len(word)
	return end < len(p.query) && p.spaceAt(end) > 0 && strings.EqualFold(p.query[i:end], word)
}

// conjunction consumes "and" or "or" with the spaces around it, and returns the word;
// empty, and nothing consumed, if neither is next.
func (p *parser) conjunction() string {
	start := p.skip(p.pos)
	if start == p.pos {
		return ""
	}
	for _, word := range []string{"and", "or"} {
		if p.keyword(start, word) {
			p.pos = p.skip(start + len(word))
			return word
		}
	}
	return ""
}

// list parses parts joined by and, and the results joined by or.
func (p *parser) list(part func(afterNot bool) (Node, error)) (Node, error) {
	var or Or
	var and And
	for {
		negated := p.keyword(p.pos, "not")
		if negated {
			p.pos = p.skip(p.pos + len("not"))
		}
		n, err := part(negated)
		if err != nil {
			return nil, err
		}
		if negated {
			n = Not{n}
		}
		and = append(and, n)
		switch p.conjunction() {
		case "and":
			continue
		case "or":
			or = append(or, oneOf(and))
			and = nil
			continue
		}
		if or = append(or, oneOf(and)); len(or) == 1 {
			return or[0], nil
		}
		return or, nil
	}
}

func oneOf(and And) Node {
	if len(and) == 1 {
		return and[0]
	}
	return and
}

// group parses a list in parentheses or braces, whose opening character is next.
func (p *parser) group(closing byte, part func(bool) (Node, error)) (Node, error) {
	if len(p.open) == MaxDepth {
		return nil, p.fail(p.pos, "parentheses stand %d deep here, and %d are allowed", MaxDepth+1, MaxDepth)
	}
	p.open = append(p.open, p.pos)
	p.pos++
	p.spaces()
	n, err := p.list(part)
	if err != nil {
		return nil, err
	}
	p.spaces()
	if !p.at(closing) {
		return nil, p.notJoined()
	}
	p.pos++
	p.open = p.open[:len(p.open)-1]
	return n, nil
}

// condition parses an operand of and, or and not.
func (p *parser) condition(afterNot bool) (Node, error) {
	if p.at('(') {
		return p.group(')', p.condition)
	}
	want := `a field, a value, "not" or "("`
	if afterNot {
		want = `a field, a value or "(" after "not"`
	}
	l, err := p.literal(want)
	if err != nil {
		return nil, err
	}
	end := p.pos
	p.spaces()
	if p.at(':') {
		p.pos++
		p.spaces()
		if p.at('{') {
			n, err := p.group('}', p.condition)
			return Nested{l, n}, err
		}
		return p.values(&l, `a value, "(" or "{" after ":"`)
	}
	if op := p.operator(); op != "" {
		p.spaces()
		value, err := p.literal(fmt.Sprintf("a value after %q", op))
		return Range{l, op, value}, err
	}
	p.pos = end
	return Is{Value: l}, nil
}

func (p *parser) operator() Op {
	for _, op := range []Op{LessEqual, MoreEqual, Less, More} {
		if strings.HasPrefix(p.query[p.pos:], string(op)) {
			p.pos += len(op)
			return op
		}
	}
	return ""
}

// values parses a field's value or list of values.
func (p *parser) values(field *Literal, want string) (Node, error) {
	if !p.at('(') {
		value, err := p.literal(want)
		return Is{field, value}, err
	}
	return p.group(')', func(afterNot bool) (Node, error) {
		if afterNot {
			return p.values(field, `a value or "(" after "not"`)
		}
		return p.values(field, `a value, "not" or "("`)
	})
}

func (p *parser) literal(want string) (Literal, error) {
	if p.at('"') {
		return p.quoted()
	}
	l, err := p.unquoted()
	if err == nil && l.Pos == p.pos {
		return l, p.missing(want)
	}
	return l, err
}

// unquoted parses a literal up to a special character or a keyword. It may consume
// nothing.
func (p *parser) unquoted() (Literal, error) {
	l := Literal{Pos: p.pos}
	var text []byte
	for !p.atEnd() {
		switch c := p.query[p.pos]; {
		case c == '\\':
			var err error
			if text, err = p.escaped(text); err != nil {
				return l, err
			}
			continue
		case c == '*':
			l.Kind = Pattern
			l.Parts = append(l.Parts, string(text))
			text = nil
			p.pos++
			continue
		case strings.IndexByte(special, c) >= 0, p.keyword(p.pos, "not"):
		case p.spaceAt(p.pos) > 0:
			// Consume a run of blanks at once: checking for keywords at each blank
			// would take quadratic time.
			next := p.skip(p.pos)
			if p.keyword(next, "and") || p.keyword(next, "or") {
				break
			}
			text = append(text, p.query[p.pos:next]...)
			p.pos = next
			continue
		default:
			_, size := utf8.DecodeRuneInString(p.query[p.pos:])
			text = append(text, p.query[p.pos:p.pos+size]...)
			p.pos += size
			continue
		}
		break
	}
	l.End = l.Pos + len(strings.TrimRightFunc(p.query[l.Pos:p.pos], isBlank))
	if l.Kind == Pattern {
		l.Parts = append(l.Parts, strings.TrimRightFunc(string(text), isBlank))
		l.Parts[0] = strings.TrimLeftFunc(l.Parts[0], isBlank)
		l.Text = strings.Join(l.Parts, "*")
		switch n := len(l.Parts) - 1; {
		case n > MaxWildcards:
			return l, p.fail(l.Pos, "this has %d wildcards, and %d are allowed: search for fewer parts", n, MaxWildcards)
		case l.End-l.Pos > MaxPattern:
			return l, p.fail(l.Pos, "this has a wildcard and %d bytes, and %d are allowed: search for a part of it", l.End-l.Pos, MaxPattern)
		}
		return l, nil
	}
	l.Text = strings.TrimFunc(string(text), isBlank)
	switch l.Text {
	case "true":
		l.Kind = True
	case "false":
		l.Kind = False
	case "null":
		l.Kind = Null
	}
	return l, nil
}

// isBlank reports whether r is trimmed from a literal. This includes more characters
// than those that separate literals.
func isBlank(r rune) bool {
	return r >= '\t' && r <= '\r' || r == '\u2028' || r == '\u2029' || r == '\ufeff' || unicode.Is(unicode.Zs, r)
}

// escaped parses an escape sequence outside quotes.
func (p *parser) escaped(text []byte) ([]byte, error) {
	if text, ok, err := p.anyEscape(text); ok || err != nil {
		return text, err
	}
	rest := p.query[p.pos+1:]
	if rest != "" && strings.IndexByte(special, rest[0]) >= 0 {
		p.pos += 2
		return append(text, rest[0]), nil
	}
	for _, word := range []string{"and", "or", "not"} {
		if len(rest) >= len(word) && strings.EqualFold(rest[:len(word)], word) {
			p.pos += 1 + len(word)
			return append(text, rest[:len(word)]...), nil
		}
	}
	_, size := utf8.DecodeRuneInString(rest)
	return text, p.fail(p.pos, `%s is no escape: write \\ for a backslash, \* for a "*" that is no wildcard, \and or \or for the words; the others are \( \) \: \< \> \{ \} \" \t \r \n, and \u with four hexadecimal digits`,
		quote(p.query[p.pos:p.pos+1+size]))
}

// anyEscape parses an escape sequence that is the same inside and outside quotes; ok
// reports whether there was one.
func (p *parser) anyEscape(text []byte) (_ []byte, ok bool, _ error) {
	if p.pos+1 >= len(p.query) {
		return text, false, nil
	}
	switch p.query[p.pos+1] {
	case 't':
		p.pos += 2
		return append(text, '\t'), true, nil
	case 'r':
		p.pos += 2
		return append(text, '\r'), true, nil
	case 'n':
		p.pos += 2
		return append(text, '\n'), true, nil
	}
	r, ok := p.unicodeAt(p.pos)
	if !ok {
		return text, false, nil
	}
	if r == 0 {
		return text, false, p.fail(p.pos, "no text holds the character 0")
	}
	p.pos += len(`\u0000`)
	if utf16.IsSurrogate(r) {
		// Two surrogates may form one character.
		low, _ := p.unicodeAt(p.pos)
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			p.pos += len(`\u0000`)
		}
	}
	return utf8.AppendRune(text, r), true, nil
}

// unicodeAt parses \uXXXX at i without consuming it.
func (p *parser) unicodeAt(i int) (rune, bool) {
	if len(p.query) < i+len(`\u0000`) || p.query[i:i+2] != `\u` {
		return 0, false
	}
	n, err := strconv.ParseUint(p.query[i+2:i+6], 16, 16)
	return rune(n), err == nil
}

// quoted parses a phrase, whose quote is next. Backslashes that escape nothing are
// kept.
func (p *parser) quoted() (Literal, error) {
	l := Literal{Kind: Phrase, Pos: p.pos}
	var text []byte
	for p.pos++; !p.atEnd(); {
		switch c := p.query[p.pos]; c {
		case '"':
			p.pos++
			l.Text, l.End = string(text), p.pos
			return l, nil
		case '\\':
			var ok bool
			var err error
			if text, ok, err = p.anyEscape(text); err != nil {
				return l, err
			} else if ok {
				continue
			}
			if next := p.query[p.pos+1:]; next != "" && (next[0] == '"' || next[0] == '\\') {
				p.pos++
			}
			fallthrough
		default:
			text = append(text, p.query[p.pos])
			p.pos++
		}
	}
	return l, p.fail(l.Pos, `this quote is not closed: write " at the end of the phrase, and \" for a quote in it`)
}

// found describes the next token for an error.
func (p *parser) found() string {
	if p.atEnd() {
		return "the query ends"
	}
	if p.at('"') {
		return "a quote is there"
	}
	end := p.pos
	for end < len(p.query) && p.spaceAt(end) == 0 && strings.IndexByte(special, p.query[end]) < 0 {
		end++
	}
	if end == p.pos {
		end++
	}
	return quote(p.query[p.pos:end]) + " is there"
}

// quote puts an excerpt of a query in quotes, without escapes, which would look like
// the query's own.
func quote(s string) string { return `"` + cut(s, 40) + `"` }

// cut truncates a string to a number of characters.
func cut(s string, most int) string {
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

// missing returns the error for a missing literal.
func (p *parser) missing(want string) error {
	hint := ""
	if p.keyword(p.pos, "not") {
		hint = `: "not" stands before a field or inside parentheses, and not twice, as in: not field: value, field: (not value), not (not value)`
	}
	return p.fail(p.pos, "expected %s, but %s%s", want, p.found(), hint)
}

// notJoined returns the error for a condition that is followed by neither a conjunction
// nor the end.
func (p *parser) notJoined() error {
	want := "the end of the query"
	if n := len(p.open); n > 0 {
		want = `")"`
		if p.query[p.open[n-1]] == '{' {
			want = `"}"`
		}
	}
	hint := ""
	switch {
	case p.atEnd():
		hint = fmt.Sprintf(": %s at character %d is not closed", quote(p.query[p.open[len(p.open)-1]:][:1]), utf8.RuneCountInString(p.query[:p.open[len(p.open)-1]])+1)
	case p.at(':'), p.at('<'), p.at('>'):
		hint = fmt.Sprintf(`: put a value that holds %s in quotes`, quote(p.query[p.pos:p.pos+1]))
	case p.at('(') && p.pos >= 3 && strings.EqualFold(p.query[p.pos-3:p.pos], "not"):
		hint = `: "not" needs a blank behind it`
	case p.keyword(p.pos, "not"):
		hint = `: put a text that holds "not" and a blank in quotes, or join it with "and not"`
	case len(p.open) == 0 && (p.at(')') || p.at('}')):
		hint = `: nothing before it is open that it would close`
	case p.at('"') && strings.HasSuffix(strings.TrimRight(p.query[:p.pos], " "), "="):
		hint = `: "=" compares nothing here, write field: "value"`
	case p.at('{'):
		hint = `: put a value that holds "{" in quotes`
	default:
		for _, word := range []string{"and", "or"} {
			if rest := p.query[p.pos:]; len(rest) >= len(word) && strings.EqualFold(rest[:len(word)], word) {
				hint = fmt.Sprintf(": %q needs a blank before it, and a blank and a condition behind it", word)
			}
		}
	}
	return p.fail(p.pos, `expected "and", "or" or %s, but %s%s`, want, p.found(), hint)
}
