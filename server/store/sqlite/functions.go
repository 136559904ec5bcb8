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
)

// What SQL cannot say as Go does is Go. Arguments are SQLite's own memory: nothing
// of them may be kept.
var functions = map[string]struct {
	args int32
	call func(args []driver.Value) (driver.Value, error)
}{
	// muster_matches(leaf, text) is 1 if a text matches a leaf, else 0.
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
	// muster_time(text) is a time of a document as the tables have it, NULL of
	// what is none.
	"muster_time": {1, func(args []driver.Value) (driver.Value, error) {
		text, _ := args[0].(string)
		t, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			return nil, nil //nolint:nilerr // it is no time
		}
		return fromTime(t), nil
	}},
	// muster_version_key(text) is what versions compare by.
	"muster_version_key": {1, func(args []driver.Value) (driver.Value, error) {
		text, _ := args[0].(string)
		return fleet.VersionKey(text), nil
	}},
}

// registered says whether the functions are known to all connections. The driver is
// told before anything opens one, of another package's file as well: it guards
// nothing of its own.
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

// leaf is a filter of one text, as it travels in SQL: one of its fields is set.
type leaf struct {
	Like   kql.Wildcard `json:"like,omitempty"`
	Text   bool         `json:"text,omitempty"` // Like is of the words of a text
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

// maxLeaves bounds leafCache: as many as any query has, a few times.
const maxLeaves = 4096

// leafCache keeps leaves decoded between the agents of a query, which are asked
// one after the other.
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
	spec = strings.Clone(spec) // it is kept
	var l leaf
	if err := json.Unmarshal([]byte(spec), &l); err != nil {
		return nil, fmt.Errorf("a part of a query cannot be read: %w", err)
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
