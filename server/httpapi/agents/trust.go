package agents

import "github.com/gin-gonic/gin"

// trust serves the publishers' signed metadata without authentication: its signatures
// protect it, and a host that has only a root's digest has no key yet.
func (h *Handlers) trust(c *gin.Context) error {
	if err := h.Health.Away(); err != nil {
		return err
	}
	return h.Trust.Serve(c.Writer, c.Request, c.Param("name"))
}
