package elastic

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"io"
	"sync"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// packAbove is the size above which a document is compressed. Documents about rollouts
	// with many targets would exceed Elasticsearch's limits of 100 MB a request and 50 MB a
	// text; compression removes nine tenths.
	packAbove = 1 << 20
	// maxUnpacked bounds the size of a decompressed document. A preview of fleet.MaxTargets
	// targets has a quarter of it.
	maxUnpacked = 1 << 30
)

// packed is the part of a source that holds the whole document, beside the fields that are
// indexed. It is a text, so that Elasticsearch preserves every byte: it would refuse an object
// with a repeated name, and reformat numbers when another field is updated.
type packed struct {
	Doc *string `json:"doc"`
	GZ  []byte  `json:"gz"` // in place of Doc, if that is larger than packAbove
}

func pack(noun, id string, v any) (packed, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return packed{}, fleet.Errorf(fleet.Internal, "%s %s cannot be encoded: %w", noun, id, err)
	}
	if err := store.CheckReadable(noun, id, b); err != nil {
		return packed{}, err
	}
	return packText(b)
}

func packText(b []byte) (packed, error) {
	if len(b) <= packAbove {
		s := string(b)
		return packed{Doc: &s}, nil
	}
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	if _, err := w.Write(b); err != nil {
		return packed{}, err // a bytes.Buffer returns no error
	}
	if err := w.Close(); err != nil {
		return packed{}, err
	}
	return packed{GZ: z.Bytes()}, nil
}

// unpack decodes a document that keepUnknown is for, and notes whether that has something to do.
func (c *client) unpack(p packed, noun, id string, v any) error {
	return unpackNoting(&c.unknowns, p, noun, id, v)
}

// unpack decodes a document of a kind that keeps no unknown members.
func unpack(p packed, noun, id string, v any) error {
	return unpackNoting(nil, p, noun, id, v)
}

func unpackNoting(u *store.Unknowns, p packed, noun, id string, v any) error {
	b, err := p.text()
	if err == nil {
		err = store.Decode(u, b, v)
	}
	if err != nil {
		return store.NewUnreadable(noun, id, err)
	}
	return nil
}

// text returns the document.
func (p packed) text() ([]byte, error) {
	if p.Doc != nil {
		return []byte(*p.Doc), nil
	}
	if p.GZ == nil {
		return nil, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(p.GZ))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, maxUnpacked))
}

// keepUnknown adds to the documents that replace others what this program does not know of those.
// Their guards ensure that what it reads is what they replace.
func (c *client) keepUnknown(ctx context.Context, op string, list []write) error {
	if !c.unknowns.Seen() {
		return nil
	}
	var keys []key
	var indices []int
	for i, w := range list {
		if w.replaces != nil {
			keys, indices = append(keys, w.key), append(indices, i)
		}
	}
	got, err := c.gets(ctx, op, keys, packedFields...)
	if err != nil {
		return err
	}
	for n, i := range indices {
		if !got[n].exists {
			continue // the write will find out
		}
		w := &list[i]
		var stored packed
		if err := decodeSource("document", w.key.id, got[n].source, &stored); err != nil {
			return err
		}
		old, err := stored.text()
		if err != nil {
			return store.NewUnreadable("document", w.key.id, err)
		}
		source := w.body.(map[string]any)
		doc, err := packedOf(source).text()
		if err != nil {
			return err
		}
		p, err := packText(store.KeepUnknown(w.replaces, old, doc))
		if err != nil {
			return err
		}
		withPacked(source, p)
	}
	return nil
}

// packedFields are the fields of packed.
var packedFields = []string{"doc", "gz"}

func decodeSource(noun, id string, source json.RawMessage, v any) error {
	if err := json.Unmarshal(source, v); err != nil {
		return store.NewUnreadable(noun, id, err)
	}
	return nil
}

// valuesOf returns the values of hits, without those whose document cannot be read.
func valuesOf[T any](c *client, hits []hit, value func(hit) (T, error)) ([]T, error) {
	out := make([]T, 0, len(hits))
	for _, h := range hits {
		v, err := value(h)
		switch {
		case err == nil:
			out = append(out, v)
		case !c.unreadable.Skip(err):
			return nil, err
		}
	}
	return out, nil
}

// withPacked adds a packed document to the fields of a source.
func withPacked(fields map[string]any, p packed) map[string]any {
	fields["doc"], fields["gz"] = p.Doc, p.GZ
	return fields
}

// termShift leaves 40 bits of a revision for the sequence number, which allows a trillion
// writes to an index. The primary term grows only when a primary shard moves.
const termShift = 40

// revision returns the guard as one number: the revision of a document with that guard.
// Terms begin with 1, so no revision is 0.
func (g guard) revision() int64 { return g.term<<termShift | g.seq }

func guardOf(revision int64) guard {
	return guard{seq: revision & (1<<termShift - 1), term: revision >> termShift}
}

// newRevision returns the first revision of an agent, which later ones count on from. It has
// 51 random bits, so that the revisions of a deleted agent do not match those of a later
// agent with the same id.
func newRevision() int64 {
	var b [8]byte
	rand.Read(b[:]) // returns no error, by its documentation
	return int64(binary.BigEndian.Uint64(b[:])>>13) + 1
}

// text returns the value of a text field: nil if s is empty.
func text(s string) any {
	if s == "" {
		return nil
	}
	return s
}

// when returns the value of a date field: nil if t is zero.
func when(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UTC()
}

// millis returns t as Elasticsearch compares it: dates have milliseconds.
func millis(t time.Time) int64 { return t.UnixMilli() }

// creationClock returns strictly increasing creation times, in nanoseconds. Lists of
// documents that have no time of their own are sorted by it.
type creationClock struct {
	mu   sync.Mutex
	last int64
}

func (b *creationClock) next() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = max(b.last+1, time.Now().UnixNano())
	return b.last
}
