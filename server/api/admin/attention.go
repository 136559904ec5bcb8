package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/insight/attention"
)

func (h *Handlers) attention(c *gin.Context) error {
	facts, err := h.Attention.Of(c.Request.Context(), callersKey(c).FailuresSeenAt)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.Attention{
		Items: each(attention.List(facts.Facts, h.Now.UTC()), renderAttention), FailuresUnseen: facts.FailuresUnseen, IncidentsOpen: facts.IncidentsOpen,
	})
	return nil
}

func renderAttention(i attention.Item) adminapi.AttentionItem {
	return adminapi.AttentionItem{
		Kind: adminapi.AttentionItemKind(i.Kind), Severity: adminapi.AttentionItemSeverity(i.Severity), Text: i.Text, Next: ptr(i.Next), Subject: ptr(i.Subject),
		Count: ptr(i.Count), Since: i.Since, Until: i.Until,
	}
}
