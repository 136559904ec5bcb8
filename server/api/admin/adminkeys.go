package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

func renderAdminKey(k fleet.AdminKey) adminapi.AdminKey {
	return adminapi.AdminKey{
		Id: k.ID, Active: k.Active, Name: k.Name, CreatedAt: k.CreatedAt, CreatedBy: ptr(k.CreatedBy), ExpireAt: k.ExpireAt, LastUsedAt: k.LastUsedAt,
	}
}

func (h *Handlers) listAdminKeys(c *gin.Context) error {
	number, size, err := page(c, 1)
	if err != nil {
		return err
	}
	keys, total, err := h.Access.Keys(c.Request.Context(), (number-1)*size, size)
	return send(c, adminapi.AdminKeyList{Items: each(keys, renderAdminKey), Total: total, Page: number, PerPage: size}, err)
}

func (h *Handlers) createAdminKey(c *gin.Context) error {
	var req adminapi.CreateAdminKeyRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	lifetime, err := duration("body.expiration", req.Expiration)
	if err != nil {
		return err
	}
	k, cred, err := h.Access.CreateKey(c.Request.Context(), req.Name, lifetime, actor(c))
	if err != nil {
		return err
	}
	showNewAdminKey(c, k, cred)
	return nil
}

func (h *Handlers) rotateAdminKey(c *gin.Context) error {
	var req adminapi.RotateAdminKeyRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	lifetime, err := duration("body.expiration", req.Expiration)
	if err != nil {
		return err
	}
	grace, err := duration("body.grace", req.Grace)
	if err != nil {
		return err
	}
	k, cred, err := h.Access.RotateKey(c.Request.Context(), c.Param("keyId"), lifetime, grace, callersKey(c))
	if err != nil {
		return err
	}
	showNewAdminKey(c, k, cred)
	return nil
}

// showNewAdminKey answers with a key that was created, and its secret.
func showNewAdminKey(c *gin.Context, k fleet.AdminKey, cred fleet.Credential) {
	item := renderAdminKey(k)
	item.ApiKey = ptr(cred.Encode())
	c.JSON(http.StatusOK, adminapi.AdminKeyItem{Item: item})
}

func (h *Handlers) revokeAdminKey(c *gin.Context) error {
	return send(c, adminapi.ActionWord{Action: "revoked"}, h.Access.RevokeKey(c.Request.Context(), c.Param("keyId"), actor(c)))
}
