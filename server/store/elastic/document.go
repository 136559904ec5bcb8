package elastic

import (
	"bytes"
	"compress/gzip"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// packAbove is the size from which a document is compressed: those of rollouts
	// with many targets, which Elasticsearch would turn away whole (100 MB a request,
	// 50 MB a text). It takes out nine tenths.
	packAbove = 1 << 20
	// maxUnpacked bounds what a compressed document may become: a preview of
	// fleet.MaxTargets targets has a quarter of it.
	maxUnpacked = 1 << 30
)

// packed is our whole document beside the fields that can be searched. It is a
// text, so that Elasticsearch keeps every byte: of an object it would refuse a
// name that occurs twice, and spell numbers anew when a field beside it changes.
type packed struct {
	Doc *string `json:"doc"`
	GZ  []byte  `json:"gz"` // instead, when it is large
}

func pack(noun, id string, v any) (packed, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return packed{}, fleet.Errorf(fleet.Internal, "%s %s cannot be encoded: %w", noun, id, err)
	}
	if len(b) <= packAbove {
		s := string(b)
		return packed{Doc: &s}, nil
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		return packed{}, err // a buffer takes all
	}
	if err := w.Close(); err != nil {
		return packed{}, err
	}
	return packed{GZ: z.Bytes()}, nil
}

func (p packed) unpack(noun, id string, v any) error {
	unreadable := func(err error) error {
		return fleet.Errorf(fleet.Internal, "the stored %s %s cannot be read: %w", noun, id, err)
	}
	var b []byte
	if p.Doc != nil {
		b = []byte(*p.Doc)
	} else if p.GZ != nil {
		r, err := gzip.NewReader(bytes.NewReader(p.GZ))
		if err != nil {
			return unreadable(err)
		}
		if b, err = io.ReadAll(io.LimitReader(r, maxUnpacked)); err != nil {
			return unreadable(err)
		}
	}
	if err := json.Unmarshal(b, v); err != nil {
		return unreadable(err)
	}
	return nil
}

// fields of the source that hold a packed document.
var packedFields = []string{"doc", "gz"}

// decodeSource reads a source.
func decodeSource(noun, id string, source json.RawMessage, v any) error {
	if err := json.Unmarshal(source, v); err != nil {
		return fleet.Errorf(fleet.Internal, "the stored %s %s cannot be read: %w", noun, id, err)
	}
	return nil
}

// withPacked is a source: fields and the packed document.
func withPacked(fields map[string]any, p packed) map[string]any {
	fields["doc"], fields["gz"] = p.Doc, p.GZ
	return fields
}

// termShift leaves 40 bits of a revision for the sequence number: a trillion writes
// to an index. Terms grow when a primary copy moves, a few a year.
const termShift = 40

// revision of a document is the guard of its last write as one number. Terms
// begin with 1, so no revision is 0.
func (g guard) revision() int64 { return g.term<<termShift | g.seq }

func guardOf(revision int64) guard {
	return guard{seq: revision & (1<<termShift - 1), term: revision >> termShift}
}

// newRevision begins the revisions of an agent, which count on from it. 51 random
// bits: an agent that takes a deleted one's place does not meet its revisions.
func newRevision() int64 {
	var b [8]byte
	rand.Read(b[:]) // never fails, by its documentation
	return int64(binary.BigEndian.Uint64(b[:])>>13) + 1
}

// text is a keyword, nil where it is empty: an empty text is no value.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// when is a time, nil for none.
func when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// millis is how times are compared: dates have milliseconds.
func millis(t time.Time) int64 { return t.UnixMilli() }

// births gives out when documents were created, in nanoseconds, growing within
// the process: what lists of those without a time of their own are sorted by.
type births struct {
	mu   sync.Mutex
	last int64
}

func (b *births) next() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = max(b.last+1, time.Now().UnixNano())
	return b.last
}
