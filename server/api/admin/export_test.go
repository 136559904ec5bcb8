package admin

import "github.com/gin-gonic/gin"

// Routes returns the registered routes.
func (h *Handlers) Routes() gin.RoutesInfo { return h.routes().Routes() }

// The types that are encoded without a copy, for the comparison with the specification.
type (
	RolloutView  = rolloutView
	TargetView   = targetView
	IncidentView = incidentView
	PreviewView  = previewView
)
