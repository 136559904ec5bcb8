package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	json "github.com/go-json-experiment/json/v1"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

type agents struct{ s *Store }

// agentRow is an agent in the form the tables store. It is built before the transaction:
// encoding then delays no other writer, and the transaction does not read the caller's
// memory after the caller's context has ended.
type agentRow struct {
	id, accessKey string
	revision      int64
	doc           string
	lastCheckin   any
	status        string
	message       string
	actionSeq     int64
	state         uint64 // fleet.Agent.CheckinState
	// facts are the values of factColumns; nil if no others than those of times changed.
	facts *[factCount]any
	// times is nil if its values are part of facts, or did not change.
	times *upgradeTimes
	// history has the upgrades that ended with the document.
	history []historyRow
}

// upgradeTimes are the facts that an upgrade changes; see setUpgradeTimes.
type upgradeTimes struct {
	upgradingSince, startedAt, upgradedAt, componentsSince sql.NullInt64

	status fleet.UpgradeStatus
	phase  agentapi.UpgradeState
}

// factColumns are the columns of facts except rid.
const factColumns = `id, active, unenrolling, upgrading_since, enrolled_at, policy_id, audit_unenrolled, hostname, version_key,
	version, version_since, healthy_since, labels, upgrade_started_at, upgraded_at, tags, host_named, policy_rev, enrollment_id, components_since,
	upgrade_status, upgrade_phase, os_type, owes_ends`

const factCount = 24

// factSlots are the parameters ?2, ?3, … for factColumns. ?1 is the rid.
var factSlots = func() string {
	slots := make([]string, factCount)
	for i := range slots {
		slots[i] = fmt.Sprintf("?%d", i+2)
	}
	return strings.Join(slots, ", ")
}()

func newAgentRow(a *fleet.Agent) (agentRow, error) {
	a = new(a.Readable())
	row, err := newDocumentRow(a)
	if err == nil {
		row.facts, err = newFacts(a)
	}
	return row, err
}

// newUpdateRow is newAgentRow for an update. If the agent was read from the store, it
// computes the facts only if they can differ from the stored ones.
func newUpdateRow(a *fleet.Agent) (agentRow, error) {
	facts, upgrade := a.Differs()
	var row agentRow
	var err error
	if facts {
		row, err = newAgentRow(a)
	} else {
		row, err = newDocumentRow(a)
		if upgrade {
			row.times = newUpgradeTimes(a)
		}
	}
	if err == nil {
		row.history, err = historyRows(a.EndedUpgrades())
	}
	return row, err
}

func newDocumentRow(a *fleet.Agent) (agentRow, error) {
	doc, err := new(a.Readable()).Encode()
	if err == nil {
		err = store.CheckReadable("agent", a.ID, doc)
	}
	if err != nil {
		return agentRow{}, unencodable("agent", a.ID, err)
	}
	return agentRow{
		id: a.ID, accessKey: a.AccessKeyID, revision: a.Revision, doc: string(doc), state: a.CheckinState(),
		lastCheckin: fromTimePtr(a.Last.At), status: a.Last.Status, message: a.Last.Message, actionSeq: a.Last.ActionSeq,
	}, nil
}

func newUpgradeTimes(a *fleet.Agent) *upgradeTimes {
	number := func(t *time.Time) sql.NullInt64 {
		if t == nil {
			return sql.NullInt64{}
		}
		return sql.NullInt64{Int64: fromTime(*t), Valid: true}
	}
	t := &upgradeTimes{startedAt: number(a.UpgradeStartedAt), upgradedAt: number(a.UpgradedAt), componentsSince: number(a.ComponentsSince), status: a.UpgradeStatus}
	if a.UpgradeDetails != nil {
		t.phase = a.UpgradeDetails.State
	}
	if a.Upgrading() {
		t.upgradingSince = t.startedAt
	}
	return t
}

