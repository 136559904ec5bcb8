package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/replica"
)

// routeServers adds the routes of this server and of what shows the whole fleet.
func (h *Handlers) routeServers(on bind) {
	on(adminapi.GetReadiness.Call, h.readyz)
	on(adminapi.LogIn.Call, h.logIn)
	on(adminapi.GetStatus.Call, h.kibanaStatus)
	on(adminapi.GetSession.Call, h.session)
	on(adminapi.LogOut.Call, h.logOut)
	on(adminapi.ListAdminKeys.Call, h.listAdminKeys)
	on(adminapi.CreateAdminKey.Call, h.createAdminKey)
	on(adminapi.RevokeAdminKey.Call, h.revokeAdminKey)
	on(adminapi.RotateAdminKey.Call, h.rotateAdminKey)
	on(adminapi.GetServer.Call, h.server)
	on(adminapi.GetEnrollmentCommands.Call, h.enrollmentCommands)
	on(adminapi.ListServers.Call, h.listServers)
	on(adminapi.ForgetServer.Call, h.forgetServer)
	on(adminapi.StreamEvents.Call, h.events)
	on(adminapi.ListTrail.Call, h.listTrail)
	on(adminapi.GetSeries.Call, h.series)
	on(adminapi.GetAttention.Call, h.attention)
	on(adminapi.ListViews.Call, h.listViews)
	on(adminapi.SaveView.Call, h.saveView)
	on(adminapi.DeleteView.Call, h.deleteView)
	on(adminapi.GetServerSettings.Call, h.settings)
	on(adminapi.GetMetrics.Call, func(c *gin.Context) error { h.Metrics.ServeHTTP(c.Writer, c.Request); return nil })
}

func (h *Handlers) listServers(c *gin.Context) error {
	servers, err := h.Replicas.List(c.Request.Context())
	if err != nil {
		return err
	}
	now := h.Now.UTC()
	c.JSON(http.StatusOK, adminapi.KnownServerList{
		Items: each(servers, func(s fleet.Server) adminapi.KnownServer {
			return adminapi.KnownServer{
				Id: s.ID, Host: s.Host, Version: s.Version, Schema: s.Schema, StartedAt: s.StartedAt, SeenAt: s.SeenAt, Away: s.Away(now),
				AgentsUrl: s.AgentsURL, AdminUrl: s.AdminURL, Parked: s.Parked, Problem: ptr(s.Problem()),
			}
		}),
		Remarks: orEmpty(replica.Remarks(servers, now)),
	})
	return nil
}

func (h *Handlers) forgetServer(c *gin.Context) error {
	w, err := requestOf(c, c.Query("why"))
	if err != nil {
		return err
	}
	return send(c, adminapi.ActionWord{Action: "deleted"}, h.Replicas.Forget(c.Request.Context(), c.Param("serverId"), w.Actor, w.Why))
}
