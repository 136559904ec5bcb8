package admin

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routeAgents adds the routes of agents.
func (h *Handlers) routeAgents(on bind) {
	on(adminapi.SuggestQuery.Call, h.suggest)
	on(adminapi.PreviewUpgrade.Call, h.previewsUpgrade(h.previewedUpgrade))
	on(adminapi.StageVersion.Call, h.ordersUpgrade(h.stageOrder))
	on(adminapi.PreviewStage.Call, h.previewsUpgrade(h.stageOrder))
	on(adminapi.PreviewRollback.Call, h.previewRollback)
	on(adminapi.PreviewUnenroll.Call, h.previewUnenroll)
	on(adminapi.GetFacets.Call, h.facets)
	on(adminapi.ExportAgents.Call, h.exportAgents)
	on(adminapi.GetAgentStatus.Call, h.agentStatus)
	on(adminapi.ListAgents.Call, h.listAgents)
	on(adminapi.ListAgentTags.Call, h.agentTags)
	on(adminapi.GetAgent.Call, h.getAgent)
	on(adminapi.UpgradeAgent.Call, h.upgradeAgent)
	on(adminapi.UnenrollAgent.Call, h.unenrollAgent)
	on(adminapi.RollbackAgent.Call, h.rollbackAgent)
	on(adminapi.BulkUpgradeAgents.Call, h.bulkUpgrade)
	on(adminapi.BulkRollbackAgents.Call, h.bulkRollback)
	on(adminapi.BulkUnenrollAgents.Call, h.bulkUnenroll)
	on(adminapi.GetTimeline.Call, h.timeline)
	on(adminapi.GetFailures.Call, h.failures)
	on(adminapi.SeeFailures.Call, h.seeFailures)
}

// maxWindow is how many agents can be paged through, as in Kibana.
const maxWindow = 10_000

func (h *Handlers) listAgents(c *gin.Context) error {
	ctx := c.Request.Context()
	at, number, err := h.agentPage(c)
	if err != nil {
		return err
	}
	flags := map[string]bool{}
	for _, name := range []string{"showInactive", "showUpgradeable", "getStatusSummary", "withMetrics", "showAgentless"} {
		if flags[name], err = queryBool(c, name); err != nil {
			return err
		}
	}
	at.Upgradeable, at.Counts = flags["showUpgradeable"], flags["getStatusSummary"]
	list, err := h.Inventory.List(ctx, inventory.Selection{Kuery: c.Query("kuery"), Inactive: flags["showInactive"]}, at)
	if err != nil {
		return err
	}
	out := adminapi.AgentList{Items: make([]adminapi.Agent, len(list.Agents)), Total: list.Total, Page: number, PerPage: at.Limit, Pit: ptr(at.PIT)}
	var room listed
	for i := range list.Agents {
		out.Items[i] = renderAgent(room.fit(&list.Agents[i]), list.Timeouts, at.Now)
		sort, err := at.Sort.Position(&list.Agents[i]).MarshalJSON()
		if err != nil {
			return err
		}
		out.Items[i].Sort, out.NextSearchAfter = (*json.RawMessage)(&sort), ptr(string(sort))
	}
	if err := h.addVersions(ctx, list.Agents, out.Items); err != nil {
		return err
	}
	if at.Counts {
		summary := adminapi.StatusSummary{}
		for _, s := range fleet.Statuses {
			summary[string(s)] = list.Counts[s]
		}
		out.StatusSummary = &summary
	}
	c.JSON(http.StatusOK, out)
	return nil
}

func (h *Handlers) getAgent(c *gin.Context) error {
	if _, err := queryBool(c, "withMetrics"); err != nil { // there are none
		return err
	}
	item, err := h.agentItem(c)
	return send(c, adminapi.AgentItem{Item: item}, err)
}

