package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
)

// readyz answers probes, which have no credentials and ask every second: whether requests can be
// sent to this server. It reads what the monitor of the store knows, so a probe costs nothing, and
// is not limited, so that a busy server counts as ready.
func (h *Handlers) readyz(c *gin.Context) error {
	select {
	case <-h.Draining:
		return fleet.Errorf(fleet.Unavailable, "the server is shutting down")
	default:
	}
	if err := h.Health.Away(); err != nil {
		return err
	}
	c.String(http.StatusOK, "ok\n")
	return nil
}
