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
	if err := h.unenrollOne(c, action.UnenrollOrder{Revoke: isSet(req.Revoke), Force: isSet(req.Force)}); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.Empty{})
	return nil
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
	out := adminapi.UnenrollPreview{Items: []adminapi.UnenrollPreviewItem{}}
	var causes fleet.CauseCounts
	o := action.UnenrollOrder{AgentIDs: ids, Selected: selected, Revoke: isSet(req.Revoke), Force: isSet(req.Force), Removal: action.Removal{OverrideLimit: isSet(req.OverrideLimit)}}
	err = h.Actions.EachUnenrollVerdict(ctx, o, func(v action.Verdict) {
		item := adminapi.UnenrollPreviewItem{AgentId: v.Agent.ID, Hostname: v.Agent.Hostname(), Will: v.Err == nil}
		if fleet.KindOf(v.Err) != fleet.NotFound {
			item.Status = string(v.Agent.Facts().StatusAt(now, timeouts[v.Agent.PolicyID]))
		}
		if v.Err != nil {
			item.Reason = ptr(v.Err.Error())
			out.Wont++
			causes.AddRefusal(&v.Agent, v.Err)
		} else {
			code, remark := unenrollRemark(&v.Agent, fleet.Status(item.Status), o.Revoke)
			if code != "" {
				causes.Add(fleet.CauseCount{Code: string(code), Text: fleet.Sentence("the agent " + remark), Will: true}, 1, nameOf(&v.Agent))
			}
			item.Reason = ptr(remark)
			out.Will++
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
	if out.Refused, err = refusal(h.Actions.CheckUnenrollLimit(ctx, o)); err != nil {
		return err
	}
	c.JSON(http.StatusOK, out)
	return nil
}

// refusal returns the text with which a guard rail refuses an order, for its preview; other errors
// are returned.
func refusal(err error) (*string, error) {
	if err != nil && fleet.KindOf(err) == fleet.Conflict {
		return ptr(err.Error()), nil
	}
	return nil, err
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
