package admin

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/configfile"
	"github.com/muster-fleet/muster/server/fleet"
)

// previewConfig shows what an upgrade manifest changes in the configuration files of hosts.
func (h *Handlers) previewConfig(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.ConfigPreviewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	m, err := h.Rollouts.GetManifest(ctx, c.Param("profile"), c.Param("upgradeId"))
	if err != nil {
		return err
	}
	if len(m.ConfigFiles) == 0 {
		return fleet.FieldError("path.upgradeId", "names the upgrade manifest %s/%s, which has no config_files", m.Profile, m.ID)
	}
	ids, _, err := h.selection(ctx, req.Agents, req.IncludeInactive)
	if err != nil {
		return err
	}
	switch {
	case len(ids) == 0:
		return fleet.FieldError("body.agents", "selects no agents")
	case len(ids) > configfile.MaxPreview:
		return fleet.FieldError("body.agents", "selects %d agents, at most %d are rendered: choose some of them", len(ids), configfile.MaxPreview)
	}
	agents, err := h.Store.Agents().GetMany(ctx, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if !slices.ContainsFunc(agents, func(a fleet.Agent) bool { return a.ID == id }) {
			return fleet.FieldError(fmt.Sprintf("body.agents[%d]", i), "is %q, which is not enrolled", id)
		}
	}
	all, _, err := h.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	policies := make(map[string]fleet.Policy, len(all))
	for _, p := range all {
		policies[p.ID] = p
	}
	hosts, err := h.Configs.Preview(ctx, fleet.Plan{Profile: m.Profile, UpgradeID: m.ID, ManifestHash: m.ContentHash, Version: m.Version}, policies, agents)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ConfigPreview{Component: m.Component, Version: m.Version, ContentHash: m.ContentHash, Items: each(hosts, configPreviewItem)})
	return nil
}

func configPreviewItem(h configfile.HostPreview) adminapi.ConfigPreviewItem {
	item := adminapi.ConfigPreviewItem{AgentId: h.Agent.ID, Hostname: h.Agent.Hostname()}
	if h.Err != nil {
		item.Error = ptr(h.Err.Error())
		return item
	}
	item.RenderedSha256, item.Diff = ptr(h.Digest), ptr(h.Diff)
	return item
}
