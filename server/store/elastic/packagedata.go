package elastic

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// partSize is how many bytes of a package one document has. Larger parts are no faster,
	// and make a node with little memory collect garbage most of the time. The size is part
	// of the format: with another, parts would need other ids.
	partSize = 1 << 20
	// maxTransfers bounds the concurrent transfers. Each needs some six times partSize of
	// memory for a part in base64, here and on a node.
	maxTransfers = 4
	// partTries and partPause bound the attempts to write a part. A part may always be
	// written again, and one failure should not fail a package of hundreds of parts. With
	// pauses that double, a node has 7 s to recover.
	partTries = 4
	partPause = time.Second
	// removeBatch is how many parts one request deletes.
	removeBatch = 1_000
	// removeRounds bounds Delete. The largest package has 2,048 parts; parts that are left
	// after as many rounds are still being written.
	removeRounds = 6
)

// packageData stores a package as parts and a head. The head is written last and deleted
// first, so that an incomplete package has none.
type packageData struct{ s *Store }

// packageHead is the document that makes parts a complete package.
type packageHead struct {
	Package string `json:"package"`
	Size    int64  `json:"size"`
	Parts   int    `json:"parts"`
	Born    int64  `json:"born"`
}

type packagePart struct {
	Package string `json:"package"`
	Part    int    `json:"part"`
	Bytes   []byte `json:"bytes"`
	Born    int64  `json:"born"`
}

func headKey(digest string) key { return key{indexPackageData, digest} }

func partKey(digest string, n int) key {
	return key{indexPackageData, fmt.Sprintf("%s.%d", digest, n)}
}

// transfers bounds the concurrent transfers of packages.
type transfers struct {
	once  sync.Once
	slots chan struct{}
}

// acquire waits until a transfer may begin. The caller must call release at its end.
func (t *transfers) acquire(ctx context.Context, op string) (release func(), err error) {
	t.once.Do(func() { t.slots = make(chan struct{}, maxTransfers) })
	select {
	case t.slots <- struct{}{}:
		return func() { <-t.slots }, nil
	case <-ctx.Done():
		return nil, fault(op, ctx.Err())
	}
}

func (d packageData) Put(ctx context.Context, digest string, size int64, r io.Reader) error {
	const op = "store the bytes of a package"
	if size < 0 || digest == "" {
		return fleet.Errorf(fleet.Invalid, "%s: %d bytes under %q cannot be stored", op, size, digest)
	}
	release, err := d.s.transfers.acquire(ctx, op)
	if err != nil {
		return err
	}
	defer release()
	sum := sha256.New()
	buf := make([]byte, min(size, partSize))
	parts := 0
	for rest := size; rest > 0; parts++ {
		n := min(rest, partSize)
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return fleet.Errorf(fleet.Invalid, "%s: %s has fewer than the expected %d bytes", op, digest, size)
			}
			return fmt.Errorf("%s: read %s: %w", op, digest, err)
		}
		sum.Write(buf[:n])
		rest -= n
		err := d.put(ctx, op, write{verb: put, key: partKey(digest, parts), body: packagePart{
			Package: digest, Part: parts, Bytes: buf[:n], Born: d.s.clock.next(),
		}})
		if err != nil {
			return err
		}
	}
	if n, _ := io.ReadFull(r, make([]byte, 1)); n > 0 {
		return fleet.Errorf(fleet.Invalid, "%s: %s has more than the expected %d bytes", op, digest, size)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != digest {
		return fleet.Errorf(fleet.Invalid, "%s: the bytes have the SHA-256 %s, not %s", op, got, digest)
	}
	return d.put(ctx, op, write{verb: put, key: headKey(digest), body: packageHead{
		Package: digest, Size: size, Parts: parts, Born: d.s.clock.next(),
	}})
}

