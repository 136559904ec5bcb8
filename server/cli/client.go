package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/server/api/adminapi"
)

// call sends a request of an operation to the resolved server address, with the values of the parameters in
// its path. A reason that the operator gives goes into the body, if that has one.
func call[In, Out any](ctx context.Context, a *client, op adminapi.Operation[In, Out], in In, path ...string) (out Out, err error) {
	t, err := a.server.resolve()
	if err != nil {
		return out, err
	}
	if why := reflect.Indirect(reflect.ValueOf(&in)).FieldByName("Why"); why.IsValid() {
		why.Set(reflect.ValueOf(given(t.Why)))
		t.Why = ""
	}
	b, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	return send[Out](ctx, t, request{call: op.Call, path: path, header: http.Header{"Content-Type": {"application/json"}}, body: bytes.NewReader(b)})
}

// ask is call of an operation without a body. q are its parameters in the query, or nil.
func ask[Out any](ctx context.Context, a *client, op adminapi.Operation[adminapi.None, Out], q url.Values, path ...string) (out Out, err error) {
	t, err := a.server.resolve()
	if err != nil {
		return out, err
	}
	return send[Out](ctx, t, request{call: op.Call, path: path, query: q})
}

// open sends a request to the resolved server address, and returns the response, which the caller closes.
func (a *client) open(ctx context.Context, r request) (*http.Response, error) {
	t, err := a.server.resolve()
	if err != nil {
		return nil, err
	}
	return t.do(ctx, r)
}

// undecodable is the error of an answer that is not of the type that this program knows.
func undecodable(err error) error {
	return fmt.Errorf("cannot decode the answer, is the server of another version? %w", err)
}

// send sends a request and decodes the answer.
func send[Out any](ctx context.Context, t serverAddress, r request) (out Out, err error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	resp, err := t.do(ctx, r)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&out); errors.Is(err, context.DeadlineExceeded) {
		return out, t.explain(err)
	} else if err != nil {
		return out, fmt.Errorf("%s %s: %w", r.call.Method, r.url(t), undecodable(err))
	}
	return out, nil
}

// request is a request of an operation of the admin API.
type request struct {
	call   *adminapi.Call
	path   []string // values of the parameters in the path
	query  url.Values
	header http.Header
	body   io.Reader
	size   int64 // of the body; 0: unknown
}

// url returns the path and the query, with the reason of a change. It panics if the operation has no
// parameter of a name.
func (r request) url(t serverAddress) string {
	for name := range r.query {
		if !slices.ContainsFunc(r.call.Params, func(p adminapi.Param) bool { return p.InQuery() && p.Name == name }) {
			panic("cli: " + r.call.ID + " has no parameter " + name)
		}
	}
	q := maps.Clone(r.query)
	if t.Why != "" && !r.call.Reads() {
		if q == nil {
			q = url.Values{}
		}
		q.Set("why", t.Why)
	}
	path := r.call.URL(r.path...)
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// do sends a request and returns the response. A status of 300 or more is an error.
func (t serverAddress) do(ctx context.Context, r request) (*http.Response, error) {
	c, err := t.client()
	if err != nil {
		return nil, err
	}
	path := r.url(t)
	req, err := http.NewRequestWithContext(ctx, r.call.Method, strings.TrimRight(t.URL, "/")+path, r.body)
	if err != nil {
		return nil, err
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if r.size > 0 {
		req.ContentLength = r.size
	}
	req.Header.Set("Authorization", "ApiKey "+t.APIKey)
	req.Header.Set("kbn-xsrf", "muster-cli")
	resp, err := c.Do(req)
	if err != nil {
		return nil, t.explain(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if (resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed) && t.isAgentsPort(ctx, c) {
		return nil, fmt.Errorf("%s is the port for agents: pass the one of the admin API, 8221 unless configured otherwise, as --url", t.URL)
	}
	var e adminapi.Error
	if json.Unmarshal(b, &e) != nil || e.Message == "" {
		return nil, &refusal{status: resp.StatusCode, message: fmt.Sprintf("%s answered %s to %s %s: is it the admin API of a Muster server?", t.URL, resp.Status, r.call.Method, path)}
	}
	return nil, refuse(resp.StatusCode, e.Message, b)
}
