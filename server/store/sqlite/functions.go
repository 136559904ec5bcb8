package sqlite

import (
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	driverlib "modernc.org/sqlite"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// functions are SQL functions implemented in Go, so that SQL and Go give the same results.
// They must not retain their arguments, which are SQLite's memory.
var functions = map[string]struct {
	args int32
	call func(args []driver.Value) (driver.Value, error)
}{
	// muster_matches(leaf, text) returns 1 if the text matches the leaf, else 0.
	"muster_matches": {2, func(args []driver.Value) (driver.Value, error) {
		spec, ok := args[0].(string)
		text, isText := args[1].(string)
		if !ok || !isText || text == "" {
			return int64(0), nil
		}
		f, err := leaves.get(spec)
		if err == nil && kql.Match(f, func(*kql.Field) []any { return []any{text} }) {
			return int64(1), nil
		}
		return int64(0), err
	}},
	// muster_time(text) converts a time of a document to nanoseconds, as fromTime does. It
	// returns NULL if the text is not a time.
	"muster_time": {1, func(args []driver.Value) (driver.Value, error) {
		text, _ := args[0].(string)
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, nil //nolint:nilerr // not a time
		}
		return fromTime(t), nil
	}},
	// muster_audit_text(doc) returns store.AuditText of an audit entry.
	"muster_audit_text": {1, func(args []driver.Value) (driver.Value, error) {
		doc, _ := args[0].(string)
		var e fleet.AuditEntry
		if err := json.Unmarshal([]byte(doc), &e); err != nil {
			return "", nil //nolint:nilerr // no word is in it, and lists leave it out
		}
		return store.AuditText(e), nil
	}},
	// muster_version_key(text) returns fleet.VersionKey.
	"muster_version_key": {1, func(args []driver.Value) (driver.Value, error) {
		text, _ := args[0].(string)
		return fleet.VersionKey(text), nil
	}},
}

// registered is the error of registering the functions with the driver. The driver does
// not synchronize registration, so it happens before any package opens a connection.
var registered = func() error {
	for name, f := range functions {
		err := driverlib.RegisterFunction(name, &driverlib.FunctionImpl{
			NArgs: f.args, Deterministic: true, VolatileArgs: true,
			Scalar: func(_ *driverlib.FunctionContext, args []driver.Value) (driver.Value, error) { return f.call(args) },
		})
		if err != nil {
			return fmt.Errorf("function %s: %w", name, err)
		}
	}
	return nil
}()

// leaf is a filter on one text, encoded for muster_matches. One of Like, Words and Phrase
// is set.
type leaf struct {
	Like   kql.Wildcard `json:"like,omitempty"`
	Text   bool         `json:"text,omitempty"` // Like applies to the words of a text
	Words  []string     `json:"words,omitempty"`
	Phrase []string     `json:"phrase,omitempty"`
}

var (
	keywordField = &kql.Field{Name: "text", Type: kql.TypeKeyword}
	textField    = &kql.Field{Name: "text", Type: kql.TypeText}
)

func (l leaf) filter() kql.Filter {
	switch {
	case l.Like != nil && l.Text:
		return kql.Like{Field: textField, Pattern: l.Like}
	case l.Like != nil:
		return kql.Like{Field: keywordField, Pattern: l.Like}
	case l.Phrase != nil:
		return kql.HasPhrase{Field: textField, Words: l.Phrase}
	}
	return kql.HasWord{Field: textField, Words: l.Words}
}

// maxLeaves bounds leafCache: several times the leaves of any query.
const maxLeaves = 4096

// leafCache holds decoded leaves, because a query evaluates each leaf for every agent.
type leafCache struct {
	mu  sync.RWMutex
	all map[string]kql.Filter
}

var leaves leafCache

func (c *leafCache) get(spec string) (kql.Filter, error) {
	c.mu.RLock()
	f, ok := c.all[spec]
	c.mu.RUnlock()
	if ok {
		return f, nil
	}
	spec = strings.Clone(spec) // see functions
	var l leaf
	if err := json.Unmarshal([]byte(spec), &l); err != nil {
		return nil, fmt.Errorf("a part of a query cannot be decoded: %w", err)
	}
	f = l.filter()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || len(c.all) >= maxLeaves {
		c.all = map[string]kql.Filter{}
	}
	c.all[spec] = f
	return f, nil
}
