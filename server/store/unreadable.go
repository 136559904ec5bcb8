package store

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// A document that cannot be read costs its own row: a call for that document fails, and a list,
// a query, a count or a scan leaves it out, and notes it in [Unreadables].

// UnreadableError is in the error of a call for a document that the store has and cannot read.
type UnreadableError struct {
	Noun, ID string
	Err      error
}

func (e *UnreadableError) Error() string { return e.Err.Error() }
func (e *UnreadableError) Unwrap() error { return e.Err }

// NewUnreadable returns the error for a document that cannot be decoded.
func NewUnreadable(noun, id string, err error) error {
	return fleet.Errorf(fleet.Internal, "the stored %s %s cannot be read: %w", noun, id, &UnreadableError{noun, id, err})
}

// Unreadable is a document that a list or a scan has left out.
type Unreadable struct {
	Noun, ID string
	Reason   string
	At       time.Time // when it was last left out
}

const (
	// maxUnreadable bounds the documents that are remembered. A store with more is damaged as a
	// whole, and who mends it needs a few to look at.
	maxUnreadable = 1_000
	// UnreadableFor is how long a document counts as unreadable after it was last left out. All
	// that matters is read more often.
	UnreadableFor = time.Hour
)

// Unreadables remembers the documents that a store has left out. The zero value is ready.
type Unreadables struct {
	mu  sync.Mutex
	all map[[2]string]Unreadable
	log func(Unreadable)
}

// OnFirst registers a function that is called once for each document, when it is left out for
// the first time. It must not call the store.
func (u *Unreadables) OnFirst(f func(Unreadable)) {
	u.mu.Lock()
	u.log = f
	known := u.list()
	u.mu.Unlock()
	for _, d := range known {
		f(d)
	}
}

// Skip reports whether err is that of a document that cannot be read, and notes the document.
func (u *Unreadables) Skip(err error) bool {
	var e *UnreadableError
	if !errors.As(err, &e) {
		return false
	}
	d := Unreadable{e.Noun, e.ID, e.Err.Error(), time.Now().UTC()}
	u.mu.Lock()
	_, known := u.all[d.key()]
	if u.all == nil {
		u.all = map[[2]string]Unreadable{}
	}
	if known || len(u.all) < maxUnreadable {
		u.all[d.key()] = d
	}
	log := u.log
	if known || len(u.all) > maxUnreadable {
		log = nil
	}
	u.mu.Unlock()
	if log != nil {
		log(d)
	}
	return true
}

func (d Unreadable) key() [2]string { return [2]string{d.Noun, d.ID} }

// Forget removes a document that was deleted or written again.
func (u *Unreadables) Forget(noun, id string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.all, [2]string{noun, id})
}

// List returns the documents that were left out since a time, sorted by noun and id.
func (u *Unreadables) List(since time.Time) []Unreadable {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.DeleteFunc(u.list(), func(d Unreadable) bool { return d.At.Before(since) })
}

func (u *Unreadables) list() []Unreadable {
	out := make([]Unreadable, 0, len(u.all))
	for _, d := range u.all {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b Unreadable) int {
		return cmp.Or(strings.Compare(a.Noun, b.Noun), strings.Compare(a.ID, b.ID))
	})
	return out
}

// CheckReadable refuses a document that is nested too deep for a store to read it again.
func CheckReadable[T []byte | string](noun, id string, doc T) error {
	if fleet.Deeper(doc, fleet.MaxStoredDepth) {
		return fleet.Errorf(fleet.Invalid, "%s %s is nested more than %d deep, which the store could not read again", noun, id, fleet.MaxStoredDepth)
	}
	return nil
}

// String is for logs.
func (d Unreadable) String() string { return fmt.Sprintf("%s %s: %s", d.Noun, d.ID, d.Reason) }
