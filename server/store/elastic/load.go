package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

var _ store.Loader = (*Store)(nil)

// equal reports whether two documents have the same bytes.
func (p packed) equal(q packed) bool {
	if p.Doc == nil || q.Doc == nil {
		return p.Doc == nil && q.Doc == nil && bytes.Equal(p.GZ, q.GZ)
	}
	return *p.Doc == *q.Doc
}

// matches reports whether the stored document is want.
func (f getResult) matches(noun, id string, want packed) (bool, error) {
	if !f.exists {
		return false, nil
	}
	var p packed
	err := decodeSource(noun, id, f.source, &p)
	return p.equal(want), err
}

// changes collects the documents of a Load method.
type changes struct {
	noun   string
	keys   []key
	wants  []packed
	bodies []map[string]any
}

func (c *changes) want(k key, p packed, body map[string]any) {
	c.keys, c.wants, c.bodies = append(c.keys, k), append(c.wants, p), append(c.bodies, withPacked(body, p))
}

// load writes the documents that are missing or differ. There are no other writers, so the
// writes need no guard.
func (s *Store) load(ctx context.Context, op string, c changes) (int, error) {
	got, err := s.c.gets(ctx, op, c.keys, packedFields...)
	if err != nil {
		return 0, err
	}
	var writes []write
	for i, f := range got {
		matches, err := f.matches(c.noun, c.keys[i].id, c.wants[i])
		if err != nil {
			return 0, err
		}
		if !matches {
			writes = append(writes, write{verb: put, key: c.keys[i], body: c.bodies[i]})
		}
	}
	_, err = s.c.write(ctx, op, writes...)
	return len(writes), err
}

func (s *Store) LoadAgents(ctx context.Context, list []fleet.Agent) (int, error) {
	const op = "load agents"
	keys := make([]key, len(list))
	for i := range list {
		keys[i] = key{indexAgents, list[i].ID}
	}
	got, err := s.c.gets(ctx, op, keys, agentFields...)
	if err != nil {
		return 0, err
	}
	// Access keys are written first, as for a new agent. Replaced ones, which give no access
	// any more, are released last.
	var keyWrites, writes []write
	old := map[string]string{}
	for i := range list {
		a := &list[i]
		source, err := agentSource(a, newRevision(), a.Last)
		if err != nil {
			return 0, err
		}
		if got[i].exists {
			var existing struct {
				agentHead
				packed
			}
			if err := decodeSource("agent", a.ID, got[i].source, &existing); err != nil {
				return 0, err
			}
			if existing.equal(packedOf(source)) && equalLast(existing.last(), a.Last) {
				continue
			}
			if existing.AccessKeyID != a.AccessKeyID {
				old[existing.AccessKeyID] = a.ID
			}
		}
		s.heads.drop(a.ID)
		if a.AccessKeyID != "" {
			keyWrites = append(keyWrites, write{verb: put, key: key{indexAccessKeys, a.AccessKeyID}, body: keySource{a.ID}})
		}
		writes = append(writes, write{verb: put, key: keys[i], body: source})
	}
	if _, err := s.c.write(ctx, op, keyWrites...); err != nil {
		return 0, err
	}
	if _, err := s.c.write(ctx, op, writes...); err != nil {
		return 0, err
	}
	for keyID, agentID := range old {
		if err := (agents{s}).release(ctx, keyID, agentID); err != nil {
			return 0, err
		}
	}
	return len(writes), nil
}

// packedOf returns the packed document of a source.
func packedOf(source map[string]any) packed {
	doc, _ := source["doc"].(*string)
	gz, _ := source["gz"].([]byte)
	return packed{Doc: doc, GZ: gz}
}

func equalLast(a, b fleet.LastSeen) bool {
	at := a.At == b.At || a.At != nil && b.At != nil && a.At.Equal(*b.At)
	return at && a.Status == b.Status && a.Message == b.Message && a.ActionSeq == b.ActionSeq
}

