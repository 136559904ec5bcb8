package admin

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/api/adminapi"
)

// enrollmentCommands returns the command for each platform, or why there is none. They have no
// token: who may read this may read the keys as well, one by one.
func (h *Handlers) enrollmentCommands(c *gin.Context) error {
	s, err := h.described(c.Request.Context())
	if err != nil {
		return err
	}
	packages, err := h.Artifacts.Catalog(c.Request.Context())
	if err != nil {
		return err
	}
	access := enrollment.Access{AgentURL: s.AgentUrl, CAPin: s.CaPin, CA: h.CA, TrustRoot: deref(s.TrustRoot)}
	out := adminapi.EnrollmentCommands{TokenWord: enrollment.TokenWord, Install: access.Install(), Items: []adminapi.EnrollmentCommand{}}
	for _, platform := range enrollment.Platforms {
		item := adminapi.EnrollmentCommand{Platform: platform}
		p, ok := packages.NewestAgent(platform)
		if ok {
			item.File = &p.File
		}
		switch {
		case !ok:
			item.Problem = ptr(artifact.NoAgent(platform).Error())
		case !access.Trusted():
			item.Problem = ptr("hosts would refuse every upgrade, since there is no root that they could trust: `muster package keys init` makes the first one, and `muster package keys publish` publishes it")
		case strings.HasSuffix(p.File, ".zip") && !strings.HasPrefix(platform, "windows-"):
			item.Problem = ptr("the newest agent is " + p.File + ", which tar cannot unpack there: publish it as .tar.gz")
		default:
			item.Command = ptr(access.Command(platform))
		}
		out.Items = append(out.Items, item)
	}
	c.JSON(http.StatusOK, out)
	return nil
}
