package inventory

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// PIT is a point in time at which lists of agents are read: statuses are those of that time, and
// agents that enrolled later are left out. What agents report later shows nevertheless. Its id
// holds the time. The server keeps nothing for it, but the order of lists by a field that changes;
// see listing.go.
type PIT struct {
	At time.Time `json:"at"`
}

// pitLifetime is how long a point in time can be used, whatever keep-alive was asked for: it
// is the longest that Elasticsearch keeps one by default.
const pitLifetime = 24 * time.Hour

// ID returns the id of a point in time.
func (p PIT) ID() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("encode a point in time: " + err.Error()) // a time before the year 10000
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// ParsePIT returns the point in time with an id.
func ParsePIT(id string, now time.Time) (p PIT, err error) {
	text, err := base64.RawURLEncoding.DecodeString(id)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	switch {
	case err != nil || p.At.IsZero() || p.At.After(now):
		return p, fleet.FieldError("query.pitId", "is no point in time of this server: open one with openPit")
	case now.Sub(p.At) > pitLifetime:
		return p, fleet.Errorf(fleet.NotFound, "the point in time of %s has expired: open another with openPit", p.At.Format(time.RFC3339))
	}
	return p, nil
}

// Page selects a page of a list of agents.
type Page struct {
	Sort          store.AgentSort
	Desc          bool
	Offset, Limit int
	After         *store.AgentPosition // instead of Offset
	PIT           string               // the id of the list's point in time; empty: it has none
	Alive         time.Duration        // how long the point in time is kept after this page
	Now           time.Time            // the point in time, or the present
	// Upgradeable selects agents that can upgrade themselves and are below the newest version.
	Upgradeable bool
	// Counts also counts the agents of the list by status.
	Counts bool
}

// ParseSort returns the sort for a field of agents, their enrolment for none.
func ParseSort(field string) (store.AgentSort, error) {
	if strings.TrimSpace(field) == "" {
		return store.ByEnrolledAt, nil
	}
	by, ok := store.ParseAgentSort(field)
	if !ok {
		return "", fleet.FieldError("query.sortField", "is %q: agents cannot be sorted by it", field)
	}
	return by, nil
}

// Listed is a page of a list.
type Listed struct {
	Agents   []fleet.Agent
	Total    int
	Timeouts map[string]time.Duration
	Counts   map[fleet.Status]int // if they were asked for; shared: do not change them
}

// List returns a page of the agents of a selection.
func (s *Service) List(ctx context.Context, sel Selection, at Page) (Listed, error) {
	found, err := s.findAt(ctx, sel, at.Now)
	if err != nil {
		return Listed{}, err
	}
	q := store.AgentQuery{AgentFilter: found.Filter, Sort: at.Sort, Desc: at.Desc, Offset: at.Offset, Limit: at.Limit, After: at.After}
	if at.PIT != "" {
		old, err := kql.Compile(`enrolled_at <= "`+at.Now.Format("2006-01-02T15:04:05.000Z")+`"`, fleet.AgentSchema(nil), at.Now)
		if err != nil {
			return Listed{}, err
		}
		q.Query = kql.AllOf{old, q.Query}
	}
	if at.Upgradeable {
		catalog, err := s.Catalog(ctx)
		if err != nil {
			return Listed{}, err
		}
		if err := selectUpgradeable(&q, catalog, at.Now); err != nil {
			return Listed{}, err
		}
	}
	out := Listed{Timeouts: found.Timeouts}
	if at.PIT != "" && at.Sort != store.ByEnrolledAt {
		out.Agents, out.Total, err = s.ofListing(ctx, listingKey(at, q, sel.Kuery, sel.Inactive, at.Upgradeable), at, q)
	} else {
		out.Agents, out.Total, err = s.Store.Agents().List(ctx, q)
	}
	if err != nil || !at.Counts {
		return out, err
	}
	found.Filter = q.AgentFilter
	if at.PIT != "" { // counts are cached for the present
		out.Counts, err = store.CountStatuses(ctx, s.Store.Agents(), found.Filter, found.Timeouts, at.Now)
	} else {
		out.Counts, err = s.countsOf(ctx, found, fmt.Sprint(sel.key(found.Timeouts), at.Upgradeable))
	}
	return out, err
}
