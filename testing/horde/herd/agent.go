//go:build linux

package herd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/server/agentapi"
)

// phase is what an agent does.
type phase uint8

const (
	away    phase = iota // no connection, and wants none
	dialing              // or waits for its turn to
	polling              // a check-in is on its way or parked
	acking
	waiting // for the time that the server named, or that it takes to try again
	phases
)

// agent is one host. It belongs to one loop, which alone looks at it.
type agent struct {
	number int // in the whole run
	slot   int // in its loop
	id     string
	key    string
	host   string
	token  string
	phase  phase
	wanted bool   // it should be there
	life   uint32 // counts connections: what was meant for an earlier one is recognized
	fails  int    // connections that failed since the last that did not
	link   *link
	h2     *h2link // instead of link
	// partial is the beginning of an answer; almost always there is none.
	partial []byte
	todo    []string // actions to acknowledge
	acks    []string // those under way
	done    []string // those that were taken, until the next poll
	sent    Instant
	came    Instant // when it began to connect
}

// pieces are a check-in, cut where agents differ. It is a real agent's in its fields,
// their order and its size of a kilobyte.
type pieces struct {
	version string
	parts   []piece
}

// piece is text, and what an agent puts behind it.
type piece struct {
	text   string
	behind byte
}

// What an agent puts in. JSON writes each in six letters, as no text has them.
const (
	itsHost  = '\x01'
	itsID    = '\x02'
	itsToken = '\x03'
)

// newPieces encodes what the agents of a version say. They ask for the wait that the
// agent has by default.
func newPieces(version string) pieces {
	unit := func(name, kind string) map[string]string {
		return map[string]string{"id": name, "type": kind, "status": "HEALTHY", "message": "Healthy"}
	}
	units, err := json.Marshal([]any{unit("process-default", "output"), unit("process-default-unit-1", "input")})
	if err != nil {
		panic("herd: units cannot be encoded: " + err.Error()) // they are strings
	}
	components, err := json.Marshal([]agentapi.Component{{
		ID: "process-default", Type: "process", Status: "HEALTHY", Message: "Healthy: communicating with pid '4711'", Units: units,
	}})
	if err != nil {
		panic("herd: components cannot be encoded: " + err.Error())
	}
	body, err := json.Marshal(agentapi.CheckinRequest{
		Status: "online", Message: "Running", AckToken: string(itsToken), LocalMeta: metadata(version, string(itsHost), string(itsID)),
		Components: components, PollTimeout: config.DefaultPollTimeout.String(),
	})
	if err != nil {
		panic("herd: a check-in cannot be encoded: " + err.Error())
	}
	p := pieces{version: version}
	for rest := string(body); ; {
		at := strings.Index(rest, `\u000`)
		if at < 0 {
			p.parts = append(p.parts, piece{text: rest})
			return p
		}
		p.parts = append(p.parts, piece{rest[:at], rest[at+5] - '0'})
		rest = rest[at+6:]
	}
}

// metadata is what a host says of itself and of its agent.
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

// metadata is local_metadata for the enrolment: a host then has no id yet.
func (p pieces) metadata(hostname string) json.RawMessage { return metadata(p.version, hostname, "") }

// appendCheckin appends the body of a check-in. hostname, id and token have only
// letters that JSON need not escape.
func (p pieces) appendCheckin(b []byte, hostname, id, token string) []byte {
	for _, part := range p.parts {
		b = append(b, part.text...)
		switch part.behind {
		case itsHost:
			b = append(b, hostname...)
		case itsID:
			b = append(b, id...)
		case itsToken:
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
		b = append(b, `","message":"taken","timestamp":"`...)
		b = append(b, now...)
		b = append(b, `"}`...)
	}
	return append(b, `]}`...)
}

// order is what a check-in was answered with.
type order struct {
	token   string
	actions []agentapi.Action // only id, agent and type are read
}

// reader reads answers. The server gives many agents the same answer but for the
// agent's id, so the last one read is compared with before anything is decoded.
type reader struct {
	template []byte // with the id of agent
	agent    string
	at       []int // where it stands
	order    order
	taken    []byte // the answer to one acknowledgement
}

// checkin decodes the body of an answer to a check-in of an agent.
func (r *reader) checkin(body []byte, id string) (order, error) {
	if r.same(body, id) {
		return r.order, nil
	}
	var resp agentapi.CheckinResponse
	if err := json.Unmarshal(body, &resp); err != nil || resp.Action != "checkin" {
		return order{}, fmt.Errorf("the answer to a check-in is %q: not what the protocol says", clip(body))
	}
	o := order{token: resp.AckToken, actions: resp.Actions}
	for _, a := range o.actions {
		if a.AgentID != id {
			return order{}, fmt.Errorf("agent %s was given action %s of agent %s", id, a.ID, a.AgentID)
		}
	}
	r.template, r.agent, r.order, r.at = append(r.template[:0], body...), id, o, r.at[:0]
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

// acksRefused reads an answer to n acknowledgements and says which was refused. The
// answer to one that was taken is remembered as it stands: nearly all are the same.
func (r *reader) acksRefused(body []byte, n int) error {
	if n == 1 && len(r.taken) > 0 && bytes.Equal(body, r.taken) {
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
		r.taken = append(r.taken[:0], body...)
	}
	return nil
}