// agentItem returns the agent that the path names, with what can be ordered of it.
func (h *Handlers) agentItem(c *gin.Context) (adminapi.Agent, error) {
	a, err := h.Inventory.Get(c.Request.Context(), c.Param("agentId"))
	if err != nil {
		return adminapi.Agent{}, err
	}
	timeouts, err := h.Policies.Timeouts(c.Request.Context())
	if err != nil {
		return adminapi.Agent{}, err
	}
	out := []adminapi.Agent{renderAgent(&a, timeouts, h.Now.UTC())}
	if err := h.addVersions(c.Request.Context(), []fleet.Agent{a}, out); err != nil {
		return adminapi.Agent{}, err
	}
	commands, err := h.agentCommands(c.Request.Context(), &a)
	if err != nil {
		return adminapi.Agent{}, err
	}
	out[0].Commands = &commands
	for i := range out[0].Components {
		if err := h.addComponentCommands(c.Request.Context(), &a, &out[0].Components[i]); err != nil {
			return adminapi.Agent{}, err
		}
	}
	return out[0], nil
}

// agentCommands returns which orders the agent could follow now, and why not the others.
func (h *Handlers) agentCommands(ctx context.Context, a *fleet.Agent) ([]adminapi.Command, error) {
	locked, err := h.Locks.Locked(ctx, "", []fleet.Agent{*a})
	if err != nil {
		return nil, err
	}
	policy, err := h.Policies.Get(ctx, a.PolicyID)
	if err != nil && fleet.KindOf(err) != fleet.NotFound {
		return nil, err
	}
	return a.Commands(fleet.Blocks{Rollout: locked[a.ID], Managed: policy.Managed}, h.Now.UTC()), nil
}

// addComponentCommands adds which orders a component could follow now, and why not the others. Only
// components of policies have a name, and can be ordered to do something.
func (h *Handlers) addComponentCommands(ctx context.Context, a *fleet.Agent, c *adminapi.Component) error {
	if c.Name == nil {
		return nil
	}
	locked, err := h.Locks.Locked(ctx, *c.Name, []fleet.Agent{*a})
	if err != nil {
		return err
	}
	c.Commands = new(a.ComponentCommands(*c.Name, fleet.Blocks{Rollout: locked[a.ID]}))
	return nil
}

// maxPolicyIDs is as in Kibana.
const maxPolicyIDs = 1000

func (h *Handlers) agentStatus(c *gin.Context) error {
	sel := inventory.Selection{Kuery: c.Query("kuery"), Inactive: true, Policy: c.Query("policyId"), Policies: c.QueryArray("policyIds")}
	if len(sel.Policies) > maxPolicyIDs {
		return fleet.FieldError("query.policyIds", "array size is [%d], but cannot be greater than [%d]", len(sel.Policies), maxPolicyIDs)
	} else if slices.Equal(sel.Policies, []string{""}) {
		sel.Policies = nil
	}
	n, err := h.Inventory.Counts(c.Request.Context(), sel)
	if err != nil {
		return err
	}
	r := adminapi.AgentStatusCounts{
		Online: n[fleet.StatusOnline], Offline: n[fleet.StatusOffline], Inactive: n[fleet.StatusInactive],
		Unenrolled: n[fleet.StatusUnenrolled], Orphaned: n[fleet.StatusOrphaned], Uninstalled: n[fleet.StatusUninstalled],
		Error:    n[fleet.StatusError] + n[fleet.StatusDegraded],
		Updating: n[fleet.StatusUpdating] + n[fleet.StatusEnrolling] + n[fleet.StatusUnenrolling],
	}
	for _, count := range n {
		r.All += count
	}
	r.Active = r.All - r.Unenrolled - r.Inactive
	c.JSON(http.StatusOK, adminapi.AgentStatusResponse{Results: r})
	return nil
}

func (h *Handlers) upgradeAgent(c *gin.Context) error {
	var req adminapi.UpgradeRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	a, err := h.Actions.Upgrade(c.Request.Context(), action.UpgradeOrder{
		UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force), AgentIDs: []string{c.Param("agentId")}, Single: true,
		OverrideFreeze: isSet(req.OverrideFreeze), OverrideExposure: isSet(req.OverrideExposure), Why: deref(req.Why), TakeOver: deref(req.TakeOver), Actor: actor(c),
	})
	return send(c, adminapi.UpgradeResponse{ActionId: &a.ID}, err)
}

