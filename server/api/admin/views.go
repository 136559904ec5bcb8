package admin

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
)

func renderView(v fleet.View) adminapi.View {
	return adminapi.View{Id: v.ID, Page: adminapi.ViewPage(v.Page), Name: v.Name, Search: v.Search, CreatedBy: v.CreatedBy, CreatedAt: v.CreatedAt}
}

func (h *Handlers) listViews(c *gin.Context) error {
	all, _, err := h.Store.Views().List(c.Request.Context(), 0, 0)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b fleet.View) int {
		return cmp.Or(strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), strings.Compare(a.Name, b.Name), strings.Compare(a.Page, b.Page))
	})
	c.JSON(http.StatusOK, adminapi.ViewList{Items: each(all, renderView)})
	return nil
}

func (h *Handlers) saveView(c *gin.Context) error {
	ctx := c.Request.Context()
	var req adminapi.SaveViewRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	v := fleet.View{
		Page: string(req.Page), Name: strings.TrimSpace(req.Name), Search: strings.TrimPrefix(req.Search, "?"), CreatedBy: actor(c), CreatedAt: h.Now.UTC(),
	}
	if err := v.Check(); err != nil {
		return err
	}
	v.ID = fleet.ViewID(v.Page, v.Name)
	views := h.Store.Views()
	err := h.Store.Exclusively(ctx, "views", func(ctx context.Context) error {
		_, _, err := store.Put(ctx, views, v.ID, func(old *fleet.View) (fleet.View, error) {
			if old != nil {
				return v, nil
			}
			_, total, err := views.List(ctx, 0, 1)
			if err == nil && total >= fleet.MaxViews {
				err = fleet.Errorf(fleet.Conflict, "there are %d saved views, as many as there can be: delete some that nobody needs", total)
			}
			return v, err
		}, func(was, v fleet.View) error {
			entry := fleet.AuditEntry{Actor: v.CreatedBy, Verb: "view.save", Subject: v.ID, Text: fmt.Sprintf("saved the view %q of the page %s", v.Name, v.Page)}
			if was.ID != "" {
				entry.Data = audit.ChangeData(audit.Changes(was, v))
			}
			return audit.Record(ctx, h.Store.Audit(), v.CreatedAt, entry)
		})
		return err
	})
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ViewItem{Item: renderView(v)})
	return nil
}

func (h *Handlers) deleteView(c *gin.Context) error {
	ctx, id := c.Request.Context(), c.Param("viewId")
	if _, err := h.Store.Views().Get(ctx, id); err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			return fleet.Errorf(fleet.NotFound, "there is no saved view %s", id)
		}
		return err
	}
	if err := h.Store.Views().Delete(ctx, id); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionWord{Action: "deleted"})
	return nil
}
