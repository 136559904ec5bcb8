package kql

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// Suggestion is how an unfinished query may continue at the cursor.
type Suggestion struct {
	// Completions are those known without a store, likely ones first.
	Completions []Completion
	// Values is set if a field's value is being typed and only a store knows the
	// values.
	Values *ValuesWanted
}

// Completion is a text that replaces the query's bytes from From to To.
type Completion struct {
	Kind     CompletionKind
	Text     string
	From, To int
	// Description is for users; it may be empty.
	Description string
}

// CompletionKind is what a completion inserts.
type CompletionKind string

// Values of CompletionKind.
const (
	CompleteField       CompletionKind = "field"
	CompleteOperator    CompletionKind = "operator"
	CompleteValue       CompletionKind = "value"
	CompleteConjunction CompletionKind = "conjunction"
)

// ValuesWanted describes a value that is being typed.
type ValuesWanted struct {
	Field *Field
	// Prefix is what has been typed, unquoted and unescaped. Its case may differ from
	// the value's.
	Prefix string
	// Trim begins the values that are wanted, and Prefix. It is not inserted.
	Trim     string
	From, To int
}

// Complete returns the completion that inserts a value of the field.
func (w *ValuesWanted) Complete(value string) Completion {
	value = strings.TrimPrefix(value, w.Trim)
	text := value
	if w.Field.Type != TypeBool {
		text = Quote(value)
	}
	return Completion{Kind: CompleteValue, Text: text + " ", From: w.From, To: w.To}
}

// Suggest returns how a query may continue at the cursor, a byte offset. The text
// before the cursor may be unfinished; if it is invalid, nothing is suggested.
func Suggest(query string, cursor int, s *Schema) Suggestion {
	cursor = min(max(cursor, 0), len(query))
	for cursor > 0 && cursor < len(query) && !utf8.RuneStart(query[cursor]) {
		cursor--
	}
	w := writer{query: query, cursor: cursor, schema: s, p: parser{query: query[:cursor]}}
	if len(query) <= MaxBytes {
		for w.condition() && w.joined() {
		}
	}
	return w.out
}

// writer parses a query up to the cursor. Its methods report whether parsing continues
// after them. It does not if the query is invalid, nor at the cursor, where they add
// suggestions.
type writer struct {
	query  string
	cursor int
	schema *Schema
	p      parser // of the text before the cursor
	// around are the fields of the open lists of values; nil for a parenthesis or brace
	// around conditions.
	around []*Literal
	out    Suggestion
}

// opened consumes an opening parenthesis or brace.
func (w *writer) opened(field *Literal) bool {
	w.around = append(w.around, field)
	w.p.pos++
	return len(w.around) <= MaxDepth
}

// condition parses a condition, or one value of a list.
func (w *writer) condition() bool {
	p := &w.p
	var field *Literal
	if n := len(w.around); n > 0 {
		field = w.around[n-1]
	}
	p.spaces()
	afterNot := p.keyword(p.pos, "not")
	if afterNot {
		p.pos = p.skip(p.pos + len("not"))
	}
	if p.at('(') {
		return w.opened(field) && w.condition()
	}
	if field != nil {
		return w.value(field, "", !afterNot)
	}
	start := p.pos
	l, ok := w.literal()
	switch {
	case !ok:
		return false
	case p.atEnd() && l.Kind != Phrase:
		w.suggestCondition(start, l, !afterNot)
		return false
	}
	end := p.pos
	p.spaces()
	if p.at(':') {
		p.pos++
		p.spaces()
		switch {
		case p.at('{'):
			return w.opened(nil) && w.condition()
		case p.at('('):
			return w.opened(&l) && w.condition()
		}
		return w.value(&l, "", false)
	}
	if op := p.operator(); op != "" {
		return w.value(&l, op, false)
	}
	p.pos = end
	return true
}

