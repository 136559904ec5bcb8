package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// sortColumn returns the column to order by, of facts as f or agent_last_seen as l. NULL,
// which means never, sorts before every number.
func sortColumn(by store.AgentSort) (string, error) {
	switch by {
	case "", store.ByEnrolledAt:
		return "f.enrolled_at", nil
	case store.ByLastCheckin:
		return "l.last_checkin", nil
	case store.ByHostname:
		return "f.hostname", nil
	case store.ByVersion:
		return "f.version_key", nil
	case store.ByPolicy:
		return "f.policy_id", nil
	}
	f := by.Field()
	if f == nil {
		return "", fleet.FieldError("query.sortField", "agents cannot be sorted by %q", string(by))
	}
	s, err := sourceOf(f)
	switch {
	case err != nil:
		return "", err
	case s.path != "" && f.Type == kql.TypeDate:
		return "CAST(round(unixepoch(" + agentDoc + " ->> '" + s.path + "', 'subsec') * 1000) AS INTEGER) * 1000000", nil
	case s.path != "":
		return "nullif(CAST(" + agentDoc + " ->> '" + s.path + "' AS TEXT), '')", nil
	case f.Type == kql.TypeDate:
		return s.column, nil
	}
	return "nullif(" + s.column + ", '')", nil
}

// after returns the condition for the agents that come after a position, of l.column and
// the id, and its arguments. NULL sorts before every value.
func (l listing) after(p store.AgentPosition) (string, []any) {
	value := p.Value
	if t, ok := value.(time.Time); ok {
		if l.byDoc { // documents are sorted by milliseconds
			t = t.Round(time.Millisecond)
		}
		value = fromTime(t)
	}
	if value == nil && (l.column == "f.hostname" || l.column == "f.version_key" || l.column == "f.policy_id") {
		value = "" // the columns that are sorted as they are
	}
	switch {
	case value == nil && l.direction == "":
		return fmt.Sprintf("(%s IS NOT NULL OR f.id > ?)", l.column), []any{p.ID}
	case value == nil:
		return fmt.Sprintf("(%s IS NULL AND f.id < ?)", l.column), []any{p.ID}
	case l.direction == "":
		return fmt.Sprintf("(%[1]s >= ? AND (%[1]s > ? OR f.id > ?))", l.column), []any{value, value, p.ID}
	}
	return fmt.Sprintf("(%[1]s IS NULL OR %[1]s <= ? AND (%[1]s < ? OR f.id < ?))", l.column), []any{value, value, p.ID}
}

// condition is a WHERE clause on facts as f, agent_last_seen as l and agents as a, and the
// WITH clause it needs.
type condition struct {
	with, where   string
	lastSeen, doc bool // whether it uses agent_last_seen, and agents
	args          []any
}

// joins returns the joins that the condition needs.
func (c *condition) joins() string {
	joins := ""
	if c.lastSeen {
		joins += joinLastSeen
	}
	if c.doc {
		joins += joinDocument
	}
	return joins
}

func filterCondition(f store.AgentFilter) (condition, error) {
	var c condition
	var where []string
	if len(f.SeenSince) > 0 {
		since := make(map[string]int64, len(f.SeenSince))
		latest := int64(math.MinInt64)
		for policy, at := range f.SeenSince {
			since[policy] = fromTime(at)
			latest = max(latest, since[policy])
		}
		list, err := json.Marshal(since)
		if err != nil {
			return c, err // strings and numbers can be encoded
		}
		c.with, c.lastSeen = `WITH seen (policy_id, since) AS MATERIALIZED (SELECT key, value FROM json_each(?)) `, true
		// Most agents were seen after the latest of the times, so their policy need not be
		// looked up.
		where = append(where, `(coalesce(l.last_checkin, f.enrolled_at) >= ? OR coalesce(l.last_checkin, f.enrolled_at)
			>= coalesce((SELECT since FROM seen WHERE seen.policy_id = f.policy_id), l.last_checkin, f.enrolled_at))`)
		c.args = append(c.args, string(list), latest)
	}
	if f.PolicyID != "" {
		where = append(where, `f.policy_id = ?`)
		c.args = append(c.args, f.PolicyID)
	}
	if f.ActiveOnly {
		where = append(where, `f.active`)
	}
	if f.VersionBelow != "" {
		// The key of an invalid version is empty.
		where = append(where, `f.version_key <> '' AND f.version_key < ?`)
		c.args = append(c.args, fleet.VersionKey(f.VersionBelow))
	}
	if f.Query != nil {
		q, err := compile(f.Query)
		if err != nil {
			return c, err
		}
		where = append(where, q.where)
		c.args = append(c.args, q.args...)
		c.lastSeen, c.doc = c.lastSeen || q.lastSeen, q.doc
	}
	if len(where) > 0 {
		c.where = ` WHERE ` + strings.Join(where, ` AND `)
	}
	return c, nil
}

