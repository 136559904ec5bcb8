package agents

import "github.com/gin-gonic/gin"

// trust serves the publishers' signed metadata to whoever asks: it proves itself,
// and a host that has only its root's digest has no key yet.
func (h *Handlers) trust(c *gin.Context) error {
	if err := h.Health.Away(); err != nil {
		return err
	}
	return h.Trust.Serve(c.Writer, c.Request, c.Param("name"))
}