// literal parses an optional literal; ok is false if it is invalid.
func (w *writer) literal() (Literal, bool) {
	if w.p.at('"') {
		l, err := w.p.quoted()
		return l, err == nil
	}
	l, err := w.p.unquoted()
	return l, err == nil && (w.p.atEnd() || w.p.pos > l.Pos)
}

// value parses the value of a field.
func (w *writer) value(field *Literal, op Op, mayNot bool) bool {
	p := &w.p
	p.spaces()
	f := w.schema.Field(field.Text)
	if p.at('"') {
		l, err := p.quoted()
		if err == nil {
			return true
		}
		// Read the unfinished phrase as if it ended at the cursor.
		closed := parser{query: p.query + `"`, pos: l.Pos}
		if l, err = closed.quoted(); err == nil {
			w.suggestValues(f, op, l.Text, l.Pos, w.phraseEnd(l.Pos))
		}
		return false
	}
	start := p.pos
	l, ok := w.literal()
	if !ok || !p.atEnd() {
		return ok
	}
	prefix := l.Text
	if start < p.pos && p.skip(l.End) > l.End {
		prefix += " "
		w.suggestConjunctions(start)
	} else if strings.Contains(l.Text, " ") {
		w.suggestConjunctions(start)
	}
	whole := parser{query: w.query, pos: start}
	end := w.cursor
	if full, err := whole.unquoted(); err == nil {
		end = max(end, full.End)
	}
	w.suggestValues(f, op, prefix, start, end)
	if mayNot {
		w.suggestWord("not", start)
	}
	return false
}

// phraseEnd returns the end of the phrase that the cursor is in: its closing quote,
// unless that seems to open the next phrase.
func (w *writer) phraseEnd(start int) int {
	quotes := strings.Count(strings.ReplaceAll(w.query, `\"`, ""), `"`)
	whole := parser{query: w.query, pos: start}
	if l, err := whole.quoted(); err == nil && quotes%2 == 0 {
		return l.End
	}
	return w.cursor
}

// joined consumes closing parentheses and the conjunction after them.
func (w *writer) joined() bool {
	p := &w.p
	for {
		next := p.skip(p.pos)
		if next == len(p.query) || p.query[next] != ')' && p.query[next] != '}' {
			break
		}
		if len(w.around) == 0 {
			return false
		}
		w.around = w.around[:len(w.around)-1]
		p.pos = next + 1
	}
	if p.conjunction() != "" {
		return true
	}
	if unread := p.query[p.skip(p.pos):]; !strings.ContainsFunc(unread, func(r rune) bool { return isSpace(r) || strings.ContainsRune(special, r) }) {
		w.suggestConjunctions(p.pos)
	}
	return false
}

// suggestCondition adds suggestions for a literal at the cursor that is, or may become,
// a field's name or a value.
func (w *writer) suggestCondition(start int, l Literal, mayNot bool) {
	if l.Kind == Pattern {
		w.suggestConjunctions(start)
		return
	}
	known := w.schema.Field(l.Text)
	if written := w.query[start:w.cursor]; strings.ContainsFunc(written, isBlank) {
		if known != nil {
			w.suggestOperators(known)
		} else {
			w.suggestConjunctions(start)
		}
		return
	}
	name := lower(w.schema.bare(l.Text))
	end := w.wordEnd()
	for _, rank := range []func(field string) bool{
		func(field string) bool { return strings.HasPrefix(field, name) },
		func(field string) bool { return !strings.HasPrefix(field, name) && strings.Contains(field, name) },
	} {
		for _, f := range slices.Concat(w.schema.Aliases, w.schema.Fields) {
			if !f.empty() && rank(lower(f.Name)) {
				w.add(CompleteField, f.Name, start, end, f.Description)
			}
		}
	}
	if known != nil {
		w.suggestOperators(known)
	}
	if mayNot {
		w.suggestWord("not", start)
	}
}

