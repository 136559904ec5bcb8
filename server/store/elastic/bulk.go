package elastic

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// maxBulkItems and maxBulkBytes bound one request: large enough to make its fixed cost
	// negligible, and small enough for a node with little memory. A single document may be
	// larger.
	maxBulkItems = 5_000
	maxBulkBytes = 8 << 20
)

// key identifies a document.
type key struct{ index, id string }

// maxID is the longest id that Elasticsearch accepts, in bytes.
const maxID = 512

// validID reports whether Elasticsearch accepts the id. It refuses a whole request with one
// that it does not accept.
func (k key) validID() bool { return k.id != "" && len(k.id) <= maxID }

// guard identifies the version of a document by its sequence number and primary term. A write
// with a guard fails with a conflict unless the document has that version.
type guard struct{ seq, term int64 }

// verb is the kind of a write.
type verb string

const (
	put    verb = "index"  // creates or replaces the document
	create verb = "create" // fails if the document exists
	update verb = "update" // replaces the given fields; fails if the document does not exist
	remove verb = "delete"
)

// write is one change of one document.
type write struct {
	verb  verb
	key   key    // Elasticsearch assigns an id to a create without one
	guard guard  // zero means none; no document has term 0
	body  any    // nil for remove
	nonce string // identifies this write in body; may be empty; see withNonce
	// replaces is the type of the document that body replaces; nil: none. See keepUnknown.
	replaces reflect.Type
}

// withNonce adds a nonce to a write, by which a conflict with itself can be distinguished from a
// conflict with another write. If a primary shard fails during a write, Elasticsearch repeats
// the write on the new primary, which may have executed it already.
func withNonce(w write, source map[string]any) write {
	w.nonce = newNonce()
	source["nonce"] = w.nonce
	w.body = source
	return w
}

// newNonce returns 65 random bits. It must differ from the nonces of other writes of the same
// document.
func newNonce() string { return rand.Text()[:13] }

// writeResult is the result of one write.
type writeResult struct {
	guard    guard    // of the document after the write
	conflict bool     // the document exists, or does not match the guard
	missing  bool     // the document of an update does not exist
	refused  *refusal // the write failed for another reason
	// repeated reports that Elasticsearch repeated the write after it had succeeded. Touches
	// may have changed the document since.
	repeated bool
}

// bulkAnswer is the part of a bulk response that is read.
type bulkAnswer struct {
	Items []map[verb]struct {
		Status int    `json:"status"`
		Seq    int64  `json:"_seq_no"`
		Term   int64  `json:"_primary_term"`
		Error  *cause `json:"error"`
	} `json:"items"`
}

var bulkPath = []string{"items.*.status", "items.*._seq_no", "items.*._primary_term", "items.*.error"}

// write executes writes and returns their results at the same indices. Writes to one index
// are executed in their order. After an error some of them may have been executed.
//
// The library's bulk indexer is not used: it flushes by a timer and distributes items to
// several workers, which does not preserve the order.
func (c *client) write(ctx context.Context, op string, list ...write) ([]writeResult, error) {
	out := make([]writeResult, 0, len(list))
	if err := c.keepUnknown(ctx, op, list); err != nil {
		return nil, err
	}
	for len(list) > 0 {
		n, size := 0, 0
		var items [][]byte
		for n < min(len(list), maxBulkItems) && size < maxBulkBytes {
			item, err := c.encode(list[n])
			if err != nil {
				return nil, fleet.Errorf(fleet.Internal, "%s: %s cannot be encoded: %w", op, list[n].key.id, err)
			}
			items = append(items, item)
			size += len(item)
			n++
		}
		outcomes, err := c.writePart(ctx, op, list[:n], items, size)
		if err != nil {
			return nil, err
		}
		out = append(out, outcomes...)
		list = list[n:]
	}
	return out, nil
}

// writePart is write for writes that fit into one request.
func (c *client) writePart(ctx context.Context, op string, list []write, items [][]byte, size int) ([]writeResult, error) {
	send := c.send
	if len(items) <= batchItems && size <= batchBytes && !slices.ContainsFunc(list, write.hasInvalidID) {
		send = c.writes.do
	}
	outcomes, err := send(ctx, items)
	for _, w := range list {
		c.fresh[w.key.index].noteWrite() // even after an error, since it may have been executed
	}
	if err != nil {
		return nil, fault(op, err)
	}
	for _, out := range outcomes {
		if out.refused != nil {
			return nil, fault(op, out.refused)
		}
	}
	return outcomes, c.resolveOwnConflicts(ctx, op, list, outcomes)
}