func (s *Store) LoadResults(ctx context.Context, list []fleet.Result) (int, error) {
	c := changes{noun: "result"}
	for _, r := range list {
		source, err := resultSource(r)
		if err != nil {
			return 0, err
		}
		c.want(resultKey(r), packedOf(source), source)
	}
	return s.load(ctx, "load results", c)
}

func (s *Store) LoadTargets(ctx context.Context, rolloutID string, list []fleet.Target) (int, error) {
	n, err := targets{s}.list(ctx, rolloutID)
	if err != nil {
		return 0, err
	}
	c := changes{noun: "target"}
	for i := range list {
		source, err := targetSource(&list[i])
		if err != nil {
			return 0, err
		}
		source["list"] = n
		c.want(targetKey(rolloutID, list[i].AgentID), packedOf(source), source)
	}
	return s.load(ctx, "load targets", c)
}

func (s *Store) LoadSetting(ctx context.Context, name string, v []byte) (bool, error) {
	c := settings{s}.collection()
	existing, err := c.Get(ctx, name)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound:
		return true, c.Create(ctx, setting{Name: name, Value: v})
	case err != nil || bytes.Equal(existing.Value, v):
		return false, err
	}
	existing.Value = v
	_, err = c.Update(ctx, existing)
	return true, err
}

func (s *Store) RemoveSetting(ctx context.Context, name string) error {
	return settings{s}.collection().Delete(ctx, name)
}

// numbered is a document that must get a certain number.
type numbered struct {
	number int64
	key    key
	doc    packed
	body   any // with the document
}

// fillerID is the id that is deleted to use up a number. There is never such a document:
// deleting it uses up a number all the same, and leaves a tombstone of some ten bytes until
// segments are merged.
const fillerID = "gap"

// numberedBatch bounds the writes of one batch of a numberedWriter.
const numberedBatch = maxBulkItems

// loadNumbered writes documents so that each gets its number. A document whose number is
// taken must be stored with it already.
func (s *Store) loadNumbered(ctx context.Context, op, noun string, o *sequence, list []numbered) (int, error) {
	taken, err := s.c.lastTaken(ctx, op, o.index)
	if err != nil {
		return 0, err
	}
	first := sort.Search(len(list), func(i int) bool { return list[i].number > taken })
	keys := make([]key, first)
	for i := range keys {
		keys[i] = list[i].key
	}
	got, err := s.c.gets(ctx, op, keys, packedFields...)
	if err != nil {
		return 0, err
	}
	for i, f := range got {
		matches, err := f.matches(noun, keys[i].id, list[i].doc)
		switch {
		case err != nil:
			return 0, err
		case !matches || number(f.guard.seq) != list[i].number:
			return 0, fmt.Errorf("%w: %s %s does not have the number %d, which is taken", store.ErrOutOfStep, noun, keys[i].id, list[i].number)
		}
	}
	w := numberedWriter{s: s, op: op, sequence: o, next: taken + 1}
	for _, d := range list[first:] {
		if err := w.skipTo(ctx, d.number); err != nil {
			return 0, err
		}
		if err := w.add(ctx, write{verb: create, key: d.key, body: d.body}); err != nil {
			return 0, err
		}
	}
	return len(list) - first, w.flush(ctx)
}

// numberedWriter executes writes that get consecutive numbers.
type numberedWriter struct {
	s        *Store
	op       string
	sequence *sequence
	next     int64 // the number of the next write
	writes   []write
}

func (w *numberedWriter) add(ctx context.Context, one write) error {
	w.writes = append(w.writes, one)
	w.next++
	if len(w.writes) < numberedBatch {
		return nil
	}
	return w.flush(ctx)
}

// skipTo uses up the numbers below number.
func (w *numberedWriter) skipTo(ctx context.Context, number int64) error {
	for w.next < number {
		if err := w.add(ctx, write{verb: remove, key: key{w.sequence.index, fillerID}}); err != nil {
			return err
		}
	}
	return nil
}

