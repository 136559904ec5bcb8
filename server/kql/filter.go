package kql

import (
	"slices"
	"strings"
	"time"
)

// Filter is a query in the fields of a schema: what stores carry out, and Match.
// Every comparison is true if it is true of any value of its field, and false of
// a document that has none. An empty text is no value. Compile gives simplified
// filters, see Simplify, with no more than MaxComparisons.
type Filter interface{ isFilter() }

type (
	// Everything is every document.
	Everything struct{}
	// Nothing is no document.
	Nothing struct{}
	// AllOf is what all parts mean: of none, everything.
	AllOf []Filter
	// AnyOf is what one part means at least: of none, nothing.
	AnyOf []Filter
	// NotOf are all the others: those without a value too.
	NotOf struct{ Filter Filter }
	// Exists is of a field of any type but Derived.
	Exists struct{ Field *Field }
	// Equals compares a whole Keyword, Version, Bool or Number. Value is a string
	// (of a Version its text, not its key), a bool or a float64.
	Equals struct {
		Field *Field
		Value any
	}
	// Like compares a whole Keyword or Version, or any one word of a Text.
	Like struct {
		Field   *Field
		Pattern Wildcard
	}
	// HasWord is of a Text with any of the words.
	HasWord struct {
		Field *Field
		Words []string
	}
	// HasPhrase is of a Text with these words in this order, side by side.
	HasPhrase struct {
		Field *Field
		Words []string
	}
	// Compare is of a Date (Value a time.Time), a Number (float64), a Version (its
	// key, see Field.Key) or a Keyword (string, by bytes). Compile compares dates by
	// >= and < with whole milliseconds in UTC, which is the same to a store that
	// keeps smaller parts of a second and to one that does not.
	Compare struct {
		Field *Field
		Op    Op
		Value any
	}
)

func (Everything) isFilter() {}
func (Nothing) isFilter()    {}
func (AllOf) isFilter()      {}
func (AnyOf) isFilter()      {}
func (NotOf) isFilter()      {}
func (Exists) isFilter()     {}
func (Equals) isFilter()     {}
func (Like) isFilter()       {}
func (HasWord) isFilter()    {}
func (HasPhrase) isFilter()  {}
func (Compare) isFilter()    {}

// Wildcard matches texts that have its parts in order, the first at the beginning
// and the last at the end; at least two, of which those between are not empty and
// one says something.
type Wildcard []string

// Match says whether a text is one of those it means.
func (w Wildcard) Match(text string) bool {
	last := len(w) - 1
	text, ok := strings.CutPrefix(text, w[0])
	if !ok || last == 0 {
		return ok && text == ""
	}
	for _, part := range w[1:last] {
		// The first place that fits leaves most to what follows.
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, w[last])
}

// lower is the pattern as words are spelled.
func (w Wildcard) lower() Wildcard {
	out := make(Wildcard, len(w))
	for i, part := range w {
		out[i] = lower(part)
	}
	return out
}

// Type of a field decides what a comparison means.
type Type int

// What a field can be.
const (
	// TypeKeyword is compared as a whole and by case.
	TypeKeyword Type = iota + 1
	// TypeText is compared by words without case, see Words.
	TypeText
	TypeDate
	// TypeVersion is a keyword whose ranges compare versions, not texts.
	TypeVersion
	TypeBool
	TypeNumber
	// TypeDerived has no value of its own in documents; Field.Derive says what it
	// means.
	TypeDerived
)

// Field of a schema.
type Field struct {
	Name string // as queries spell it, with dots
	Type Type
	// Key makes texts that compare as a Version's values do, empty of what is no
	// version.
	Key func(version string) string
	// Derive spells a Derived field out in others: the filter of documents whose
	// value is one of Values that is fits. All documents have one.
	Derive func(fits func(value string) bool, now time.Time) Filter
	// Values are those a Derived field can have, and all that a Keyword may where
	// they are known.
	Values []string
	// Description is for people, a clause.
	Description string
}

// Schema is what can be asked about.
type Schema struct {
	Fields []*Field
	// Trim are prefixes that names may bear, such as "fleet-agents.".
	Trim []string
}

// Field finds a field by its name, with or without a prefix of Trim; nil if there
// is none.
func (s *Schema) Field(name string) *Field {
	for {
		if i := slices.IndexFunc(s.Fields, func(f *Field) bool { return f.Name == name }); i >= 0 {
			return s.Fields[i]
		}
		shorter := s.trimmed(name)
		if shorter == name {
			return nil
		}
		name = shorter
	}
}

// trimmed is a name without one prefix.
func (s *Schema) trimmed(name string) string {
	for _, prefix := range s.Trim {
		if rest, ok := strings.CutPrefix(name, prefix); ok && prefix != "" {
			return rest
		}
	}
	return name
}

// bare is a name without any of the prefixes.
func (s *Schema) bare(name string) string {
	for {
		shorter := s.trimmed(name)
		if shorter == name {
			return name
		}
		name = shorter
	}
}
