package admin

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
)

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

// agentPage reads the page that a request for a list of agents asks for. The checks, their order and
// their words are Kibana's.
func (h *Handlers) agentPage(c *gin.Context) (p inventory.Page, number int, err error) {
	if p.Sort, err = inventory.ParseSort(c.Query("sortField")); err != nil {
		return p, 0, err
	}
	p.Now = h.Now.UTC()
	if number, err = queryInt(c, "page", 1, 1, maxPage); err != nil {
		return p, 0, err
	}
	if p.Limit, err = queryInt(c, "perPage", 20, 0, maxPage); err != nil {
		return p, 0, err
	}
	open, err := queryBool(c, "openPit")
	if err != nil {
		return p, 0, err
	}
	id, alive, after := c.Query("pitId"), c.Query("pitKeepAlive"), c.Query("searchAfter")
	switch {
	case open && id != "":
		return p, 0, fleet.FieldError("query", "You cannot request to open a new point-in-time with an existing pitId")
	case (open || id != "") && alive == "":
		return p, 0, fleet.FieldError("query", "You must provide pitKeepAlive when using point-in-time parameters")
	case alive != "" && !elasticTime.MatchString(alive):
		return p, 0, fleet.FieldError("query.pitKeepAlive", "is %q, want a time such as 1m", alive)
	case number*p.Limit > maxWindow:
		return p, 0, fleet.FieldError("query", "You cannot use page and perPage page over %d agents", maxWindow)
	case after != "" && c.Query("page") != "":
		return p, 0, fleet.FieldError("query", "You cannot use page parameter when using searchAfter")
	}
	p.Alive, p.Offset = elasticDuration(alive), (number-1)*p.Limit
	if after != "" {
		var list []any
		if json.Unmarshal([]byte(after), &list) != nil || len(list) == 0 {
			return p, 0, fleet.FieldError("query", "searchAfter must be a non-empty array")
		}
		at, ok := p.Sort.ParsePosition([]byte(after))
		if !ok {
			return p, 0, fleet.FieldError("query.searchAfter", "is no position in this order: send nextSearchAfter, or sort of an agent, with the same sortField")
		}
		p.After, p.Offset, number = &at, 0, 0
	}
	if id != "" {
		at, err := inventory.ParsePIT(id, p.Now)
		if err != nil {
			return p, 0, err
		}
		p.Now, p.PIT = at.At, id
	} else if open {
		p.Now = p.Now.Truncate(time.Millisecond) // as queries compare times
		p.PIT = inventory.PIT{At: p.Now}.ID()
	}
	switch order := c.Query("sortOrder"); order {
	case "", "desc":
		p.Desc = true
	case "asc":
	default:
		return p, 0, fleet.FieldError("query.sortOrder", "is %q, want asc or desc", order)
	}
	return p, number, nil
}
