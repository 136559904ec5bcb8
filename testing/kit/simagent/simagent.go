// Package simagent implements a simulated agent that only speaks the protocol: it enrols,
// polls, keeps its ack token, acknowledges, and pretends to upgrade. It uses the real
// agent's client over TLS, so that to a server hundreds of them in one process look like
// hundreds of hosts. Benchmarks and tests of several servers use it; testing/suites/simulation
// has agents for virtual time.
package simagent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// PhaseGap is the time between the reports of two phases of an upgrade.
	PhaseGap = 150 * time.Millisecond
	// movePause is the pause before the next server is tried, so that a server that
	// refuses at once is not asked a thousand times a second. With a single server the
	// agent waits for Retry-After, as a real one does.
	movePause = 100 * time.Millisecond
	// pollTimeout is the poll timeout of a real agent. No test waits for its end.
	pollTimeout = "5m"
)

// Options configure an agent. ID, Key, Servers and TLS are required.
type Options struct {
	ID, Key string
	// Host is the hostname, Version the version before the first upgrade.
	Host, Version string
	// Servers are the base URLs of the servers. The agent begins at number Home, and
	// moves to the next one when a call fails.
	Servers []string
	Home    int
	TLS     *tls.Config
	// HTTP sends the requests. nil means a client that shares no connections.
	HTTP *http.Client
	// OnAction executes an action in the agent's goroutine; while it runs, the agent does
	// not poll. nil means to acknowledge the action, as the agent does with policies.
	OnAction  func(ctx context.Context, a *Agent, act agentapi.Action)
	Callbacks Callbacks
	// ServersPoll lets the server choose the poll timeout.
	ServersPoll bool
	// OnCheckin completes each check-in before it is sent: with the metadata of another host,
	// components, or a status. nil means a healthy Linux host without components.
	OnCheckin func(a *Agent, r *agentapi.CheckinRequest)
}

// Callbacks are called in the agent's goroutine. Each may be nil.
type Callbacks struct {
	// Polling is called when a check-in has been sent completely.
	Polling func()
	// Answer is called after a complete answer of 200 to a check-in, before the agent
	// stores its token.
	Answer func(Answer)
	// Acked is called after an acknowledgement was answered with 200.
	Acked func(Ack)
	// Refused is called after any other answer to a call or to an acknowledgement.
	Refused func(Refusal)
}

// Answer is a complete answer to a check-in.
type Answer struct {
	Agent  string
	Server int // its number in Options.Servers
	At     time.Time
	// Shown is the ack token of the request; empty if there was none.
	Shown string
	agentapi.CheckinResponse
}

// Ack is an acknowledgement that the server accepted.
type Ack struct {
	Agent  string
	Server int
	Action string
	Error  string // empty means success
}

// Refusal is an answer other than 200.
type Refusal struct {
	Agent  string
	Server int
	Call   string // checkin or acks
	Status int
	Text   string
}

// Agent is one simulated agent. Run may be called once; the other methods but Renew are for
// Options.OnAction.
type Agent struct {
	o       Options
	http    *http.Client
	at      int
	version string
	token   string
	details *agentapi.UpgradeDetails
	todo    []agentapi.Action
	renew   chan struct{}
}

// New returns an agent that has enrolled.
func New(o Options) *Agent {
	if o.HTTP == nil {
		o.HTTP = newHTTP(o.TLS)
	}
	return &Agent{o: o, http: o.HTTP, at: o.Home, version: o.Version, renew: make(chan struct{}, 1)}
}

// newHTTP returns a client that shares no connections.
func newHTTP(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}}
}