func (h *Handlers) bulkUpgrade(c *gin.Context) error {
	var req adminapi.BulkUpgradeRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	ids, selected, err := h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	if err != nil {
		return err
	}
	o := action.UpgradeOrder{
		UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force), AgentIDs: ids, Selected: selected,
		StartTime: req.StartTime, RolloutSeconds: deref(req.RolloutDurationSeconds),
		OverrideFreeze: isSet(req.OverrideFreeze), OverrideExposure: isSet(req.OverrideExposure), Why: deref(req.Why), TakeOver: deref(req.TakeOver), Actor: actor(c),
	}
	if err := checkTimes(req.StartTime, req.RolloutDurationSeconds, h.Now.UTC()); err != nil {
		return err
	}
	if isSet(req.DryRun) {
		if err := action.CheckUpgradeRequest(o.UpgradeRequest); err != nil {
			return err
		}
		return h.answerFound(c, ids)
	}
	a, err := h.Actions.Upgrade(c.Request.Context(), o)
	return answerAction(c, a, err)
}

// bulk answers a call for the agents that it names or selects. create creates the action for
// them, unless the call is a dry run.
func (h *Handlers) bulk(c *gin.Context, agents json.RawMessage, includeInactive, dryRun *bool, create func(ids []string, selected bool) (fleet.Action, error)) error {
	none := func(context.Context, []string) ([]string, error) { return nil, nil }
	return h.bulkWith(c, agents, includeInactive, dryRun, none, create)
}

// bulkWith is bulk whose answer has what notices says of the agents.
func (h *Handlers) bulkWith(c *gin.Context, agents json.RawMessage, includeInactive, dryRun *bool, notices func(context.Context, []string) ([]string, error), create func(ids []string, selected bool) (fleet.Action, error)) error {
	ctx := c.Request.Context()
	ids, selected, err := h.selection(ctx, agents, includeInactive)
	if err != nil {
		return err
	}
	said, err := notices(ctx, ids) // before the change: rollouts are found by the agents' policies
	if err != nil {
		return err
	}
	out := adminapi.BulkActionResponse{Warnings: filled(said)}
	if isSet(dryRun) {
		n, err := h.Actions.Found(ctx, ids)
		if err != nil {
			return err
		}
		c.Set(dryKey, true)
		out.Count = &n
	} else {
		a, err := create(ids, selected)
		if err != nil {
			return err
		}
		out.ActionId = &a.ID
	}
	c.JSON(http.StatusOK, out)
	return nil
}

// answerAction answers with the id of an action, or returns err.
func answerAction(c *gin.Context, a fleet.Action, err error) error {
	return send(c, adminapi.BulkActionResponse{ActionId: &a.ID}, err)
}

// answerFound answers a dry run with the number of agents that are named or selected and
// exist, as Kibana does. Muster's previews say which of them would get the action.
func (h *Handlers) answerFound(c *gin.Context, ids []string) error {
	n, err := h.Actions.Found(c.Request.Context(), ids)
	if err != nil {
		return err
	}
	c.Set(dryKey, true)
	c.JSON(http.StatusOK, adminapi.BulkActionResponse{Count: &n})
	return nil
}

const (
	minRollout = 10 * time.Minute // Kibana's
	// maxRollout lets the last agent start before the action expires.
	maxRollout = fleet.DefaultExpiration
)

func checkTimes(t *time.Time, s *int, now time.Time) error {
	if s != nil && (*s < int(minRollout.Seconds()) || *s > int(maxRollout.Seconds())) {
		return fleet.FieldError("body.rollout_duration_seconds", "is %d, want %d to %d, or omit it to start all agents at once",
			*s, int(minRollout.Seconds()), int(maxRollout.Seconds()))
	}
	switch {
	case t == nil:
	case !now.Before(t.Add(fleet.DefaultExpiration)):
		return fleet.FieldError("body.start_time", "is %s: an action that started then has already expired", t.Format(time.RFC3339))
	case t.After(now.Add(fleet.MaxStartDelay)):
		return fleet.FieldError("body.start_time", "is %s, want a time within a year from now", t.Format(time.RFC3339))
	}
	return nil
}

