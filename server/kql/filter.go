package kql

import "time"

// Filter is a query in the fields of a schema: what stores carry out, and Match.
// Every comparison is true if it is true of any value of its field, and false of
// a document that has none.
type Filter interface{ isFilter() }

type (
	Everything struct{}
	Nothing    struct{}
	AllOf      []Filter // of none: everything
	AnyOf      []Filter // of none: nothing
	NotOf      struct{ Filter Filter }
	// Exists is of a field of any type. An empty text is no value.
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
	// key, see Field.Key) or a Keyword (string, by bytes).
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
// and the last at the end; at least two.
type Wildcard []string

// Type of a field decides what a comparison means.
type Type int

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
