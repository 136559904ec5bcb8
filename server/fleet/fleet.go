// Package fleet holds the nouns of Muster and the rules about them: what an
// agent's status is, whether it can be upgraded, what a check-in or an
// acknowledgement means for its upgrade. It does no I/O and reads no clock:
// every rule takes now. All other server packages speak in its types.
package fleet

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind sorts errors by what the caller can do about them. httpapi has the one
// table from kind to HTTP status. Append only.
type Kind string

const (
	Invalid      Kind = "invalid"      // the request is wrong; Field says where
	NotFound     Kind = "not_found"    // there is no such thing
	Conflict     Kind = "conflict"     // it exists already, or changed meanwhile
	Unauthorized Kind = "unauthorized" // no key, or not a valid one
	Forbidden    Kind = "forbidden"    // a valid key that may not do this
	TooMany      Kind = "too_many"     // come again later
	TooLarge     Kind = "too_large"    // more bytes than are taken
	Unavailable  Kind = "unavailable"  // the store does not answer
	Internal     Kind = "internal"     // ours to mend
)

// Error is a refusal whose message is safe and useful to show.
type Error struct {
	Kind Kind
	// Code is the word in the "error" field of the answer, such as
	// ErrAgentInactive; empty means the kind's own.
	Code string
	// Field names the wrong part of a request, such as body.version.
	Field   string
	Message string
	// RetryAfter is when to come again, of TooMany and Unavailable; 0 leaves it to
	// who answers.
	RetryAfter time.Duration
	// Err is the cause, for the log only.
	Err error
}

func (e *Error) Error() string {
	msg := e.Message
	if e.Field != "" {
		msg = "[request " + e.Field + "]: " + msg
	}
	return msg
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error of a kind.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// FieldError is an Invalid error about one field.
func FieldError(field, format string, args ...any) *Error {
	e := Errorf(Invalid, format, args...)
	e.Field = field
	return e
}

// KindOf returns the kind of the first Error in err's chain, else Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// NewID makes an id of 26 lower-case letters and digits: 130 random bits, short
// enough to read out, safe in a path.
func NewID() string { return strings.ToLower(rand.Text()) }

// newSecret makes a secret of 256 random bits.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails, by its documentation
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}