func newFacts(a *fleet.Agent) (*[factCount]any, error) {
	tags, err := encode("tags of agent", a.ID, a.Tags)
	if err != nil {
		return nil, err
	}
	f, host, times := a.Facts(), a.Host(), newUpgradeTimes(a)
	hostname := a.HostnameOn(host)
	reported := a.Values(hostnameField)
	named := len(reported) == 1 && reported[0] == hostname
	return &[...]any{
		a.ID, f.Active, f.Unenrolling, times.upgradingSince, fromTime(f.EnrolledAt), f.PolicyID,
		f.AuditUnenrolledReason, hostname, fleet.VersionKey(a.Version),
		a.Version, fromTimePtr(a.VersionSince), fromTimePtr(a.HealthySince), fleet.EncodeLabels(a.LabelsOn(host)),
		times.startedAt, times.upgradedAt, tags, named,
		sql.NullInt64{Int64: a.PolicyRev, Valid: a.PolicyRev != 0},
		sql.NullString{String: a.EnrollmentID, Valid: a.EnrollmentID != ""},
		times.componentsSince,
		string(times.status), string(times.phase), osType(a), a.HasPendingEnds(),
	}, nil
}

// osType returns the value of the column os_type: NULL if there are several.
func osType(a *fleet.Agent) sql.NullString {
	values := a.Values(osTypeField)
	if len(values) > 1 {
		return sql.NullString{}
	}
	text := ""
	if len(values) == 1 {
		text, _ = values[0].(string)
	}
	return sql.NullString{String: text, Valid: true}
}

func encode(noun, id string, v any) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", unencodable(noun, id, err)
	}
	return string(b), store.CheckReadable(noun, id, b)
}

func unencodable(noun, id string, err error) error {
	return fleet.Errorf(fleet.Internal, "%s %s cannot be encoded: %w", noun, id, err)
}

// decode decodes a document that kept is for, and notes whether that has something to do.
func (s *Store) decode(noun, id, doc string, v any) error {
	return decodeNoting(&s.writer.unknowns, noun, id, doc, v)
}

// decode decodes a document that is never replaced.
func decode(noun, id, doc string, v any) error { return decodeNoting(nil, noun, id, doc, v) }

func decodeNoting(u *store.Unknowns, noun, id, doc string, v any) error {
	if err := store.Decode(u, []byte(doc), v); err != nil {
		return store.NewUnreadable(noun, id, err)
	}
	return nil
}

// kept returns doc with what this program does not know of the document in a row of a table, which
// doc replaces. of is the type of the document.
func kept(t *tx, of reflect.Type, table string, rid int64, doc string) (string, error) {
	if !t.w.unknowns.Seen() {
		return doc, nil
	}
	var old string
	err := t.get(`SELECT doc FROM `+table+` WHERE rid = ?`, []any{rid}, &old)
	if errors.Is(err, sql.ErrNoRows) {
		return doc, nil
	}
	return string(store.KeepUnknown(of, []byte(old), []byte(doc))), err
}

func (g agents) Create(ctx context.Context, a fleet.Agent) error {
	row, err := newAgentRow(&a)
	if err != nil {
		return err
	}
	return g.s.write(ctx, "create agent", func(t *tx) error { return createAgent(t, row) })
}

func createAgent(t *tx, row agentRow) error {
	var rid int64
	err := t.get(`INSERT INTO agents (id, rev, access_key_id, doc) VALUES (?, 1, ?, ?) ON CONFLICT DO NOTHING RETURNING rid`,
		[]any{row.id, row.accessKey, row.doc}, &rid)
	if errors.Is(err, sql.ErrNoRows) {
		return fleet.Errorf(fleet.Conflict, "agent %s, or another with its access key, already exists", row.id)
	}
	if err != nil {
		return err
	}
	if _, err := t.exec(`INSERT INTO agent_last_seen (rid, last_checkin, status, message, action_seq_no) VALUES (?, ?, ?, ?, ?)`,
		rid, row.lastCheckin, row.status, row.message, row.actionSeq); err != nil {
		return err
	}
	_, err = t.exec(`INSERT INTO facts (rid, `+factColumns+`) VALUES (?1, `+factSlots+`)`, append([]any{rid}, row.facts[:]...)...)
	return err
}

// agentColumns are the columns that scan reads, of agents as a and agent_last_seen as
// l.
const agentColumns = `a.rid, a.rev, a.id, a.doc, l.last_checkin, l.status, l.message, l.action_seq_no`

