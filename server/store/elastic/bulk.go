package elastic

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
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
	var body bytes.Buffer
	from := 0
	touched := map[string]bool{}
	flush := func(to int) error {
		if from == to {
			return nil
		}
		outcomes, err := c.send(ctx, op, body.Bytes(), to-from)
		if err == nil {
			err = c.recognise(ctx, op, list[from:to], outcomes)
		}
		for index := range touched {
			c.fresh[index].wrote() // or may have
		}
		clear(touched)
		body.Reset()
		from = to
		out = append(out, outcomes...)
		return err
	}
	for i, w := range list {
		if err := c.encode(&body, w); err != nil {
			return nil, fleet.Errorf(fleet.Internal, "%s: %s cannot be encoded: %w", op, w.key.id, err)
		}
		touched[w.key.index] = true
		if i+1-from == maxBulkItems || body.Len() >= maxBulkBytes {
			if err := flush(i + 1); err != nil {
				return nil, err
			}
		}
	}
	if err := flush(len(list)); err != nil {
		return nil, err
	}
	return out, nil
}

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

func (c *client) encode(body *bytes.Buffer, w write) error {
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
	enc := json.NewEncoder(body) // ends each with a line break, as bulk wants it
	if err := enc.Encode(map[verb]target{w.verb: t}); err != nil {
		return err
	}
	switch w.verb {
	case remove:
		return nil
	case update:
		// Without a change Elasticsearch would write nothing, and the revision stay.
		return enc.Encode(map[string]any{"doc": w.body, "detect_noop": false})
	}
	return enc.Encode(w.body)
}

// send sends one request of n items. One that is turned away whole, since the
// node has too much to do, is sent again.
func (c *client) send(ctx context.Context, op string, body []byte, n int) ([]written, error) {
	pause := callBackoff
	for try := 1; ; try++ {
		var answer bulkAnswer
		err := c.do(ctx, call{op: op, timeout: bulkTimeout, request: func() esapi.Request {
			return esapi.BulkRequest{Body: bytes.NewReader(body), FilterPath: bulkPath}
		}}, &answer)
		if err != nil {
			return nil, err
		}
		if len(answer.Items) != n {
			return nil, fleet.Errorf(fleet.Unavailable, "%s: Elasticsearch answered for %d of %d documents", op, len(answer.Items), n)
		}
		out := make([]written, n)
		var refused *refusal
		busy := 0
		for i, item := range answer.Items {
			for _, it := range item {
				out[i].guard = guard{it.Seq, it.Term}
				if it.Error == nil {
					continue
				}
				r := it.Error.refusal(it.Status)
				switch {
				case it.Status == http.StatusConflict:
					out[i].conflict = true
				case r.kind == "document_missing_exception":
					out[i].missing = true
				default:
					refused = r
					if r.busy() {
						busy++
					}
				}
			}
		}
		if refused == nil {
			return out, nil
		}
		if busy < n || try == callTries || ctx.Err() != nil {
			return nil, fault(op, refused)
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause *= 2
	}
}

// write1 is write for one.
func (c *client) write1(ctx context.Context, op string, w write) (written, error) {
	out, err := c.write(ctx, op, w)
	if err != nil {
		return written{}, err
	}
	return out[0], nil
}
