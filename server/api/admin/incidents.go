package admin

import (
	"context"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/rollout"
)

// routeIncidents adds the routes of incidents.
func (h *Handlers) routeIncidents(on bind) {
	on(adminapi.ListIncidents.Call, h.listIncidents)
	on(adminapi.ResolveIncidents.Call, h.resolveIncidents)
	on(adminapi.AckIncident.Call, h.changeIncident((*incident.Service).Ack))
	on(adminapi.ResolveIncident.Call, h.changeIncident((*incident.Service).Resolve))
}

func (h *Handlers) listIncidents(c *gin.Context) error {
	state := fleet.IncidentState(c.Query("state"))
	switch state {
	case "", fleet.IncidentOpen, fleet.IncidentAcked, fleet.IncidentResolved:
	default:
		return fleet.FieldError("query.state", "is %q, want open, acknowledged or resolved", state)
	}
	return answerPage(c, func(offset, limit int) ([]adminapi.Incident, int, error) {
		list, total, err := h.Incidents.List(c.Request.Context(), state, offset, limit)
		return each(list, viewIncident), total, err
	})
}

func viewIncident(i fleet.Incident) adminapi.Incident {
	return adminapi.Incident{Incident: i, Next: incident.NextOf(&i), Commands: incident.Commands(&i)}
}

// changeIncident returns a handler that changes the state of an incident.
func (h *Handlers) changeIncident(do func(s *incident.Service, ctx context.Context, id, actor, why string) (fleet.Incident, error)) func(*gin.Context) error {
	return func(c *gin.Context) error {
		return runCommand(c, decodeOptional, &whyBody{}, func(w rollout.Request) (adminapi.Incident, error) {
			i, err := do(h.Incidents, c.Request.Context(), c.Param("incidentId"), w.Actor, w.Why)
			return viewIncident(i), err
		})
	}
}

type resolveIncidentsBody struct {
	incident.Selection
	whyBody
}

type resolvedIncidents struct {
	Resolved  int                `json:"resolved"`
	Incidents []incident.Outcome `json:"incidents"`
}

func (h *Handlers) resolveIncidents(c *gin.Context) error {
	var body resolveIncidentsBody
	return runCommand(c, decode, &body, func(w rollout.Request) (out resolvedIncidents, err error) {
		out.Incidents, err = h.Incidents.ResolveMany(c.Request.Context(), body.Selection, w.Actor, w.Why)
		for _, o := range out.Incidents {
			if o.Result == incident.ResolveDone {
				out.Resolved++
			}
		}
		return out, err
	})
}