func (w *numberedWriter) flush(ctx context.Context) error {
	outcomes, err := w.s.c.write(ctx, w.op, w.writes...)
	w.sequence.noteWrite()
	if err != nil {
		return err
	}
	first := w.next - int64(len(w.writes))
	for i, out := range outcomes {
		if want := first + int64(i); out.conflict || number(out.guard.seq) != want {
			return fmt.Errorf("%w: the index %s has not assigned the number %d", store.ErrOutOfStep, w.s.c.name(w.sequence.index), want)
		}
	}
	w.writes = w.writes[:0]
	return nil
}

// lastTaken returns the highest number of any operation on the index.
func (c *client) lastTaken(ctx context.Context, op, index string) (int64, error) {
	var answer struct {
		Indices map[string]struct {
			Shards map[string][]struct {
				Seq struct {
					Highest *int64 `json:"max_seq_no"`
				} `json:"seq_no"`
			} `json:"shards"`
		} `json:"indices"`
	}
	err := c.do(ctx, call{op: op, timeout: callTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesStatsRequest{
			Index: []string{c.name(index)}, Metric: []string{"docs"}, Level: "shards",
			FilterPath: []string{"indices.*.shards.*.seq_no.max_seq_no"},
		}
	}}, &answer)
	if err != nil {
		return 0, err
	}
	highest, copies := int64(-1), 0
	for _, index := range answer.Indices {
		for _, shard := range index.Shards {
			for _, one := range shard {
				if one.Seq.Highest != nil {
					highest, copies = max(highest, *one.Seq.Highest), copies+1
				}
			}
		}
	}
	if copies == 0 {
		return 0, fleet.Errorf(fleet.Unavailable, "no copy of the index %s answers: look at the health of the cluster", c.name(index))
	}
	return number(highest), nil
}

func (s *Store) LoadActions(ctx context.Context, list []fleet.Action) (int, error) {
	const op = "load actions"
	documents := make([]numbered, len(list))
	cancelled := changes{noun: "cancellation"}
	marks := s.documents(cancellationKind.Info)
	for i, a := range list {
		source, err := newActionSource(a)
		if err != nil {
			return 0, err
		}
		documents[i] = numbered{a.Seq, key{indexActions, a.ID}, source.packed, source}
		if a.CancelledAt == nil {
			continue
		}
		mark := cancellation{ActionID: a.ID, At: *a.CancelledAt}
		b, err := marks.source(a.ID, &mark)
		if err != nil {
			return 0, err
		}
		b["born"] = s.clock.next()
		cancelled.want(marks.key(a.ID), packedOf(b), b)
	}
	written, err := s.loadNumbered(ctx, op, "action", s.actionSequence, documents)
	if err != nil {
		return 0, err
	}
	more, err := s.load(ctx, op, cancelled)
	return written + more, err
}

func (s *Store) LoadEvents(ctx context.Context, list []fleet.Event) (int, error) {
	documents := make([]numbered, len(list))
	for i, ev := range list {
		n := ev.Seq
		p, err := pack("event", ev.Type, ev)
		if err != nil {
			return 0, err
		}
		// Unlike an appended event, it has a chosen id, so that it can be read by its id.
		documents[i] = numbered{n, key{indexEvents, strconv.FormatInt(n, 10)}, p, eventSource(ev, p)}
	}
	return s.loadNumbered(ctx, "load events", "event", s.eventSequence, documents)
}

func (s *Store) SkipEvents(ctx context.Context, last int64) error {
	const op = "skip sequence numbers of events"
	taken, err := s.c.lastTaken(ctx, op, indexEvents)
	if err != nil {
		return err
	}
	w := numberedWriter{s: s, op: op, sequence: s.eventSequence, next: taken + 1}
	if err := w.skipTo(ctx, last+1); err != nil {
		return err
	}
	return w.flush(ctx)
}

func (s *Store) DropActions(ctx context.Context) error { return s.dropSequence(ctx, s.actionSequence) }

func (s *Store) DropEvents(ctx context.Context) error { return s.dropSequence(ctx, s.eventSequence) }

