// Package simagent is an agent that is its protocol and nothing else: it enrols,
// polls, keeps its ack token, acknowledges, and upgrades in name only. It speaks
// over TLS with the real agent's client, so that hundreds of them in one process
// are to a server what hundreds of hosts are. Benchmarks and tests of several
// servers run them; testing/horde has agents for virtual time.
package simagent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/server/agentapi"
)

const (
	// PhaseGap is how long a phase of an upgrade is parked before the next is told.
	PhaseGap = 150 * time.Millisecond
	// movePause is left before the next server is tried: one that refuses at once
	// must not be asked a thousand times a second. Where there is no other server, the
	// agent waits for as long as it was asked to, as a real one does.
	movePause = 100 * time.Millisecond
	// pollTimeout is what a real agent asks for. No test waits for its end.
	pollTimeout = "5m"
)

// Options are what an agent is made of. ID, Key, Servers and TLS are required.
type Options struct {
	ID, Key string
	// Host is its name, Version what it runs before its first upgrade.
	Host, Version string
	// Servers are the base URLs of replicas. It is parked at the one of number
	// Home, and moves on to the next when that does not answer, or with an error.
	Servers []string
	Home    int
	TLS     *tls.Config
	// Take does what an action asks for, in the agent's own goroutine: while it
	// runs, the agent does not poll. nil acknowledges.
	Take func(ctx context.Context, a *Agent, act agentapi.Action)
	Hear Hearing
	// ServersPoll leaves it to the server how long a check-in is held.
	ServersPoll bool
}

// Hearing is who is told what passes between an agent and its servers, in the
// agent's goroutine. Every function may be nil.
type Hearing struct {
	// Polling: a check-in has left the host as a whole.
	Polling func()
	// Answer: a check-in was answered with 200, and the answer is complete. The
	// agent has not kept its token yet.
	Answer func(Answer)
	// Acked: an acknowledgement was answered with 200.
	Acked func(Ack)
	// Refused: a call, or an acknowledgement within one, was answered otherwise.
	Refused func(Refusal)
}

// Answer is a complete answer to a check-in.
type Answer struct {
	Agent  string
	Server int // its number in Options.Servers
	At     time.Time
	// Shown is the ack token of the request; empty: none yet.
	Shown string
	agentapi.CheckinResponse
}

// Ack is an acknowledgement that the server took.
type Ack struct {
	Agent  string
	Server int
	Action string
	Error  string // empty: it succeeded
}

// Refusal is an answer other than 200.
type Refusal struct {
	Agent  string
	Server int
	Call   string // checkin or acks
	Status int
	Text   string
}

// Agent is one simulated agent. Run may be called once; the other methods are for
// Take.
type Agent struct {
	o       Options
	http    *http.Client
	at      int
	version string
	token   string
	details *agentapi.UpgradeDetails
	todo    []agentapi.Action
}

// New makes an agent that has enrolled.
func New(o Options) *Agent {
	return &Agent{o: o, http: newHTTP(o.TLS), at: o.Home, version: o.Version}
}

// newHTTP makes connections of a host's own.
func newHTTP(config *tls.Config) *http.Client {
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}}
}

// Enrol gets an id and a key for an agent at a server.
func Enrol(ctx context.Context, server string, config *tls.Config, token, host, version string, tags ...string) (agentapi.EnrollItem, error) {
	h := newHTTP(config)
	defer h.CloseIdleConnections()
	c := &gateway.Client{HTTP: h, URL: server, Version: version}
	resp, err := c.Enroll(ctx, token, agentapi.EnrollRequest{
		Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: Metadata(host, version), Tags: tags},
	})
	return resp.Item, err
}

// Metadata is what an agent tells of its host.
func Metadata(host, version string) json.RawMessage {
	return fmt.Appendf(nil, `{"elastic":{"agent":{"version":%q,"snapshot":false,"upgradeable":true}},"host":{"hostname":%q,"architecture":"amd64"},"os":{"type":"linux","platform":"debian"}}`, version, host)
}

// ID is the agent's.
func (a *Agent) ID() string { return a.o.ID }

func (a *Agent) client() *gateway.Client {
	return &gateway.Client{HTTP: a.http, URL: a.o.Servers[a.at], AgentID: a.o.ID, APIKey: a.o.Key, Version: a.version}
}

// Run checks in and does what it is told until ctx ends.
func (a *Agent) Run(ctx context.Context) {
	defer a.http.CloseIdleConnections()
	for ctx.Err() == nil {
		if len(a.todo) > 0 {
			act := a.todo[0]
			a.todo = a.todo[1:]
			a.take(ctx, act)
			continue
		}
		if err := a.poll(ctx, nil); err != nil {
			a.move(ctx, err)
		}
	}
}

