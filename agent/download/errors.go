package download

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// ErrNotFound means that a source does not have the file. The error of a fetch wraps it if
// at least one source does not.
var ErrNotFound = errors.New("not found")

// ErrContent means that a source has another file than the wanted one. The error of a fetch
// wraps it if at least one source has.
var ErrContent = errors.New("has another content than expected")

// fault is an error with its consequence. An error that is not a fault is the network's,
// and the source is tried again.
type fault struct {
	err error
	// ours means that the host or the caller is at fault, so no source can help.
	ours bool
	// lasting means that a retry cannot succeed.
	lasting bool
	// retryAfter is the source's Retry-After.
	retryAfter time.Duration
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// refused returns the fault of a source that is not asked again.
func refused(format string, args ...any) error {
	return &fault{lasting: true, err: fmt.Errorf(format, args...)}
}

// onDisk returns the fault of a failed call to this host's disk. Only a full disk is worth
// a retry.
func onDisk(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return &fault{ours: true, err: fmt.Errorf("%s: %w: free some space and upgrade again", path, err)}
	}
	return &fault{ours: true, lasting: true, err: fmt.Errorf("%s: %w: check the disk and the rights of that folder, then upgrade again", path, err)}
}

// ended is the error of a whole fetch.
type ended struct {
	text            string
	causes          []error
	transient, kept bool
}

func (e *ended) Error() string   { return e.text }
func (e *ended) Unwrap() []error { return e.causes }

// ending turns a fault into the error of the fetch. It returns other errors unchanged.
func ending(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	return &ended{text: err.Error(), causes: []error{err}, transient: !f.lasting}
}

// KeepsPart reports whether a failed download keeps its part for a later one: after errors of
// the network and the end of ctx, but not after a disk error or when every source refuses.
func KeepsPart(err error) bool {
	var e *ended
	if errors.As(err, &e) {
		return e.kept
	}
	return err != nil
}

// Transient reports whether a later retry of a failed fetch may succeed: after errors of
// the network, 429 and 5xx, and with a full disk. It is false if an operator must act, and
// for the cause of an ended context.
func Transient(err error) bool {
	var e *ended
	return errors.As(err, &e) && e.transient
}

// summary returns the error of a fetch after all sources have failed.
func summary(sources []*source) error {
	e := &ended{text: reasons(sources)}
	for _, s := range sources {
		e.causes = append(e.causes, s.err)
		e.transient = e.transient || !s.gone
	}
	if e.kept = e.transient; e.transient {
		e.text = fmt.Sprintf("gave up after %d attempts in a row without a new byte: %s", MaxAttempts, e.text)
	}
	return e
}

// reasons lists each source with its last error.
func reasons(sources []*source) string {
	var parts []string
	for _, s := range sources {
		if s.err != nil {
			parts = append(parts, s.name+": "+s.err.Error())
		}
	}
	text := strings.Join(parts, "; ")
	if len(parts) > 1 {
		return "no source gives the file: " + text
	}
	return text
}

// linkError adds the next step to certificate errors, and removes the URL, which the
// message names already.
func linkError(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &unknown):
		return fmt.Errorf("%w (install its CA on this host, or name a source this host trusts)", err)
	case errors.As(err, &name):
		return fmt.Errorf("%w (name the source as its certificate does)", err)
	case errors.As(err, &invalid):
		return fmt.Errorf("%w (check the clock of this host and the source's certificate)", err)
	}
	return err
}