// Enrol enrols an agent at a server and returns its id and key. The agent acknowledges its
// policy before it is sent, so that its first action is a test's.
func Enrol(ctx context.Context, server string, config *tls.Config, token, host, version string, tags ...string) (agentapi.EnrollItem, error) {
	h := newHTTP(config)
	defer h.CloseIdleConnections()
	c := &gateway.Client{HTTP: h, URL: server, Version: version}
	resp, err := c.Enroll(ctx, token, agentapi.EnrollRequest{
		Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: Metadata(host, version), Tags: tags},
	})
	if err != nil {
		return resp.Item, err
	}
	c.AgentID, c.APIKey = resp.Item.ID, resp.Item.AccessAPIKey
	_, err = c.Acks(ctx, []agentapi.AckEvent{{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: c.AgentID, ActionID: fleet.PolicyAt{ID: resp.Item.PolicyID, Revision: 1}.ChangeID(), Timestamp: time.Now().UTC(),
	}})
	return resp.Item, err
}

// Metadata returns an agent's local_metadata.
func Metadata(host, version string) json.RawMessage {
	return fmt.Appendf(nil, `{"elastic":{"agent":{"version":%q,"snapshot":false,"upgradeable":true}},"host":{"hostname":%q,"architecture":"amd64"},"os":{"type":"linux","platform":"debian"}}`, version, host)
}

// ID returns the agent's id.
func (a *Agent) ID() string { return a.o.ID }

func (a *Agent) client() *gateway.Client {
	return &gateway.Client{HTTP: a.http, URL: a.o.Servers[a.at], AgentID: a.o.ID, APIKey: a.o.Key, Version: a.version}
}

// Run checks in and executes actions until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	defer a.http.CloseIdleConnections()
	for ctx.Err() == nil {
		if len(a.todo) > 0 {
			act := a.todo[0]
			a.todo = a.todo[1:]
			a.handle(ctx, act)
			continue
		}
		if err := a.park(ctx); err != nil {
			a.move(ctx, err)
		}
	}
}

// park checks in and waits for actions, or until Renew is called.
func (a *Agent) park(ctx context.Context) error {
	parked, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-a.renew:
			cancel()
		case <-parked.Done():
		}
	}()
	err := a.poll(parked, nil)
	if parked.Err() != nil && ctx.Err() == nil {
		return nil
	}
	return err
}

// Renew ends the parked check-in, so that the next one reports at once what OnCheckin has to
// say. Any goroutine may call it.
func (a *Agent) Renew() {
	select {
	case a.renew <- struct{}{}:
	default: // it is about to
	}
}

func (a *Agent) handle(ctx context.Context, act agentapi.Action) {
	if a.o.OnAction != nil && act.Type != agentapi.ActionPolicyChange {
		a.o.OnAction(ctx, a, act)
		return
	}
	a.Ack(ctx, act.ID, "")
}

// move switches to the next server.
func (a *Agent) move(ctx context.Context, err error) {
	a.at = (a.at + 1) % len(a.o.Servers)
	wait := movePause
	var refusal *gateway.StatusError
	if len(a.o.Servers) == 1 && errors.As(err, &refusal) {
		wait = max(wait, refusal.RetryAfter)
	}
	_ = backoff.Sleep(ctx, wait) // the caller's loop checks ctx
}

// poll checks in once and queues the actions of the answer. sent, if not nil, is called
// when the request has been sent.
func (a *Agent) poll(ctx context.Context, sent func()) error {
	shown, server, timeout := a.token, a.at, pollTimeout
	if a.o.ServersPoll {
		timeout = "0s"
	}
	req := agentapi.CheckinRequest{
		Status: "online", Message: "Running", AckToken: shown, LocalMeta: Metadata(a.o.Host, a.version), Components: json.RawMessage(`[]`),
		UpgradeDetails: a.details, PollTimeout: timeout,
	}
	if a.o.OnCheckin != nil {
		a.o.OnCheckin(a, &req)
	}
	resp, err := a.client().Checkin(ctx, req, func() {
		if sent != nil {
			sent()
		}
		if a.o.Callbacks.Polling != nil {
			a.o.Callbacks.Polling()
		}
	})
	if err != nil {
		a.refused("checkin", server, err)
		return err
	}
	if a.o.Callbacks.Answer != nil {
		a.o.Callbacks.Answer(Answer{Agent: a.o.ID, Server: server, At: time.Now(), Shown: shown, CheckinResponse: resp})
	}
	// Stored before anything is acknowledged, as the real agent does.
	if resp.AckToken != "" {
		a.token = resp.AckToken
	}
	a.todo = append(a.todo, resp.Actions...)
	return nil
}

