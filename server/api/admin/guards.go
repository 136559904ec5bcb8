package admin

import (
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/plan"
)

func (h *Handlers) getExposure(c *gin.Context) error {
	rule, err := h.Rollouts.Exposure(c.Request.Context())
	return answer(c, rule, err)
}

func (h *Handlers) setExposure(c *gin.Context) error {
	var req struct {
		whyBody
		Enabled      *bool                 `json:"enabled"`
		Percent      *float64              `json:"percent"`
		HealthyHours *float64              `json:"healthy_hours"`
		Per          []fleet.ExposureLabel `json:"per"`
	}
	return runCommand(c, decode, &req, func(w rollout.Request) (rule fleet.ExposureRule, err error) {
		// An omitted value must not become 0.
		switch {
		case req.Enabled == nil:
			return rule, fleet.FieldError("body.enabled", "is missing, want true or false")
		case req.Percent == nil:
			return rule, fleet.FieldError("body.percent", "is missing, want a percentage of the fleet such as 10")
		case req.HealthyHours == nil:
			return rule, fleet.FieldError("body.healthy_hours", "is missing, want agent-hours such as 24")
		}
		return h.Rollouts.SetExposure(c.Request.Context(), fleet.ExposureRule{
			ID: fleet.ExposureRuleID, Enabled: *req.Enabled, Percent: *req.Percent, HealthyHours: *req.HealthyHours, Per: req.Per,
		}, w)
	})
}

func (h *Handlers) listFreezes(c *gin.Context) error {
	freezes, err := h.Rollouts.ListFreezes(c.Request.Context())
	return send(c, list[fleet.Freeze]{orEmpty(freezes)}, err)
}

type freezeBody struct {
	whyBody
	Name string    `json:"name"`
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

func (h *Handlers) createFreeze(c *gin.Context) error {
	var req freezeBody
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.Freeze, error) {
		return h.Rollouts.CreateFreeze(c.Request.Context(), fleet.Freeze{Name: req.Name, From: req.From, To: req.To}, w)
	})
}

func (h *Handlers) changeFreeze(c *gin.Context) error {
	var req freezeBody
	return runCommand(c, decode, &req, func(w rollout.Request) (fleet.Freeze, error) {
		return h.Rollouts.ChangeFreeze(c.Request.Context(), fleet.Freeze{ID: c.Param("freezeId"), Name: req.Name, From: req.From, To: req.To}, w)
	})
}

func (h *Handlers) deleteFreeze(c *gin.Context) error {
	w, err := requestOf(c, c.Query("why"))
	if err != nil {
		return err
	}
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Rollouts.DeleteFreeze(c.Request.Context(), c.Param("freezeId"), w))
}

func (h *Handlers) listUpgradeManifests(c *gin.Context) error {
	manifests, err := h.Rollouts.ListUpgradeManifests(c.Request.Context())
	return send(c, list[plan.UpgradeManifest]{orEmpty(manifests)}, err)
}

func (h *Handlers) getUpgradeManifest(c *gin.Context) error {
	m, err := h.Rollouts.GetUpgradeManifest(c.Request.Context(), c.Param("profile"), c.Param("upgradeId"))
	return answer(c, m, err)
}
