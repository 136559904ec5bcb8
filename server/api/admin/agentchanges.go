package admin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routeAgentChanges adds the calls that change agents, other than upgrades, rollbacks and
// unenrolments.
func (h *Handlers) routeAgentChanges(on bind) {
	on(adminapi.UpdateAgent.Call, h.updateAgent)
	on(adminapi.DeleteAgent.Call, h.deleteAgent)
	on(adminapi.ReassignAgent.Call, h.reassignAgent)
	on(adminapi.BulkReassignAgents.Call, h.bulkReassign)
	on(adminapi.BulkTagAgents.Call, h.bulkTag)
	on(adminapi.CreateAction.Call, h.createAction)
	on(adminapi.ListAgentsOfActions.Call, h.agentsOfActions)
	on(adminapi.ChangeAgentPrivilege.Call, h.changePrivilege)
	on(adminapi.BulkChangeAgentPrivilege.Call, h.bulkChangePrivilege)
	on(adminapi.MigrateAgent.Call, h.migrateAgent)
	on(adminapi.BulkMigrateAgents.Call, h.bulkMigrate)
}

func (h *Handlers) updateAgent(c *gin.Context) error {
	var req adminapi.UpdateAgentRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	id := c.Param("agentId")
	if _, err := h.Actions.Describe(c.Request.Context(), id, req.Tags, deref(req.UserProvidedMetadata), actor(c)); err != nil {
		return err
	}
	var notices []string
	if req.Tags != nil { // nothing is chosen by metadata
		var err error
		if notices, err = h.Rollouts.Notices(c.Request.Context(), []string{id}); err != nil {
			return err
		}
	}
	item, err := h.agentItem(c)
	return send(c, adminapi.UpdatedAgent{Item: item, Warnings: filled(notices)}, err)
}

// deleteAgent unenrols the agent, as Kibana does: its document stays.
func (h *Handlers) deleteAgent(c *gin.Context) error {
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.unenrollOne(c, action.UnenrollOrder{Revoke: true}))
}

func (h *Handlers) reassignAgent(c *gin.Context) error {
	var req adminapi.ReassignRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	ids := []string{c.Param("agentId")}
	notices, err := h.Rollouts.Notices(c.Request.Context(), ids) // before: rollouts are found by the policy
	if err != nil {
		return err
	}
	_, err = h.Actions.Reassign(c.Request.Context(), action.ReassignOrder{PolicyID: req.PolicyId, AgentIDs: ids, Single: true, Actor: actor(c)})
	return send(c, adminapi.Reassigned{Warnings: filled(notices)}, err)
}

func (h *Handlers) bulkReassign(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.BulkReassignRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	if err := h.Actions.CheckPolicy(ctx, req.PolicyId); err != nil {
		return err
	}
	o := action.ReassignOrder{
		PolicyID: req.PolicyId, Actor: actor(c),
		Removal: action.Removal{OverrideLimit: isSet(req.OverrideLimit), Why: deref(req.Why)},
	}
	notices := func(ctx context.Context, ids []string) ([]string, error) {
		said, err := h.Rollouts.Notices(ctx, ids)
		if err != nil || !isSet(req.DryRun) || len(ids) == 0 {
			return said, err
		}
		asked := o
		asked.AgentIDs, asked.Selected = ids, true
		refused, err := refusal(h.Actions.CheckReassignLimit(ctx, asked))
		if refused != nil {
			said = append(said, *refused)
		}
		return said, err
	}
	return h.bulkWith(c, req.Agents, req.IncludeInactive, req.DryRun, notices, func(ids []string, selected bool) (fleet.Action, error) {
		o.AgentIDs, o.Selected = ids, selected
		return h.Actions.Reassign(ctx, o)
	})
}

func (h *Handlers) bulkTag(c *gin.Context) error {
	var req adminapi.BulkTagRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	return h.bulkWith(c, req.Agents, req.IncludeInactive, req.DryRun, h.Rollouts.Notices, func(ids []string, selected bool) (fleet.Action, error) {
		return h.Actions.Tag(c.Request.Context(), action.TagsOrder{
			Add: deref(req.TagsToAdd), Remove: deref(req.TagsToRemove), AgentIDs: ids, Selected: selected, Actor: actor(c),
		})
	})
}

func (h *Handlers) createAction(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.CreateActionRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	id := c.Param("agentId")
	var a fleet.Action
	var err error
	switch agents := []string{id}; agentapi.ActionType(req.Action.Type) {
	case agentapi.ActionUnenroll:
		a, err = h.Actions.Unenroll(ctx, action.UnenrollOrder{AgentIDs: agents, Single: true, Actor: actor(c)})
	case agentapi.ActionUpgrade:
		var d struct {
			Version   string  `json:"version"`
			SourceURI *string `json:"source_uri"`
			Alias     *string `json:"sourceURI"` // Kibana's own spelling
		}
		if err := dataOf(req.Action.Data, &d); err != nil {
			return err
		}
		if d.SourceURI == nil {
			d.SourceURI = d.Alias
		}
		a, err = h.Actions.Upgrade(ctx, action.UpgradeOrder{
			UpgradeRequest: upgradeRequest(d.Version, d.SourceURI, nil), AgentIDs: agents, Single: true, Actor: actor(c),
		})
	case agentapi.ActionPolicyReassign:
		var d agentapi.PolicyReassignData
		if err := dataOf(req.Action.Data, &d); err != nil {
			return err
		}
		a, err = h.Actions.Reassign(ctx, action.ReassignOrder{PolicyID: d.PolicyID, AgentIDs: agents, Single: true, Actor: actor(c)})
	case agentapi.ActionSettings:
		a, err = h.Actions.Create(ctx, action.Order{Type: agentapi.ActionSettings, Data: deref(req.Action.Data), AgentIDs: agents, Single: true, Actor: actor(c)})
	default:
		return fleet.FieldError("body.action.type", "is %q, want UNENROLL, UPGRADE, POLICY_REASSIGN or SETTINGS", req.Action.Type)
	}
	if err != nil {
		return err
	}
	item := adminapi.CreatedAction{Id: a.ID, Type: string(a.Type), CreatedAt: a.CreatedAt, Agents: a.Agents, Expiration: a.Expiration, AckData: req.Action.AckData}
	if len(a.Data) > 0 {
		item.Data = &a.Data
	}
	c.JSON(http.StatusOK, adminapi.CreatedActionItem{Item: item})
	return nil
}

