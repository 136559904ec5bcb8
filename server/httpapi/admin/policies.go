package admin

import (
	"math"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func (h *Handlers) renderPolicy(c *gin.Context, p fleet.Policy) (adminapi.Policy, error) {
	// An empty page has the total.
	_, n, err := h.Store.Agents().List(c.Request.Context(), store.AgentQuery{AgentFilter: store.AgentFilter{PolicyID: p.ID, ActiveOnly: true}})
	inactivity := int(p.InactivityTimeout.Seconds())
	monitoring := p.MonitoringEnabled
	if monitoring == nil {
		monitoring = []string{}
	}
	return adminapi.Policy{
		Id: p.ID, Name: p.Name, Namespace: p.Namespace, Description: ptr(p.Description), Revision: p.PolicyRev, Status: "active",
		IsProtected: p.Protected, MonitoringEnabled: &monitoring, InactivityTimeout: &inactivity,
		UpdatedAt: p.UpdatedAt, UpdatedBy: p.UpdatedBy, PackagePolicies: []map[string]any{}, Agents: n,
	}, err
}

func (h *Handlers) listPolicies(c *gin.Context) error {
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	policies, total, err := pageOf(c, h.Store.Policies(), fleet.PolicySchema(), (*fleet.Policy).Values, number, size, h.Now.UTC())
	if err != nil {
		return err
	}
	out := adminapi.PolicyList{Items: make([]adminapi.Policy, len(policies)), Total: total, Page: number, PerPage: size}
	for i, p := range policies {
		if out.Items[i], err = h.renderPolicy(c, p); err != nil {
			return err
		}
	}
	c.JSON(http.StatusOK, out)
	return nil
}

func (h *Handlers) answerPolicy(c *gin.Context, p fleet.Policy, err error) error {
	if err != nil {
		return err
	}
	item, err := h.renderPolicy(c, p)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.PolicyItem{Item: item})
	return nil
}

func (h *Handlers) getPolicy(c *gin.Context) error {
	p, err := h.Store.Policies().Get(c.Request.Context(), c.Param("policyId"))
	return h.answerPolicy(c, p, err)
}

// maxTimeout is the longest inactivity timeout that fits a time.Duration.
const maxTimeout = int(math.MaxInt64 / time.Second)

func (h *Handlers) createPolicy(c *gin.Context) error {
	var req adminapi.CreatePolicyRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	p := fleet.Policy{Name: req.Name, Namespace: req.Namespace, InactivityTimeout: fleet.DefaultInactivityTimeout}
	if req.Id != nil {
		p.ID = *req.Id
	}
	if req.Description != nil {
		p.Description = *req.Description
	}
	if req.MonitoringEnabled != nil {
		p.MonitoringEnabled = *req.MonitoringEnabled
	}
	if req.InactivityTimeout != nil {
		if *req.InactivityTimeout > maxTimeout {
			return fleet.FieldError("body.inactivity_timeout", "is %d seconds, want at most %d", *req.InactivityTimeout, maxTimeout)
		}
		p.InactivityTimeout = time.Duration(*req.InactivityTimeout) * time.Second
	}
	p.Protected = req.IsProtected != nil && *req.IsProtected
	p, err := h.Policies.Create(c.Request.Context(), p, actor(c))
	return h.answerPolicy(c, p, err)
}
