// Package agents serves the agent protocol, that of Fleet Server, on port 8220. Each
// handler decodes the request, calls one domain function and encodes the response.
package agents

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/agents/artifact"
	"github.com/muster-fleet/muster/server/agents/artifact/repository"
	"github.com/muster-fleet/muster/server/agents/beacon"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/diagnostics"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Handlers serve the agent protocol. All fields are required.
type Handlers struct {
	API        httpapi.API
	Agents     store.Agents
	Enrollment *enrollment.Service
	Checkin    *checkin.Service
	Actions    *action.Service
	Beacons    *beacon.Service
	Policies   *policy.Service
	Artifacts  *artifact.Service
	Trust      *repository.Service
	Uploads    *diagnostics.Service
	Cache      checkin.Cache
	Health     *storehealth.Monitor
	// Limits admits requests.
	Limits *limit.Admission
	// Version is the version of the server.
	Version string
}

// Handler returns the routes.
func (h *Handlers) Handler() http.Handler {
	e := h.API.New()
	e.Use(h.apiVersion)
	// As Fleet Server answers, whose agents do not read a body here.
	e.NoRoute(func(c *gin.Context) { http.NotFound(c.Writer, c.Request) })
	e.GET(agentapi.PathStatus, h.API.Handle(h.status)) // not limited: probes must get an answer from a busy server
	e.POST(agentapi.PathEnroll, h.limited(h.enroll))
	e.POST("/api/fleet/agents/:id/checkin", h.limited(h.checkin))
	e.POST("/api/fleet/agents/:id/acks", h.limited(h.acks))
	e.POST("/api/fleet/agents/:id/beacon", h.limited(h.beacon))
	e.POST("/api/fleet/agents/:id/audit/unenroll", h.limited(h.auditUnenroll))
	e.GET("/api/fleet/agents/:id/home", h.limited(h.home))
	e.GET(agentapi.PathArtifacts+":file", h.limited(h.artifact))
	e.HEAD(agentapi.PathArtifacts+":file", h.limited(h.artifact))
	e.GET(agentapi.PathAgent+":platform", h.limited(h.newAgent))
	e.HEAD(agentapi.PathAgent+":platform", h.limited(h.newAgent))
	h.routeElastic(e)
	e.GET(agentapi.PathTrust+":name", h.limited(h.trust))
	e.HEAD(agentapi.PathTrust+":name", h.limited(h.trust))
	h.routeUploads(e)
	return e
}

// strangersBody is how long the server waits for the rest of a request that it has refused
// and whose sender it does not know, before it closes the connection.
const strangersBody = time.Second

// limited converts a handler that calls enter once it has authenticated the request. It
// releases the slot after that, and closes the connections of strangers.
func (h *Handlers) limited(f func(*gin.Context) error) gin.HandlerFunc {
	return h.API.Handle(func(c *gin.Context) error {
		err := h.Limits.RefuseFull(c.Request.Context())
		if err == nil {
			defer func() { limit.Done(c.Request.Context()) }() // of the context that enter sets
			err = f(c)
		}
		ctx := c.Request.Context()
		switch kind := fleet.KindOf(err); {
		case err == nil:
		case limit.Refused(ctx):
			c.Header("Connection", "close") // not in other cases: a new connection costs more than a request
		case limit.Stranger(ctx) && kind != fleet.TooMany && kind != fleet.Unavailable:
			c.Header("Connection", "close")
			_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(strangersBody))
		}
		return err
	})
}

// authenticate calls check, which looks up the request's credential in the store.
func (h *Handlers) authenticate(c *gin.Context, k limit.Kind, check func(context.Context) error) error {
	ctx := c.Request.Context()
	return h.Limits.AsStranger(ctx, c.Request.RemoteAddr, k, func() error { return check(ctx) })
}

// knownAgent says that the request was authenticated as that of an agent. It closes the
// connection if the agent has too many.
func knownAgent(c *gin.Context, id string) error {
	return closing(c, limit.KnownAgent(c.Request.Context(), id))
}

// closing closes the connection of a request with the answer, if err is not nil.
func closing(c *gin.Context, err error) error {
	if err != nil {
		c.Header("Connection", "close")
	}
	return err
}

// enter admits an authenticated request within the limits of its kind, with its body in
// memory.
func (h *Handlers) enter(c *gin.Context, k limit.Kind, maxBody int64) error {
	r, err := h.Limits.Enter(c.Request.Context(), c.Request, k, maxBody)
	if err == nil {
		c.Request = r
	}
	return err
}

