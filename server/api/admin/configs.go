package admin

import (
	"context"
	"fmt"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

// previewConfig shows what an upgrade manifest changes in the configuration files of hosts.
func (h *Handlers) previewConfig(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.ConfigPreviewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	m, err := h.Rollouts.GetUpgradeManifest(ctx, c.Param("profile"), c.Param("upgradeId"))
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
	hosts, err := h.previewFiles(ctx, fleet.Plan{Profile: m.Profile, UpgradeID: m.ID, UpgradeManifestHash: m.ContentHash, Version: m.Version}, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if !slices.ContainsFunc(hosts, func(host configfile.HostPreview) bool { return host.Agent.ID == id }) {
			return fleet.FieldError(fmt.Sprintf("body.agents[%d]", i), "is %q, which is not enrolled", id)
		}
	}
	c.JSON(http.StatusOK, adminapi.ConfigPreview{Component: m.Component, Version: m.Version, ContentHash: m.ContentHash, Items: each(hosts, configPreviewItem)})
	return nil
}

// listPreviewConfigs shows what a rollout changes in the configuration files of its targets,
// as a stored preview has them.
func (h *Handlers) listPreviewConfigs(c *gin.Context) error {
	ctx := c.Request.Context()
	pre, err := h.storedPreview(c)
	if err != nil {
		return err
	}
	r, err := h.Rollouts.Get(ctx, pre.RolloutID)
	if err != nil {
		return err
	}
	targets, err := h.previewTargets(ctx, &pre, c.QueryArray("agent"))
	if err != nil {
		return err
	}
	if len(pre.Targets) > 0 && !slices.ContainsFunc(pre.Targets, func(t fleet.PreviewTarget) bool { return t.Config != "" }) {
		return fleet.FieldError("path.rolloutId", "names %s, whose targets get no configuration files from the server: only the upgrade manifest of a plan has some, in config_files", plan.Title(&r))
	}
	number, size, err := pageUpTo(c, 1, configfile.MaxPreview)
	if err != nil {
		return err
	}
	shown := fleet.Part(targets, (number-1)*size, size)
	hosts, err := h.previewFiles(ctx, r.Plan, each(shown, func(t fleet.PreviewTarget) string { return t.AgentID }))
	if err != nil {
		return err
	}
	items := each(shown, func(t fleet.PreviewTarget) adminapi.ConfigPreviewItem {
		i := slices.IndexFunc(hosts, func(host configfile.HostPreview) bool { return host.Agent.ID == t.AgentID })
		switch {
		case i < 0 || !hosts[i].Agent.Active:
			return adminapi.ConfigPreviewItem{AgentId: t.AgentID, Hostname: t.Hostname, Error: ptr("is not enrolled any more")}
		case hosts[i].Err == nil && hosts[i].Digest != t.Config:
			return adminapi.ConfigPreviewItem{AgentId: t.AgentID, Hostname: t.Hostname, Error: ptr("its files are others by now than in the preview: preview the rollout again")}
		}
		return configPreviewItem(hosts[i])
	})
	c.JSON(http.StatusOK, paged[adminapi.ConfigPreviewItem]{items, len(targets), number, size})
	return nil
}

// previewTargets returns the targets of a preview, or those of the given agents. It says why an
// agent is no target.
func (h *Handlers) previewTargets(ctx context.Context, pre *fleet.Preview, agents []string) ([]fleet.PreviewTarget, error) {
	if len(agents) == 0 {
		return pre.Targets, nil
	}
	targets := slices.DeleteFunc(slices.Clone(pre.Targets), func(t fleet.PreviewTarget) bool { return !slices.Contains(agents, t.AgentID) })
	for _, id := range agents {
		if slices.ContainsFunc(targets, func(t fleet.PreviewTarget) bool { return t.AgentID == id }) {
			continue
		}
		if i := slices.IndexFunc(pre.Skipped, func(s fleet.SkippedAgent) bool { return s.AgentID == id }); i >= 0 {
			return nil, fleet.FieldError("query.agent", "is %q, which is left out: %s", id, pre.Skipped[i].Text)
		}
		a, err := h.Inventory.Get(ctx, id)
		switch {
		case err != nil && fleet.KindOf(err) != fleet.NotFound:
			return nil, err
		case err != nil || !a.Active:
			return nil, fleet.FieldError("query.agent", "is %q, which is not enrolled", id)
		}
		return nil, fleet.FieldError("query.agent", "is %q, which the plan did not select: if it would now, preview the rollout again", id)
	}
	return targets, nil
}

// previewFiles renders a plan's files for the agents that exist, in the order of ids.
func (h *Handlers) previewFiles(ctx context.Context, p fleet.Plan, ids []string) ([]configfile.HostPreview, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	agents, err := h.Inventory.Many(ctx, ids)
	if err != nil {
		return nil, err
	}
	policies, err := h.Policies.ByID(ctx)
	if err != nil {
		return nil, err
	}
	return h.Configs.Preview(ctx, p, policies, agents)
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