// suggestOperators adds the operators that apply to a field.
func (w *writer) suggestOperators(f *Field) {
	operator := func(text, description string) { w.add(CompleteOperator, text, w.cursor, w.cursor, description) }
	operator(": ", "has a value")
	if f.Type != TypeDerived || f.Optional {
		operator(": * ", "has any value")
	}
	switch {
	case f.Prefix != "":
		return
	case f.Of != nil:
		f = f.Of
	}
	switch f.Type {
	case TypeDate:
		operator("< ", "is before")
		operator("<= ", "is not after")
		operator("> ", "is after")
		operator(">= ", "is not before")
	case TypeNumber, TypeVersion:
		operator("< ", "is less than")
		operator("<= ", "is not more than")
		operator("> ", "is more than")
		operator(">= ", "is not less than")
	}
}

// dateExpressions are common bounds for dates.
var dateExpressions = []string{"now-15m", "now-1h", "now-1d", "now-7d", "now/d"}

// suggestValues adds values of a field, part of which may have been typed.
func (w *writer) suggestValues(f *Field, op Op, prefix string, from, to int) {
	if f == nil {
		return
	}
	trim := f.Prefix
	if f.Of != nil {
		f = f.Of
	}
	values := f.Values
	switch f.Type {
	case TypeBool:
		values = []string{"true", "false"}
	case TypeDate:
		if op != "" {
			for _, text := range dateExpressions {
				if strings.HasPrefix(text, prefix) {
					w.add(CompleteValue, text+" ", from, to, "")
				}
			}
		}
		return
	case TypeNumber:
		return
	}
	if op != "" && (trim != "" || f.Type != TypeVersion && f.Type != TypeKeyword) {
		return
	}
	wanted := ValuesWanted{Field: f, Prefix: trim + prefix, Trim: trim, From: from, To: to}
	for _, value := range values {
		if strings.HasPrefix(lower(value), lower(prefix)) {
			w.out.Completions = append(w.out.Completions, wanted.Complete(value))
		}
	}
	if len(values) == 0 && !f.Constant {
		w.out.Values = &wanted
	}
}

// suggestConjunctions adds conjunctions for a cursor after a condition that begins at
// start: after a blank, or within the word of a conjunction.
func (w *writer) suggestConjunctions(start int) {
	written := w.query[start:w.cursor]
	last := strings.LastIndexFunc(written, func(r rune) bool { return isSpace(r) || strings.ContainsRune(special, r) })
	if last < 0 && written != "" {
		return
	}
	after, size := utf8.DecodeRuneInString(written[max(last, 0):])
	switch {
	case written != "" && isSpace(after):
		w.suggestWord("and", start+last+size)
		w.suggestWord("or", start+last+size)
	case written == "" || last+size == len(written):
		// After a quote, a parenthesis or a wildcard the blank is still missing.
		w.add(CompleteConjunction, " and ", w.cursor, w.cursor, "")
		w.add(CompleteConjunction, " or ", w.cursor, w.cursor, "")
	}
}

// suggestWord adds a keyword if the text between from and the cursor is a prefix of it.
func (w *writer) suggestWord(word string, from int) {
	written := w.query[from:w.cursor]
	if len(written) < len(word) && strings.EqualFold(written, word[:len(written)]) || strings.EqualFold(written, word) {
		w.add(CompleteConjunction, word+" ", from, w.wordEnd(), "")
	}
}

// wordEnd returns the end of the word that the cursor is in.
func (w *writer) wordEnd() int {
	p := parser{query: w.query}
	end := w.cursor
	for end < len(w.query) && p.spaceAt(end) == 0 && strings.IndexByte(special, w.query[end]) < 0 {
		end++
	}
	return end
}

func (w *writer) add(kind CompletionKind, text string, from, to int, description string) {
	w.out.Completions = append(w.out.Completions, Completion{Kind: kind, Text: text, From: from, To: to, Description: description})
}
