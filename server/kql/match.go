package kql

import (
	"cmp"
	"slices"
	"time"
)

// Doc returns the values of a document in a field, nil if there are none: strings,
// float64s, bools or time.Times, according to the field's type. It is never called for
// Derived fields.
type Doc func(f *Field) []any

// Match reports whether a document matches a filter.
func Match(f Filter, doc Doc) bool {
	switch f := f.(type) {
	case Everything:
		return true
	case AllOf:
		return !slices.ContainsFunc(f, func(part Filter) bool { return !Match(part, doc) })
	case AnyOf:
		return slices.ContainsFunc(f, func(part Filter) bool { return Match(part, doc) })
	case NotOf:
		return !Match(f.Filter, doc)
	case Exists:
		return doc.has(f.Field, func(any) bool { return true })
	case Equals:
		return doc.has(f.Field, func(value any) bool { return value == f.Value })
	case Like:
		return doc.has(f.Field, f.matches)
	case HasWord:
		return doc.has(f.Field, func(value any) bool {
			return slices.ContainsFunc(wordsOf(value), func(word string) bool { return slices.Contains(f.Words, word) })
		})
	case HasPhrase:
		return doc.has(f.Field, func(value any) bool { return hasPhrase(wordsOf(value), f.Words) })
	case Compare:
		return doc.has(f.Field, f.holds)
	}
	return false
}

// has reports whether the document has a value for which fits is true.
func (d Doc) has(f *Field, fits func(value any) bool) bool {
	return slices.ContainsFunc(d(f), func(value any) bool { return value != "" && fits(value) })
}

func wordsOf(value any) []string {
	text, _ := value.(string)
	return Words(text)
}

func (f Like) matches(value any) bool {
	if f.Field.Type == TypeText {
		return slices.ContainsFunc(wordsOf(value), f.Pattern.Match)
	}
	text, ok := value.(string)
	return ok && f.Pattern.Match(text)
}

// hasPhrase reports whether the words of a phrase are adjacent in a text.
func hasPhrase(text, phrase []string) bool {
	if len(phrase) == 0 {
		return false
	}
	for ; len(text) >= len(phrase); text = text[1:] {
		if slices.Equal(text[:len(phrase)], phrase) {
			return true
		}
	}
	return false
}

func (f Compare) holds(value any) bool {
	sign, ok := 0, false
	switch bound := f.Value.(type) {
	case time.Time:
		var t time.Time
		if t, ok = value.(time.Time); ok {
			sign = t.Compare(bound)
		}
	case float64:
		var n float64
		if n, ok = value.(float64); ok {
			sign = cmp.Compare(n, bound)
		}
	case string:
		var text string
		if text, ok = value.(string); ok && f.Field.Type == TypeVersion {
			text = f.Field.Key(text)
			ok = text != ""
		}
		sign = cmp.Compare(text, bound)
	}
	if !ok {
		return false
	}
	switch f.Op {
	case Less:
		return sign < 0
	case LessEqual:
		return sign <= 0
	case More:
		return sign > 0
	}
	return sign >= 0
}