func (h *Handlers) apiVersion(c *gin.Context) {
	c.Header(agentapi.HeaderAPIVersion, agentapi.APIVersion)
	if v := c.GetHeader(agentapi.HeaderAPIVersion); v != "" && v != agentapi.APIVersion {
		code := "ErrUnsupportedAPIVersion"
		if _, err := time.Parse(time.DateOnly, v); err != nil {
			code = "ErrInvalidAPIVersionFormat"
		}
		h.API.Fail(c, &fleet.Error{
			Kind: fleet.Invalid, Code: code, Field: "header " + agentapi.HeaderAPIVersion,
			Message: "is " + v + ", this server speaks " + agentapi.APIVersion,
		})
	}
}

func (h *Handlers) status(c *gin.Context) error {
	s := agentapi.Status{Name: "muster", Status: agentapi.StatusHealthy}
	code := http.StatusOK
	if err := h.Health.Away(); err != nil {
		s.Status, s.Reason, code = agentapi.StatusDegraded, err.Error(), http.StatusServiceUnavailable
	} else if _, err := h.agent(c, limit.Report); err == nil {
		s.Version = &agentapi.StatusVersion{Number: h.Version}
	}
	c.JSON(code, s)
	return nil
}

// enrollmentKey authenticates a host that has an enrollment token and no key of its own yet.
func (h *Handlers) enrollmentKey(c *gin.Context, k limit.Kind) (key fleet.EnrollmentKey, err error) {
	cred, err := credential(c)
	if err != nil {
		return key, err
	}
	if err := h.Health.Away(); err != nil {
		return key, err
	}
	err = h.authenticate(c, k, func(ctx context.Context) (err error) {
		key, err = h.Enrollment.Authenticate(ctx, cred)
		return err
	})
	if err != nil {
		h.Health.Failed(err)
		return key, err
	}
	return key, closing(c, limit.Known(c.Request.Context(), key.ID))
}

func (h *Handlers) enroll(c *gin.Context) error {
	key, err := h.enrollmentKey(c, limit.Enroll)
	if err != nil {
		return err
	}
	var req agentapi.EnrollRequest
	if err := h.read(c, limit.Enroll, limit.EnrollMessage, &req); err != nil {
		return err
	}
	// A message that is refused, or does not arrive, has not used the token.
	if err := h.Limits.Enrol(key.ID); err != nil {
		return err
	}
	req.Metadata.Local, req.Metadata.UserProvided = notNull(req.Metadata.Local), notNull(req.Metadata.UserProvided)
	req.HeaderVersion = agentapi.UserAgentVersion(c.GetHeader("User-Agent"))
	a, own, err := h.Enrollment.Enroll(c.Request.Context(), key, req)
	if err != nil {
		h.Health.Failed(err)
		return err
	}
	c.JSON(http.StatusOK, agentapi.EnrollResponse{Action: "created", Item: agentapi.EnrollItem{
		ID: a.ID, Active: true, PolicyID: a.PolicyID, Type: a.Type, EnrolledAt: a.EnrolledAt,
		UserProvidedMetadata: orObject(a.UserMetadata), LocalMetadata: orObject(a.LocalMetadata),
		AccessAPIKeyID: own.Agent.ID, AccessAPIKey: own.Agent.Encode(), Status: "online", Tags: a.Tags,
		Actions: []json.RawMessage{}, WatcherAPIKey: own.Watcher.Encode(),
	}})
	return nil
}

func orObject(b []byte) []byte {
	if len(b) == 0 {
		return []byte("{}")
	}
	return b
}

// credential reads the Authorization header. As in Fleet Server, a malformed key is a bad
// request and not unauthorized: agents that get enough 401s consider themselves unenrolled.
func credential(c *gin.Context) (fleet.Credential, error) {
	cred, err := httpapi.Credential(c)
	var fe *fleet.Error
	if errors.As(err, &fe) && fe.Code == "" {
		err = &fleet.Error{Kind: fleet.Invalid, Code: "ErrMalformedToken", Message: fe.Message, Err: err}
	}
	return cred, err
}

// agent authenticates the agent that sent the request and returns it. If the path has an
// id, it must be the agent's.
func (h *Handlers) agent(c *gin.Context, k limit.Kind) (a fleet.Agent, err error) {
	cred, err := credential(c)
	if err != nil {
		return fleet.Agent{}, err
	}
	err = h.authenticate(c, k, func(ctx context.Context) error {
		a, err = h.readAgent(ctx, cred, c.Param("id"))
		return err
	})
	if err == nil {
		err = knownAgent(c, a.ID)
	}
	return a, err
}

