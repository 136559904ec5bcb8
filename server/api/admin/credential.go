package admin

import (
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
)

// credential reads the Authorization header, in the schemes that Kibana accepts: ApiKey and
// Bearer with an admin key, Basic with its id as the name and its secret as the password. As
// in Kibana, whatever cannot be read is 401.
func credential(c *gin.Context) (fleet.Credential, error) {
	// elastic-agent-libs/kibana sends the same header twice, of which Kibana reads one.
	headers := slices.Compact(c.Request.Header.Values("Authorization"))
	switch {
	case len(headers) == 0 || headers[0] == "":
		return fleet.Credential{}, fleet.Errorf(fleet.Unauthorized, "the Authorization header is missing: send \"ApiKey <admin key>\"")
	case len(headers) > 1:
		return fleet.Credential{}, fleet.Errorf(fleet.Unauthorized, "there is more than one Authorization header: send one")
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	switch strings.ToLower(scheme) {
	case "apikey", "bearer":
		return fleet.ParseCredential(token)
	case "basic":
		id, secret, ok := c.Request.BasicAuth()
		if !ok || id == "" || secret == "" {
			return fleet.Credential{}, fleet.Errorf(fleet.Unauthorized, "the Authorization header is not of the form \"Basic base64(name:password)\": the name is the id of an admin key, the password its secret")
		}
		// A browser sends a name and password that it has been given with every request to
		// this server, also from another site's page.
		return fleet.Credential{ID: id, Secret: secret}, checkXSRF(c)
	}
	return fleet.Credential{}, fleet.Errorf(fleet.Unauthorized, "the Authorization header is of an unknown scheme: send \"ApiKey <admin key>\", \"Bearer <admin key>\" or \"Basic base64(id:secret)\" of an admin key")
}