// dropSequence deletes and recreates an index, which is the only way to reuse its numbers.
func (s *Store) dropSequence(ctx context.Context, o *sequence) error {
	if err := s.c.deleteIndex(ctx, o.index); err != nil {
		return err
	}
	if err := s.c.createIndex(ctx, o.index); err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.visible, o.checked = 0, time.Time{}
	return nil
}

func (c *client) deleteIndex(ctx context.Context, index string) error {
	yes := true
	return c.do(ctx, call{op: "delete the index " + c.name(index), timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesDeleteRequest{Index: []string{c.name(index)}, IgnoreUnavailable: &yes}
	}}, nil)
}

// indices are the kinds that have an index of their own, by its name; nil for one that only belongs
// to another.
var indices = map[string]*store.Info{
	indexAgents: store.KindAgents, indexAccessKeys: nil, indexActions: store.KindActions, indexResults: store.KindResults,
	indexPolicies: store.KindPolicies.Info, indexEnrollmentKeys: store.KindEnrollmentKeys.Info, indexRollouts: store.KindRollouts.Info,
	indexTargets: store.KindTargets, indexAudit: store.KindAudit, indexHistory: store.KindHistory, indexEvents: store.KindEvents,
	indexPackageData: store.KindPackageData, indexDocuments: nil,
}

// Contents leaves out what only this package knows.
func (s *Store) Contents(ctx context.Context) (map[string]int, error) {
	nouns, err := s.c.countBy(ctx, []string{s.c.name(indexDocuments)}, "noun")
	if err != nil {
		return nil, err
	}
	for _, k := range []*store.Info{cancellationKind.Info, migrationKind.Info, targetListKind.Info} {
		delete(nouns, k.Name)
	}
	counts, err := s.c.counts(ctx)
	for index, kind := range indices {
		if n := counts[s.c.name(index)]; kind != nil && n > 0 {
			nouns[kind.Name] = n
		}
	}
	return nouns, err
}

// counts returns the number of documents of each existing index.
func (c *client) counts(ctx context.Context) (map[string]int, error) {
	var names []string
	for index := range schemas {
		names = append(names, c.name(index))
	}
	return c.countBy(ctx, names, "_index")
}

// maxCounted bounds the values of countBy: a hundred times as many kinds as there are.
const maxCounted = 5_000

// countBy counts the documents of those of the indices that exist by the values of a field.
func (c *client) countBy(ctx context.Context, names []string, field string) (map[string]int, error) {
	const op = "count documents"
	yes := true
	err := c.do(ctx, call{op: op, timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.IndicesRefreshRequest{Index: names, IgnoreUnavailable: &yes}
	}}, nil)
	if err != nil {
		return nil, err
	}
	encoded, err := json.Marshal(body{"size": 0, "aggs": body{"values": body{"terms": body{"field": field, "size": maxCounted}}}})
	if err != nil {
		return nil, err // the body can be encoded
	}
	partial := false // see searchAll
	var found result
	err = c.do(ctx, call{op: op, timeout: bulkTimeout, repeatable: true, request: func() esapi.Request {
		return esapi.SearchRequest{Index: names, IgnoreUnavailable: &yes, AllowPartialSearchResults: &partial, Body: bytes.NewReader(encoded)}
	}}, &found)
	if err != nil || found.Aggregations == nil {
		return map[string]int{}, err // there are no aggregations if there are no indices
	}
	var counted struct {
		Values struct {
			Buckets []struct {
				Key   string `json:"key"`
				Count int    `json:"doc_count"`
			} `json:"buckets"`
		} `json:"values"`
	}
	if err := json.Unmarshal(found.Aggregations, &counted); err != nil {
		return nil, fleet.Errorf(fleet.Internal, "%s: the response cannot be decoded: %w", op, err)
	}
	out := map[string]int{}
	for _, b := range counted.Values.Buckets {
		out[b.Key] = b.Count
	}
	return out, nil
}
