package admin

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/incident"
	"github.com/muster-fleet/muster/server/rollout"
)

func (h *Handlers) listIncidents(c *gin.Context) error {
	state := fleet.IncidentState(c.Query("state"))
	switch state {
	case "", fleet.IncidentOpen, fleet.IncidentAcked, fleet.IncidentResolved:
	default:
		return fleet.FieldError("query.state", "is %q, want open, acknowledged or resolved", state)
	}
	return answerPage(c, func(offset, limit int) ([]fleet.Incident, int, error) {
		return h.Incidents.List(c.Request.Context(), state, offset, limit)
	})
}

// settle is a handler that moves an incident on.
func (h *Handlers) settle(do func(s *incident.Service, ctx context.Context, id, actor, why string) (fleet.Incident, error)) gin.HandlerFunc {
	return h.API.Handle(func(c *gin.Context) error {
		return order(c, decodeOptional, &because{}, func(w rollout.Request) (fleet.Incident, error) {
			return do(h.Incidents, c.Request.Context(), c.Param("incidentId"), w.Actor, w.Why)
		})
	})
}
