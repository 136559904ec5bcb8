//go:build linux

package generator

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// phase is what an agent is doing.
type phase uint8

const (
	disconnected phase = iota // no connection, and none is wanted
	dialing                   // connecting, or queued for it
	polling                   // a check-in is sent and not answered
	acking
	waiting // until Retry-After or the backoff is over
	phases
)

// agent is one simulated host. Only the goroutine of the loop that owns it may use it.
type agent struct {
	number        int // in the whole run
	slot          int // in its loop
	id            string
	key           string
	host          string
	token         string
	phase         phase
	wantConnected bool
	generation    uint32 // counts connections, so that events of an earlier one are ignored
	fails         int    // failed connections since the last success
	conn          *agentConn
	h2            *h2Conn // instead of conn
	// partial is the beginning of an answer; it is almost always empty.
	partial      []byte
	toAck        []string // actions to acknowledge
	ackSent      []string // actions whose acknowledgement is sent and not answered
	acked        []string // actions acknowledged since the last poll
	sent         MonoTime
	connectStart MonoTime // 0 once the check-in is sent
}

// checkinTemplate is the body of a check-in, cut where agents differ. Its fields,
// their order and its size of a kilobyte are those of a real agent.
type checkinTemplate struct {
	version string
	parts   []templatePart
}

// templatePart is a text and the placeholder after it.
type templatePart struct {
	text        string
	placeholder byte
}

// Placeholders for what differs by agent. JSON writes each as an escape of six
// characters, which occurs nowhere else.
const (
	placeholderHost  = '\x01'
	placeholderID    = '\x02'
	placeholderToken = '\x03'
)

// newCheckinTemplate encodes the check-in of agents of a version. They ask for the
// agent's default poll timeout.
func newCheckinTemplate(version string) checkinTemplate {
	unit := func(name, kind string) map[string]string {
		return map[string]string{"id": name, "type": kind, "status": "HEALTHY", "message": "Healthy"}
	}
	units, err := json.Marshal([]any{unit("process-default", "output"), unit("process-default-unit-1", "input")})
	if err != nil {
		panic("generator: units cannot be encoded: " + err.Error()) // they are strings
	}
	components, err := json.Marshal([]agentapi.Component{{
		ID: "process-default", Type: "process", Status: "HEALTHY", Message: "Healthy: communicating with pid '4711'", Units: units,
	}})
	if err != nil {
		panic("generator: components cannot be encoded: " + err.Error())
	}
	body, err := json.Marshal(agentapi.CheckinRequest{
		Status: "online", Message: "Running", AckToken: string(placeholderToken), LocalMeta: metadata(version, string(placeholderHost), string(placeholderID)),
		Components: components, PollTimeout: config.DefaultPollTimeout.String(),
	})
	if err != nil {
		panic("generator: a check-in cannot be encoded: " + err.Error())
	}
	p := checkinTemplate{version: version}
	for rest := string(body); ; {
		at := strings.Index(rest, `\u000`)
		if at < 0 {
			p.parts = append(p.parts, templatePart{text: rest})
			return p
		}
		p.parts = append(p.parts, templatePart{rest[:at], rest[at+5] - '0'})
		rest = rest[at+6:]
	}
}

// metadata is the local_metadata of a host and its agent.
func metadata(version, hostname, agentID string) json.RawMessage {
	return host.Info{
		ID: "4f1d2a9c0b6e48d7a35c91e27fd0b864", Hostname: hostname, Architecture: "x86_64",
		IPs:  []string{"127.0.0.1/8", "::1/128", "192.0.2.17/24", "2001:db8::17/64"},
		MACs: []string{"02-00-5E-10-00-01"},
		OS: host.OS{
			Family: "debian", Kernel: "6.12.41", Name: "Debian GNU/Linux", Platform: "debian", Type: "linux", Version: "13 (trixie)",
			Full: "Debian GNU/Linux trixie(13 (trixie))",
		},
	}.Metadata(host.Agent{ID: agentID, Version: version, Build: version + " (build: 3f2a9c1d at 2026-01-01 00:00:00 +0000 UTC)", LogLevel: "info"})
}

