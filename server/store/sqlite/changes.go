package sqlite

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

const (
	// changesKept is how many rows of agent_changes are kept, and how far behind a
	// reader may be: some seconds of as many writes as SQLite takes. Who is further
	// behind reads agents sooner than what was written about them.
	changesKept = 16_384
	// changesAge is for how long rows are kept: many times as long as a reader sleeps,
	// and a few MB of a large fleet's last-seen times.
	changesAge = time.Minute
	// changesPage is after how many changes a page ends: a MB of memory.
	changesPage = 4096
	// trimEvery is after how many rows a writer trims, trimMost how many it then
	// removes at most: four times as many as it adds, in less than a millisecond.
	trimEvery, trimMost = 256, 1024
)

// changeLog is what a Store needs to write agent_changes.
type changeLog struct {
	writer int64 // no other open Store has it
	rows   int   // that it has written; of the writer's loop
}

func newChangeLog() changeLog { return changeLog{writer: rand.Int64()} } //nolint:gosec // not a secret

// packed is a row's changes, each:
//
//	head    1 byte: the kind; + packedUUID if the id is a UUID in its usual spelling
//	id      16 bytes of a UUID; of another its length (uvarint) and its bytes
//	stance  8 bytes, of AgentWritten alone
//	time    of the others: nanoseconds (varint) since that of the change before, and
//	        the length of the status (uvarint) and its bytes
//
// Who changes the format makes a new schema, so that no process reads another's.
type packed struct {
	bytes []byte
	last  int64 // time of the last change
}

const packedUUID = 0x80

func (p *packed) head(kind store.AgentChangeKind, id string) {
	if u, err := uuid.Parse(id); err == nil && u.String() == id {
		p.bytes = append(append(p.bytes, byte(kind)|packedUUID), u[:]...)
		return
	}
	p.bytes = append(p.bytes, byte(kind))
	p.text(id)
}

func (p *packed) text(s string) {
	p.bytes = append(binary.AppendUvarint(p.bytes, uint64(len(s))), s...)
}

// written: the document of an agent was made, replaced (with its stance) or removed.
func (p *packed) written(id string, stance store.Stance) {
	p.head(store.AgentWritten, id)
	p.bytes = binary.BigEndian.AppendUint64(p.bytes, uint64(stance))
}

func (p *packed) touched(kind store.AgentChangeKind, t *fleet.Touch) {
	p.head(kind, t.AgentID)
	at := fromTime(t.At)
	p.bytes = binary.AppendVarint(p.bytes, at-p.last)
	p.last = at
	p.text(t.Status)
}

// told is of the check-in of a Report.
func (p *packed) told(t *fleet.Touch) {
	switch {
	case t.Status != "":
		p.touched(store.AgentTold, t)
	case !t.At.IsZero():
		p.touched(store.AgentTouched, t)
	}
}

func packTouches(rows []touchRow) packed {
	p := packed{bytes: make([]byte, 0, 32*len(rows))}
	for i := range rows {
		// The number of an action is no news to others: agents show theirs.
		if !rows[i].At.IsZero() {
			p.touched(store.AgentTouched, &rows[i].Touch)
		}
	}
	return p
}

var (
	errTorn = errors.New("a row of agent_changes cannot be read")
	errFull = errors.New("the page is full")
)

// unpack calls f for each of a row's changes.
func unpack(b []byte, f func(store.AgentChange)) error {
	var last int64
	bytes := func(n uint64) (out []byte, ok bool) {
		if n > uint64(len(b)) {
			return nil, false
		}
		out, b = b[:n], b[n:]
		return out, true
	}
	text := func() (string, bool) {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			return "", false
		}
		b = b[size:]
		s, ok := bytes(n)
		return string(s), ok
	}
	for len(b) > 0 {
		var c store.AgentChange
		var ok bool
		head := b[0]
		b = b[1:]
		c.Kind = store.AgentChangeKind(head &^ packedUUID)
		if head&packedUUID == 0 {
			c.AgentID, ok = text()
		} else if id, whole := bytes(uint64(len(uuid.UUID{}))); whole {
			c.AgentID, ok = uuid.UUID(id).String(), true
		}
		if !ok || c.Kind >= store.AgentChangeKinds {
			return errTorn
		}
		if c.Kind == store.AgentWritten {
			stance, ok := bytes(8)
			if !ok {
				return errTorn
			}
			c.Stance = store.Stance(binary.BigEndian.Uint64(stance))
		} else {
			since, size := binary.Varint(b)
			if size <= 0 {
				return errTorn
			}
			b = b[size:]
			last += since
			c.At = toTime(last)
			if c.Status, ok = text(); !ok {
				return errTorn
			}
		}
		f(c)
	}
	return nil
}

