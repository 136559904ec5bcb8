package admin

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/history"
)

const defaultTimelineLimit, maxTimelineLimit = 30, 200

// agentItself is the value of the parameter component for the agent without its components.
const agentItself = "agent"

func (h *Handlers) timeline(c *gin.Context) error {
	q := history.Query{Before: c.Query("before")}
	var err error
	if q.Limit, err = queryInt(c, "limit", defaultTimelineLimit, 1, maxTimelineLimit); err != nil {
		return err
	}
	if component := c.Query("component"); component != "" {
		if component == agentItself {
			component = ""
		}
		q.Component = &component
	}
	page, err := h.History.Timeline(c.Request.Context(), c.Param("agentId"), q)
	return send(c, adminapi.Timeline{Items: each(page.Entries, renderEntry), Next: ptr(page.Next)}, err)
}

func renderEntry(r fleet.HistoryRecord) adminapi.TimelineEntry {
	out := adminapi.TimelineEntry{
		Id: r.ID, At: r.At, EndedAt: r.EndedAt, Kind: adminapi.TimelineEntryKind(r.Kind), Component: ptr(r.Component), ActionId: ptr(r.ActionID),
		By: ptr(r.By), Rollout: r.Rollout, From: ptr(r.From), To: ptr(r.To), State: (*adminapi.ProgressState)(ptr(string(r.State))),
		Reason: renderReason(r.Code, r.Reason), Text: ptr(r.Text), Why: ptr(r.Why),
	}
	if len(r.Phases) > 0 {
		phases := each(r.Phases, func(p fleet.Phase) adminapi.TimelinePhase {
			return adminapi.TimelinePhase{State: p.State, At: p.At, Text: ptr(p.Text)}
		})
		out.Phases = &phases
	}
	return out
}

func (h *Handlers) failures(c *gin.Context) error {
	seen := callersKey(c).FailuresSeenAt
	f, err := h.History.Failures(c.Request.Context(), c.Query("kuery"), seen)
	if err != nil {
		return err
	}
	out := adminapi.Failures{Total: f.Total, Unseen: f.Unseen, SeenAt: seen, Other: ptr(f.Other), Causes: each(f.Causes, func(f history.Cause) adminapi.FailureCause {
		code := f.Code
		if code == "" {
			code = unknownCause
		}
		return adminapi.FailureCause{
			Code: code, Text: f.Text(), State: f.State, Version: f.Version, Count: f.Count, Latest: f.Latest, Kuery: f.Kuery, Sample: ptr(f.Sample),
		}
	})}
	c.JSON(http.StatusOK, out)
	return nil
}

func (h *Handlers) seeFailures(c *gin.Context) error {
	var req adminapi.SeenRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	now := h.Now.UTC()
	until := now
	if req.Until != nil {
		until = req.Until.UTC()
	}
	if until.After(now) {
		return fleet.FieldError("body.until", "is %s, want a time that has passed: later failures cannot have been seen", until.Format(time.RFC3339))
	}
	return send(c, adminapi.Empty{}, h.Access.SeeFailures(c.Request.Context(), callersKey(c).ID, until))
}
