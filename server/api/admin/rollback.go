package admin

import (
	"fmt"
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
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionsCreated{ActionIds: each(actions, func(a fleet.Action) string { return a.ID })})
	return nil
}

func (h *Handlers) previewRollback(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.RollbackPreviewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	ids, selected, err := h.selection(ctx, req.Agents, req.IncludeInactive)
	if err != nil {
		return err
	}
	timeouts, err := h.Policies.Timeouts(ctx)
	if err != nil {
		return err
	}
	now := h.Now.UTC()
	of := asked{req.Agents, req.IncludeInactive, req.MaxItems}
	if err := of.check(); err != nil {
		return err
	}
	owner, err := h.Actions.OwnerOf(ctx, "")
	if err != nil {
		return err
	}
	out := adminapi.RollbackPreview{Items: []adminapi.RollbackPreviewItem{}}
	var causes fleet.CauseCounts
	err = h.Actions.EachRollbackVerdict(ctx, action.RollbackOrder{AgentIDs: ids, Selected: selected, Forward: deref(req.Forward)}, func(v action.RollbackVerdict) {
		item := adminapi.RollbackPreviewItem{AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Version: v.Agent.Version, Will: v.Err == nil}
		if v.Err != nil {
			item.Reason = ptr(v.Err.Error())
			out.Wont++
			causes.AddRefusal(&v.Agent, v.Err)
		} else {
			item.To, item.ValidUntil = &v.To.Version, ptr(v.To.ValidUntil)
			out.Will++
			item.Reason = ptr(countOwned(&causes, &v.Agent, owner, deref(req.TakeOver)))
			if s, away := awayAt(&v.Agent, timeouts, now); away {
				reason := fmt.Sprintf("is %s: it rolls back if it returns in time", s)
				item.Reason = &reason
				causes.Add(fleet.CauseCount{Code: string(s), Text: fleet.Sentence("the agent " + reason), Will: true}, 1, nameOf(&v.Agent))
			}
		}
		if of.wants(len(out.Items)) {
			out.Items = append(out.Items, item)
		}
	})
	if err == nil {
		err = h.countInactive(ctx, of, ids, &causes, timeouts, now)
	}
	if err != nil {
		return err
	}
	out.Causes = renderCauses(&causes)
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
		ActionId: ptr(w.ActionID), From: w.From, To: w.To, Stage: adminapi.WatchStage(w.Stage), Waiting: ptr(w.Waiting), At: w.At, ReceivedAt: w.ReceivedAt,
		Agent: adminapi.WatchedAgent{
			Alive: w.Agent.Alive, State: ptr(w.Agent.State), Version: ptr(w.Agent.Version), Crashes: w.Agent.Crashes, LastCheckin: w.Agent.LastCheckin,
		},
	}
	if w.Reason != nil {
		out.Reason = &adminapi.WatchReason{Code: w.Reason.Code, Text: w.Reason.Text}
	}
	if code, text := a.Diagnose(now); code != fleet.DiagnosisNone {
		out.Diagnosis = &adminapi.Diagnosis{Code: adminapi.DiagnosisCode(code), Text: text}
	}
	return out
}
