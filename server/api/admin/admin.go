// Package admin serves the admin API, on port 8221: Kibana's Fleet API under /api/fleet,
// Muster's own under /api/v1, and the web UI. Each handler decodes the request, calls one
// domain function and encodes a type of adminapi.
package admin

import (
	"cmp"
	"context"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/agents/artifact/repository"
	"github.com/muster-fleet/muster/server/agents/diagnostics"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/api/access"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/clock"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/attention/facts"
	"github.com/muster-fleet/muster/server/insight/cache"
	"github.com/muster-fleet/muster/server/insight/history"
	"github.com/muster-fleet/muster/server/insight/incident"
	"github.com/muster-fleet/muster/server/insight/inventory"
	"github.com/muster-fleet/muster/server/insight/series"
	"github.com/muster-fleet/muster/server/insight/view"
	"github.com/muster-fleet/muster/server/insight/webhook"
	"github.com/muster-fleet/muster/server/node/replica"
	"github.com/muster-fleet/muster/server/rollout"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/rollout/configfile"
	"github.com/muster-fleet/muster/server/rollout/group"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/declare"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// APIVersion is Kibana's public API version, sent in Elastic-Api-Version.
const APIVersion = "2023-10-31"

// Handlers serve the admin API.
type Handlers struct {
	API        httpapi.API
	Trail      audit.Trail
	Access     *access.Service
	Enrollment *enrollment.Service
	Policies   *policy.Service
	Infra      *infra.Service
	Actions    *action.Service
	Artifacts  *artifact.Service
	Trust      *repository.Service
	Uploads    *diagnostics.Service
	Views      *view.Service
	Inventory  *inventory.Service
	History    *history.Service
	Attention  *facts.Reader
	Events     *event.Stream
	Rollouts   *rollout.Service
	Configs    *configfile.Renderer
	Groups     *group.Service
	Declared   *declare.Service
	Locks      rollout.Locks
	Incidents  *incident.Service
	Webhooks   *webhook.Service
	Replicas   *replica.Service
	Series     *series.Service
	// Settings are the settings in force, without secrets.
	Settings []adminapi.Setting
	// Refuses returns an error while the server takes no orders, because the servers are being
	// upgraded.
	Refuses func() error
	Health  *storehealth.Monitor
	// Metrics serves /metrics, to clients with a key.
	Metrics http.Handler
	// UI serves everything that is not the API.
	UI http.Handler
	// Server describes the server, with what a host needs to enrol.
	Server adminapi.Server
	// CA is the certificate that hosts pin, in PEM.
	CA []byte
	// KibanaVersion is the version of Kibana whose API this is, for clients that ask.
	KibanaVersion string
	// Limits admits requests. Parked returns the number of parked agents.
	Limits *limit.Admission
	Parked func() int
	// Draining is closed when the server shuts down, which ends event streams. It may be
	// nil.
	Draining <-chan struct{}
	Now      clock.Clock

	grids cache.Of[grid]
}

// Handler returns the routes, also under the path of the space default.
func (h *Handlers) Handler() http.Handler { return compressed(inDefaultSpace(h.routes())) }

func (h *Handlers) routes() *gin.Engine {
	h.grids.Max = maxGrids
	e := h.API.New()
	e.Use(secure, apiHeaders)
	e.NoRoute(func(c *gin.Context) {
		// The UI answers 200 to whatever it does not know, which clients of the API would take
		// for success.
		if space, ok := spaceOf(c.Request.URL.Path); ok {
			h.API.Fail(c, fleet.Errorf(fleet.NotFound, "Saved object [space/%s] not found: Muster has one space, default", space))
			return
		}
		if isAPI(c.Request.URL.Path) {
			h.API.Fail(c, nothingAt(c.Request))
			return
		}
		c.Status(http.StatusOK) // gin has set 404; the UI sets its own status
		h.UI.ServeHTTP(c.Writer, c.Request)
	})
	e.NoMethod(func(c *gin.Context) {
		if insteadOf(c.Request.URL.Path) != "" {
			h.API.Fail(c, nothingAt(c.Request))
			return
		}
		httpapi.MethodNotAllowed(c)
	})
	bound := map[*adminapi.Call]bool{}
	on := func(call *adminapi.Call, handle func(*gin.Context) error) {
		bound[call] = true
		e.Handle(call.Method, pathParameter.ReplaceAllString(call.Path, ":$1"), append(h.checks(call), h.API.Handle(handle))...)
	}

	e.GET("/api/openapi.yaml", func(c *gin.Context) { c.Data(http.StatusOK, "application/yaml", adminapi.Spec) })
	for _, route := range []func(bind){
		h.routeServers, h.routeKeys, h.routePackages, h.routeActions, h.routeAgents, h.routeAgentChanges, h.routeUploads, h.routeComponents,
		h.routeRollouts, h.routeGroups, h.routeFleets, h.routeIncidents, h.routeWebhooks, h.routePolicies, h.routeInfra, h.routeSetup,
	} {
		route(on)
	}
	for _, call := range adminapi.Calls() {
		if !bound[call] {
			panic("admin: the operation " + call.ID + " has no handler")
		}
	}
	return e
}

// bind binds an operation to its handler. Each area of operations has a function route in the file of its name.
type bind func(*adminapi.Call, func(*gin.Context) error)

var pathParameter = regexp.MustCompile(`\{(\w+)\}`)

// checks returns what a request goes through before its handler, in the order of Kibana.
func (h *Handlers) checks(call *adminapi.Call) []gin.HandlerFunc {
	version := func(c *gin.Context) { h.apiVersion(c, call) }
	if call.Admission == adminapi.Stranger {
		if strings.HasPrefix(call.Path, "/api/") {
			return []gin.HandlerFunc{version}
		}
		return nil
	}
	checks := []gin.HandlerFunc{h.authenticate, h.limited}
	if call.Admission == adminapi.Transfer {
		checks[1] = h.transferred
	}
	if call.Kibana() {
		checks = append(checks, h.xsrf)
	}
	checks = append(checks, version)
	if !call.Reads() && !call.DuringUpgrades {
		checks = append(checks, h.orders)
	}
	if !call.Reads() && !call.Unaudited {
		checks = append(checks, func(c *gin.Context) { h.audited(c, call) })
	}
	if call.Kibana() && call.Reads() {
		checks = append(checks, func(c *gin.Context) { h.checkQuery(c, call) })
	}
	return checks
}

// secure sets the headers of every answer, also of errors and of the UI: a browser uses
// only https for this host for half a year, and takes no answer for another type than it
// has.
func secure(c *gin.Context) {
	c.Header("Strict-Transport-Security", "max-age=15552000")
	c.Header("X-Content-Type-Options", "nosniff")
}

// apiHeaders sets the headers of every answer of the API, and has nobody store any answer that
// is not the UI's.
func apiHeaders(c *gin.Context) {
	ofAPI := strings.HasPrefix(c.Request.URL.Path, "/api/")
	if ofAPI {
		c.Header(agentapi.HeaderAPIVersion, APIVersion)
	}
	if ofAPI || c.FullPath() != "" { // the UI has no route
		c.Header("Cache-Control", "no-store")
	}
}

// apiVersion refuses a request for another version of the API.
func (h *Handlers) apiVersion(c *gin.Context, call *adminapi.Call) {
	if v := c.GetHeader(agentapi.HeaderAPIVersion); v != "" && v != APIVersion {
		h.API.Fail(c, fleet.Errorf(fleet.Invalid, "No version %q available for [%s] [%s]. Available versions are: [%s]",
			v, strings.ToLower(call.Method), call.Path, APIVersion))
	}
}

const (
	// The prefix has browsers accept the cookie from this host only, and not from one beside it
	// in the same domain, which could log somebody in as another.
	sessionCookie = "__Host-muster_session"
	actorKey      = "actor"
	adminKeyKey   = "admin-key"
	expiresKey    = "expires"
)

// strangersBody is how long the server waits for the rest of a request that it has refused
// and whose sender has no key.
const strangersBody = time.Second

// authenticate checks the Authorization header or, without one, the session cookie, before
// anything else of the request is read.
func (h *Handlers) authenticate(c *gin.Context) {
	ctx := c.Request.Context()
	err := h.Limits.AsStranger(ctx, c.Request.RemoteAddr, limit.Admin, func() error { return h.caller(c) })
	if err != nil {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(strangersBody))
	} else if err = limit.Known(ctx, callersKey(c).ID); err != nil {
		c.Header("Connection", "close")
	} else if _, ok := c.Get(expiresKey); ok {
		err = checkXSRF(c)
	}
	if err != nil {
		h.API.Fail(c, err)
	}
}