// joinLastSeen is left out of queries that do not need it. Every row of facts has one of
// agent_last_seen, and finding it doubles the cost of a query.
const joinLastSeen = ` JOIN agent_last_seen l ON l.rid = f.rid`

// joinDocument comes last. CROSS keeps SQLite from walking the documents first, which are
// ten times as large as the other tables.
const joinDocument = ` CROSS JOIN agents a ON a.rid = f.rid`

// listing is a store.AgentQuery in SQL.
type listing struct {
	cond      condition
	column    string // to sort by
	direction string // "" or " DESC"
	byLast    bool   // whether column is one of agent_last_seen
	byDoc     bool   // whether it is read from the document
}

func newListing(q store.AgentQuery) (l listing, err error) {
	if q.Desc {
		l.direction = " DESC"
	}
	if l.column, err = sortColumn(q.Sort); err != nil {
		return l, err
	}
	l.byLast, l.byDoc = strings.Contains(l.column, "l."), strings.Contains(l.column, "a.doc")
	l.cond, err = filterCondition(q.AgentFilter)
	return l, err
}

// sorted returns the condition with the tables that the order needs.
func (l listing) sorted() condition {
	c := l.cond
	c.lastSeen, c.doc = c.lastSeen || l.byLast, c.doc || l.byDoc
	return c
}

func (l listing) queries() (page, total string) {
	cond := l.cond
	total = cond.with + `SELECT count(*) FROM facts f` + cond.joins() + cond.where
	return l.page(""), total
}

// walkAbove is how many times more agents than those up to the end of the page must match for
// the page to be found in the order of an index. That reads the rows one by one until the page
// is full, and a row read so costs some three times as much as in the order of the table.
const walkAbove = 4

// pageOf returns the query for a page that ends at end, of a list with a total.
func (l listing) pageOf(total, end int) string {
	if l.cond.where != "" && total < walkAbove*end {
		return l.page("+")
	}
	return l.page("")
}

// page returns the query for the page. The unary plus before the column to sort by makes SQLite
// read the rows in the order of the table, and sort those that match.
func (l listing) page(plus string) string {
	cond := l.sorted()
	// The inner query selects the page, so that only its documents are read.
	return fmt.Sprintf(`%[1]sSELECT %[2]s FROM (SELECT f.rid AS rid, f.id AS id, %[3]s AS k%[4]s
		ORDER BY %[6]s%[3]s%[5]s, f.id%[5]s LIMIT ? + 0 OFFSET ? + 0) p JOIN agents a ON a.rid = p.rid JOIN agent_last_seen l ON l.rid = p.rid ORDER BY p.k%[5]s, p.id%[5]s`,
		cond.with, agentColumns, l.column, ` FROM facts f`+cond.joins()+cond.where, l.direction, plus)
}

