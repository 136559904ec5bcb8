// Package fleet defines Muster's domain types and the rules about them: the status of
// an agent, whether it can be upgraded, and what a check-in or an acknowledgement means
// for its upgrade. It does no I/O and reads no clock: every rule takes now. All other
// server packages use its types.
package fleet

import (
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Kind classifies errors by what the caller can do about them. Package httpapi maps
// kinds to HTTP statuses. Append only.
type Kind string

const (
	Invalid      Kind = "invalid"      // the request is wrong; Field says where
	NotFound     Kind = "not_found"    // there is no such thing
	Conflict     Kind = "conflict"     // it exists already, or changed meanwhile
	Unauthorized Kind = "unauthorized" // no key, or not a valid one
	Forbidden    Kind = "forbidden"    // a valid key that may not do this
	TooMany      Kind = "too_many"     // come again later
	TooLarge     Kind = "too_large"    // more bytes than are accepted
	Unsupported  Kind = "unsupported"  // a body that is encoded in a way that is not accepted
	Unavailable  Kind = "unavailable"  // the store does not answer
	Internal     Kind = "internal"     // a fault of the server
)

// Error is an error whose message is safe to show to the caller.
type Error struct {
	Kind Kind
	// Code is the value of the "error" field in the response, such as ErrAgentInactive;
	// empty means the kind's default.
	Code string
	// Field names the wrong part of a request, such as body.version.
	Field   string
	Message string
	// RetryAfter is when to try again, for TooMany and Unavailable; 0 leaves it to the
	// handler.
	RetryAfter time.Duration
	// Err is the cause, for the log only.
	Err error
	// Cause is why an agent cannot follow an order; previews count agents by it. Forceable means
	// that the order would include the agent with force.
	Cause     Cause
	Forceable bool
}

// Because sets the cause.
func (e *Error) Because(c Cause) *Error {
	e.Cause = c
	return e
}

func (e *Error) unlessForced(c Cause) *Error {
	e.Cause, e.Forceable = c, true
	return e
}

func (e *Error) Error() string {
	msg := e.Message
	if e.Field != "" {
		msg = "[request " + e.Field + "]: " + msg
	}
	return msg
}

func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error of a kind. The message is formatted as by fmt.Errorf, %w
// included.
func Errorf(kind Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: kind, Message: err.Error(), Err: errors.Unwrap(err)}
}

// FieldError returns an Invalid error about one field.
func FieldError(field, format string, args ...any) *Error {
	e := Errorf(Invalid, format, args...)
	e.Field = field
	return e
}

// Part returns a page of a list.
func Part[T any](all []T, offset, limit int) []T {
	from := min(offset, len(all))
	return all[from:min(from+limit, len(all))]
}

// KindOf returns the kind of the first Error in err's chain, else Internal.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}

// NewID returns a random id of 26 lower-case letters and digits: 130 bits, short enough
// to read out, and safe in a path.
func NewID() string { return strings.ToLower(rand.Text()) }

// newSecret returns a random secret of 256 bits.
func newSecret() string {
	b := make([]byte, 32)
	rand.Read(b) // never fails, by its documentation
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
}