// caller finds out whose request it is.
func (h *Handlers) caller(c *gin.Context) error {
	ctx := c.Request.Context()
	if headers := c.Request.Header.Values("Authorization"); len(headers) == 0 || len(headers) == 1 && headers[0] == "" {
		if value, err := c.Cookie(sessionCookie); err == nil {
			key, expires, err := h.Access.Session(ctx, value)
			if err == nil {
				c.Set(actorKey, key.Name)
				c.Set(adminKeyKey, key)
				c.Set(expiresKey, expires)
			}
			return err
		}
	}
	cred, err := credential(c)
	if err != nil {
		return err
	}
	key, err := h.Access.Authenticate(ctx, cred, c.Request.RemoteAddr)
	if err == nil {
		c.Set(actorKey, key.Name)
		c.Set(adminKeyKey, key)
	}
	return err
}

// transferred admits a request that is authenticated and lasts for minutes, in which it mostly
// waits. Its handler reads the body, if there is one.
func (h *Handlers) transferred(c *gin.Context) {
	leave, err := h.Limits.EnterTransfer(c.Request.Context(), callersKey(c).ID)
	if err != nil {
		h.API.Fail(c, err)
		return
	}
	defer leave()
	c.Next()
}

// limited admits a request that is authenticated: it reads the body, and then bounds how many
// requests run at the same time.
func (h *Handlers) limited(c *gin.Context) {
	r, err := h.Limits.EnterAdmin(c.Request.Context(), c.Request, callersKey(c).ID, longestBody)
	if err != nil {
		h.API.Fail(c, err)
		return
	}
	c.Request = r
	defer limit.Done(r.Context())
	c.Next()
}

