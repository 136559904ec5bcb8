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

// ErrNotFound says that a source does not have the file. It is in the chain of
// an error when at least one source has said so.
var ErrNotFound = errors.New("not found")

// fault is an error with what it means for what follows. An error that is none
// is the link's: the same source may do better in a while.
type fault struct {
	err error
	// ours: the host or the caller is at fault, and no source can help.
	ours bool
	// lasting: waiting does not help either.
	lasting bool
	// retryAfter is what the source has asked for.
	retryAfter time.Duration
}

func (f *fault) Error() string { return f.err.Error() }
func (f *fault) Unwrap() error { return f.err }

// refused is a source that will not give the file, however often it is asked.
func refused(format string, args ...any) error {
	return &fault{lasting: true, err: fmt.Errorf(format, args...)}
}

// onDisk is a failed call to this host's disk. A full disk may have room later;
// nothing else of a disk gets better by itself.
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

// ending turns a fault of this host into the error of the fetch; others pass.
func ending(err error) error {
	var f *fault
	if !errors.As(err, &f) {
		return err
	}
	return &ended{text: err.Error(), causes: []error{err}, transient: !f.lasting}
}

// Kept says whether a failed download leaves its first part behind for a later
// one: it does when the link is at fault or ctx has ended, and not when the disk
// or every source is.
func Kept(err error) bool {
	var e *ended
	if errors.As(err, &e) {
		return e.kept
	}
	return err != nil
}

// Transient says whether a failed fetch is worth another try later: the network,
// a busy or broken server (429, 5xx), a full disk. It is false where somebody has
// to do something first, and for the cause of an ended context.
func Transient(err error) bool {
	var e *ended
	return errors.As(err, &e) && e.transient
}

// summary is the error of a fetch that no source has satisfied.
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

// reasons names each source with what it said last.
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

// linkError adds the next thing to try where waiting may well not help, and takes
// away the URL, which is said already.
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