func (g agents) scan(scan scan) (fleet.Agent, error) {
	read, err := g.document(scan)
	if err != nil {
		return fleet.Agent{}, err
	}
	return read()
}

// document reads a row for eachDocument.
func (g agents) document(scan scan) (read func() (fleet.Agent, error), err error) {
	var (
		rid, rev int64
		id, doc  string
		last     sql.NullInt64
		seen     fleet.LastSeen
	)
	err = scan(&rid, &rev, &id, &doc, &last, &seen.Status, &seen.Message, &seen.ActionSeq)
	return func() (fleet.Agent, error) {
		var a fleet.Agent
		if err := g.s.decode("agent", id, doc, &a); err != nil {
			return a, err
		}
		a.Revision = revision(rid, rev)
		a = a.AsRead()
		seen.At = toTimePtr(last)
		a.Last = seen
		return a, nil
	}, err
}

func (g agents) Get(ctx context.Context, id string) (fleet.Agent, error) {
	return g.one(ctx, store.Missing("agent", id),
		`SELECT `+agentColumns+` FROM agents a JOIN agent_last_seen l ON l.rid = a.rid WHERE a.id = ?`, id)
}

func (g agents) ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error) {
	return g.one(ctx, fleet.Errorf(fleet.NotFound, "no agent has the access key %s", keyID),
		`SELECT `+agentColumns+` FROM agents a JOIN agent_last_seen l ON l.rid = a.rid WHERE a.access_key_id = ? AND a.access_key_id <> ''`, keyID)
}

func (g agents) one(ctx context.Context, none error, query string, arg any) (fleet.Agent, error) {
	return one(ctx, g.s, none, g.document, query, arg)
}

// one reads the document of a fixed query, or returns the error none. Unlike a list, it fails if
// the document cannot be read.
func one[T any](ctx context.Context, s *Store, none error, row func(scan) (func() (T, error), error), query string, args ...any) (v T, err error) {
	read := none
	err = s.each(ctx, query, args, func(scan scan) error {
		decode, err := row(scan)
		if err == nil {
			v, read = decode()
		}
		return err
	})
	if err = cmp.Or(err, read); err != nil {
		return *new(T), err
	}
	return v, nil
}

func (g agents) GetMany(ctx context.Context, ids []string) ([]fleet.Agent, error) {
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err // strings can be encoded
	}
	found, err := g.many(ctx, len(ids), getMany, string(list))
	if err != nil {
		return nil, err
	}
	return sortAs(ids, found), nil
}

// getMany has no ORDER BY: SQLite would copy all documents to sort rows that are in order
// already.
const getMany = `SELECT ` + agentColumns + ` FROM json_each(?) j CROSS JOIN agents a ON a.id = j.value CROSS JOIN agent_last_seen l ON l.rid = a.rid`

// sortAs sorts agents as ids are, unless they are sorted so already.
func sortAs(ids []string, found []fleet.Agent) []fleet.Agent {
	rest := ids
	sorted := !slices.ContainsFunc(found, func(a fleet.Agent) bool {
		at := slices.Index(rest, a.ID)
		rest = rest[at+1:]
		return at < 0
	})
	if sorted {
		return found
	}
	indices := make(map[string]int, len(ids))
	for i, id := range ids {
		indices[id] = i
	}
	slices.SortStableFunc(found, func(a, b fleet.Agent) int { return cmp.Compare(indices[a.ID], indices[b.ID]) })
	return found
}

// Sorted returns ids in the order of their rows: adjacent agents share pages of documents
// and of facts. Ids without an agent are last.
func (g agents) Sorted(ctx context.Context, ids []string) ([]string, error) {
	rids, err := g.s.rids.find(ctx, g.s, len(ids), func(i int) string { return ids[i] })
	if err != nil {
		return nil, err
	}
	out := make([]string, len(ids))
	for i, at := range sortedIndices(rids) {
		out[i] = ids[at]
	}
	return out, nil
}

