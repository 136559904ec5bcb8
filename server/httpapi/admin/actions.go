package admin

import (
	"math"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func (h *Handlers) actionStatus(c *gin.Context) error {
	number, size, err := page(c, 0)
	if err != nil {
		return err
	}
	errorSize, err := queryInt(c, "errorSize", 5, 0, 100)
	if err != nil {
		return err
	}
	q := store.ActionQuery{Offset: number * size, Limit: size}
	if q.From, q.Until, err = createdIn(c, h.Now.UTC()); err != nil {
		return err
	}
	list, err := h.Actions.List(c.Request.Context(), q, errorSize)
	if err != nil {
		return err
	}
	out := adminapi.ActionStatusList{Items: make([]adminapi.ActionStatus, len(list))}
	for i, s := range list {
		a := adminapi.ActionStatus{
			ActionId: s.ID, Type: string(s.Type), Status: adminapi.ActionState(s.State), Version: ptr(s.Upgrade().Version),
			StartTime: s.StartTime, Expiration: s.Expiration, CreationTime: s.CreatedAt, CancellationTime: s.CancelledAt,
			NbAgentsActioned: s.Actioned, NbAgentsActionCreated: len(s.Agents), NbAgentsAck: s.Counts.Acked, NbAgentsFailed: s.Counts.Failed, NbAgentsDone: s.Done(), Outcome: adminapi.ActionState(s.Outcome()),
			NewPolicyId: ptr(s.NewPolicy()), Rollback: ptr(s.Upgrade().Rollback), Component: ptr(s.Component()), HasRolloutPeriod: s.RolloutSeconds > 0, CreatedBy: ptr(s.CreatedBy), LatestErrors: make([]adminapi.ActionError, len(s.Errors)),
		}
		a.IsAutomatic = ptr(s.Automatic)
		if s.State == fleet.ActionComplete || s.State == fleet.ActionFailed {
			a.CompletionTime = ptr(s.Counts.Last)
		}
		for j, r := range s.Errors {
			a.LatestErrors[j] = adminapi.ActionError{AgentId: r.AgentID, Hostname: ptr(r.Hostname), Error: r.Error, Timestamp: r.Timestamp}
		}
		out.Items[i] = a
	}
	c.JSON(http.StatusOK, out)
	return nil
}

// maxLatest is the longest that fits a time.Duration.
const maxLatest = int(math.MaxInt64 / time.Millisecond)

// dateFormats are the forms of a date that Kibana's clients send.
var dateFormats = []string{time.RFC3339, "2006-01-02", "2006-01-02T15:04:05", "2006-01-02T15:04"}

// createdIn returns the times that the parameters date, a time from which one day counts,
// and latest, milliseconds before now, select. As in Kibana, date takes precedence.
func createdIn(c *gin.Context, now time.Time) (from, until *time.Time, err error) {
	latest, err := queryInt(c, "latest", 0, 0, maxLatest)
	if err != nil {
		return nil, nil, err
	}
	if date := c.Query("date"); date != "" {
		for _, format := range dateFormats {
			if from, err := time.Parse(format, date); err == nil {
				until := from.AddDate(0, 0, 1)
				return &from, &until, nil
			}
		}
		return nil, nil, fleet.FieldError("query.date", "not a valid date")
	}
	if latest == 0 {
		return nil, nil, nil
	}
	since := now.Add(-time.Duration(latest) * time.Millisecond)
	return &since, nil, nil
}

func (h *Handlers) cancelAction(c *gin.Context) error {
	a, err := h.Actions.Cancel(c.Request.Context(), c.Param("actionId"), actor(c))
	if err != nil {
		return err
	}
	var out adminapi.CancelResponse
	out.Item.Id, out.Item.Type, out.Item.CreatedAt = a.ID, string(a.Type), a.CreatedAt
	c.JSON(http.StatusOK, out)
	return nil
}

func (h *Handlers) availableVersions(c *gin.Context) error {
	catalog, err := h.Actions.Catalog(c.Request.Context())
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.VersionList{Items: catalog.Versions()})
	return nil
}
