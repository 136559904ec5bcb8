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

// changeIncident returns a handler that changes the state of an incident.
func (h *Handlers) changeIncident(do func(s *incident.Service, ctx context.Context, id, actor, why string) (fleet.Incident, error)) gin.HandlerFunc {
	return h.API.Handle(func(c *gin.Context) error {
		return runCommand(c, decodeOptional, &whyBody{}, func(w rollout.Request) (fleet.Incident, error) {
			return do(h.Incidents, c.Request.Context(), c.Param("incidentId"), w.Actor, w.Why)
		})
	})
}