// sortedIndices returns the indices of numbers in the order of their values. The order of
// equal numbers is kept.
func sortedIndices(numbers []int64) []int {
	type key struct {
		number int64
		index  int
	}
	keys := make([]key, len(numbers))
	for i, n := range numbers {
		keys[i] = key{n, i}
	}
	slices.SortFunc(keys, func(a, b key) int { return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.index, b.index)) })
	indices := make([]int, len(numbers))
	for i, k := range keys {
		indices[i] = k.index
	}
	return indices
}

func (g agents) Upgrading(ctx context.Context, after store.UpgradingSince, limit int) ([]fleet.Agent, error) {
	since := int64(math.MinInt64)
	if !after.At.IsZero() {
		since = fromTime(after.At)
	}
	return g.many(ctx, 0, `SELECT `+agentColumns+` FROM facts f JOIN agents a ON a.rid = f.rid JOIN agent_last_seen l ON l.rid = f.rid
		WHERE f.upgrading_since IS NOT NULL AND (f.upgrading_since, f.id) > (?, ?) ORDER BY f.upgrading_since, f.id LIMIT ? + 0`,
		since, after.ID, max(limit, 0))
}

func (g agents) Leavers(ctx context.Context, afterID string, limit int) ([]fleet.Agent, error) {
	return g.many(ctx, 0, `SELECT `+agentColumns+` FROM facts f JOIN agents a ON a.rid = f.rid JOIN agent_last_seen l ON l.rid = f.rid
		WHERE f.owes_ends = 1 AND f.id > ? ORDER BY f.id LIMIT ? + 0`, afterID, max(limit, 0))
}

// many reads the agents of a fixed query. expected is about how many there are.
func (g agents) many(ctx context.Context, expected int, query string, args ...any) ([]fleet.Agent, error) {
	out := make([]fleet.Agent, 0, expected)
	st, err := g.s.stmt(ctx, query)
	if err != nil {
		return nil, g.s.fault("read", err)
	}
	rows, err := st.QueryContext(ctx, args...)
	if err == nil {
		err = eachDocument(g.s, rows, g.document, func(a fleet.Agent) { out = append(out, a) })
	}
	if err != nil {
		return nil, g.s.fault("read", err)
	}
	return out, nil
}

func (g agents) Update(ctx context.Context, a fleet.Agent) (int64, error) {
	row, err := newUpdateRow(&a)
	if err != nil {
		return 0, err
	}
	return apply(ctx, g.s, "update agent", func(t *tx) (int64, error) { return updateAgent(t, row) })
}

func (g agents) UpdateMany(ctx context.Context, list []fleet.Agent) ([]error, error) {
	rows := make([]agentRow, len(list))
	err := onAllProcessors(len(list), func(i int) (err error) {
		rows[i], err = newUpdateRow(&list[i])
		return err
	})
	if err != nil {
		return nil, err
	}
	// In the order of the table, so that agents on the same page share a transaction. The
	// upper half of a revision is the rid.
	revisions := make([]int64, len(rows))
	for i := range rows {
		revisions[i] = rows[i].revision
	}
	all := make([]error, len(rows))
	for left := sortedIndices(revisions); len(left) > 0; {
		batch := left[:min(len(left), updateBatch)]
		left = left[len(batch):]
		errs, err := apply(ctx, g.s, "update agents", func(t *tx) ([]error, error) { return updateAgents(t, rows, batch) })
		if err != nil {
			return nil, err
		}
		for i, at := range batch {
			all[at] = errs[i]
		}
	}
	return all, nil
}

// updateAgents writes the rows with the given indices and returns their errors in the
// order of indices.
func updateAgents(t *tx, rows []agentRow, indices []int) ([]error, error) {
	errs := make([]error, len(indices))
	marks := upgradeMarks{}
	for i, at := range indices {
		err := updateDocument(t, rows[at])
		if err == nil {
			err = marks.add(t, rows[at])
		}
		if refusal := (*fleet.Error)(nil); err != nil && !errors.As(err, &refusal) {
			return nil, err
		}
		errs[i] = err
	}
	return errs, marks.write(t)
}

// updateBatch bounds the documents that one transaction writes, and so how long a single
// order or an acknowledgement waits for it: some 20 ms.
const updateBatch = 500

