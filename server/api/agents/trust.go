package agents

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/limit"
)

// trustTimeout bounds one response with a trust file, of a megabyte at most: 35 kB/s.
const trustTimeout = 30 * time.Second

// trust serves the publishers' signed metadata without authentication: its signatures
// protect it, and a host that has only a root's digest has no key yet.
func (h *Handlers) trust(c *gin.Context) error {
	if err := h.Health.Away(); err != nil {
		return err
	}
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(trustTimeout))
	return h.Limits.AsStranger(c.Request.Context(), c.Request.RemoteAddr, limit.Download, func() error {
		return h.Trust.Serve(c.Writer, c.Request, c.Param("name"))
	})
}
