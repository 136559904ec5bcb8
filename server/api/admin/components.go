package admin

import (
	"maps"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/rollout/action"
)

// routeComponents adds the routes of components, which agents run.
func (h *Handlers) routeComponents(on bind) {
	on(adminapi.ListComponents.Call, h.listComponents)
	on(adminapi.UpgradeComponent.Call, h.ordersUpgrade(h.componentOrder))
	on(adminapi.PreviewComponentUpgrade.Call, h.previewsUpgrade(h.componentOrder))
}

// listComponents counts what agents, without the inactive ones, have reported last.
func (h *Handlers) listComponents(c *gin.Context) error {
	ctx := c.Request.Context()
	// Most agents of some fleets have none, and need not be read then.
	some := kql.Exists{Field: fleet.AgentSchema(nil).Field(fleet.ComponentsPrefix + "name")}
	of, err := h.Inventory.Find(ctx, inventory.Selection{Kuery: c.Query("kuery"), With: some})
	if err != nil {
		return err
	}
	found := map[string]*componentCount{}
	err = h.Inventory.Each(ctx, of, func(a fleet.Agent) {
		there := isThere(a.Facts().StatusAt(of.Now, of.Timeouts[a.PolicyID]))
		for _, c := range a.RunsComponents() {
			if found[c.Name] == nil {
				found[c.Name] = &componentCount{runtimes: map[string]bool{}, versions: map[string]int{}}
			}
			found[c.Name].add(&c, there)
		}
	})
	if err != nil {
		return err
	}
	out := adminapi.ComponentList{Items: []adminapi.ComponentSummary{}}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out.Items = append(out.Items, found[name].summary(name))
	}
	c.JSON(http.StatusOK, out)
	return nil
}

type componentCount struct {
	agents, healthy, upgrading, failed int
	runtimes                           map[string]bool
	versions                           map[string]int
}

// isThere reports whether an agent of the status still reports how its components are.
func isThere(s fleet.Status) bool {
	switch s {
	case fleet.StatusUnenrolled, fleet.StatusInactive, fleet.StatusUninstalled, fleet.StatusOrphaned, fleet.StatusOffline:
		return false
	}
	return true
}

// add counts a component of an agent. there is isThere of the agent.
func (n *componentCount) add(c *fleet.Component, there bool) {
	n.agents++
	n.runtimes[c.Runtime] = true
	n.versions[c.Version]++
	if there && c.Status == "HEALTHY" {
		n.healthy++
	}
	switch c.Upgrade.UpgradeStatus {
	case fleet.UpgradeStarted:
		n.upgrading++
	case fleet.UpgradeFailed, fleet.UpgradeRolledBack:
		n.failed++
	case fleet.UpgradeNone:
	}
}

func (n *componentCount) summary(name string) adminapi.ComponentSummary {
	versions := slices.Collect(maps.Keys(n.versions))
	manifest.SortVersions(versions)
	return adminapi.ComponentSummary{
		Name: name, Runtimes: slices.Sorted(maps.Keys(n.runtimes)), Agents: n.agents, Healthy: n.healthy, Upgrading: n.upgrading, Failed: n.failed,
		Versions: each(versions, func(v string) adminapi.ComponentVersion {
			return adminapi.ComponentVersion{Version: v, Agents: n.versions[v]}
		}),
	}
}

// componentOrder reads the order of a request.
func (h *Handlers) componentOrder(c *gin.Context) (o action.UpgradeOrder, of asked, err error) {
	var req adminapi.ComponentUpgradeRequest
	if err := decode(c, &req); err != nil {
		return o, of, err
	}
	if err := checkTimes(req.StartTime, req.RolloutDurationSeconds, h.Now.UTC()); err != nil {
		return o, of, err
	}
	of = asked{req.Agents, req.IncludeInactive, req.MaxItems}
	o = action.UpgradeOrder{
		Component: c.Param("name"), UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force), Rollback: isSet(req.Rollback),
		StartTime: req.StartTime, RolloutSeconds: deref(req.RolloutDurationSeconds),
		OverrideFreeze: isSet(req.OverrideFreeze), OverrideExposure: isSet(req.OverrideExposure), Why: deref(req.Why), TakeOver: deref(req.TakeOver), Actor: actor(c),
	}
	o.AgentIDs, o.Selected, err = h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	return o, of, err
}