func upgradeRequest(version string, source *string, force *bool) fleet.UpgradeRequest {
	r := fleet.UpgradeRequest{Version: strings.TrimSpace(version)}
	if source != nil {
		r.SourceURI = *source
	}
	r.Force = isSet(force)
	return r
}

// previewedUpgrade reads the order of a request for a preview.
func (h *Handlers) previewedUpgrade(c *gin.Context) (o action.UpgradeOrder, of asked, err error) {
	var req adminapi.UpgradePreviewRequest
	if err := decode(c, &req); err != nil {
		return o, of, err
	}
	ids, selected, err := h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	if err != nil {
		return o, of, err
	}
	o = action.UpgradeOrder{
		UpgradeRequest: upgradeRequest(req.Version, req.SourceUri, req.Force), AgentIDs: ids, Selected: selected,
		StartTime: req.StartTime, RolloutSeconds: deref(req.RolloutDurationSeconds),
		OverrideFreeze: isSet(req.OverrideFreeze), OverrideExposure: isSet(req.OverrideExposure),
		TakeOver: deref(req.TakeOver),
	}
	return o, asked{req.Agents, req.IncludeInactive, req.MaxItems}, checkTimes(req.StartTime, req.RolloutDurationSeconds, h.Now.UTC())
}

func renderAgent(a *fleet.Agent, timeouts map[string]time.Duration, now time.Time) adminapi.Agent {
	out := adminapi.Agent{
		Id: a.ID, Type: a.Type, Active: a.Active, PolicyId: a.PolicyID, PolicyRevision: ptr(a.PolicyRev),
		Status:     a.Facts().StatusAt(now, timeouts[a.PolicyID]),
		EnrolledAt: a.EnrolledAt, UnenrolledAt: a.UnenrolledAt, UnenrolledReason: ptr(a.UnenrolledReason), UnenrollmentStartedAt: a.UnenrollmentStartedAt,
		LastCheckin: a.Last.At, LastCheckinStatus: ptr(a.Last.Status), LastCheckinMessage: ptr(a.Last.Message),
		Agent: adminapi.AgentRef{Id: a.ID, Version: a.Version}, Maker: (*adminapi.Maker)(ptr(string(a.Host().Maker))), AccessApiKeyId: &a.AccessKeyID,
		Tags: a.Tags, Namespaces: &[]string{"default"}, Packages: []string{}, Components: renderComponents(a, now),
		UpgradeStartedAt: a.UpgradeStartedAt, UpgradedAt: a.UpgradedAt, UpgradeStatus: ptr(a.UpgradeStatus),
		UpgradeDetails: renderDetails(a.UpgradeDetails), LocalMetadata: localMetadata(a.LocalMetadata),
		UpgradeRollback: ptr(a.UpgradeRollback), Upgrade: renderRollbacks(a), StagedVersions: renderStaged(a), Rollback: renderRollback(a, now), Watch: renderWatch(a, now),
	}
	addProgress(&out, a, timeouts[a.PolicyID], now)
	out.Shared = renderShared(a)
	if out.Tags == nil {
		out.Tags = []string{}
	}
	if len(a.UnhealthyReason) > 0 {
		out.UnhealthyReason = &a.UnhealthyReason
	}
	if user := object(a.UserMetadata); len(user) > 0 {
		out.UserProvidedMetadata = &user
	}
	return out
}

// renderShared returns the hosts that have the agent's identity, nil if there is one.
func renderShared(a *fleet.Agent) *adminapi.SharedIdentity {
	text := a.SharedText()
	if text == "" {
		return nil
	}
	return &adminapi.SharedIdentity{Since: *a.SharedSince, Text: fleet.Sentence(text), Next: fleet.SharedRemedy, Hosts: a.Sharers()}
}

func object(raw json.RawMessage) map[string]any {
	m := map[string]any{}
	_ = json.Unmarshal(raw, &m) // validated at the check-in
	if m == nil {               // null
		m = map[string]any{}
	}
	return m
}

