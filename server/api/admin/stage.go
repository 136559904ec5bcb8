package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
)

// renderStaged returns nil for an agent that cannot stage versions.
func renderStaged(a *fleet.Agent) *[]string {
	if a.StagedVersions == nil {
		return nil
	}
	return &a.StagedVersions
}

// stageOrder reads the order of a request.
func (h *Handlers) stageOrder(c *gin.Context) (o action.StageOrder, of asked, err error) {
	var req adminapi.StageRequest
	if err := decode(c, &req); err != nil {
		return o, of, err
	}
	of = asked{req.Agents, req.IncludeInactive, req.MaxItems}
	o = action.StageOrder{Component: deref(req.Component), UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force), Actor: actor(c)}
	o.AgentIDs, o.Selected, err = h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	return o, of, err
}

func (h *Handlers) stage(c *gin.Context) error {
	o, _, err := h.stageOrder(c)
	if err != nil {
		return err
	}
	a, err := h.Actions.Stage(c.Request.Context(), o)
	return answerAction(c, a, err)
}

func (h *Handlers) previewStage(c *gin.Context) error {
	o, of, err := h.stageOrder(c)
	if err != nil {
		return err
	}
	ctx := c.Request.Context()
	upgrade := action.UpgradeOrder{Component: o.Component, UpgradeRequest: o.UpgradeRequest, AgentIDs: o.AgentIDs}
	out, err := h.preview(ctx, of, upgrade, nil, "stages it", func(f func(action.Verdict)) error { return h.Actions.EachStageVerdict(ctx, o, f) })
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, out)
	return nil
}