// stranger reads the body of a request whose sender has no key, and calls f with it.
func (h *Handlers) stranger(c *gin.Context, maxBody int64, f func() error) error {
	httpapi.PaceBody(c)
	r, err := h.Limits.EnterStranger(c.Request, maxBody)
	if err != nil {
		c.Header("Connection", "close")
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(strangersBody))
		return err
	}
	c.Request = r
	defer limit.Done(r.Context())
	return f()
}

// xsrf requires the header that Kibana requires: a page of another origin cannot set it.
func (h *Handlers) xsrf(c *gin.Context) {
	if err := checkXSRF(c); err != nil {
		h.API.Fail(c, err)
	}
}

func checkXSRF(c *gin.Context) error {
	switch c.Request.Method {
	case http.MethodGet, http.MethodHead:
		return nil
	}
	if c.GetHeader("kbn-xsrf") == "" && c.GetHeader("kbn-version") == "" {
		return fleet.Errorf(fleet.Invalid, "Request must contain a kbn-xsrf header.")
	}
	return nil
}

// orders refuses what may change something while the servers are being upgraded. Operators
// can still look, and log out.
func (h *Handlers) orders(c *gin.Context) {
	if err := h.Refuses(); err != nil {
		h.API.Fail(c, err)
	}
}

func actor(c *gin.Context) string { return c.GetString(actorKey) }

// callersKey returns the admin key that authenticated the request.
func callersKey(c *gin.Context) fleet.AdminKey {
	k, _ := c.Get(adminKeyKey)
	return k.(fleet.AdminKey)
}

const (
	// maxBody bounds a JSON request: 10,000 agent ids of 40 bytes fit twice.
	maxBody = 1 << 20
	// longestBody is that of the route with the longest.
	longestBody = max(maxBody, maxTrustUpload, maxPolicyBody, spec.MaxDocument)
)

// decode refuses unknown keys, as Kibana does: one that is ignored changes what is done.
func decode(c *gin.Context, v any) error { return httpapi.DecodeStrict(c, maxBody, v) }

// decodeOptional is decode for an optional body.
func decodeOptional(c *gin.Context, v any) error {
	if c.Request.ContentLength == 0 {
		return nil
	}
	return decode(c, v)
}

// maxLogIn bounds the one body that is read before its sender is authenticated: a key has
// less than 200 bytes.
const maxLogIn = 4 << 10

func (h *Handlers) logIn(c *gin.Context) error {
	// There is no session yet that would need the header of checkXSRF: a page of another origin
	// must not log its visitors in with its own key.
	if err := http.NewCrossOriginProtection().Check(c.Request); err != nil {
		return fleet.Errorf(fleet.Forbidden, "the page that asks is not of this server: %w", err)
	}
	return h.stranger(c, maxLogIn, func() error {
		return h.Limits.AsStranger(c.Request.Context(), c.Request.RemoteAddr, limit.Admin, func() error { return h.openSession(c) })
	})
}

func (h *Handlers) openSession(c *gin.Context) error {
	var req adminapi.LogInRequest
	if err := httpapi.Decode(c, maxLogIn, &req); err != nil {
		return err
	}
	cred, err := fleet.ParseCredential(req.ApiKey)
	if err != nil {
		return err
	}
	key, err := h.Access.Authenticate(c.Request.Context(), cred, c.Request.RemoteAddr)
	if err != nil {
		return err
	}
	value, expires, err := h.Access.NewSession(key)
	if err != nil {
		return err
	}
	setCookie(c, value, int(access.SessionLifetime.Seconds()))
	c.JSON(http.StatusOK, adminapi.Session{KeyId: key.ID, Name: key.Name, ExpiresAt: expires})
	return nil
}

// logOut ends all sessions of the caller's key: a copy of the cookie is worth nothing
// afterwards.
func (h *Handlers) logOut(c *gin.Context) error {
	if err := h.Access.EndSessions(c.Request.Context(), callersKey(c).ID); err != nil {
		return err
	}
	setCookie(c, "", -1)
	c.JSON(http.StatusOK, adminapi.Empty{})
	return nil
}

