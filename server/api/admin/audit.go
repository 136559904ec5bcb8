package admin

import (
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/audit"
)

// dryKey marks a call that turned out to change nothing, though it succeeded.
const dryKey = "dry-run"

// audited sees to it that every change is in the audit trail, before it is made: by the entry of
// the package that makes it, or else by one of the call, so a new route cannot be forgotten. See
// package audit. The parameter why of any call is its reason.
func (h *Handlers) audited(c *gin.Context, of *adminapi.Call) {
	why := c.Query("why")
	if len(why) > maxWhy {
		h.API.Fail(c, fleet.FieldError("query.why", "has %d bytes, at most %d are accepted", len(why), maxWhy))
		return
	}
	subject := ""
	if n := len(c.Params); n > 0 {
		subject = c.Params[n-1].Value
	}
	call := c.Request.Method + " " + c.Request.URL.Path
	ctx, change := audit.BeginCall(c.Request.Context(), fleet.AuditEntry{
		At: h.Now.UTC(), Actor: actor(c), Verb: of.Verb(), Subject: subject, Why: why, Text: "called " + call,
	})
	defer change.End()
	c.Request = c.Request.WithContext(ctx)
	c.Next()
	if c.GetBool(dryKey) || c.Writer.Status() >= http.StatusBadRequest {
		return
	}
	// What the call has done is in no document that the store watches.
	if err := h.Trail.RecordCall(ctx); err != nil {
		h.API.Log.Error("a call that changed no document is not in the audit trail", "actor", actor(c), "call", call, "error", err)
	}
}

// maxTrailWords and maxTrailSearch bound a search in the audit trail, which reads every
// entry of the time for each word.
const (
	maxTrailWords  = 10
	maxTrailSearch = 200
)

// listTrail answers with the entries of the audit trail that the parameters select.
func (h *Handlers) listTrail(c *gin.Context) error {
	q := audit.Query{Subject: c.Query("subject"), Actor: c.Query("actor"), Verb: c.Query("verb"), Words: strings.Fields(strings.ToLower(c.Query("q")))}
	if n := len(c.Query("q")); n > maxTrailSearch {
		return fleet.FieldError("query.q", "has %d bytes, at most %d are accepted", n, maxTrailSearch)
	}
	if len(q.Words) > maxTrailWords {
		return fleet.FieldError("query.q", "has %d words, at most %d are accepted", len(q.Words), maxTrailWords)
	}
	var err error
	if q.People, err = queryBool(c, "people"); err != nil {
		return err
	}
	if q.Since, err = timeParameter(c, "since"); err != nil {
		return err
	}
	if q.Until, err = timeParameter(c, "until"); err != nil {
		return err
	}
	return answerPage(c, func(offset, limit int) ([]fleet.AuditEntry, int, error) {
		q.Offset, q.Limit = offset, limit
		return h.Trail.List(c.Request.Context(), q)
	})
}

// timeParameter returns a time in the query, nil if it is absent.
func timeParameter(c *gin.Context, name string) (*time.Time, error) {
	s := c.Query(name)
	if s == "" {
		return nil, nil
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil, fleet.FieldError("query."+name, "is %q, want a time such as 2026-01-31T12:00:00Z", s)
	}
	return &t, nil
}