func renderDetails(d *agentapi.UpgradeDetails) *adminapi.UpgradeDetails {
	if d == nil {
		return nil
	}
	m := d.Metadata
	out := adminapi.UpgradeMetadata{
		ScheduledAt: m.ScheduledAt, RetryErrorMsg: ptr(m.RetryErrorMsg), RetryUntil: m.RetryUntil, RetryAttempt: ptr(m.RetryAttempt), RetryLimit: ptr(m.RetryLimit),
		FailedState: ptr(m.FailedState), ErrorMsg: ptr(m.ErrorMsg), Reason: ptr(m.Reason), ReasonCode: ptr(m.ReasonCode),
		Phase: (*adminapi.UpgradeMetadataPhase)(ptr(m.Phase)),
	}
	if d.State == agentapi.UpgradeDownloading { // otherwise 0 % has no meaning
		percent, rate := m.DownloadPercent, float64(m.DownloadRate)
		out.DownloadPercent, out.DownloadRate = &percent, &rate
	}
	return &adminapi.UpgradeDetails{TargetVersion: d.TargetVersion, ActionId: d.ActionID, State: d.State, Metadata: &out}
}

// localMetadata returns local metadata as Kibana does, with the build under the key
// "build.original": its clients read that one.
func localMetadata(raw json.RawMessage) map[string]any {
	m := object(raw)
	elastic, _ := m["elastic"].(map[string]any)
	agent, _ := elastic["agent"].(map[string]any)
	if build, ok := agent["build"].(map[string]any); ok {
		if original, ok := build["original"]; ok {
			agent["build.original"] = original
			delete(build, "original")
		}
		if len(build) == 0 {
			delete(agent, "build")
		}
	}
	return m
}

func renderUnits(raw json.RawMessage) *[]adminapi.ComponentUnit {
	var units []adminapi.ComponentUnit
	if err := json.Unmarshal(raw, &units); err != nil || len(units) == 0 {
		return nil // agents of other vendors may send another type
	}
	return &units
}

func renderComponents(a *fleet.Agent, now time.Time) []adminapi.Component {
	var in []agentapi.Component
	_ = json.Unmarshal(a.Components, &in) // agents of other vendors may send another type
	out := make([]adminapi.Component, len(in))
	for i, c := range in {
		out[i] = adminapi.Component{
			Id: c.ID, Type: c.Type, Status: c.Status, Message: c.Message, Units: renderUnits(c.Units),
			Name: ptr(c.Name), Runtime: ptr(c.Runtime), Version: ptr(c.Version), Hash: ptr(c.Hash), Image: ptr(c.Image), ConfigSha256: ptr(c.ConfigSHA256), RenderedSha256: ptr(c.RenderedSHA256), Lockstep: ptr(c.Lockstep), StartWithheld: ptr(c.StartWithheld),
			LastHealthyVersion: ptr(c.LastHealthyVersion), Rollbacks: filled(c.Rollbacks), RollbackProblems: filled(c.RollbackProblems), Restarts: ptr(c.Restarts), Since: c.Since,
			UpgradeDetails: renderDetails(c.UpgradeDetails),
		}
		if c.Name != "" {
			component := fleet.Component{Component: c, Upgrade: a.ComponentUpgrades[c.Name].Upgrade}
			renderOrdered(&out[i], component)
			if p, ok := a.ComponentProgressAt(&component, now); ok {
				out[i].Progress = renderProgress(p)
			}
		}
	}
	return out
}

// renderOrdered adds what the server knows of the upgrade of a component.
func renderOrdered(out *adminapi.Component, c fleet.Component) {
	u := c.Upgrade
	out.DesiredVersion, out.UpgradeStatus, out.UpgradeActionId = ptr(c.Desired()), ptr(u.UpgradeStatus), ptr(u.UpgradeActionID)
	out.UpgradeStartedAt, out.UpgradedAt = u.UpgradeStartedAt, u.UpgradedAt
	out.UpgradeDetails = renderDetails(c.LastDetails())
}