func setCookie(c *gin.Context, value string, maxAge int) {
	http.SetCookie(c.Writer, &http.Cookie{
		Name: sessionCookie, Value: value, Path: "/", MaxAge: maxAge,
		HttpOnly: true, Secure: true, SameSite: http.SameSiteStrictMode,
	})
}

func (h *Handlers) session(c *gin.Context) error {
	key := callersKey(c)
	s := adminapi.Session{KeyId: key.ID, Name: key.Name, ExpiresAt: c.GetTime(expiresKey)}
	if s.ExpiresAt.IsZero() { // authenticated by the key itself
		s.ExpiresAt = access.SessionEnd(key, h.Now.UTC())
	}
	c.JSON(http.StatusOK, s)
	return nil
}

func (h *Handlers) kibanaStatus(c *gin.Context) error {
	s := adminapi.KibanaStatus{Name: "muster"}
	s.Version.Number, s.Version.BuildSnapshot = strings.CutSuffix(h.KibanaVersion, "-SNAPSHOT")
	s.Version.BuildFlavor = "traditional" // as opposed to serverless, which has another API
	s.Muster.Version = h.Server.Version
	s.Status.Overall.Level, s.Status.Overall.Summary = "available", "The server answers"
	if err := h.Health.Away(); err != nil {
		s.Status.Overall.Level, s.Status.Overall.Summary = "unavailable", err.Error()
	} else if err := h.Health.Steady(); err != nil {
		s.Status.Overall.Level, s.Status.Overall.Summary = "degraded", err.Error()
	} else if problem := cmp.Or(h.Trust.Problem(), h.Access.Problem(), h.Actions.Sealer.Problem()); problem != "" {
		s.Status.Overall.Level, s.Status.Overall.Summary = "degraded", problem
	}
	s.Limits = h.limits()
	c.JSON(http.StatusOK, s)
	return nil
}

func (h *Handlers) limits() *adminapi.ServerLimits {
	use := func(u limit.Use) adminapi.LimitUse {
		return adminapi.LimitUse{Max: u.Max, Used: u.Used, Waiting: u.Waiting, Limited: int64(u.Limited)}
	}
	l := h.Limits
	return &adminapi.ServerLimits{
		Agents: use(l.Connections()), AgentsParked: h.Parked(), Handshakes: use(l.Handshakes()), HandshakesPerSecond: l.Limits.HandshakesPerSecond,
		Checkins: use(l.Use(limit.Checkin)), Reports: use(l.Use(limit.Report)), Enrollments: use(l.Use(limit.Enroll)), Downloads: use(l.Use(limit.Download)),
		BodyBytes: use(l.Bodies()), MemoryBytes: l.Limits.MemoryBytes,
	}
}

func (h *Handlers) server(c *gin.Context) error {
	s, err := h.described(c.Request.Context())
	return send(c, s, err)
}

// described returns the server's version and what hosts need to enrol.
func (h *Handlers) described(ctx context.Context) (adminapi.Server, error) {
	s := h.Server
	s.Now = h.Now.UTC()
	view, err := h.Trust.View(ctx)
	if err != nil {
		return s, err
	}
	s.TrustRoot = trustRoot(view)
	return s, nil
}

// maxPage bounds page, so that page times perPage does not overflow.
const maxPage = 1 << 20

// maxPerPage bounds a page of any list, as in Kibana.
const maxPerPage = 10_000

// page reads the parameters page and perPage. The first page has the number first.
func page(c *gin.Context, first int) (number, size int, err error) {
	return pageUpTo(c, first, maxPerPage)
}

// pageUpTo is page for a list whose pages have at most so many items.
func pageUpTo(c *gin.Context, first, most int) (number, size int, err error) {
	if number, err = queryInt(c, "page", first, first, maxPage); err != nil {
		return 0, 0, err
	}
	// Not 0, which means all items to the store.
	size, err = queryInt(c, "perPage", 20, 1, most)
	return number, size, err
}

func queryInt(c *gin.Context, name string, def, low, high int) (int, error) {
	s := c.Query(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < low || n > high {
		return 0, fleet.FieldError("query."+name, "is %q, want a number from %d to %d", s, low, high)
	}
	return n, nil
}

func queryBool(c *gin.Context, name string) (bool, error) {
	switch s := c.Query(name); s {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	default:
		return false, fleet.FieldError("query."+name, "is %q, want true or false", s)
	}
}

// isSet reports whether an optional flag is true.
func isSet(flag *bool) bool { return flag != nil && *flag }

// deref returns the value of an optional field, or zero.
func deref[T any](v *T) (value T) {
	if v != nil {
		value = *v
	}
	return value
}

func ptr[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func each[A, B any](in []A, f func(A) B) []B {
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}
