package admin

import (
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
func (h *Handlers) stageOrder(c *gin.Context) (o action.UpgradeOrder, of asked, err error) {
	var req adminapi.StageRequest
	if err := decode(c, &req); err != nil {
		return o, of, err
	}
	of = asked{req.Agents, req.IncludeInactive, req.MaxItems}
	o = action.UpgradeOrder{Stages: true, Component: deref(req.Component), UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force), Actor: actor(c)}
	o.AgentIDs, o.Selected, err = h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	return o, of, err
}
