package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// callTimeout bounds one call of an operator. While a primary shard moves, a server
// answers within a few seconds.
const callTimeout = 20 * time.Second

// Operator calls the admin API of one server over one connection, and records the calls.
// It is safe for concurrent use.
type Operator struct {
	Server string

	url, key string
	http     *http.Client
	recorder *Recorder
}

// Operator returns an operator of a server, which need not run.
func (c *Cluster) Operator(t testing.TB, i int, r *Recorder) *Operator {
	transport := &http.Transport{TLSClientConfig: c.TLS.Clone(), ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	info := c.Servers[i].Info
	return &Operator{Server: c.Name(i), url: info.AdminURL, key: info.AdminKey, http: &http.Client{Transport: transport}, recorder: r}
}

// Call sends a request to the admin API and decodes an answer of 200 into out. The outcome
// is Unknown unless the server accepted or refused the request.
func (o *Operator) Call(ctx context.Context, method, path string, body, out any) (Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	text, err := json.Marshal(body)
	if err != nil {
		return Refused, err
	}
	req, err := http.NewRequestWithContext(ctx, method, o.url+path, bytes.NewReader(text))
	if err != nil {
		return Refused, err
	}
	req.Header.Set("Authorization", "ApiKey "+o.key)
	req.Header.Set("kbn-xsrf", "test")
	resp, err := o.http.Do(req)
	if err != nil {
		return Unknown, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			return Unknown, fmt.Errorf("%s %s: the answer is incomplete: %w", method, path, err)
		}
		return Done, nil
	}
	var refusal adminapi.Error
	_ = json.NewDecoder(resp.Body).Decode(&refusal) // the status suffices
	err = fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, refusal.Message)
	if resp.StatusCode >= http.StatusInternalServerError || resp.StatusCode == http.StatusTooManyRequests {
		return Unknown, err
	}
	return Refused, err
}

// Upgrade orders an upgrade of agents under a new name. With force it includes agents that
// are being upgraded.
func (o *Operator) Upgrade(ctx context.Context, name string, agents []string, force bool) (Op, error) {
	op := Op{Name: name, Kind: Upgrade, Agents: agents, Server: o.Server, Invoked: time.Now()}
	var answer adminapi.ActionCreated
	var err error
	op.Outcome, err = o.Call(ctx, http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{
		"agents": agents, "version": "9.0.0", "source_uri": opURI + name, "force": force,
	}, &answer)
	return o.note(op, answer.ActionId), err
}

// UpgradeOne is Upgrade of one agent, which is refused if the agent cannot follow.
func (o *Operator) UpgradeOne(ctx context.Context, name, agent string) (Op, error) {
	op := Op{Name: name, Kind: Upgrade, Agents: []string{agent}, Server: o.Server, Invoked: time.Now()}
	var answer struct {
		ActionID string `json:"actionId"`
	}
	var err error
	op.Outcome, err = o.Call(ctx, http.MethodPost, "/api/fleet/agents/"+agent+"/upgrade", map[string]any{
		"version": "9.0.0", "source_uri": opURI + name,
	}, &answer)
	return o.note(op, answer.ActionID), err
}

// Cancel cancels the action of an upgrade.
func (o *Operator) Cancel(ctx context.Context, actionID string) (Op, error) {
	op := Op{Name: "cancel " + actionID, Kind: Cancel, Cancels: actionID, Server: o.Server, Invoked: time.Now()}
	var answer adminapi.CancelResponse
	var err error
	op.Outcome, err = o.Call(ctx, http.MethodPost, "/api/fleet/agents/actions/"+actionID+"/cancel", struct{}{}, &answer)
	return o.note(op, answer.Item.Id), err
}

func (o *Operator) note(op Op, actionID string) Op {
	if op.Outcome != Unknown {
		op.Returned = time.Now()
	}
	if op.Outcome == Done {
		op.ActionID = actionID
	}
	o.recorder.Op(op)
	return op
}
