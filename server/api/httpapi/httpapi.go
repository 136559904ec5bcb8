// Package httpapi has what the two HTTP interfaces share: it logs, bounds and authorises
// requests, decodes bodies, and maps the kind of an error to an HTTP status. The handlers
// are in httpapi/agents and httpapi/admin. Only these packages use gin.
package httpapi

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// statuses maps the kind of an error to the HTTP status and to the code that agents
// receive. Clients of the admin API receive the text of the status instead.
var statuses = map[fleet.Kind]struct {
	status int
	code   string
}{
	fleet.Invalid:      {http.StatusBadRequest, "BadRequest"},
	fleet.NotFound:     {http.StatusNotFound, "NotFound"},
	fleet.Conflict:     {http.StatusConflict, "Conflict"},
	fleet.Unauthorized: {http.StatusUnauthorized, "Unauthorized"},
	fleet.Forbidden:    {http.StatusForbidden, "Forbidden"},
	fleet.TooMany:      {http.StatusTooManyRequests, "RateLimit"},
	fleet.TooLarge:     {http.StatusRequestEntityTooLarge, "ErrPayloadSizeTooLarge"},
	fleet.Unsupported:  {http.StatusUnsupportedMediaType, "UnsupportedMediaType"},
	fleet.Unavailable:  {http.StatusServiceUnavailable, "ServiceUnavailable"},
	fleet.Internal:     {http.StatusInternalServerError, "InternalServerError"},
}

// RetryAfter is the minimum of the default Retry-After; the maximum is twice as long. The
// default is jittered, so that clients that are refused at the same moment, as when the
// store becomes unavailable, do not retry at the same moment.
const RetryAfter = 5 * time.Second

// RetryAfterSeconds returns the value of a Retry-After header. If after is 0, it is the
// jittered default.
func RetryAfterSeconds(after time.Duration) string {
	if after <= 0 {
		after = RetryAfter + rand.N(RetryAfter+time.Second)
	}
	return strconv.Itoa(max(1, int(after.Seconds())))
}

// API is one HTTP interface.
type API struct {
	Log *slog.Logger
	// PlainCodes puts the text of the status into the error field instead of the code for
	// agents.
	PlainCodes bool
}

// New returns a gin engine with the middleware that every request needs.
func (a API) New() *gin.Engine {
	gin.SetMode(gin.ReleaseMode)
	e := gin.New()
	e.HandleMethodNotAllowed = true
	e.UseRawPath = true // an escaped slash in an id does not split the path
	e.Use(a.requestID, a.cutOffResets, a.log, a.recover)
	e.NoRoute(func(c *gin.Context) {
		a.Fail(c, fleet.Errorf(fleet.NotFound, "there is nothing at %s %s", c.Request.Method, c.Request.URL.Path))
	})
	e.NoMethod(MethodNotAllowed)
	return e
}

// MethodNotAllowed answers 405.
func MethodNotAllowed(c *gin.Context) {
	c.AbortWithStatusJSON(http.StatusMethodNotAllowed, agentapi.Error{
		StatusCode: http.StatusMethodNotAllowed, Code: http.StatusText(http.StatusMethodNotAllowed),
		Message: fmt.Sprintf("%s does not support %s", c.Request.URL.Path, c.Request.Method),
	})
}

// statusClientGone is logged for a request whose client has closed the connection, as in
// Fleet Server. No client receives it.
const statusClientGone = 499

