package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/series"
)

// defaultWindow is the window of a request that names none.
const defaultWindow = "24h"

func (h *Handlers) series(c *gin.Context) error {
	name := c.DefaultQuery("window", defaultWindow)
	w, ok := series.Windows[name]
	if !ok {
		return fleet.FieldError("query.window", "is %q, want 24h, 7d or 30d", name)
	}
	s, err := h.Series.Over(c.Request.Context(), w)
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.Series{StepSeconds: int(s.Step.Seconds()), Times: s.Times, Versions: each(s.Versions, renderLine), Health: each(s.Health, renderLine)})
	return nil
}

func renderLine(l series.Line) adminapi.SeriesLine {
	out := adminapi.SeriesLine{Name: l.Name, Values: l.Values}
	if l.Healthy != nil {
		out.Healthy = &l.Healthy
	}
	return out
}

func (h *Handlers) settings(c *gin.Context) error {
	c.JSON(http.StatusOK, adminapi.Settings{Items: h.Settings})
	return nil
}
