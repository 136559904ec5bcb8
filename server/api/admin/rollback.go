package admin

import (
	"cmp"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
)

func (h *Handlers) rollbackAgent(c *gin.Context) error {
	id := c.Param("agentId")
	var req adminapi.RollbackRequest
	if err := decodeOptional(c, &req); err != nil {
		return err
	}
	actions, err := h.Actions.Rollback(c.Request.Context(), action.RollbackOrder{AgentIDs: []string{id}, Forward: deref(req.Forward), TakeOver: deref(req.TakeOver), Why: deref(req.Why), Actor: actor(c)})
	if err != nil {
		return err
	}
	if len(actions[0].Agents) == 0 {
		return fleet.Errorf(fleet.Conflict, "agent %s has changed meanwhile: check its state and try again", id)
	}
	c.JSON(http.StatusOK, adminapi.ActionCreated{ActionId: actions[0].ID})
	return nil
}

func (h *Handlers) bulkRollback(c *gin.Context) error {
	var req adminapi.BulkRollbackRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	ids, selected, err := h.selection(c.Request.Context(), req.Agents, req.IncludeInactive)
	if err != nil {
		return err
	}
	actions, err := h.Actions.Rollback(c.Request.Context(), action.RollbackOrder{AgentIDs: ids, Selected: selected, Forward: deref(req.Forward), TakeOver: deref(req.TakeOver), Actor: actor(c)})
	return send(c, adminapi.ActionsCreated{ActionIds: each(actions, func(a fleet.Action) string { return a.ID })}, err)
}

func (h *Handlers) previewRollback(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.RollbackPreviewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	p, err := h.beginPreview(ctx, asked{req.Agents, req.IncludeInactive, req.MaxItems})
	if err != nil {
		return err
	}
	out := adminapi.RollbackPreview{Items: []adminapi.RollbackPreviewItem{}}
	err = h.Actions.EachRollbackVerdict(ctx, action.RollbackOrder{AgentIDs: p.ids, Selected: p.selected, Forward: deref(req.Forward)}, func(v action.RollbackVerdict) {
		item := adminapi.RollbackPreviewItem{AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Version: v.Agent.Version, Will: v.Err == nil, Reason: p.add(&v.Verdict)}
		if item.Will {
			item.To, item.ValidUntil = &v.To.Version, ptr(v.To.ValidUntil)
			owned := p.owned(&v.Verdict, deref(req.TakeOver))
			item.Reason = ptr(cmp.Or(p.away(&v.Agent, "rolls back if it returns in time"), owned))
		}
		if p.wants(len(out.Items)) {
			out.Items = append(out.Items, item)
		}
	})
	if _, err := h.endPreview(ctx, p, err); err != nil {
		return err
	}
	out.Will, out.Wont, out.Causes = p.will, p.wont, renderCauses(&p.causes)
	c.JSON(http.StatusOK, out)
	return nil
}

func renderRollbacks(a *fleet.Agent) *adminapi.AgentUpgrade {
	if len(a.Kept.Rollbacks) == 0 {
		return nil
	}
	kept := make([]adminapi.KeptVersion, len(a.Kept.Rollbacks))
	for i, r := range a.Kept.Rollbacks {
		kept[i] = adminapi.KeptVersion{Version: r.Version, ValidUntil: r.ValidUntil}
	}
	return &adminapi.AgentUpgrade{Rollbacks: &kept}
}

func renderRollback(a *fleet.Agent, now time.Time) *adminapi.RollbackVerdict {
	to, err := a.CheckRollback(now)
	if err != nil {
		return &adminapi.RollbackVerdict{Reason: ptr(err.Error())}
	}
	return &adminapi.RollbackVerdict{Available: true, Version: &to.Version, ValidUntil: ptr(to.ValidUntil)}
}

func renderWatch(a *fleet.Agent, now time.Time) *adminapi.Watch {
	w := a.Watch
	if w == nil {
		return nil
	}
	out := &adminapi.Watch{
		ActionId: ptr(w.ActionID), From: w.From, To: w.To, Stage: w.Phase, Waiting: ptr(w.Waiting), At: w.At, ReceivedAt: w.ReceivedAt,
		Agent: adminapi.WatchedAgent{
			Alive: w.Agent.Alive, State: ptr(w.Agent.State), Version: ptr(w.Agent.Version), Crashes: w.Agent.Crashes, LastCheckin: w.Agent.LastCheckin,
		},
	}
	if w.Reason != nil {
		out.Reason = &adminapi.WatchReason{Code: w.Reason.Code, Text: w.Reason.Text}
	}
	if code, text := a.Diagnose(now); code != fleet.DiagnosisNone {
		out.Diagnosis = &adminapi.Diagnosis{Code: code, Text: text}
	}
	return out
}
