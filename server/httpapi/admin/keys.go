package admin

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

func renderKey(k fleet.EnrollmentKey) adminapi.EnrollmentKey {
	return adminapi.EnrollmentKey{Id: k.ID, Active: k.Active, ApiKeyId: k.ID, Name: k.Name, PolicyId: k.PolicyID, CreatedAt: k.CreatedAt, ExpireAt: k.ExpireAt}
}

func (h *Handlers) listKeys(c *gin.Context) error {
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	keys, total, err := pageOf(c, h.Store.EnrollmentKeys(), fleet.EnrollmentKeySchema(), (*fleet.EnrollmentKey).Values, number, size, h.Now.UTC())
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.EnrollmentKeyList{Items: each(keys, renderKey), Total: total, Page: number, PerPage: size})
	return nil
}

func (h *Handlers) getKey(c *gin.Context) error {
	k, err := h.Store.EnrollmentKeys().Get(c.Request.Context(), c.Param("keyId"))
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.EnrollmentKeyItem{Item: renderKey(k)})
	return nil
}

func (h *Handlers) createKey(c *gin.Context) error {
	var req adminapi.CreateEnrollmentKeyRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	lifetime, err := duration("body.expiration", req.Expiration)
	if err != nil {
		return err
	}
	name := ""
	if req.Name != nil {
		name = *req.Name
	}
	k, cred, err := h.Enrollment.CreateKey(c.Request.Context(), name, req.PolicyId, lifetime, actor(c))
	if err != nil {
		return err
	}
	item := renderKey(k)
	item.ApiKey = ptr(cred.Encode())
	c.JSON(http.StatusOK, adminapi.EnrollmentKeyCreated{Action: "created", Item: item})
	return nil
}

// duration parses an optional duration above 0. Without one it returns 0.
func duration(field string, text *string) (time.Duration, error) {
	if text == nil || *text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(*text)
	if err != nil || d <= 0 {
		return 0, fleet.FieldError(field, "is %q, want a duration such as 24h", *text)
	}
	return d, nil
}

func (h *Handlers) revokeKey(c *gin.Context) error {
	if err := h.Enrollment.RevokeKey(c.Request.Context(), c.Param("keyId"), actor(c)); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionWord{Action: "deleted"})
	return nil
}
