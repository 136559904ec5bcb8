package tuf

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/trust"
)

// Errors for errors.Is. Every error's text says what to do next.
var (
	// ErrExpired: a role's file is too old; see [ExpiredError].
	ErrExpired = errors.New("has expired")
	// ErrThreshold: too few of the role's keys have signed; see [ThresholdError].
	ErrThreshold = untrusted("not enough signatures")
	// ErrRollback: a source offers an older state than this host has seen.
	ErrRollback = untrusted("is older than what is already trusted")
	// ErrUnknownTarget: no publisher signed an archive of that name; see
	// [UnknownTargetError].
	ErrUnknownTarget = untrusted("is not among the signed packages")
	// ErrMismatch: length, hash or version is not what the signed file that
	// names it says.
	ErrMismatch = untrusted("is not what was signed")
	// ErrMalformed: the file is not a valid file of its role, whoever signed it.
	ErrMalformed = untrusted("is not valid")
	// ErrTooLong: a source sent more bytes than the file may have.
	ErrTooLong = errors.New("is too long")
	// ErrNotServed: the source has no such file.
	ErrNotServed = errors.New("is not there")
	// ErrNotPinned: the host has no pinned root.
	ErrNotPinned = errors.New("no trusted root is pinned on this host: enrol it again with --trust-root")
	// ErrUnfinished: there are more roots than one refresh follows.
	ErrUnfinished = errors.New("more root rotations than one refresh follows: what was reached is kept, try again")
	// ErrNotSigner: the key does not belong to the role.
	ErrNotSigner = errors.New("key does not sign this file")
)

// untrusted returns an error that is [trust.ErrUntrusted] too.
func untrusted(text string) error { return &untrustedError{text} }

type untrustedError struct{ text string }

func (e *untrustedError) Error() string        { return e.text }
func (e *untrustedError) Is(target error) bool { return target == trust.ErrUntrusted }

// ExpiredError names the role that expired and who can renew it.
type ExpiredError struct {
	Role    Role
	Version int64
	Since   time.Time
	Now     time.Time // by the clock of the host or server that refuses
	// Who must sign: "at least 2 of ann (3f2a…), bob (77c0…)".
	Who string
}

func (e *ExpiredError) Error() string {
	return fmt.Sprintf("%s %s %s on %s (it is %s by this clock): nothing new can be installed until %s",
		e.Role, number(e.Version), ErrExpired, stamp(e.Since), stamp(e.Now), e.remedy())
}

func (e *ExpiredError) remedy() string {
	if e.Role.Offline() {
		return e.Who + " sign a new one and it is published"
	}
	return "the server signs a new one, which it does every few hours: check that it runs, that nothing in between answers from a cache, and both clocks"
}

// Is: a file of the server's own roles expires within hours, as while the server was away or a clock is
// wrong, and the server signs the next one by itself.
func (e *ExpiredError) Is(target error) bool {
	return target == ErrExpired || target == trust.ErrTransient && !e.Role.Offline()
}

// ThresholdError names the signatures that are missing.
type ThresholdError struct{ Progress }

func (e *ThresholdError) Error() string { return e.String() }

func (e *ThresholdError) Is(target error) bool {
	return target == ErrThreshold || target == trust.ErrUntrusted
}

// UnknownTargetError lists the versions that are signed instead.
type UnknownTargetError struct {
	FileName string
	// Versions signed for the same platform, newest first.
	Versions []string
}

func (e *UnknownTargetError) Error() string {
	const enough = 5
	what := "there is none for this platform"
	if n := len(e.Versions); n > 0 {
		what = "for this platform there are " + strings.Join(e.Versions[:min(n, enough)], ", ")
		if n > enough {
			what += fmt.Sprintf(" and %d older", n-enough)
		}
	}
	return fmt.Sprintf("%s %s: %s; the publishers must sign it and publish their targets file, as `muster package push --targets-key KEY` does", e.FileName, ErrUnknownTarget, what)
}

func (e *UnknownTargetError) Is(target error) bool {
	return target == ErrUnknownTarget || target == trust.ErrUntrusted
}

func number(version int64) string { return fmt.Sprintf("version %d", version) }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// malformed returns an [ErrMalformed] that names the invalid field.
func malformed(role Role, field, format string, args ...any) error {
	return fmt.Errorf("%s file %w: %s: %s", role, ErrMalformed, field, fmt.Sprintf(format, args...))
}
