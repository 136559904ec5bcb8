package agents

import (
	"net/http"
	"regexp"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// routeElastic adds what Elastic's agents need for an upgrade besides the protocol. They
// send no credentials with these requests.
func (h *Handlers) routeElastic(e *gin.Engine) {
	for _, path := range []string{agentapi.PathElastic, agentapi.PathElasticDownloads} {
		e.GET(path+":file", h.limited(h.elasticArtifact))
		e.HEAD(path+":file", h.limited(h.elasticArtifact))
	}
	e.GET(agentapi.PathOpenPGP, h.limited(h.openPGP))
}

// elasticArtifact serves a package of Elastic's. Its signature protects it, and anybody can
// have it from Elastic.
func (h *Handlers) elasticArtifact(c *gin.Context) error {
	return h.Limits.Anonymous(c.Request.Context(), c.Request.RemoteAddr, func() error {
		if err := h.enter(c, limit.Download, 0); err != nil {
			return err
		}
		_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(downloadTimeout))
		return h.Artifacts.ServeElastic(c.Writer, c.Request, c.Param("file"))
	})
}

var threeNumbers = regexp.MustCompile(`^[0-9]{1,9}\.[0-9]{1,9}\.[0-9]{1,9}$`)

// openPGP serves the keys that Elastic's packages are signed with. As in Fleet Server the
// version does not matter, and the key is served with TLS only: whoever changes it on its
// way can make agents install anything.
func (h *Handlers) openPGP(c *gin.Context) error {
	if c.Request.TLS == nil {
		c.JSON(http.StatusNotImplemented, agentapi.Error{StatusCode: http.StatusNotImplemented, Code: "ErrTLSRequired", Message: "the key is served with TLS only: ask with https"})
		return nil
	}
	if !threeNumbers.MatchString(c.Param("version")) {
		return fleet.FieldError("path.version", "is %q, want three numbers such as 8.15.5", c.Param("version"))
	}
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(trustTimeout))
	return h.Limits.AsStranger(c.Request.Context(), c.Request.RemoteAddr, limit.Download, func() error {
		key, err := h.Artifacts.OpenPGPKeys(c.Request.Context())
		if err == nil {
			c.Data(http.StatusOK, "application/octet-stream", key)
		}
		return err
	})
}