// Fail answers a request with err. Internal errors and causes are logged, and not sent to
// the client.
func (a API) Fail(c *gin.Context, err error) {
	if c.Writer.Written() || c.Request.Context().Err() != nil {
		a.Log.Debug("request cut off", "path", c.Request.URL.Path, "error", err)
		c.AbortWithStatus(statusClientGone)
		return
	}
	kind := fleet.KindOf(err)
	row := statuses[kind]
	body := agentapi.Error{StatusCode: row.status, Code: row.code, Message: err.Error()}
	var fe *fleet.Error
	if errors.As(err, &fe) {
		body.Message = fe.Error()
		if fe.Code != "" {
			body.Code = fe.Code
		}
	}
	rule := ""
	if a.PlainCodes {
		if fe != nil {
			rule = fe.Code
		}
		body.Code = http.StatusText(row.status)
	}
	switch kind {
	case fleet.Internal:
		id := c.Writer.Header().Get(agentapi.HeaderRequestID)
		a.Log.Error("request failed", "method", c.Request.Method, "path", c.Request.URL.Path, "request_id", id, "error", err)
		body.Message = "internal error: the server's log has the details under request id " + id
	case fleet.Unavailable, fleet.TooMany:
		var after time.Duration
		if fe != nil {
			after = fe.RetryAfter
		}
		c.Header("Retry-After", RetryAfterSeconds(after))
	}
	c.AbortWithStatusJSON(row.status, struct {
		agentapi.Error
		Rule string `json:"code,omitempty"`
	}{body, rule})
}

// Handle converts a handler that returns an error to one for gin.
func (a API) Handle(h func(*gin.Context) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		if err := h(c); err != nil {
			a.Fail(c, err)
		}
	}
}

// maxRequestID is the length of the longest client request id that is echoed and logged.
const maxRequestID = 128

// requestID sets the request id of the response: the client's, or a new one. Handlers read
// it from the response's header, since gin's keys would cost each request a map.
func (a API) requestID(c *gin.Context) {
	id := c.GetHeader(agentapi.HeaderRequestID)
	if id == "" || len(id) > maxRequestID || strings.ContainsFunc(id, func(r rune) bool { return r < '!' || r > '~' }) {
		id = fleet.NewID()
	}
	c.Header(agentapi.HeaderRequestID, id)
}

// PathReady is where probes ask whether a server can be sent requests of the admin API.
const PathReady = "/readyz"

func (a API) log(c *gin.Context) {
	start := time.Now()
	c.Next()
	level := slog.LevelDebug
	// Probes request these every second, so their 503s are not worth a warning.
	probe := c.FullPath() == agentapi.PathStatus || c.FullPath() == PathReady
	if c.Writer.Status() >= http.StatusInternalServerError && !probe {
		level = slog.LevelWarn
	}
	if !a.Log.Enabled(c.Request.Context(), level) {
		return
	}
	a.Log.Log(c.Request.Context(), level, "request", "method", c.Request.Method, "path", c.Request.URL.Path,
		"status", c.Writer.Status(), "took", time.Since(start).Round(time.Microsecond), "from", c.Request.RemoteAddr)
}

func (a API) recover(c *gin.Context) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if r == http.ErrAbortHandler { //nolint:errorlint // net/http compares it with ==
			panic(r)
		}
		a.Fail(c, fmt.Errorf("panic: %v", r))
	}()
	c.Next()
}

// Credential reads the Authorization header of an agent, with the errors of Fleet Server.
func Credential(c *gin.Context) (fleet.Credential, error) {
	headers := c.Request.Header.Values("Authorization")
	switch {
	case len(headers) == 0:
		return fleet.Credential{}, &fleet.Error{Kind: fleet.Unauthorized, Code: "ErrNoAuthHeader", Message: "the Authorization header is missing: send \"ApiKey <key>\""}
	case len(headers) > 1:
		return fleet.Credential{}, &fleet.Error{Kind: fleet.Invalid, Code: "ErrMalformedHeader", Message: "there is more than one Authorization header"}
	}
	scheme, token, ok := strings.Cut(headers[0], " ")
	if !ok || !strings.EqualFold(scheme, "ApiKey") {
		return fleet.Credential{}, &fleet.Error{Kind: fleet.Invalid, Code: "ErrMalformedHeader", Message: "the Authorization header is not of the form \"ApiKey <key>\""}
	}
	return fleet.ParseCredential(token)
}
