package admin

import "github.com/gin-gonic/gin"

// Routes returns the registered routes.
func (h *Handlers) Routes() gin.RoutesInfo { return h.routes().Routes() }
