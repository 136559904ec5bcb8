package admin

import (
	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

func (h *Handlers) listViews(c *gin.Context) error {
	all, err := h.Views.List(c.Request.Context())
	return send(c, adminapi.ViewList{Items: orEmpty(all)}, err)
}

func (h *Handlers) saveView(c *gin.Context) error {
	var req adminapi.SaveViewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	v, err := h.Views.Save(c.Request.Context(), req.Page, req.Name, req.Search, actor(c))
	return send(c, adminapi.ViewItem{Item: v}, err)
}

func (h *Handlers) deleteView(c *gin.Context) error {
	err := h.Views.Delete(c.Request.Context(), c.Param("viewId"))
	return send(c, adminapi.ActionWord{Action: "deleted"}, err)
}
