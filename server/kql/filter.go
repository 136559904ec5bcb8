package kql

import (
	"slices"
	"strings"
	"time"
)

// Filter is a query in terms of the fields of a schema, as stores and Match evaluate
// it. A comparison is true if it is true of any value of the field, and false for a
// document without a value. An empty string is no value. Compile returns simplified
// filters (see Simplify) with at most MaxComparisons.
type Filter interface{ isFilter() }

type (
	// Everything matches every document.
	Everything struct{}
	// Nothing matches no document.
	Nothing struct{}
	// AllOf matches what all parts match; without parts, everything.
	AllOf []Filter
	// AnyOf matches what at least one part matches; without parts, nothing.
	AnyOf []Filter
	// NotOf matches all other documents, including those without a value.
	NotOf struct{ Filter Filter }
	// Exists matches if there is a value. It applies to all types but Derived.
	Exists struct{ Field *Field }
	// Equals compares a whole Keyword, Version, Bool or Number. Value is a string (the
	// text of a Version, not its key), a bool or a float64.
	Equals struct {
		Field *Field
		Value any
	}
	// Like matches a whole Keyword or Version, or any single word of a Text.
	Like struct {
		Field   *Field
		Pattern Wildcard
	}
	// HasWord matches a Text that has any of the words.
	HasWord struct {
		Field *Field
		Words []string
	}
	// HasPhrase matches a Text that has the words in this order, adjacent.
	HasPhrase struct {
		Field *Field
		Words []string
	}
	// Compare compares a Date (Value is a time.Time), a Number (float64), a Version
	// (its key, see Field.Key) or a Keyword (string, by bytes). Compile compares dates
	// by >= and < with whole milliseconds in UTC, which gives the same result in stores
	// that keep smaller fractions of a second and in those that do not.
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

// Wildcard matches strings that contain its parts in order, the first at the beginning
// and the last at the end. It has at least two parts; inner parts are not empty, and at
// least one part is not.
type Wildcard []string

// Match reports whether text matches.
func (w Wildcard) Match(text string) bool {
	last := len(w) - 1
	text, ok := strings.CutPrefix(text, w[0])
	if !ok || last == 0 {
		return ok && text == ""
	}
	for _, part := range w[1:last] {
		// The first occurrence leaves most of the text to the parts that follow.
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, w[last])
}

// lower returns the pattern in the case of Words.
func (w Wildcard) lower() Wildcard {
	out := make(Wildcard, len(w))
	for i, part := range w {
		out[i] = lower(part)
	}
	return out
}

// Type is the type of a field. It decides what a comparison means.
type Type int

// Values of Type.
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
	// TypeDerived has no value in documents. Field.Derive expresses it in terms of
	// other fields.
	TypeDerived
)

// Field describes a field of a schema.
type Field struct {
	Name string // as in queries, with dots
	Type Type
	// Key returns a string that sorts as a Version does, empty for an invalid version.
	Key func(version string) string
	// Derive returns, for a Derived field, the filter for documents whose value is one
	// of Values and for which fits is true. Every document has a value, unless the field
	// is Optional.
	Derive func(fits func(value string) bool, now time.Time) Filter
	// Optional means that some documents have no value of a Derived field.
	Optional bool
	// Values are the possible values of a Derived field, and of a Keyword where they
	// are known.
	Values []string
	// Constant says that every document has Values and no others; without Values no
	// document has a value. Such a field is in a schema for the sake of queries that are
	// written for another server. Stores and Docs are never asked for it.
	Constant bool
	// Of is the field that this one is a short name of; nil: it is none. With a Prefix, it
	// means the values of Of that begin with it, without it. Only Schema.Aliases have Of.
	Of     *Field
	Prefix string
	// Description is a clause for users.
	Description string
}

// Schema lists the fields that queries can name.
type Schema struct {
	Fields []*Field
	// Aliases are short names of Fields, which Compile replaces: filters have none. They are
	// suggested first, and not searched without a name.
	Aliases []*Field
	// Trim are prefixes that names may have, such as "fleet-agents.".
	Trim []string
}

// Field returns the field of a name, with or without a prefix of Trim; nil if there is
// none.
func (s *Schema) Field(name string) *Field {
	for {
		for _, fields := range [][]*Field{s.Fields, s.Aliases} {
			if i := slices.IndexFunc(fields, func(f *Field) bool { return f.Name == name }); i >= 0 {
				return fields[i]
			}
		}
		shorter := s.trimmed(name)
		if shorter == name {
			return nil
		}
		name = shorter
	}
}

// trimmed removes one prefix from a name.
func (s *Schema) trimmed(name string) string {
	for _, prefix := range s.Trim {
		if rest, ok := strings.CutPrefix(name, prefix); ok && prefix != "" {
			return rest
		}
	}
	return name
}

// bare removes all prefixes from a name.
func (s *Schema) bare(name string) string {
	for {
		shorter := s.trimmed(name)
		if shorter == name {
			return name
		}
		name = shorter
	}
}
