package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
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
	list, err := h.Actions.List(c.Request.Context(), number*size, size, errorSize)
	if err != nil {
		return err
	}
	out := adminapi.ActionStatusList{Items: make([]adminapi.ActionStatus, len(list))}
	for i, s := range list {
		a := adminapi.ActionStatus{
			ActionId: s.ID, Type: string(s.Type), Status: adminapi.ActionState(s.State), Version: ptr(s.Upgrade().Version),
			StartTime: s.StartTime, Expiration: s.Expiration, CreationTime: s.CreatedAt, CancellationTime: s.CancelledAt,
			NbAgentsActioned: s.Actioned, NbAgentsActionCreated: len(s.Agents), NbAgentsAck: s.Counts.Acked, NbAgentsFailed: s.Counts.Failed, NbAgentsDone: s.Done(), Outcome: adminapi.ActionState(s.Outcome()),
			Rollback: ptr(s.Upgrade().Rollback), HasRolloutPeriod: s.RolloutSeconds > 0, CreatedBy: ptr(s.CreatedBy), LatestErrors: make([]adminapi.ActionError, len(s.Errors)),
		}
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
