package kql

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// Precedence of nodes. A node of lower precedence than its context requires is put in
// parentheses.
const (
	bindsOr = iota
	bindsAnd
	bindsNot
	bindsAlone
)

func (All) String() string { return "" }

func (n And) String() string { return join(n, " and ", bindsNot) }

func (n Or) String() string { return join(n, " or ", bindsAnd) }

func (n Not) String() string { return "not " + inside(n.Node, bindsAlone) }

func (n Is) String() string {
	if n.Field == nil {
		return n.Value.String()
	}
	return n.Field.String() + ": " + n.Value.String()
}

func (n Range) String() string {
	return fmt.Sprintf("%s %s %s", n.Field, n.Op, n.Value)
}

func (n Nested) String() string {
	return fmt.Sprintf("%s: { %s }", n.Field, n.Query)
}

func join(nodes []Node, with string, context int) string {
	parts := make([]string, len(nodes))
	for i, n := range nodes {
		parts[i] = inside(n, context)
	}
	return strings.Join(parts, with)
}

func inside(n Node, context int) string {
	binds := bindsAlone
	switch n.(type) {
	case Or:
		binds = bindsOr
	case And:
		binds = bindsAnd
	case Not:
		binds = bindsNot
	}
	if binds < context {
		return "(" + n.String() + ")"
	}
	return n.String()
}

// String returns the literal in the syntax of its kind.
func (l Literal) String() string {
	switch l.Kind {
	case Phrase:
		return Quote(l.Text)
	case Pattern:
		parts := make([]string, len(l.Parts))
		for i, part := range l.Parts {
			parts[i] = unquotedText(part)
		}
		return strings.Join(parts, "*")
	}
	if l.Text == "" {
		return `\t` // a literal of blanks is trimmed
	}
	return unquotedText(l.Text)
}

// Quote returns text as a phrase, escaped as a value of a query.
func Quote(text string) string {
	return `"` + phraseEscapes.Replace(text) + `"`
}

var phraseEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\t", `\t`, "\r", `\r`, "\n", `\n`)

// unquotedText escapes what would end an unquoted literal or change its meaning.
func unquotedText(text string) string {
	var b strings.Builder
	p := parser{query: text}
	afterSpace := false
	for i := 0; i < len(text); {
		rest := text[i:]
		switch c := rest[0]; {
		case strings.IndexByte(special, c) >= 0:
			b.WriteByte('\\')
			b.WriteByte(c)
			i++
		case c == '\t' || c == '\r' || c == '\n':
			b.WriteString(phraseEscapes.Replace(rest[:1]))
			i++
		case p.word(i, "not"):
			// \not would be a line feed and "ot".
			fmt.Fprintf(&b, `\u%04x%s`, c, rest[1:3])
			i += 3
		case afterSpace && p.word(i, "and"):
			b.WriteString(`\` + rest[:3])
			i += 3
		case afterSpace && p.word(i, "or"):
			b.WriteString(`\` + rest[:2])
			i += 2
		default:
			_, size := utf8.DecodeRuneInString(rest)
			afterSpace = p.spaceAt(i) > 0
			b.WriteString(rest[:size])
			i += size
			continue
		}
		afterSpace = false
	}
	return b.String()
}

// word reports whether a word at i is, or may become, a keyword: it is followed by a
// space or is the end of the text.
func (p *parser) word(i int, word string) bool {
	end := i + len(word)
	return p.keyword(i, word) || end == len(p.query) && strings.EqualFold(p.query[i:end], word)
}
