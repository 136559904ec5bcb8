package admin

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/node/replica"
)

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
	if err := h.Replicas.Forget(c.Request.Context(), c.Param("serverId"), w.Actor, w.Why); err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.ActionWord{Action: "deleted"})
	return nil
}
