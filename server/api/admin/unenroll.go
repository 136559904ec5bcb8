package admin

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
)

func (h *Handlers) unenrollAgent(c *gin.Context) error {
	var req adminapi.UnenrollRequest
	if err := decodeOptional(c, &req); err != nil {
		return err
	}
	return send(c, adminapi.Empty{}, h.unenrollOne(c, action.UnenrollOrder{Revoke: isSet(req.Revoke), Force: isSet(req.Force)}))
}

// unenrollOne unenrols the agent of the path. That it is unenrolled already is no error.
func (h *Handlers) unenrollOne(c *gin.Context, o action.UnenrollOrder) error {
	o.AgentIDs, o.Single, o.Actor = []string{c.Param("agentId")}, true, actor(c)
	_, err := h.Actions.Unenroll(c.Request.Context(), o)
	var refused action.Refused
	if errors.As(err, &refused) && fleet.KindOf(err) != fleet.NotFound && !refused.Agent.Active {
		return nil
	}
	return err
}

func (h *Handlers) bulkUnenroll(c *gin.Context) error {
	var req adminapi.BulkUnenrollRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	return h.bulk(c, req.Agents, req.IncludeInactive, req.DryRun, func(ids []string, selected bool) (fleet.Action, error) {
		return h.Actions.Unenroll(c.Request.Context(), action.UnenrollOrder{
			AgentIDs: ids, Selected: selected, Revoke: isSet(req.Revoke), Force: isSet(req.Force), Actor: actor(c),
			Removal: action.Removal{OverrideLimit: isSet(req.OverrideLimit), Why: deref(req.Why)},
		})
	})
}

func (h *Handlers) previewUnenroll(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.UnenrollPreviewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	p, err := h.beginPreview(ctx, asked{req.Agents, req.IncludeInactive, req.MaxItems})
	if err != nil {
		return err
	}
	out := adminapi.UnenrollPreview{Items: []adminapi.UnenrollPreviewItem{}}
	o := action.UnenrollOrder{AgentIDs: p.ids, Selected: p.selected, Revoke: isSet(req.Revoke), Force: isSet(req.Force), Removal: action.Removal{OverrideLimit: isSet(req.OverrideLimit)}}
	err = h.Actions.EachUnenrollVerdict(ctx, o, func(v action.Verdict) {
		item := adminapi.UnenrollPreviewItem{AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Will: v.Err == nil, Reason: p.add(&v)}
		if fleet.KindOf(v.Err) != fleet.NotFound {
			item.Status = string(v.Agent.Facts().StatusAt(p.now, p.timeouts[v.Agent.PolicyID]))
		}
		if item.Will {
			code, remark := unenrollRemark(&v.Agent, fleet.Status(item.Status), o.Revoke)
			if code != "" {
				p.follows(&v.Agent, string(code), fleet.Sentence("the agent "+remark))
			}
			item.Reason = ptr(remark)
		}
		if p.wants(len(out.Items)) {
			out.Items = append(out.Items, item)
		}
	})
	if out.Refused, err = h.endPreview(ctx, p, err); err != nil {
		return err
	}
	out.Will, out.Wont, out.Causes = p.will, p.wont, renderCauses(&p.causes)
	c.JSON(http.StatusOK, out)
	return nil
}

// unenrollRemark says when an agent will unenrol, if not at once, with the status as its code.
func unenrollRemark(a *fleet.Agent, s fleet.Status, revoke bool) (code fleet.Status, remark string) {
	switch {
	case revoke:
		return "", ""
	case s == fleet.StatusOffline || s == fleet.StatusInactive || s == fleet.StatusUninstalled || s == fleet.StatusOrphaned:
		return s, fmt.Sprintf("is %s: it unenrols if it returns within %d days; revoke unenrols it now", s, fleet.DefaultExpiration/(24*time.Hour))
	case a.UnenrollmentStartedAt != nil:
		return fleet.StatusUnenrolling, "is unenrolling already, and is asked again"
	}
	return "", ""
}