// readAgent returns the agent with a credential. If id is not empty, it must be the
// agent's.
func (h *Handlers) readAgent(ctx context.Context, cred fleet.Credential, id string) (fleet.Agent, error) {
	var a fleet.Agent
	err := h.Health.Call(ctx, func(ctx context.Context) (err error) {
		a, err = h.Agents.ByAccessKey(ctx, cred.ID)
		return err
	})
	switch {
	case err != nil && fleet.KindOf(err) != fleet.NotFound:
		// The store is unavailable. A 401 here would make agents consider themselves
		// unenrolled.
		return a, err
	case err == nil && !a.Active:
		return a, &fleet.Error{Kind: fleet.Unauthorized, Code: "ErrAgentInactive", Message: "this agent is unenrolled: enrol the host again"}
	case err != nil || !cred.Matches(a.AccessKeyHash):
		return a, &fleet.Error{Kind: fleet.Unauthorized, Code: "ErrUnauthorized", Message: "the agent's API key is not valid here: enrol the host again"}
	}
	if id != "" && id != a.ID {
		return a, &fleet.Error{Kind: fleet.Forbidden, Code: "ErrAgentIdentity", Message: "this API key belongs to another agent than " + id}
	}
	return a, nil
}

// cached reports whether the key is that of the agent in the path, without the store.
func (h *Handlers) cached(c *gin.Context, key fleet.Credential) bool {
	id, ok := h.Cache.Authenticated(key)
	return ok && id == c.Param("id") && limit.KnownAgent(c.Request.Context(), id) == nil
}

func (h *Handlers) checkin(c *gin.Context) error {
	key, err := credential(c)
	if err != nil {
		return err
	}
	id := c.Param("id")
	var (
		a        fleet.Agent
		received checkin.Received
		cached   = h.cached(c, key)
	)
	if !cached {
		received.Generation = h.Cache.Generation(id)
		if a, err = h.agent(c, limit.Checkin); err != nil {
			return err
		}
		h.Cache.Remember(&a, received.Generation)
	}
	r, err := h.Limits.EnterCheckin(c.Request.Context(), c.Request, id, limit.CheckinMessage.Body, func() {
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now())
	})
	if err != nil {
		return err
	}
	c.Request = r
	body, err := httpapi.ReadBody(c, limit.CheckinMessage.Body)
	if err != nil {
		return err
	}
	received.Fingerprint, received.Token = checkin.FingerprintOf(body, c.GetHeader("Content-Encoding"), c.GetHeader("User-Agent"))
	if cached {
		if h.Checkin.HandleDuplicate(c.Writer, c.Request, id, received.Fingerprint, received.Token) {
			return nil
		}
		received.Generation = h.Cache.Generation(id)
		if a, err = h.readAgent(c.Request.Context(), key, id); err != nil {
			return err
		}
		h.Cache.Remember(&a, received.Generation)
	}
	var req agentapi.CheckinRequest
	if err := decode(c, limit.CheckinMessage, body, &req); err != nil {
		return err
	}
	if err := checkCheckin(&req); err != nil {
		return err
	}
	req.HeaderVersion = agentapi.UserAgentVersion(c.GetHeader("User-Agent"))
	return h.Checkin.Handle(c.Writer, c.Request, a, req, received)
}

// read admits an authenticated request within the limits of its kind, and decodes its body
// within the bounds of the message.
func (h *Handlers) read(c *gin.Context, k limit.Kind, m limit.Message, v any) error {
	if err := h.enter(c, k, m.Body); err != nil {
		return err
	}
	body, err := httpapi.ReadBody(c, m.Body)
	if err != nil {
		return err
	}
	return decode(c, m, body, v)
}

// decode decodes the body of a message, which may be compressed with gzip. Nothing is built of a
// body beyond the bounds of m, or before there is memory for it.
func decode(c *gin.Context, m limit.Message, body []byte, v any) error {
	var (
		ctx  = c.Request.Context()
		cost int64
		err  error
	)
	if strings.EqualFold(c.GetHeader("Content-Encoding"), encodingGzip) {
		z, zerr := gzip.NewReader(bytes.NewReader(body))
		if zerr != nil {
			return fleet.FieldError("body", "is not gzip, though Content-Encoding says so: %w", zerr)
		}
		defer z.Close()
		body, cost, err = m.Read(limit.Reader(ctx, z))
	} else if err = refuseEncoded(c, encodingGzip); err == nil {
		body, cost, err = m.Check(body)
	}
	if err != nil {
		return httpapi.BodyError(err)
	}
	if err := limit.Decoding(ctx, cost); err != nil {
		return err
	}
	return httpapi.UnmarshalJSON(body, v)
}