// updateAgent has changed nothing if it returns a fleet.Error.
func updateAgent(t *tx, row agentRow) (int64, error) {
	if err := updateDocument(t, row); err != nil {
		return 0, err
	}
	marks := upgradeMarks{}
	if err := marks.add(t, row); err != nil {
		return 0, err
	}
	return row.revision + 1, marks.write(t)
}

func updateDocument(t *tx, row agentRow) error {
	rid, rev := row.revision>>32, row.revision&math.MaxUint32
	var err error
	if row.doc, err = kept(t, reflect.TypeFor[fleet.Agent](), "agents", rid, row.doc); err != nil {
		return err
	}
	// Writing an unchanged access key would touch its index. It changes only when a host
	// enrols again.
	n, err := t.exec(`UPDATE agents SET rev = rev + 1, doc = ? WHERE rid = ? AND rev = ? AND id = ? AND access_key_id = ?`,
		row.doc, rid, rev, row.id, row.accessKey)
	if err == nil && n == 0 {
		err = updateAgentKey(t, row)
	}
	if err == nil {
		t.noteState(row.id, row.state)
		err = putHistory(t, row.history)
	}
	return err
}

// upgradeMarks holds the rids of agents by their new upgrade times. An order marks many
// agents with the same times, which one statement then writes.
type upgradeMarks map[upgradeTimes][]int64

// add writes the row's facts, or adds its times to m.
func (m upgradeMarks) add(t *tx, row agentRow) error {
	rid := row.revision >> 32
	if row.facts != nil {
		return updateFacts(t, rid, row.facts)
	}
	if row.times != nil {
		m[*row.times] = append(m[*row.times], rid)
	}
	return nil
}

const setUpgradeTimes = `UPDATE facts SET (upgrading_since, upgrade_started_at, upgraded_at, components_since, upgrade_status, upgrade_phase) = (?, ?, ?, ?, ?, ?) WHERE rid `

func (m upgradeMarks) write(t *tx) error {
	for times, rids := range m {
		query, arg := setUpgradeTimes+`= ?`, any(rids[0])
		if len(rids) > 1 {
			list, err := encode("rows of", "agents", rids)
			if err != nil {
				return err
			}
			query, arg = setUpgradeTimes+`IN (SELECT value FROM json_each(?))`, list
		}
		if _, err := t.exec(query, times.upgradingSince, times.startedAt, times.upgradedAt, times.componentsSince, string(times.status), string(times.phase), arg); err != nil {
			return err
		}
	}
	return nil
}

// updateAgentKey writes the document with a new access key. Otherwise it returns why the
// row could not be updated.
func updateAgentKey(t *tx, row agentRow) error {
	var rid, rev int64
	err := t.get(`SELECT rid, rev FROM agents WHERE id = ?`, []any{row.id}, &rid, &rev)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return store.Missing("agent", row.id)
	case err != nil:
		return err
	case revision(rid, rev) != row.revision:
		return store.Changed("agent", row.id)
	}
	_, err = t.exec(`UPDATE agents SET rev = rev + 1, access_key_id = ?, doc = ? WHERE rid = ?`, row.accessKey, row.doc, rid)
	if code(err) == sqlite3.SQLITE_CONSTRAINT {
		return fleet.Errorf(fleet.Conflict, "another agent has the access key of agent %s", row.id)
	}
	return err
}

// factGroups are groups of columns of facts that change together, because an UPDATE
// touches the indexes of all columns it names. factsDiffer is a query for the groups in
// which a row differs from the given values, as the sum of their bits. Most changes of a
// document change no fact.
var factGroups, factsDiffer = newFactGroups(
	[]string{"id", "active", "enrolled_at", "policy_id", "hostname", "host_named", "enrollment_id", "os_type", "owes_ends"},
	[]string{"version_key", "version", "version_since"},
	[]string{"unenrolling", "upgrading_since", "audit_unenrolled", "healthy_since", "labels", "upgrade_started_at", "upgraded_at", "tags", "components_since", "upgrade_status", "upgrade_phase"},
	[]string{"policy_rev"}, // a change of a policy changes it alone, of all its agents
)

