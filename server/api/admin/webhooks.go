package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// routeWebhooks adds the routes of webhooks.
func (h *Handlers) routeWebhooks(on bind) {
	on(adminapi.ListWebhooks.Call, h.listWebhooks)
	on(adminapi.CreateWebhook.Call, h.createWebhook)
	on(adminapi.DeleteWebhook.Call, h.deleteWebhook)
	on(adminapi.TestWebhook.Call, h.testWebhook)
	on(adminapi.EnableWebhook.Call, h.disable(false))
	on(adminapi.DisableWebhook.Call, h.disable(true))
	on(adminapi.ListDeadLetters.Call, h.listDeadLetters)
	on(adminapi.Redeliver.Call, h.redeliver)
}

// renderWebhook omits the secret, which only the response to its creation shows.
func renderWebhook(w fleet.Webhook) adminapi.Webhook {
	out := adminapi.Webhook{Id: w.ID, Name: w.Name, Url: w.URL, Disabled: ptr(w.Disabled), After: w.After, CreatedAt: w.CreatedAt, CreatedBy: w.CreatedBy}
	if len(w.Events) > 0 {
		out.Events = &w.Events
	}
	return out
}

func (h *Handlers) listWebhooks(c *gin.Context) error {
	hooks, err := h.Webhooks.List(c.Request.Context())
	return send(c, adminapi.WebhookList{Items: each(hooks, renderWebhook)}, err)
}

func (h *Handlers) createWebhook(c *gin.Context) error {
	var req struct {
		Name   string   `json:"name"`
		URL    string   `json:"url"`
		Secret string   `json:"secret"`
		Events []string `json:"events"`
	}
	if err := decode(c, &req); err != nil {
		return err
	}
	w, err := h.Webhooks.Create(c.Request.Context(), fleet.Webhook{Name: req.Name, URL: req.URL, Secret: req.Secret, Events: req.Events}, actor(c))
	if err != nil {
		return err
	}
	out := renderWebhook(w)
	out.Secret = &w.Secret
	c.JSON(http.StatusOK, adminapi.WebhookItem{Item: out})
	return nil
}

func (h *Handlers) deleteWebhook(c *gin.Context) error {
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Webhooks.Delete(c.Request.Context(), c.Param("webhookId"), actor(c)))
}

// disable returns a handler that disables or enables a webhook.
func (h *Handlers) disable(off bool) func(*gin.Context) error {
	return func(c *gin.Context) error {
		w, err := h.Webhooks.SetDisabled(c.Request.Context(), c.Param("webhookId"), off, actor(c))
		return answer(c, renderWebhook(w), err)
	}
}

func (h *Handlers) testWebhook(c *gin.Context) error {
	return empty(c, h.Webhooks.Test(c.Request.Context(), c.Param("webhookId")))
}

func (h *Handlers) listDeadLetters(c *gin.Context) error {
	return answerPage(c, func(offset, limit int) ([]fleet.DeadLetter, int, error) {
		return h.Webhooks.DeadLetters(c.Request.Context(), offset, limit)
	})
}

func (h *Handlers) redeliver(c *gin.Context) error {
	return empty(c, h.Webhooks.Redeliver(c.Request.Context(), c.Param("letterId"), actor(c)))
}

func empty(c *gin.Context, err error) error {
	return send(c, adminapi.Empty{}, err)
}