func (a *Agent) take(ctx context.Context, act agentapi.Action) {
	if a.o.Take != nil {
		a.o.Take(ctx, a, act)
		return
	}
	a.Ack(ctx, act.ID, "")
}

// move leaves a server that does not answer.
func (a *Agent) move(ctx context.Context, err error) {
	a.at = (a.at + 1) % len(a.o.Servers)
	wait := movePause
	var refusal *gateway.StatusError
	if len(a.o.Servers) == 1 && errors.As(err, &refusal) {
		wait = max(wait, refusal.RetryAfter)
	}
	_ = backoff.Sleep(ctx, wait) // an ended ctx ends the loop
}

// poll checks in once. What it is told to do comes behind what is left to do. sent,
// if not nil, is called when the request has left.
func (a *Agent) poll(ctx context.Context, sent func()) error {
	shown, server, timeout := a.token, a.at, pollTimeout
	if a.o.ServersPoll {
		timeout = "0s"
	}
	resp, err := a.client().Checkin(ctx, agentapi.CheckinRequest{
		Status: "online", Message: "Running", AckToken: shown, LocalMeta: Metadata(a.o.Host, a.version), Components: json.RawMessage(`[]`),
		UpgradeDetails: a.details, PollTimeout: timeout,
	}, func() {
		if sent != nil {
			sent()
		}
		if a.o.Hear.Polling != nil {
			a.o.Hear.Polling()
		}
	})
	if err != nil {
		a.refused("checkin", server, err)
		return err
	}
	if a.o.Hear.Answer != nil {
		a.o.Hear.Answer(Answer{Agent: a.o.ID, Server: server, At: time.Now(), Shown: shown, CheckinResponse: resp})
	}
	// Kept before anything is acknowledged, as the real agent does.
	if resp.AckToken != "" {
		a.token = resp.AckToken
	}
	a.todo = append(a.todo, resp.Actions...)
	return nil
}

func (a *Agent) refused(call string, server int, err error) {
	var status *gateway.StatusError
	if a.o.Hear.Refused != nil && errors.As(err, &status) {
		a.o.Hear.Refused(Refusal{Agent: a.o.ID, Server: server, Call: call, Status: status.HTTPStatus, Text: status.Message})
	}
}

// Ack acknowledges an action, at one server after the other, until one has taken
// it or never will, or ctx ends. errText is empty for success.
func (a *Agent) Ack(ctx context.Context, actionID, errText string) {
	event := agentapi.AckEvent{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.o.ID, ActionID: actionID,
		Message: "taken", Error: errText, Timestamp: time.Now().UTC(),
	}
	for ctx.Err() == nil {
		server := a.at
		resp, err := a.client().Acks(ctx, []agentapi.AckEvent{event})
		if err == nil && resp.Items[0].Status == http.StatusOK {
			if a.o.Hear.Acked != nil {
				a.o.Hear.Acked(Ack{Agent: a.o.ID, Server: server, Action: actionID, Error: errText})
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

// Upgrade follows an UPGRADE as an agent on a fast link does: phases that pass
// within a moment travel as one, each in a check-in that ends the parked one, and
// then the new version runs.
func (a *Agent) Upgrade(ctx context.Context, act agentapi.Action) {
	var data agentapi.UpgradeData
	if err := json.Unmarshal(act.Data, &data); err != nil {
		a.Ack(ctx, act.ID, "the data of the action cannot be read: "+err.Error())
		return
	}
	a.Ack(ctx, act.ID, "")
	a.Install(ctx, act.ID, data.Version)
}

// Install is the part of Upgrade behind the acknowledgement.
func (a *Agent) Install(ctx context.Context, actionID, version string) {
	for _, state := range []agentapi.UpgradeState{agentapi.UpgradeDownloading, agentapi.UpgradeReplacing, agentapi.UpgradeWatching} {
		if state == agentapi.UpgradeWatching {
			a.version = version
		}
		a.details = &agentapi.UpgradeDetails{TargetVersion: version, ActionID: actionID, State: state}
		a.say(ctx)
	}
	a.details = nil
}

// say tells a phase. The check-in is broken off PhaseGap after it was sent, since
// nothing is to be had; what it brings all the same is kept. On a busy machine the
// connection alone may take longer than that.
func (a *Agent) say(ctx context.Context) {
	parked, cancel := context.WithTimeout(ctx, gateway.RequestTimeout)
	defer cancel()
	if err := a.poll(parked, func() { time.AfterFunc(PhaseGap, cancel) }); err != nil && parked.Err() == nil {
		a.move(ctx, err) // the next phase, or the version that runs, says the same
	}
}