func (g agents) list(ctx context.Context, q store.AgentQuery) ([]fleet.Agent, int, error) {
	l, err := newListing(q)
	if err != nil {
		return nil, 0, err
	}
	if q.After != nil {
		return g.listAfter(ctx, l, q)
	}
	if l.cond.doc && q.Limit > 0 {
		return g.listOnce(ctx, l, max(q.Offset, 0), q.Limit)
	}
	_, count := l.queries()
	out := []fleet.Agent{}
	page := func(total int) string { return l.pageOf(total, max(q.Offset, 0)+q.Limit) }
	total, err := g.s.pageOf(ctx, "list agents", count, page, l.cond.args, q.Offset, max(q.Limit, 0), func(scan scan) error {
		a, err := g.scan(scan)
		if err == nil {
			out = append(out, a)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return out, total, nil
}

// listAfter reads the total, and then a page that begins after a position.
func (g agents) listAfter(ctx context.Context, l listing, q store.AgentQuery) ([]fleet.Agent, int, error) {
	_, count := l.queries()
	args := l.cond.args
	total, err := g.s.page(ctx, "list agents", count, "", args, 0, 0, nil)
	if err != nil {
		return nil, 0, err
	}
	if q.Limit <= 0 {
		return []fleet.Agent{}, total, nil
	}
	rest := l
	after, more := l.after(*q.After)
	if l.cond.where == "" {
		rest.cond.where = " WHERE " + after
	} else {
		rest.cond.where += " AND " + after
		if total < walkAbove*q.Limit {
			return g.pageAfter(ctx, rest.page("+"), slices.Concat(args, more), q.Limit, total)
		}
	}
	return g.pageAfter(ctx, rest.page(""), slices.Concat(args, more), q.Limit, total)
}

func (g agents) pageAfter(ctx context.Context, page string, args []any, limit, total int) ([]fleet.Agent, int, error) {
	out := []fleet.Agent{}
	_, err := g.s.page(ctx, "list agents", "", page, args, 0, limit, func(scan scan) error {
		a, err := g.scan(scan)
		if err == nil {
			out = append(out, a)
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	return out, total, nil
}

// listOnce evaluates the condition once, for both the page and the total. It is for
// conditions that read documents, which is nearly all of their cost.
func (g agents) listOnce(ctx context.Context, l listing, offset, limit int) ([]fleet.Agent, int, error) {
	tx, err := g.s.readers.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, 0, g.s.fault("list agents", err)
	}
	defer tx.Rollback() // nothing was written
	l.cond = l.sorted()
	// The plus keeps SQLite from reading all documents in the order of an index.
	rows, err := tx.QueryContext(ctx, fmt.Sprintf(`%sSELECT f.rid FROM facts f%s%s ORDER BY +%s%[5]s, f.id%[5]s`,
		l.cond.with, l.cond.joins(), l.cond.where, l.column, l.direction), l.cond.args...)
	var found []int64
	if err == nil {
		err = g.s.eachRow(rows, func(scan scan) error {
			var rid int64
			err := scan(&rid)
			found = append(found, rid)
			return err
		})
	}
	if err != nil {
		return nil, 0, g.s.fault("list agents", err)
	}
	from := min(offset, len(found))
	page, err := json.Marshal(found[from:min(from+limit, len(found))])
	if err != nil {
		return nil, 0, err // numbers can be encoded
	}
	out := []fleet.Agent{}
	rows, err = tx.QueryContext(ctx, `SELECT `+agentColumns+` FROM json_each(?) j CROSS JOIN agents a ON a.rid = j.value
		JOIN agent_last_seen l ON l.rid = a.rid ORDER BY j.id`, string(page))
	if err == nil {
		err = g.s.eachRow(rows, func(scan scan) error {
			a, err := g.scan(scan)
			if err == nil {
				out = append(out, a)
			}
			return err
		})
	}
	if err != nil {
		return nil, 0, g.s.fault("list agents", err)
	}
	return out, len(found), nil
}

func (g agents) CountPolicies(ctx context.Context) (map[fleet.PolicyAt]int, error) {
	out := map[fleet.PolicyAt]int{}
	// The rows are counted in Go, as in Tally.
	err := g.s.each(ctx, `SELECT policy_id, coalesce(policy_rev, 0) FROM facts WHERE active AND policy_id <> ''`, nil, func(scan scan) error {
		var at fleet.PolicyAt
		err := scan(&at.ID, &at.Revision)
		out[at]++
		return err
	})
	return out, err
}

func (g agents) facts(ctx context.Context, filter store.AgentFilter, f func(string, fleet.StatusFacts)) error {
	cond, err := filterCondition(filter)
	if err != nil {
		return err
	}
	cond.lastSeen = true
	rows, err := g.s.readers.QueryContext(ctx, cond.with+`SELECT `+statusColumns+` FROM facts f`+cond.joins()+cond.where, cond.args...)
	if err != nil {
		return g.s.fault("read agents", err)
	}
	err = g.s.eachRow(rows, func(scan scan) error { return scanFacts(scan, f) })
	return g.s.fault("read agents", err)
}

// statusColumns are the columns that scanFacts reads, of facts as f and agent_last_seen as
// l. The flags are read as one number, because each column has a cost of its own.
const statusColumns = `f.id, f.active + 2*f.unenrolling + 4*(f.policy_rev IS NULL), f.upgrading_since,
	f.policy_id, f.enrolled_at, l.last_checkin, l.status, f.audit_unenrolled`

func scanFacts(scan scan, f func(string, fleet.StatusFacts)) error {
	var (
		id              string
		facts           fleet.StatusFacts
		flags, enrolled int64
		since, last     sql.NullInt64
	)
	if err := scan(&id, &flags, &since, &facts.PolicyID, &enrolled, &last, &facts.LastCheckinStatus, &facts.AuditUnenrolledReason); err != nil {
		return err
	}
	facts.Active, facts.Unenrolling, facts.NoPolicy, facts.UpgradingSince = flags&1 != 0, flags&2 != 0, flags&4 != 0, toTimePtr(since)
	facts.EnrolledAt, facts.LastCheckin = toTime(enrolled), toTimePtr(last)
	f(id, facts)
	return nil
}
