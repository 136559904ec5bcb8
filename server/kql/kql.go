package kql

import (
	"errors"
	"time"
)

// Parse reads a query. Its errors are *Error.
func Parse(query string) (Node, error) { return nil, errors.New("not yet") }

// Compile gives a query its meaning for a schema at a time, which dates such as
// now-1h are of. Its errors are *Error.
func Compile(query string, s *Schema, now time.Time) (Filter, error) {
	return nil, errors.New("not yet")
}

// Error says what is wrong with a query, and where.
type Error struct {
	Query   string
	Pos     int // in bytes
	Message string
}

func (e *Error) Error() string { return e.Message }

// Doc gives the values a document has in a field: strings, float64s, bools and
// time.Times, as its type has it; none where there is none.
type Doc func(f *Field) []any

// Match says whether a document is one of those a filter means.
func Match(f Filter, doc Doc) bool { return false }

// Words are the words of a text as texts are compared: by Unicode's rules for
// words, in lower case, without what is no letter and no digit.
func Words(text string) []string { return nil }