func (a *Agent) refused(call string, server int, err error) {
	var status *gateway.StatusError
	if a.o.Callbacks.Refused != nil && errors.As(err, &status) {
		a.o.Callbacks.Refused(Refusal{Agent: a.o.ID, Server: server, Call: call, Status: status.HTTPStatus, Text: status.Message})
	}
}

// Ack acknowledges an action, at one server after the other, until one accepts or finally
// rejects it, or ctx ends. errText is empty for success.
func (a *Agent) Ack(ctx context.Context, actionID, errText string) {
	event := agentapi.AckEvent{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.o.ID, ActionID: actionID,
		Message: "accepted", Error: errText, Timestamp: time.Now().UTC(),
	}
	for ctx.Err() == nil {
		server := a.at
		resp, err := a.client().Acks(ctx, []agentapi.AckEvent{event})
		if err == nil && resp.Items[0].Status == http.StatusOK {
			if a.o.Callbacks.Acked != nil {
				a.o.Callbacks.Acked(Ack{Agent: a.o.ID, Server: server, Action: actionID, Error: errText})
			}
			return
		}
		final := false
		if err == nil {
			item := resp.Items[0]
			err = &gateway.StatusError{HTTPStatus: item.Status, Message: item.Message}
			final = item.Status == http.StatusBadRequest || item.Status == http.StatusNotFound
		}
		a.refused("acks", server, err)
		if final {
			return
		}
		a.move(ctx, err)
	}
}

// Upgrade simulates an UPGRADE on a fast link. Short phases are reported together, each
// report is a check-in that ends the parked one, and then the new version runs.
func (a *Agent) Upgrade(ctx context.Context, act agentapi.Action) {
	var data agentapi.UpgradeData
	if err := json.Unmarshal(act.Data, &data); err != nil {
		a.Ack(ctx, act.ID, "the data of the action cannot be read: "+err.Error())
		return
	}
	a.Ack(ctx, act.ID, "")
	a.Install(ctx, act.ID, data.Version)
}

// Install is the part of Upgrade after the acknowledgement.
func (a *Agent) Install(ctx context.Context, actionID, version string) {
	for _, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeReplacing, agentapi.UpgradeWatching} {
		if state == agentapi.UpgradeWatching {
			a.version = version
		}
		a.Report(ctx, &agentapi.UpgradeDetails{TargetVersion: version, ActionID: actionID, State: state}, PhaseGap)
	}
	a.details = nil
}

// Runs makes version the one that runs.
func (a *Agent) Runs(version string) { a.version = version }

// Version returns the version that runs.
func (a *Agent) Version() string { return a.version }

// Report reports details of an upgrade, which further check-ins repeat. It ends its check-in
// after stay from when it was sent, since no action is expected; if one is delivered, it is
// queued, and Report returns earlier. On a busy machine connecting alone may take longer than
// PhaseGap.
func (a *Agent) Report(ctx context.Context, details *agentapi.UpgradeDetails, stay time.Duration) {
	a.details = details
	parked, cancel := context.WithTimeout(ctx, gateway.RequestTimeout+stay)
	defer cancel()
	if err := a.poll(parked, func() { time.AfterFunc(stay, cancel) }); err != nil && parked.Err() == nil {
		a.move(ctx, err) // the next check-in reports it
	}
}

// Cancelled reports whether a CANCEL of an action has been delivered and not been executed yet,
// and if so acknowledges it.
func (a *Agent) Cancelled(ctx context.Context, actionID string) bool {
	for i, act := range a.todo {
		var data agentapi.CancelData
		if act.Type == agentapi.ActionCancel && json.Unmarshal(act.Data, &data) == nil && data.TargetID == actionID {
			a.todo = slices.Delete(a.todo, i, i+1)
			a.Ack(ctx, act.ID, "")
			return true
		}
	}
	return false
}