type factGroup struct {
	bit     int64
	update  string // takes the values of columns, then the rid
	columns []int  // indices into factColumns
}

func newFactGroups(groups ...[]string) (out []factGroup, differ string) {
	names := strings.Fields(strings.ReplaceAll(factColumns, ",", " "))
	slots := strings.Split(factSlots, ", ")
	out = make([]factGroup, len(groups))
	var differs []string
	for i, columns := range groups {
		g := &out[i]
		g.bit = 1 << i
		var values []string
		for _, column := range columns {
			at := slices.Index(names, column)
			g.columns = append(g.columns, at)
			values = append(values, slots[at])
		}
		list := "(" + strings.Join(columns, ", ") + ")"
		differs = append(differs, fmt.Sprintf("(%s IS NOT (%s)) * %d", list, strings.Join(values, ", "), g.bit))
		g.update = `UPDATE facts SET ` + list + ` = (` + strings.Repeat("?, ", len(columns)-1) + `?) WHERE rid = ?`
	}
	return out, `SELECT ` + strings.Join(differs, " + ") + ` FROM facts WHERE rid = ?1`
}

func updateFacts(t *tx, rid int64, facts *[factCount]any) error {
	var differ int64
	if err := t.get(factsDiffer, append([]any{rid}, facts[:]...), &differ); err != nil {
		return err
	}
	for _, g := range factGroups {
		if differ&g.bit == 0 {
			continue
		}
		args := make([]any, 0, factCount+1)
		for _, at := range g.columns {
			args = append(args, facts[at])
		}
		if _, err := t.exec(g.update, append(args, rid)...); err != nil {
			return err
		}
	}
	return nil
}

func (g agents) Report(ctx context.Context, r store.Report) (int64, error) {
	const op = "write an agent's report"
	rec := &records{results: slices.Clone(r.Results), events: slices.Clone(r.Events)}
	happened, err := historyRows(r.History)
	if err != nil {
		return 0, err
	}
	if r.Agent == nil && r.Seen == nil && len(happened) == 0 {
		return 0, g.s.record(ctx, op, rec)
	}
	var row *agentRow
	if r.Agent != nil {
		updated, err := newUpdateRow(r.Agent)
		if err != nil {
			return 0, err
		}
		row = &updated
	}
	var seen []touchRow
	if r.Seen != nil {
		var err error
		if seen, err = g.s.rids.resolve(ctx, g.s, []fleet.Touch{*r.Seen}); err != nil {
			return 0, err
		}
	}
	return apply(ctx, g.s, op, func(t *tx) (rev int64, err error) {
		if row != nil {
			if rev, err = updateAgent(t, *row); err != nil {
				return 0, err
			}
		}
		if err := putHistory(t, happened); err != nil {
			return 0, err
		}
		if err := touchAgents(t, seen); err != nil {
			return 0, err
		}
		return rev, putRecords(t, []*records{rec})
	})
}

func (g agents) Delete(ctx context.Context, id string) error {
	return g.s.write(ctx, "delete agent", func(t *tx) error {
		_, err := t.exec(`DELETE FROM agents WHERE id = ?`, id) // its other rows cascade
		g.s.unreadable.Forget("agent", id)
		return err
	})
}

// touchBatch bounds the touches in one transaction, and so how long an acknowledgement or
// an order waits during the flush of a fleet: some 15 ms.
const touchBatch = 1_000

func (g agents) Touch(ctx context.Context, touches []fleet.Touch) error {
	rows, err := g.s.rids.resolve(ctx, g.s, touches)
	if err != nil {
		return err
	}
	for len(rows) > 0 {
		n := min(len(rows), touchBatch)
		batch := rows[:n]
		rows = rows[n:]
		err := g.s.write(ctx, "write when agents were last seen", func(t *tx) error { return touchAgents(t, batch) })
		if err != nil {
			return err
		}
	}
	return nil
}