// encodingGzip is the one Content-Encoding of messages.
const encodingGzip = "gzip"

// refuseEncoded refuses a body with a Content-Encoding, and says which ones are accepted: read as it
// is, it would be no JSON, or be stored in another form than it is said to have.
func refuseEncoded(c *gin.Context, accepted ...string) error {
	encoding := c.GetHeader("Content-Encoding")
	if encoding == "" || strings.EqualFold(encoding, "identity") {
		return nil
	}
	accepted = append(accepted, "identity")
	c.Header("Accept-Encoding", strings.Join(accepted, ", "))
	e := fleet.Errorf(fleet.Unsupported, "is %q, accepted: %s", encoding, strings.Join(accepted, ", "))
	e.Field = "header Content-Encoding"
	return e
}

// checkCheckin validates a decoded check-in. It treats null as absent: some encoders write
// null for absent fields.
func checkCheckin(req *agentapi.CheckinRequest) error {
	if d := req.UpgradeDetails; d != nil && !d.State.Known() {
		return fleet.FieldError("body.upgrade_details.state", "is %q, want one of the UPG_ states", d.State)
	}
	if u := req.Upgrade; u != nil {
		for i, r := range u.Rollbacks {
			if r.Version == "" {
				return fleet.FieldError(fmt.Sprintf("body.upgrade.rollbacks[%d].version", i), "is missing")
			}
		}
	}
	if i := slices.Index(req.StagedVersions, ""); i >= 0 {
		return fleet.FieldError(fmt.Sprintf("body.staged_versions[%d]", i), "is empty, want a version")
	}
	req.LocalMeta, req.Components = notNull(req.LocalMeta), notNull(req.Components)
	if len(req.LocalMeta) > 0 && req.LocalMeta[0] != '{' {
		return fleet.FieldError("body.local_metadata", "want a JSON object")
	}
	if len(req.Components) > 0 && req.Components[0] != '[' {
		return fleet.FieldError("body.components", "want a JSON list")
	}
	return nil
}

func notNull(raw json.RawMessage) json.RawMessage {
	if string(raw) == "null" {
		return nil
	}
	return raw
}

func (h *Handlers) acks(c *gin.Context) error {
	key, err := credential(c)
	if err != nil {
		return err
	}
	id := c.Param("id")
	var (
		a      fleet.Agent
		cached = h.cached(c, key)
	)
	read := func(agent func() (fleet.Agent, error)) error {
		generation := h.Cache.Generation(id)
		if a, err = agent(); err == nil {
			h.Cache.Remember(&a, generation)
		}
		return err
	}
	if !cached {
		if err := read(func() (fleet.Agent, error) { return h.agent(c, limit.Report) }); err != nil {
			return err
		}
	}
	var req agentapi.AckRequest
	if err := h.read(c, limit.Report, limit.AckMessage, &req); err != nil {
		return err
	}
	ctx := c.Request.Context()
	var items []agentapi.AckItem
	if hostname, ok := h.Cache.Stable(id); ok && cached {
		items = h.Actions.AckUpgrades(ctx, id, hostname, req.Events)
	}
	if items == nil {
		if cached {
			if err := read(func() (fleet.Agent, error) { return h.readAgent(ctx, key, id) }); err != nil {
				return err
			}
		}
		items = h.Actions.Ack(ctx, a, req.Events)
	}
	resp := agentapi.AckResponse{Action: "acks", Items: items}
	status := http.StatusOK
	for _, item := range resp.Items {
		status = max(status, item.Status)
	}
	resp.Errors = status != http.StatusOK
	if status == http.StatusServiceUnavailable {
		c.Header("Retry-After", httpapi.RetryAfterSeconds(0))
	}
	c.JSON(status, resp)
	return nil
}

// watcher authenticates the watcher of the agent whose id is in the path. It answers for a
// missing agent as for a wrong key.
func (h *Handlers) watcher(c *gin.Context) (a fleet.Agent, err error) {
	cred, err := credential(c)
	if err != nil {
		return a, err
	}
	err = h.authenticate(c, limit.Report, func(ctx context.Context) error {
		a, err = h.readWatched(ctx, cred, c.Param("id"))
		return err
	})
	if err == nil {
		err = knownAgent(c, a.ID)
	}
	return a, err
}