// log tells other processes what this transaction changes. It is in the same
// transaction as what it tells of, so that both become visible at once. SQLite has one
// writer at a time: the order of seq is that of the commits.
func (l *changeLog) log(t *tx, p packed) error {
	if len(p.bytes) == 0 {
		return nil
	}
	now := time.Now()
	if _, err := t.exec(`INSERT INTO agent_changes (writer, at, changes) VALUES (?, ?, ?)`, l.writer, now.Unix(), p.bytes); err != nil {
		return err
	}
	l.rows++
	if l.rows%trimEvery != 1 {
		return nil
	}
	return trimChanges(t, now)
}

// trimChanges removes the oldest rows that are too old, or more than are kept, and no
// row behind one that stays, whatever the clock does. The newest is of now.
func trimChanges(t *tx, now time.Time) error {
	var oldest, newest, stays int64
	err := t.get(`SELECT (SELECT min(seq) FROM agent_changes), (SELECT max(seq) FROM agent_changes)`, nil, &oldest, &newest)
	if err != nil {
		return err
	}
	end := min(oldest+trimMost, newest)
	err = t.get(`SELECT coalesce(min(seq), ?1) FROM agent_changes WHERE seq < ?1 AND at >= ?2`, []any{end, now.Add(-changesAge).Unix()}, &stays)
	if err != nil {
		return err
	}
	stays = max(stays, min(newest-changesKept, end))
	_, err = t.exec(`DELETE FROM agent_changes WHERE seq < ?`, stays)
	return err
}

// Queries of a look.
const (
	newestChange = `SELECT coalesce(max(seq), 0) FROM agent_changes`
	oldestChange = `SELECT coalesce(min(seq), 0) FROM agent_changes`
	changesOf    = `SELECT seq, changes FROM agent_changes WHERE seq > ? AND seq <= ? AND writer <> ? ORDER BY seq`
)

// ChangesElsewhere waits for nobody: it has a connection of its own, and takes no
// lock.
func (s *Store) ChangesElsewhere(ctx context.Context, since int64) (store.Changes, error) {
	changes, err := s.changesElsewhere(ctx, since)
	return changes, s.fault("look for what others changed", err)
}

func (s *Store) changesElsewhere(ctx context.Context, since int64) (none store.Changes, err error) {
	var oldest, newest int64
	if err := s.watcher.QueryRowContext(ctx, newestChange).Scan(&newest); err != nil {
		return none, err
	}
	out, lost := store.Changes{Next: newest}, store.Changes{Next: newest, Lost: true}
	if newest == since {
		return out, nil
	}
	if since < 0 || newest < since || newest-since > changesKept {
		return lost, nil
	}
	rows, err := s.watcher.QueryContext(ctx, changesOf, since, newest, s.changes.writer)
	if err != nil {
		return none, err
	}
	last := since
	err = eachRow(rows, func(scan scan) error {
		if len(out.Agents) >= changesPage {
			return errFull
		}
		var changes sql.RawBytes
		if err := scan(&last, &changes); err != nil {
			return err
		}
		return unpack(changes, func(c store.AgentChange) { out.Agents = append(out.Agents, c) })
	})
	switch {
	case errors.Is(err, errFull):
		out.Next, out.More = last, true
	case errors.Is(err, errTorn):
		return lost, nil
	case err != nil:
		return none, err
	}
	// Asked last: what is there now was there when the page was read.
	if err := s.watcher.QueryRowContext(ctx, oldestChange).Scan(&oldest); err != nil {
		return none, err
	}
	if oldest > since+1 {
		return lost, nil
	}
	return out, nil
}

// FactsOf reads no document.
func (s *Store) FactsOf(ctx context.Context, ids []string, f func(string, fleet.StatusFacts)) error {
	list, err := json.Marshal(ids)
	if err != nil {
		return err // strings can be encoded
	}
	return s.each(ctx, `SELECT `+statusColumns+` FROM json_each(?) j CROSS JOIN agents a ON a.id = j.value
		JOIN facts f ON f.rid = a.rid JOIN hot h ON h.rid = a.rid`, []any{string(list)}, func(scan scan) error { return scanFacts(scan, f) })
}
