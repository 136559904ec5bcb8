package admin

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// pit is a point in time at which lists of agents are read: statuses are those of that
// time, and agents that enrolled later are left out. What agents report later shows
// nevertheless. Its id holds the time. The server keeps nothing for it, but the order of lists
// by a field that changes; see agentlistings.go.
type pit struct {
	At time.Time `json:"at"`
}

// pitLifetime is how long a point in time can be used, whatever keep-alive was asked for: it
// is the longest that Elasticsearch keeps one by default.
const pitLifetime = 24 * time.Hour

func (p pit) id() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("encode a point in time: " + err.Error()) // a time before the year 10000
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

func parsePIT(id string, now time.Time) (p pit, err error) {
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

// elasticTime matches a time of Elasticsearch.
var elasticTime = regexp.MustCompile(`^[0-9]{1,9}(d|h|m|s|ms|micros|nanos)$`)

// elasticDuration returns a time that elasticTime matches; 0 for none.
func elasticDuration(text string) time.Duration {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		n, _ := strconv.Atoi(days) // at most nine digits
		return time.Duration(min(n, 365)) * 24 * time.Hour
	}
	d, _ := time.ParseDuration(strings.NewReplacer("micros", "us", "nanos", "ns").Replace(text))
	return d
}

// agentPage is what the parameters of a list of agents say about its page.
type agentPage struct {
	number, size int
	after        *store.AgentPosition
	pit          string        // the id to answer with
	alive        time.Duration // pitKeepAlive
	// now is the time of the point in time, or the present.
	now time.Time
}

// agentPage reads the parameters. The checks, their order and their words are Kibana's.
func (h *Handlers) agentPage(c *gin.Context, by store.AgentSort) (p agentPage, err error) {
	p.now = h.Now.UTC()
	if p.number, err = queryInt(c, "page", 1, 1, maxPage); err != nil {
		return p, err
	}
	if p.size, err = queryInt(c, "perPage", 20, 0, maxPage); err != nil {
		return p, err
	}
	open, err := queryBool(c, "openPit")
	if err != nil {
		return p, err
	}
	id, alive, after := c.Query("pitId"), c.Query("pitKeepAlive"), c.Query("searchAfter")
	switch {
	case open && id != "":
		return p, fleet.FieldError("query", "You cannot request to open a new point-in-time with an existing pitId")
	case (open || id != "") && alive == "":
		return p, fleet.FieldError("query", "You must provide pitKeepAlive when using point-in-time parameters")
	case alive != "" && !elasticTime.MatchString(alive):
		return p, fleet.FieldError("query.pitKeepAlive", "is %q, want a time such as 1m", alive)
	case p.number*p.size > maxWindow:
		return p, fleet.FieldError("query", "You cannot use page and perPage page over %d agents", maxWindow)
	case after != "" && c.Query("page") != "":
		return p, fleet.FieldError("query", "You cannot use page parameter when using searchAfter")
	}
	p.alive = elasticDuration(alive)
	if after != "" {
		var list []any
		if json.Unmarshal([]byte(after), &list) != nil || len(list) == 0 {
			return p, fleet.FieldError("query", "searchAfter must be a non-empty array")
		}
		at, ok := by.ParsePosition([]byte(after))
		if !ok {
			return p, fleet.FieldError("query.searchAfter", "is no position in this order: send nextSearchAfter, or sort of an agent, with the same sortField")
		}
		p.after, p.number = &at, 0
	}
	if id != "" {
		at, err := parsePIT(id, p.now)
		if err != nil {
			return p, err
		}
		p.now, p.pit = at.At, id
	} else if open {
		p.now = p.now.Truncate(time.Millisecond) // as queries compare times
		p.pit = pit{At: p.now}.id()
	}
	return p, nil
}

// limit adds to a query that agents have enrolled by the point in time.
func (p agentPage) limit(q kql.Filter) (kql.Filter, error) {
	if p.pit == "" {
		return q, nil
	}
	old, err := kql.Compile(`enrolled_at <= "`+p.now.Format("2006-01-02T15:04:05.000Z")+`"`, fleet.AgentSchema(nil), p.now)
	if err != nil {
		return nil, err
	}
	return kql.AllOf{old, q}, nil
}

// agentSort reads sortField. Without it agents are sorted by their enrolment.
func agentSort(c *gin.Context) (store.AgentSort, error) {
	name := c.Query("sortField")
	if strings.TrimSpace(name) == "" {
		return store.ByEnrolledAt, nil
	}
	by, ok := store.ParseAgentSort(name)
	if !ok {
		return "", fleet.FieldError("query.sortField", "is %q: agents cannot be sorted by it", name)
	}
	return by, nil
}