// put writes a document. It retries if the store is unavailable, since the write is
// idempotent.
func (d packageData) put(ctx context.Context, op string, w write) error {
	pause := partPause
	for try := 1; ; try++ {
		_, err := d.s.c.write1(ctx, op, w)
		if err == nil || fleet.KindOf(err) != fleet.Unavailable || try == partTries || ctx.Err() != nil || d.s.c.closed.Load() {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (d packageData) Get(ctx context.Context, digest string, w io.Writer) error {
	const op = "read the bytes of a package"
	release, err := d.s.transfers.acquire(ctx, op)
	if err != nil {
		return err
	}
	defer release()
	f, err := d.s.c.get(ctx, op, headKey(digest), "package", "size", "parts")
	if err != nil {
		return err
	}
	var head packageHead
	if f.exists {
		if err := decodeSource("package", digest, f.source, &head); err != nil {
			return err
		}
	}
	if !f.exists || head.Package != digest { // a mismatch means that digest is the id of a part
		return fleet.Errorf(fleet.NotFound, "the store does not have the bytes of package %s", digest)
	}
	written := int64(0)
	for n := range head.Parts {
		b, err := d.part(ctx, op, digest, n)
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err // the caller's own
		}
		written += int64(len(b))
	}
	if written != head.Size {
		return incomplete(digest, "%d of %d bytes are stored", written, head.Size)
	}
	return nil
}

// uncompressed returns headers that request an uncompressed response: packages are compressed
// already, and compressing them again would take most of the time. Each request needs its own
// headers, because the library modifies them.
func uncompressed() http.Header { return http.Header{"Accept-Encoding": {"identity"}} }

func (d packageData) part(ctx context.Context, op, digest string, n int) ([]byte, error) {
	k := partKey(digest, n)
	// Without _source, since the node would have to parse the source to select fields.
	encoded, err := json.Marshal(body{"docs": []any{body{"_index": d.s.c.name(k.index), "_id": k.id}}})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Docs []struct {
			Found  bool        `json:"found"`
			Source packagePart `json:"_source"`
			Error  *cause      `json:"error"`
		} `json:"docs"`
	}
	err = d.s.c.do(ctx, call{op: op, timeout: callTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.MgetRequest{Body: bytes.NewReader(encoded), Header: uncompressed()}
	}}, &answer)
	switch {
	case err != nil:
		return nil, err
	case len(answer.Docs) != 1:
		return nil, fleet.Errorf(fleet.Unavailable, "%s: Elasticsearch returned %d documents, want 1", op, len(answer.Docs))
	case answer.Docs[0].Error != nil:
		return nil, fault(op, answer.Docs[0].Error.refusal(statusOf(answer.Docs[0].Error.Type)))
	case !answer.Docs[0].Found:
		return nil, incomplete(digest, "part %d is missing", n)
	}
	return answer.Docs[0].Source.Bytes, nil
}

func incomplete(digest, format string, args ...any) error {
	return fleet.Errorf(fleet.NotFound, "the store does not have all bytes of package %s: %s", digest, fmt.Sprintf(format, args...))
}

func (d packageData) Delete(ctx context.Context, digest string) error {
	const op = "remove the bytes of a package"
	c := d.s.c
	if k := headKey(digest); !k.validID() {
		return nil
	}
	if _, err := c.write1(ctx, op, write{verb: remove, key: headKey(digest)}); err != nil {
		return err
	}
	for range removeRounds {
		// Another process may have written the parts, so a refresh is always needed.
		if err := c.refreshNow(ctx, op, indexPackageData); err != nil {
			return err
		}
		found, err := c.searchNow(ctx, op, indexPackageData, body{
			"query": body{"term": body{"package": digest}}, "_source": false, "size": removeBatch, "track_total_hits": false,
		})
		if err != nil || len(found.Hits.Hits) == 0 {
			return err
		}
		var gone []write
		for _, h := range found.Hits.Hits {
			gone = append(gone, write{verb: remove, key: key{indexPackageData, h.ID}})
		}
		if _, err := c.write(ctx, op, gone...); err != nil {
			return err
		}
	}
	return nil
}

func (d packageData) List(ctx context.Context) ([]store.PackageBytes, error) {
	type count struct {
		expected int // by the head; -1 without one
		parts    int
		born     int64
	}
	all := map[string]*count{}
	err := d.s.c.walk(ctx, "list the bytes of packages", indexPackageData, body{
		"_source": false, "docvalue_fields": []any{"package", "parts", "born"},
	}, maxResultWindow, func(h hit) error {
		digest := h.text("package")
		t := all[digest]
		if t == nil {
			t = &count{expected: -1}
			all[digest] = t
		}
		t.born = max(t.born, h.number("born", 0))
		if expected := h.number("parts", -1); expected >= 0 {
			t.expected = int(expected)
		} else {
			t.parts++
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := make([]store.PackageBytes, 0, len(all))
	for digest, t := range all {
		out = append(out, store.PackageBytes{SHA256: digest, Whole: t.expected == t.parts, Written: time.Unix(0, t.born).UTC()})
	}
	return out, nil
}

// number returns the doc value of a field, or none if there is no value.
func (h hit) number(field string, none int64) int64 {
	n := none
	if v := h.Fields[field]; len(v) > 0 {
		_ = json.Unmarshal(v[0], &n) // n stays none if the value has another type
	}
	return n
}
