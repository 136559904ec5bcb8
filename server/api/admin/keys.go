package admin

import (
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// routeKeys adds the routes of keys.
func (h *Handlers) routeKeys(on bind) {
	on(adminapi.ListEnrollmentKeys.Call, h.listKeys)
	on(adminapi.CreateEnrollmentKey.Call, h.createKey)
	on(adminapi.GetEnrollmentKey.Call, h.getKey)
	on(adminapi.RevokeEnrollmentKey.Call, h.revokeKey)
}

// renderKey returns a key with its token, unless that cannot be shown again.
func (h *Handlers) renderKey(k fleet.EnrollmentKey) adminapi.EnrollmentKey {
	out := adminapi.EnrollmentKey{Id: k.ID, Active: k.Active, ApiKeyId: k.ID, Name: k.Name, PolicyId: k.PolicyID, CreatedAt: k.CreatedAt, ExpireAt: k.ExpireAt}
	if cred, ok := h.Enrollment.Reveal(k); ok {
		out.ApiKey = ptr(cred.Encode())
	}
	return out
}

func (h *Handlers) listKeys(c *gin.Context) error {
	number, err := queryInt(c, "page", 1, 1, maxPage)
	if err != nil {
		return err
	}
	size, err := queryInt(c, "perPage", 20, 0, maxWindow)
	if err != nil {
		return err
	}
	if number*size > maxWindow {
		return fleet.FieldError("query.perPage", "page × perPage is %d, at most %d keys can be paged through", number*size, maxWindow)
	}
	query, err := queryFilter(c, fleet.EnrollmentKeySchema(), h.Now.UTC())
	if err != nil {
		return err
	}
	keys, total, err := h.Enrollment.Keys(c.Request.Context(), query, (number-1)*max(size, 1), max(size, 1))
	if err != nil {
		return err
	}
	items := each(keys[:min(size, len(keys))], h.renderKey) // perPage=0 asks for the total alone
	c.JSON(http.StatusOK, adminapi.EnrollmentKeyList{Items: items, List: items, Total: total, Page: number, PerPage: size})
	return nil
}

func (h *Handlers) getKey(c *gin.Context) error {
	k, err := h.Enrollment.GetKey(c.Request.Context(), c.Param("keyId"))
	if err != nil {
		return err
	}
	c.JSON(http.StatusOK, adminapi.EnrollmentKeyItem{Item: h.renderKey(k)})
	return nil
}

func (h *Handlers) createKey(c *gin.Context) error {
	var req adminapi.CreateEnrollmentKeyRequest
	if err := decode(c, &req); err != nil {
		return err
	}
	if req.PolicyId == "" {
		return fleet.FieldError("body.policy_id", "expected value of type [string] but got [undefined]")
	}
	if err := fleet.CheckText("body.name", deref(req.Name)); err != nil {
		return err
	}
	lifetime, err := keyLifetime(req.Expiration)
	if err != nil {
		return err
	}
	k, cred, err := h.Enrollment.CreateKey(c.Request.Context(), deref(req.Name), req.PolicyId, lifetime, actor(c))
	if err != nil {
		return err
	}
	item := h.renderKey(k)
	item.ApiKey = ptr(cred.Encode())
	c.JSON(http.StatusOK, adminapi.EnrollmentKeyCreated{Action: "created", Item: item})
	return nil
}

// keyExpiration is Elasticsearch's form of a duration, as far as Kibana accepts it for
// enrollment keys. units are the ones in it; Kibana's limits for them are what a
// time.Duration can hold.
var (
	keyExpiration = regexp.MustCompile(`^([1-9][0-9]*)([dhms])$`)
	units         = map[string]time.Duration{"d": 24 * time.Hour, "h": time.Hour, "m": time.Minute, "s": time.Second}
)

// maxExpiration is how many characters an expiration may have.
const maxExpiration = 20

// keyLifetime parses the expiration of an enrollment key. Without one it returns 0.
func keyLifetime(text *string) (time.Duration, error) {
	if text == nil {
		return 0, nil
	}
	if n := len(*text); n > maxExpiration {
		return 0, fleet.FieldError("body.expiration", "value has length [%d] but it must have a maximum length of [%d].", n, maxExpiration)
	}
	if m := keyExpiration.FindStringSubmatch(*text); m != nil {
		n, err := strconv.ParseInt(m[1], 10, 64)
		if unit := units[m[2]]; err == nil && n <= int64(1<<63-1)/int64(unit) {
			return time.Duration(n) * unit, nil
		}
	}
	return 0, fleet.FieldError("body.expiration", "Expiration must be a valid duration (for example, 30d, 24h, 90m, 60s)")
}

// duration parses an optional duration above 0. Without one it returns 0.
func duration(field string, text *string) (time.Duration, error) {
	if text == nil || *text == "" {
		return 0, nil
	}
	d, err := time.ParseDuration(*text)
	if err != nil || d <= 0 {
		return 0, fleet.FieldError(field, "is %q, want a duration such as 24h", *text)
	}
	return d, nil
}

// revokeKey revokes a key or, with forceDelete, removes it.
func (h *Handlers) revokeKey(c *gin.Context) error {
	remove, err := queryBool(c, "forceDelete")
	if err != nil {
		return err
	}
	end := h.Enrollment.RevokeKey
	if remove {
		end = h.Enrollment.DeleteKey
	}
	return send(c, adminapi.ActionWord{Action: "deleted"}, end(c.Request.Context(), c.Param("keyId"), actor(c)))
}