func (h *Handlers) readWatched(ctx context.Context, cred fleet.Credential, id string) (a fleet.Agent, err error) {
	err = h.Health.Call(ctx, func(ctx context.Context) (err error) {
		a, err = h.Agents.Get(ctx, id)
		return err
	})
	known := err == nil && a.WatcherKeyID != "" && cred.ID == a.WatcherKeyID
	switch {
	case err != nil && fleet.KindOf(err) != fleet.NotFound:
		return a, err // the store is unavailable: no 401, as in agent
	case known && !a.Active:
		return a, &fleet.Error{Kind: fleet.Unauthorized, Code: "ErrAgentInactive", Message: "this agent is unenrolled: enrol the host again"}
	case !known || !cred.Matches(a.WatcherKeyHash):
		return a, &fleet.Error{
			Kind: fleet.Unauthorized, Code: "ErrUnauthorized",
			Message: "this is not the key of the agent's watcher: beacons need the watcher_api_key of the agent's enrolment",
		}
	}
	return a, nil
}

func (h *Handlers) beacon(c *gin.Context) error {
	a, err := h.watcher(c)
	if err != nil {
		return err
	}
	var b agentapi.Beacon
	if err := h.read(c, limit.Report, limit.BeaconMessage, &b); err != nil {
		return err
	}
	if err := h.Health.Call(c.Request.Context(), func(ctx context.Context) error { return h.Beacons.Handle(ctx, a, b) }); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

func (h *Handlers) auditUnenroll(c *gin.Context) error {
	a, err := h.agent(c, limit.Report)
	if err != nil {
		return err
	}
	var req struct {
		Reason    string    `json:"reason"`
		Timestamp time.Time `json:"timestamp"`
	}
	if err := h.read(c, limit.Report, limit.AuditMessage, &req); err != nil {
		return err
	}
	if err := h.Health.Call(c.Request.Context(), func(ctx context.Context) error {
		return h.Enrollment.AuditUnenroll(ctx, a.ID, req.Reason, req.Timestamp)
	}); err != nil {
		return err
	}
	c.Status(http.StatusOK)
	return nil
}

// home answers an agent that this server wants with the servers of its policy. It changes nothing: the
// agent may have another server at present.
func (h *Handlers) home(c *gin.Context) error {
	a, err := h.agent(c, limit.Report)
	if err != nil {
		return err
	}
	if err := h.enter(c, limit.Report, 0); err != nil {
		return err
	}
	if a.UnenrollmentStartedAt != nil {
		return &fleet.Error{Kind: fleet.Unauthorized, Code: "ErrAgentInactive", Message: "this agent is being unenrolled"}
	}
	home := agentapi.Home{Hosts: []string{}}
	if err := h.Health.Call(c.Request.Context(), func(ctx context.Context) error {
		p, err := h.Policies.Render(ctx, a.PolicyID)
		if err != nil {
			return err
		}
		hosts, err := p.Hosts()
		home.Hosts = append(home.Hosts, hosts...)
		return err
	}); err != nil {
		return err
	}
	c.JSON(http.StatusOK, home)
	return nil
}

// downloadTimeout bounds one response with a package: 2 GiB at 300 kB/s. A slower host
// resumes with a range request.
const downloadTimeout = 2 * time.Hour

func (h *Handlers) artifact(c *gin.Context) error {
	key, err := credential(c)
	if err != nil {
		return err
	}
	if id, ok := h.Cache.Authenticated(key); ok {
		err = knownAgent(c, id)
	} else {
		_, err = h.agent(c, limit.Download)
	}
	if err != nil {
		return err
	}
	if err := h.enter(c, limit.Download, 0); err != nil {
		return err
	}
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(downloadTimeout))
	return h.Artifacts.Serve(c.Writer, c.Request, c.Param("file"))
}

// newAgent serves the agent that a new host is installed from.
func (h *Handlers) newAgent(c *gin.Context) error {
	if _, err := h.enrollmentKey(c, limit.Download); err != nil {
		return err
	}
	if err := h.enter(c, limit.Download, 0); err != nil {
		return err
	}
	_ = http.NewResponseController(c.Writer).SetWriteDeadline(time.Now().Add(downloadTimeout))
	return h.Artifacts.ServeAgent(c.Writer, c.Request, c.Param("platform"))
}