func touchAgents(t *tx, rows []touchRow) error {
	for _, r := range rows {
		n, err := touchAgent(t, r)
		if err == nil && n == 0 {
			err = touchSuccessor(t, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func touchAgent(t *tx, r touchRow) (n int64, err error) {
	switch {
	case r.At.IsZero():
	case r.Status == "" && r.ActionSeq == 0: // the common case: parked agents
		n, err = t.exec(`UPDATE agent_last_seen SET last_checkin = ?2 WHERE rid = ?1 AND (last_checkin IS NULL OR last_checkin <= ?2)`, r.rid, fromTime(r.At))
	default:
		n, err = t.exec(`UPDATE agent_last_seen SET last_checkin = ?2, status = iif(?3 = '', status, ?3), message = iif(?3 = '', message, ?4),
			action_seq_no = max(action_seq_no, ?5) WHERE rid = ?1 AND (last_checkin IS NULL OR last_checkin <= ?2)`,
			r.rid, fromTime(r.At), r.Status, r.Message, r.ActionSeq)
	}
	if err == nil && n == 0 && r.ActionSeq > 0 { // an outdated touch still raises the number
		n, err = t.exec(`UPDATE agent_last_seen SET action_seq_no = ?2 WHERE rid = ?1 AND action_seq_no < ?2`, r.rid, r.ActionSeq)
	}
	return n, err
}

// touchSuccessor handles a touch that changed nothing: it is outdated, or the agent was
// deleted and created again after its rid was cached.
func touchSuccessor(t *tx, r touchRow) error {
	cached := r.rid
	err := t.get(`SELECT rid FROM agents WHERE id = ?`, []any{r.AgentID}, &r.rid)
	if errors.Is(err, sql.ErrNoRows) || (err == nil && r.rid == cached) {
		return nil
	}
	if err == nil {
		_, err = touchAgent(t, r)
	}
	return err
}

// maxRids bounds the memory of ridCache: some 20 MB when full.
const maxRids = 1 << 18

// ridCache maps the ids of agents to their rids, which spares a flush of the fleet an index
// lookup for each agent. A rid is never used again, so the entry of a deleted agent affects
// no other agent.
type ridCache struct {
	mu   sync.Mutex
	rids map[string]int64
}

type touchRow struct {
	rid int64
	fleet.Touch
}

// resolve returns the touches of existing agents in the order of their rows, so that the
// flush walks the table once.
func (c *ridCache) resolve(ctx context.Context, s *Store, touches []fleet.Touch) ([]touchRow, error) {
	rids, err := c.find(ctx, s, len(touches), func(i int) string { return touches[i].AgentID })
	if err != nil {
		return nil, err
	}
	rows := make([]touchRow, 0, len(touches))
	for _, at := range sortedIndices(rids) {
		if rids[at] == unknownRid {
			break // all others precede it
		}
		rows = append(rows, touchRow{rids[at], touches[at]})
	}
	return rows, nil
}

// unknownRid stands for an agent that does not exist. It sorts after all others.
const unknownRid = math.MaxInt64

// find returns the rids of n agents.
func (c *ridCache) find(ctx context.Context, s *Store, n int, id func(i int) string) ([]int64, error) {
	rids := make([]int64, n)
	var unknown []int
	c.mu.Lock()
	for i := range rids {
		rid, ok := c.rids[id(i)]
		if !ok {
			rid = unknownRid
			unknown = append(unknown, i)
		}
		rids[i] = rid
	}
	c.mu.Unlock()
	if len(unknown) == 0 {
		return rids, nil
	}
	ids := make([]string, len(unknown))
	for i, at := range unknown {
		ids[i] = id(at)
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err // strings can be encoded
	}
	found := map[string]int64{}
	err = s.each(ctx, `SELECT a.id, a.rid FROM json_each(?) j CROSS JOIN agents a ON a.id = j.value`, []any{string(list)}, func(scan scan) error {
		var id string
		var rid int64
		err := scan(&id, &rid)
		found[id] = rid
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, at := range unknown {
		if rid, ok := found[id(at)]; ok {
			rids[at] = rid
		}
	}
	c.add(found)
	return rids, nil
}

func (c *ridCache) add(found map[string]int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rids == nil || len(c.rids)+len(found) > maxRids {
		c.rids = map[string]int64{}
	}
	for id, rid := range found {
		c.rids[id] = rid
	}
}