// dataOf decodes the data of an action.
func dataOf(raw *json.RawMessage, v any) error {
	if raw == nil || len(*raw) == 0 {
		return fleet.FieldError("body.action.data", "is missing")
	}
	if err := json.Unmarshal(*raw, v); err != nil {
		return fleet.FieldError("body.action.data", "is not what this type of action carries: %w", err)
	}
	return nil
}

// maxActionIDs is as in Kibana.
const maxActionIDs = 1000

func (h *Handlers) agentsOfActions(c *gin.Context) error {
	var req adminapi.AgentsOfActionsRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	if req.ActionIds == nil {
		return fleet.FieldError("body.actionIds", "expected value of type [array] but got [undefined]")
	}
	if len(req.ActionIds) > maxActionIDs {
		return fleet.FieldError("body.actionIds", "array size is [%d], but cannot be greater than [%d]", len(req.ActionIds), maxActionIDs)
	}
	agents, err := h.Actions.AgentsOf(c.Request.Context(), req.ActionIds)
	return send(c, adminapi.AgentsOfActions{Items: agents}, err)
}

func privilegeOrder(user *adminapi.PrivilegeUser, ids []string, selected bool) action.Order {
	data := map[string]any{"unprivileged": true}
	if user != nil {
		data["user_info"] = user
	}
	return action.Order{Type: agentapi.ActionPrivilegeLevelChange, Data: event.Data(data), AgentIDs: ids, Selected: selected}
}

func (h *Handlers) changePrivilege(c *gin.Context) error {
	var req adminapi.PrivilegeRequest
	if err := decodeOptional(c, &req); err != nil {
		return err
	}
	o := privilegeOrder(req.UserInfo, []string{c.Param("agentId")}, false)
	o.Single, o.Actor = true, actor(c)
	a, err := h.Actions.Create(c.Request.Context(), o)
	if errors.Is(err, action.ErrUnprivileged) {
		c.Set(dryKey, true)
		c.JSON(http.StatusOK, adminapi.ActionOrMessage{Message: ptr(err.Error())})
		return nil
	}
	return answerAction(c, a, err)
}

func (h *Handlers) bulkChangePrivilege(c *gin.Context) error {
	var req adminapi.BulkPrivilegeRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	return h.bulk(c, req.Agents, nil, req.DryRun, func(ids []string, selected bool) (fleet.Action, error) {
		o := privilegeOrder(req.UserInfo, ids, selected)
		o.Actor = actor(c)
		return h.Actions.Create(c.Request.Context(), o)
	})
}

func migrateOrder(uri, token string, settings *adminapi.MigrateSettings, ids []string, selected bool) (action.Order, error) {
	if u, err := url.Parse(uri); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return action.Order{}, fleet.FieldError("body.uri", "is %q, want the URL of a server, such as https://fleet.example.com:8220", uri)
	}
	if token == "" {
		return action.Order{}, fleet.FieldError("body.enrollment_token", "is missing: create one at the server to migrate to")
	}
	data := agentapi.MigrateData{TargetURI: uri, EnrollmentToken: token}
	if settings != nil {
		data.Settings = event.Data(settings)
	}
	return action.Order{Type: agentapi.ActionMigrate, Data: event.Data(data), AgentIDs: ids, Selected: selected}, nil
}

func (h *Handlers) migrateAgent(c *gin.Context) error {
	var req adminapi.MigrateRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	o, err := migrateOrder(req.Uri, req.EnrollmentToken, req.Settings, []string{c.Param("agentId")}, false)
	if err != nil {
		return err
	}
	o.Single, o.Actor = true, actor(c)
	a, err := h.Actions.Create(c.Request.Context(), o)
	return answerAction(c, a, err)
}

func (h *Handlers) bulkMigrate(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.BulkMigrateRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	return h.bulk(c, req.Agents, nil, nil, func(ids []string, selected bool) (fleet.Action, error) {
		if s := req.Settings; s != nil && s.ReplaceToken != nil {
			return fleet.Action{}, fleet.FieldError("body.settings.replace_token", "definition for this key is missing")
		}
		o, err := migrateOrder(req.Uri, req.EnrollmentToken, req.Settings, ids, selected)
		if err != nil {
			return fleet.Action{}, err
		}
		o.Actor = actor(c)
		o.Removal = action.Removal{OverrideLimit: isSet(req.OverrideLimit), Why: deref(req.Why)}
		return h.Actions.Create(ctx, o)
	})
}
