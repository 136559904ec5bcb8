package elastic

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
)

const (
	// maxBulkItems and maxBulkBytes bound one request: large enough that its fixed
	// cost is small, small enough for a node with little memory. A single document
	// may be larger.
	maxBulkItems = 5_000
	maxBulkBytes = 8 << 20
)

// key names a document.
type key struct{ index, id string }

// maxID is the longest id Elasticsearch takes, in bytes.
const maxID = 512

// possible says whether a document can have this id. Elasticsearch would refuse
// the whole request.
func (k key) possible() bool { return k.id != "" && len(k.id) <= maxID }

// guard is the state of a document that a write demands.
type guard struct{ seq, term int64 }

// verb of a write.
type verb string

const (
	put    verb = "index"  // creates or replaces
	create verb = "create" // fails if it is there
	update verb = "update" // replaces the fields given; fails if it is not there
	remove verb = "delete"
)

// write is one change of one document.
type write struct {
	verb  verb
	key   key   // of a create without an id Elasticsearch makes one
	guard guard // zero: none; no document has term 0
	body  any   // nothing for remove
	// nonce is this attempt's own mark in the body, empty for none; see own.
	nonce string
}

// own marks a write, so that a conflict with itself can be told from one with
// another: a node whose primary dies amid a write repeats it on the copy that takes
// over, which may have it already.
func own(w write, source map[string]any) write {
	w.nonce = newNonce()
	source["nonce"] = w.nonce
	w.body = source
	return w
}

// newNonce is 65 random bits: it has to differ from that of the writer before.
func newNonce() string { return rand.Text()[:13] }

// written is what became of a write.
type written struct {
	guard    guard // of the document now
	conflict bool  // it exists already, or is not as the guard wants it
	missing  bool
	refused  *refusal // it was not done for another reason
	// repeated says that the cluster had done it already when it was asked again:
	// the document is ours, but touches may have come after.
	repeated bool
}

// bulkAnswer is what is read of the answer.
type bulkAnswer struct {
	Items []map[verb]struct {
		Status int    `json:"status"`
		Seq    int64  `json:"_seq_no"`
		Term   int64  `json:"_primary_term"`
		Error  *cause `json:"error"`
	} `json:"items"`
}

var bulkPath = []string{"items.*.status", "items.*._seq_no", "items.*._primary_term", "items.*.error"}

// write carries out the writes; outcomes stand at the index of theirs. Those of
// one index are done in their order. An error says that some may have been done,
// and others not.
//
// The bulk helper of the library is not used: it flushes by a timer, gives each
// item to one of several workers, and so keeps no order.
func (c *client) write(ctx context.Context, op string, list ...write) ([]written, error) {
	out := make([]written, 0, len(list))
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

// writePart is write for what fits into one request.
func (c *client) writePart(ctx context.Context, op string, list []write, items [][]byte, size int) ([]written, error) {
	send := c.send
	if len(items) <= gatherItems && size <= gatherBytes && !slices.ContainsFunc(list, write.odd) {
		send = c.writes.do
	}
	outcomes, err := send(ctx, items)
	for _, w := range list {
		c.fresh[w.key.index].wrote() // or may have
	}
	if err != nil {
		return nil, fault(op, err)
	}
	for _, out := range outcomes {
		if out.refused != nil {
			return nil, fault(op, out.refused)
		}
	}
	return outcomes, c.recognise(ctx, op, list, outcomes)
}

// odd says that Elasticsearch would refuse a whole request for this write.
func (w write) odd() bool { return w.key.id != "" && !w.key.possible() }

// recognise turns conflicts of writes with what they wrote themselves into
// successes.
func (c *client) recognise(ctx context.Context, op string, list []write, outcomes []written) error {
	var keys []key
	var places []int
	for i, out := range outcomes {
		if out.conflict && list[i].nonce != "" {
			keys, places = append(keys, list[i].key), append(places, i)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	got, err := c.gets(ctx, op, keys, "nonce")
	if err != nil {
		return err
	}
	for n, i := range places {
		var there struct {
			Nonce string `json:"nonce"`
		}
		if got[n].there {
			if err := decodeSource("document", keys[n].id, got[n].source, &there); err != nil {
				return err
			}
		}
		if there.Nonce == list[i].nonce {
			outcomes[i] = written{guard: got[n].guard, repeated: true}
		}
	}
	return nil
}

// encode writes the lines of a write as a bulk has them.
func (c *client) encode(w write) ([]byte, error) {
	type target struct {
		Index string `json:"_index"`
		ID    string `json:"_id,omitempty"`
		Seq   *int64 `json:"if_seq_no,omitempty"`
		Term  int64  `json:"if_primary_term,omitempty"`
	}
	t := target{Index: c.name(w.key.index), ID: w.key.id}
	if w.guard != (guard{}) {
		t.Seq, t.Term = &w.guard.seq, w.guard.term
	}
	var lines bytes.Buffer
	enc := json.NewEncoder(&lines) // ends each with a line break, as bulk wants it
	err := enc.Encode(map[verb]target{w.verb: t})
	switch {
	case err != nil || w.verb == remove:
	case w.verb == update:
		// Without a change Elasticsearch would write nothing, and the revision stay.
		err = enc.Encode(map[string]any{"doc": w.body, "detect_noop": false})
	default:
		err = enc.Encode(w.body)
	}
	return lines.Bytes(), err
}

// send sends writes in one request. Those that are turned away since the node has
// too much to do are sent again: of one shard it turns away all, so order stays.
func (c *client) send(ctx context.Context, items [][]byte) ([]written, error) {
	return c.sendAs(ctx, bulkCall{shard: shardTimeout}, items)
}

// bulkCall says how writes are sent.
type bulkCall struct {
	shard      time.Duration // how long they may wait for a primary copy
	repeatable bool          // as a call is
}

func (c *client) sendAs(ctx context.Context, how bulkCall, items [][]byte) ([]written, error) {
	out := make([]written, len(items))
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
			return nil, fmt.Errorf("it answered for %d of %d documents", len(answer.Items), len(open))
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

func outcome(status int, now guard, failed *cause) written {
	out := written{guard: now}
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

// write1 is write for one.
func (c *client) write1(ctx context.Context, op string, w write) (written, error) {
	out, err := c.write(ctx, op, w)
	if err != nil {
		return written{}, err
	}
	return out[0], nil
}
