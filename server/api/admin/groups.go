package admin

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/group"
)

// routeGroups adds the routes of groups of rollouts.
func (h *Handlers) routeGroups(on bind) {
	on(adminapi.ListGroups.Call, h.listGroups)
	on(adminapi.CreateGroup.Call, h.createGroup)
	on(adminapi.GetGroup.Call, h.getGroup)
	on(adminapi.DeleteGroup.Call, h.deleteGroup)
	on(adminapi.PreviewGroup.Call, h.previewGroup)
	on(adminapi.StartGroup.Call, h.startGroup)
	on(adminapi.PauseGroup.Call, h.pauseGroup)
	on(adminapi.ResumeGroup.Call, h.groupCommand((*group.Service).Resume))
	on(adminapi.CancelGroup.Call, h.groupCommand((*group.Service).Cancel))
	on(adminapi.RollbackGroup.Call, h.groupCommand((*group.Service).Rollback))
	on(adminapi.SkipGroupMember.Call, h.skipMember)
}

func groupID(c *gin.Context) string { return c.Param("groupId") }

func (h *Handlers) listGroups(c *gin.Context) error {
	return answerPage(c, func(offset, limit int) ([]fleet.RolloutGroup, int, error) {
		return h.Groups.List(c.Request.Context(), offset, limit)
	})
}

func (h *Handlers) createGroup(c *gin.Context) error {
	var req struct {
		whyBody
		Plan fleet.GroupPlan `json:"plan"`
	}
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.RolloutGroup, error) {
		return h.Groups.Create(c.Request.Context(), req.Plan, w)
	})
}

func (h *Handlers) getGroup(c *gin.Context) error {
	g, err := h.Groups.Status(c.Request.Context(), groupID(c))
	return answer(c, g, err)
}

func (h *Handlers) deleteGroup(c *gin.Context) error {
	w, err := requestOf(c, c.Query("why"))
	if err != nil {
		return err
	}
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Groups.Delete(c.Request.Context(), groupID(c), w))
}

func (h *Handlers) previewGroup(c *gin.Context) error {
	p, err := h.Groups.Preview(c.Request.Context(), groupID(c))
	return answer(c, p, err)
}

func (h *Handlers) startGroup(c *gin.Context) error {
	var req struct {
		whyBody
		Hash        string `json:"hash"`
		AcceptDrift bool   `json:"accept_drift"`
	}
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.RolloutGroup, error) {
		return h.Groups.Start(c.Request.Context(), groupID(c), req.Hash, req.AcceptDrift, w)
	})
}

func (h *Handlers) pauseGroup(c *gin.Context) error {
	var req struct {
		whyBody
		Now bool `json:"now"`
	}
	return runCommand(c, decodeOptional, &req, func(w rollout.Request) (fleet.RolloutGroup, error) {
		return h.Groups.Pause(c.Request.Context(), groupID(c), req.Now, w)
	})
}

// groupCommand returns a handler for a command that takes only a reason.
func (h *Handlers) groupCommand(do func(s *group.Service, ctx context.Context, id string, w rollout.Request) (fleet.RolloutGroup, error)) func(*gin.Context) error {
	return func(c *gin.Context) error {
		return runCommand(c, decodeOptional, &whyBody{}, func(w rollout.Request) (fleet.RolloutGroup, error) {
			return do(h.Groups, c.Request.Context(), groupID(c), w)
		})
	}
}

func (h *Handlers) skipMember(c *gin.Context) error {
	var req struct {
		whyBody
		Member string `json:"member"`
	}
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.RolloutGroup, error) {
		return h.Groups.Skip(c.Request.Context(), groupID(c), req.Member, w)
	})
}
