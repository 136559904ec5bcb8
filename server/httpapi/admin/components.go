package admin

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/server/action"
	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
	"github.com/muster-fleet/muster/server/store"
)

// routeComponents adds the routes of components, which agents run.
func (h *Handlers) routeComponents(v1 *gin.RouterGroup) {
	on := h.API.Handle
	v1.GET("/components", on(h.listComponents))
	v1.POST("/components/:name/upgrade", on(h.upgradeComponent))
	v1.POST("/components/:name/upgrade_preview", on(h.previewComponentUpgrade))
}

// listComponents counts what agents, without the inactive ones, report.
func (h *Handlers) listComponents(c *gin.Context) error {
	ctx := c.Request.Context()
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return err
	}
	asked, err := selectAgents("query.kuery", c.Query("kuery"), false, timeouts, h.Now.UTC())
	if err != nil {
		return err
	}
	// Most agents of some fleets have none, and need not be read then.
	some := kql.Exists{Field: fleet.AgentSchema(nil).Field(fleet.ComponentsPrefix + "name")}
	found := map[string]*componentCount{}
	err = h.Store.Agents().Each(ctx, store.AgentFilter{Query: kql.AllOf{asked, some}}, func(a fleet.Agent) {
		for _, c := range a.RunsComponents() {
			if found[c.Name] == nil {
				found[c.Name] = &componentCount{runtimes: map[string]bool{}, versions: map[string]int{}}
			}
			found[c.Name].add(&c)
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

func (n *componentCount) add(c *fleet.Component) {
	n.agents++
	n.runtimes[c.Runtime] = true
	n.versions[c.Version]++
	if c.Status == "HEALTHY" {
		n.healthy++
	}
	switch c.Upgrade.Status {
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
func (h *Handlers) componentOrder(c *gin.Context) (o action.ComponentOrder, err error) {
	var req adminapi.ComponentUpgradeRequest
	if err := decode(c, &req); err != nil {
		return o, err
	}
	if err := checkTimes(req.StartTime, req.RolloutDurationSeconds, h.Now.UTC()); err != nil {
		return o, err
	}
	o = action.ComponentOrder{
		ComponentRequest: fleet.ComponentRequest{Name: c.Param("name"), UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force)},
		StartTime:        req.StartTime, RolloutSeconds: deref(req.RolloutDurationSeconds),
		OverrideFreeze: isSet(req.OverrideFreeze), Why: deref(req.Why), Actor: actor(c),
	}
	o.AgentIDs, o.Selected, err = h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	return o, err
}

func (h *Handlers) upgradeComponent(c *gin.Context) error {
	o, err := h.componentOrder(c)
	if err != nil {
		return err
	}
	a, err := h.Actions.UpgradeComponent(c.Request.Context(), o)
	return answerAction(c, a, err)
}

func (h *Handlers) previewComponentUpgrade(c *gin.Context) error {
	ctx := c.Request.Context()
	o, err := h.componentOrder(c)
	if err != nil {
		return err
	}
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return err
	}
	out := newUpgradePreview(o.Version, timeouts, h.Now.UTC())
	err = h.Actions.EachComponentVerdict(ctx, o, func(v action.Verdict) {
		component, _ := v.Agent.Component(o.Name)
		out.add(v, component.Version)
	})
	if err != nil {
		return err
	}
	_, refused := h.Actions.CheckComponentGuards(ctx, o)
	return out.answer(c, refused)
}

// upgradePreview is what would become of agents.
type upgradePreview struct {
	adminapi.UpgradePreview
	timeouts map[string]time.Duration
	now      time.Time
}

func newUpgradePreview(version string, timeouts map[string]time.Duration, now time.Time) *upgradePreview {
	return &upgradePreview{adminapi.UpgradePreview{Version: version, Items: []adminapi.UpgradePreviewItem{}}, timeouts, now}
}

// add adds an agent, and the version that is upgraded.
func (p *upgradePreview) add(v action.Verdict, version string) {
	item := adminapi.UpgradePreviewItem{AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Version: version, Will: v.Err == nil}
	if v.Err != nil {
		item.Reason = ptr(v.Err.Error())
		p.Wont++
	} else {
		p.Will++
		if s := v.Agent.Facts().StatusAt(p.now, p.timeouts[v.Agent.PolicyID]); s == fleet.StatusOffline || s == fleet.StatusInactive {
			item.Reason = ptr(fmt.Sprintf("is %s: it upgrades if it returns within %d days", s, fleet.DefaultExpiration/(24*time.Hour)))
		}
	}
	p.Items = append(p.Items, item)
}

// answer answers with the preview. refused is what the guard rails say of the order.
func (p *upgradePreview) answer(c *gin.Context, refused error) error {
	switch {
	case fleet.KindOf(refused) == fleet.Conflict:
		p.Refused = ptr(refused.Error())
		var guard *fleet.Error
		if errors.As(refused, &guard) {
			p.Guard = (*adminapi.UpgradePreviewGuard)(ptr(guard.Code))
		}
	case refused != nil:
		return refused
	}
	c.JSON(http.StatusOK, p.UpgradePreview)
	return nil
}