// hasInvalidID reports whether Elasticsearch would refuse a whole request because of this
// write.
func (w write) hasInvalidID() bool { return w.key.id != "" && !w.key.validID() }

// resolveOwnConflicts turns conflicts of writes with themselves into successes; see
// withNonce.
func (c *client) resolveOwnConflicts(ctx context.Context, op string, list []write, outcomes []writeResult) error {
	var keys []key
	var indices []int
	for i, out := range outcomes {
		if out.conflict && list[i].nonce != "" {
			keys, indices = append(keys, list[i].key), append(indices, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	got, err := c.gets(ctx, op, keys, "nonce")
	if err != nil {
		return err
	}
	for n, i := range indices {
		var stored struct {
			Nonce string `json:"nonce"`
		}
		if got[n].exists {
			if err := decodeSource("document", keys[n].id, got[n].source, &stored); err != nil {
				return err
			}
		}
		if stored.Nonce == list[i].nonce {
			outcomes[i] = writeResult{guard: got[n].guard, repeated: true}
		}
	}
	return nil
}

// encode returns the lines of a write in a bulk request.
func (c *client) encode(w write) ([]byte, error) {
	type header struct {
		Index string `json:"_index"`
		ID    string `json:"_id,omitempty"`
		Seq   *int64 `json:"if_seq_no,omitempty"`
		Term  int64  `json:"if_primary_term,omitempty"`
	}
	h := header{Index: c.name(w.key.index), ID: w.key.id}
	if w.guard != (guard{}) {
		h.Seq, h.Term = &w.guard.seq, w.guard.term
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines) // ends each value with a line break, as required
	err := enc.Encode(map[verb]header{w.verb: h})
	switch {
	case err != nil || w.verb == remove:
	case w.verb == update:
		// By default Elasticsearch ignores an update that changes nothing. The revision must
		// change nevertheless.
		err = enc.Encode(map[string]any{"doc": w.body, "detect_noop": false})
	default:
		err = enc.Encode(w.body)
	}
	return lines.Bytes(), err
}

// send sends writes in one request. It sends writes again that were rejected because of
// overload. A node rejects all writes of a shard, so that their order is preserved.
func (c *client) send(ctx context.Context, items [][]byte) ([]writeResult, error) {
	return c.sendAs(ctx, bulkCall{shard: shardTimeout}, items)
}

// bulkCall has the parameters of a bulk request.
type bulkCall struct {
	shard      time.Duration // how long writes may wait for a primary shard
	repeatable bool          // see call
}

func (c *client) sendAs(ctx context.Context, how bulkCall, items [][]byte) ([]writeResult, error) {
	out := make([]writeResult, len(items))
	open := make([]int, len(items))
	for i := range items {
		open[i] = i
	}
	pause := callBackoff
	for try := 1; ; try++ {
		var body bytes.Buffer
		for _, i := range open {
			body.Write(items[i])
		}
		var answer bulkAnswer
		err := c.try(ctx, call{timeout: timeoutFor(len(open)), repeatable: how.repeatable, request: func() esapi.Request {
			return esapi.BulkRequest{Body: bytes.NewReader(body.Bytes()), FilterPath: bulkPath, Timeout: how.shard}
		}}, &answer)
		if err != nil {
			return nil, err
		}
		if len(answer.Items) != len(open) {
			return nil, fmt.Errorf("the response has %d of %d documents", len(answer.Items), len(open))
		}
		var busy []int
		for n, item := range answer.Items {
			for _, it := range item {
				out[open[n]] = outcome(it.Status, guard{it.Seq, it.Term}, it.Error)
			}
			if r := out[open[n]].refused; r != nil && r.busy() {
				busy = append(busy, open[n])
			}
		}
		if len(busy) == 0 || try == callTries || ctx.Err() != nil {
			return out, nil
		}
		open = busy
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func outcome(status int, now guard, failed *cause) writeResult {
	out := writeResult{guard: now}
	if failed == nil {
		return out
	}
	r := failed.refusal(status)
	switch {
	case status == http.StatusConflict:
		out.conflict = true
	case r.kind == "document_missing_exception":
		out.missing = true
	default:
		out.refused = r
	}
	return out
}

// write1 is write for one write.
func (c *client) write1(ctx context.Context, op string, w write) (writeResult, error) {
	out, err := c.write(ctx, op, w)
	if err != nil {
		return writeResult{}, err
	}
	return out[0], nil
}
