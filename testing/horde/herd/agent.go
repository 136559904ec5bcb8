//go:build linux

package herd

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

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
	server int // of Options.Servers
	phase  phase
	wanted bool // it should be there
	// spins: it does not take what it is given, and asks again at once.
	spins bool
	life  uint32 // counts connections: what was meant for an earlier one is recognized
	fails int    // connections that failed since the last that did not
	link  *link
	h2    *h2link // instead of link
	// partial is the beginning of an answer; almost always there is none.
	partial []byte
	todo    []string // actions to acknowledge
	acks    []string // those under way
	done    []string // those that were taken, until the next poll
	sent    Instant
	came    Instant // when it began to connect
}

// pieces are a check-in, cut where the host's name belongs; the ack token comes
// last. It has the size of a real agent's: a kilobyte.
type pieces struct{ between []string }

// newPieces encodes what the agents of a version say.
func newPieces(version string) pieces {
	meta := map[string]any{
		"elastic": map[string]any{"agent": map[string]any{
			"version": version, "snapshot": false, "upgradeable": true, "build.original": version + " (build: 3f2a9c1d at 2026-01-01 00:00:00 +0000 UTC)",
			"complete": false, "log_level": "info", "unprivileged": false, "id": "\x01",
		}},
		"host": map[string]any{
			"hostname": "\x01", "name": "\x01", "architecture": "x86_64", "id": "\x01",
			"ip": []string{"127.0.0.1/8", "192.0.2.17/24", "::1/128", "2001:db8::17/64"}, "mac": []string{"02:00:5e:10:00:01"},
		},
		"os": map[string]any{
			"family": "debian", "kernel": "6.12.41", "name": "Debian GNU/Linux", "platform": "debian", "type": "linux", "version": "13 (trixie)", "full": "Debian GNU/Linux trixie(13 (trixie))",
		},
	}
	unit := func(name, kind string) map[string]any {
		return map[string]any{"id": name, "type": kind, "status": "healthy", "message": "Healthy"}
	}
	components := []any{map[string]any{
		"id": "process-default", "type": "process", "status": "healthy", "message": "Healthy: communicating with pid '4711'",
		"units": []any{unit("process-default", "output"), unit("process-default-unit-1", "input")},
	}}
	body, err := json.Marshal(map[string]any{"local_metadata": meta, "components": components, "status": "online", "message": "Running", "poll_timeout": "0s", "zz": ""})
	if err != nil {
		panic("herd: a check-in cannot be encoded: " + err.Error()) // it has no such types
	}
	text := strings.Replace(string(body), `"zz":""`, `"ack_token":"`, 1)
	text = strings.TrimSuffix(text, "}")
	return pieces{between: strings.Split(text, `\u0001`)}
}

// metadata is local_metadata alone, for the enrolment.
func (p pieces) metadata(host string) json.RawMessage {
	var all struct {
		Meta json.RawMessage `json:"local_metadata"`
	}
	if err := json.Unmarshal(p.appendCheckin(nil, host, ""), &all); err != nil {
		panic("herd: a check-in cannot be decoded: " + err.Error()) // it has just been encoded
	}
	return all.Meta
}

// appendCheckin appends the body of a check-in. host and token have only letters
// that JSON need not escape.
func (p pieces) appendCheckin(b []byte, host, token string) []byte {
	for i, text := range p.between {
		if i > 0 {
			b = append(b, host...)
		}
		b = append(b, text...)
	}
	b = append(b, token...)
	return append(b, `"}`...)
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

// acksRefused reads an answer to n acknowledgements and says which was refused.
func acksRefused(body []byte, n int) error {
	if n == 1 && string(body) == `{"action":"acks","items":[{"status":200}]}` {
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
	return nil
}