// metadata is the local_metadata of an enrolment, at which a host has no id yet.
func (p checkinTemplate) metadata(hostname string) json.RawMessage {
	return metadata(p.version, hostname, "")
}

// appendCheckin appends the body of a check-in. hostname, id and token must not need
// escaping in JSON.
func (p checkinTemplate) appendCheckin(b []byte, hostname, id, token string) []byte {
	for _, part := range p.parts {
		b = append(b, part.text...)
		switch part.placeholder {
		case placeholderHost:
			b = append(b, hostname...)
		case placeholderID:
			b = append(b, id...)
		case placeholderToken:
			b = append(b, token...)
		}
	}
	return b
}

// appendAcks appends the body of acknowledgements.
func appendAcks(b []byte, id, now string, actions []string) []byte {
	b = append(b, `{"events":[`...)
	for i, action := range actions {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"type":"`+agentapi.AckType+`","subtype":"`+agentapi.AckSubtype+`","agent_id":"`...)
		b = append(b, id...)
		b = append(b, `","action_id":"`...)
		b = append(b, action...)
		b = append(b, `","message":"accepted","timestamp":"`...)
		b = append(b, now...)
		b = append(b, `"}`...)
	}
	return append(b, `]}`...)
}

// checkinAnswer is the decoded answer to a check-in.
type checkinAnswer struct {
	token   string
	actions []agentapi.Action // only id, agent and type are read
}

// reader decodes answers. Many agents receive the same answer except for the agent's
// id, so reader decodes an answer only if it differs from the last one.
type reader struct {
	template []byte // the last answer, with the id of agent
	agent    string
	at       []int // the positions of the id
	answer   checkinAnswer
	accepted []byte // the answer to a single accepted acknowledgement
}

// checkin decodes the body of an answer to a check-in of an agent.
func (r *reader) checkin(body []byte, id string) (checkinAnswer, error) {
	if r.same(body, id) {
		return r.answer, nil
	}
	var resp agentapi.CheckinResponse
	if err := json.Unmarshal(body, &resp); err != nil || resp.Action != "checkin" {
		return checkinAnswer{}, fmt.Errorf("the answer to a check-in is not one of the protocol: %q", clip(body))
	}
	o := checkinAnswer{token: resp.AckToken, actions: resp.Actions}
	for _, a := range o.actions {
		if a.AgentID != id {
			return checkinAnswer{}, fmt.Errorf("agent %s was given action %s of agent %s", id, a.ID, a.AgentID)
		}
	}
	r.template, r.agent, r.answer, r.at = append(r.template[:0], body...), id, o, r.at[:0]
	for from := 0; ; {
		i := bytes.Index(r.template[from:], []byte(id))
		if i < 0 {
			break
		}
		r.at = append(r.at, from+i)
		from += i + len(id)
	}
	return o, nil
}

func (r *reader) same(body []byte, id string) bool {
	if len(body) != len(r.template) || len(id) != len(r.agent) || len(body) == 0 {
		return false
	}
	from := 0
	for _, at := range r.at {
		if string(body[from:at]) != string(r.template[from:at]) || string(body[at:at+len(id)]) != id {
			return false
		}
		from = at + len(id)
	}
	return string(body[from:]) == string(r.template[from:])
}

// acksRefused decodes the answer to n acknowledgements and returns an error if one was
// refused. It stores the answer to a single accepted one, since nearly all are the same.
func (r *reader) acksRefused(body []byte, n int) error {
	if n == 1 && len(r.accepted) > 0 && bytes.Equal(body, r.accepted) {
		return nil
	}
	var resp agentapi.AckResponse
	if err := json.Unmarshal(body, &resp); err != nil || resp.Action != "acks" || len(resp.Items) != n {
		return fmt.Errorf("the answer to %d acknowledgements is %q", n, clip(body))
	}
	for _, item := range resp.Items {
		if item.Status != http.StatusOK {
			return fmt.Errorf("an acknowledgement was refused with %d: %s", item.Status, item.Message)
		}
	}
	if n == 1 {
		r.accepted = append(r.accepted[:0], body...)
	}
	return nil
}
