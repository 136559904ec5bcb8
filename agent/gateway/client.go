// Package gateway implements the agent's side of the check-in protocol: the client
// ([Client]), the loop that keeps one long poll open ([Loop]) and the sender of results
// ([AckSender]). The server may be Muster's or a Fleet Server. The daemon provides the
// reports and receives the actions.
package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

const (
	// RequestTimeout bounds every call but the long poll.
	RequestTimeout = 30 * time.Second
	// pollMargin is how much longer than its poll timeout a poll may take, for the
	// answer of a busy server.
	pollMargin = 30 * time.Second
	// maxAnswer bounds an answer in bytes: a Fleet policy can have megabytes.
	maxAnswer = 32 << 20
	// maxErrorBody bounds the body of an error in bytes.
	maxErrorBody = 64 << 10
)

// Client is one agent's connection to its server. It is safe for concurrent use.
type Client struct {
	// HTTP is required; see [Trust.HTTPClient].
	HTTP *http.Client
	// URL is the server's base URL.
	URL string
	// AgentID and APIKey are empty before the enrolment.
	AgentID string
	APIKey  string
	// Version is the full version this agent reports.
	Version string
	// NamedVersion is the version that User-Agent names instead, if it is not empty.
	NamedVersion string

	// compatible means that the server does not support Version.
	compatible atomic.Bool
}

// CompatibleVersion is the version that User-Agent names at a server which does not support
// that of this agent: Fleet Servers accept 7.13 up to their own minor version, so all from
// 7.17 on accept this one. The agent's own version is in its metadata.
const CompatibleVersion = "7.17.0"

// UserAgent returns the value that the protocol requires: Fleet Servers refuse any other
// product and read the version from it.
func UserAgent(version string) string { return "Elastic Agent v" + version }

func (c *Client) userAgent() string {
	switch {
	case c.NamedVersion != "":
		return UserAgent(c.NamedVersion)
	case c.compatible.Load():
		return UserAgent(CompatibleVersion)
	}
	return UserAgent(c.Version)
}

// Codes with which a Fleet Server refuses a User-Agent.
const (
	codeUnsupportedVersion = "UnsupportedVersion"
	codeInvalidUserAgent   = "InvalidUserAgent"
)

// StatusError is an error answer of the server.
type StatusError struct {
	HTTPStatus int
	Code       string // such as ErrUnauthorized; empty if the answer was not JSON
	Message    string
	// RetryAfter is the answer's Retry-After; zero if it has none.
	RetryAfter time.Duration
}

func (e *StatusError) Error() string {
	s := fmt.Sprintf("server answered %d", e.HTTPStatus)
	if e.Message != "" {
		s += ": " + e.Message
	}
	if e.Code == codeUnsupportedVersion || e.Code == codeInvalidUserAgent {
		s += ": it accepts agents from version 7.13 to its own; name one that it accepts in server.user_agent_version of agent.yml, or update the server"
	}
	return s
}

// Enroll requests an agent id and key.
func (c *Client) Enroll(ctx context.Context, token string, r agentapi.EnrollRequest) (agentapi.EnrollResponse, error) {
	var resp agentapi.EnrollResponse
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	err := c.post(ctx, agentapi.PathEnroll, token, r, &resp)
	if err == nil && (resp.Item.ID == "" || resp.Item.AccessAPIKey == "") {
		err = errors.New("the server's answer to enroll has no agent id or key: is this URL a Fleet or Muster server?")
	}
	return resp, err
}

// Checkin makes one long poll. It calls sent, if not nil, once when the whole request
// has been sent.
func (c *Client) Checkin(ctx context.Context, r agentapi.CheckinRequest, sent func()) (agentapi.CheckinResponse, error) {
	var resp agentapi.CheckinResponse
	wait, err := time.ParseDuration(r.PollTimeout)
	if err != nil {
		return resp, fmt.Errorf("poll_timeout: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, wait+pollMargin)
	defer cancel()
	if sent != nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
			WroteRequest: func(info httptrace.WroteRequestInfo) {
				if info.Err == nil {
					sent()
				}
			},
		})
	}
	err = c.post(ctx, c.agentPath(agentapi.PathCheckin), c.APIKey, r, &resp)
	return resp, err
}

// Acks reports results. An answer with items is accepted with any HTTP status, since the
// status is only the highest of the items'. If it has a Retry-After, Acks returns both
// the answer and a StatusError.
func (c *Client) Acks(ctx context.Context, events []agentapi.AckEvent) (agentapi.AckResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	resp, body, err := c.do(ctx, http.MethodPost, c.agentPath(agentapi.PathAcks), c.APIKey, agentapi.AckRequest{Events: events})
	if err != nil {
		return agentapi.AckResponse{}, err
	}
	var out agentapi.AckResponse
	known := json.Unmarshal(body, &out) == nil
	if known && resp.StatusCode == http.StatusOK && out.Action == "acks" && out.Items == nil && !out.Errors {
		// Fleet Servers of version 7 do not answer for each result.
		for range events {
			out.Items = append(out.Items, agentapi.AckItem{Status: http.StatusOK})
		}
	}
	if known && out.Action == "acks" && len(out.Items) == len(events) {
		if backoff.RetryAfter(resp.Header, time.Now()) > 0 {
			return out, statusError(resp, body)
		}
		return out, nil
	}
	if resp.StatusCode == http.StatusOK {
		return out, fmt.Errorf("acks: server answered for %d of %d results", len(out.Items), len(events))
	}
	return out, statusError(resp, body)
}

// TrustFile fetches one of the publishers' signed files; see tuf.Fetch. It sends no
// credentials, since the signatures authenticate the files.
func (c *Client) TrustFile(ctx context.Context, name string, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+agentapi.PathTrust+url.PathEscape(name), nil)
	if err != nil {
		return nil, err
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, explain(err, c.Address())
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusNotFound:
		return nil, fmt.Errorf("%s: %w", req.URL, fs.ErrNotExist)
	case resp.StatusCode != http.StatusOK:
		return nil, statusError(resp, data)
	}
	return data, nil
}

// Status returns the server's status.
func (c *Client) Status(ctx context.Context) (agentapi.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	resp, body, err := c.do(ctx, http.MethodGet, agentapi.PathStatus, c.APIKey, nil)
	if err != nil {
		return agentapi.Status{}, err
	}
	var s agentapi.Status
	if json.Unmarshal(body, &s) != nil || s.Status == "" {
		return s, statusError(resp, body)
	}
	return s, nil
}

// Home asks whether the server wants this agent, and on which hosts. A server that does not want it
// answers with a [StatusError].
func (c *Client) Home(ctx context.Context) (agentapi.Home, error) {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	var h agentapi.Home
	path := c.agentPath(agentapi.PathHome)
	resp, body, err := c.do(ctx, http.MethodGet, path, c.APIKey, nil)
	switch {
	case err != nil:
		return h, err
	case resp.StatusCode != http.StatusOK:
		return h, statusError(resp, body)
	}
	if err := json.Unmarshal(body, &h); err != nil || h.Hosts == nil {
		return h, fmt.Errorf("%s: the answer is not that of a Muster server: it has no hosts", path)
	}
	return h, nil
}

// pathAudit is the path to which an agent reports its removal.
const pathAudit = "/api/fleet/agents/{id}/audit/unenroll"

// Uninstalled tells the server that this agent is being removed from its host.
func (c *Client) Uninstalled(ctx context.Context, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, RequestTimeout)
	defer cancel()
	resp, body, err := c.do(ctx, http.MethodPost, c.agentPath(pathAudit), c.APIKey, map[string]any{
		"reason": "uninstall", "timestamp": at.UTC(),
	})
	if err == nil && resp.StatusCode != http.StatusOK {
		err = statusError(resp, body)
	}
	return err
}

func (c *Client) agentPath(pattern string) string {
	return strings.Replace(pattern, "{id}", url.PathEscape(c.AgentID), 1)
}

// Authorize adds the agent's credentials and User-Agent to a request to its own server.
func (c *Client) Authorize(r *http.Request) {
	if c.APIKey != "" {
		r.Header.Set("Authorization", "ApiKey "+c.APIKey)
	}
	r.Header.Set("User-Agent", c.userAgent())
}

func (c *Client) post(ctx context.Context, path, key string, in, out any) error {
	resp, body, err := c.do(ctx, http.MethodPost, path, key, in)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return statusError(resp, body)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s: the answer is not what the protocol says: %w", path, err)
	}
	return nil
}

func (c *Client) do(ctx context.Context, method, path, key string, in any) (*http.Response, []byte, error) {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	resp, answer, err := c.send(ctx, method, path, key, nil, body)
	if err == nil && c.NamedVersion == "" && resp.StatusCode == http.StatusBadRequest &&
		statusError(resp, answer).Code == codeUnsupportedVersion && c.compatible.CompareAndSwap(false, true) {
		return c.send(ctx, method, path, key, nil, body)
	}
	return resp, answer, err
}

// send sends one request. header may replace what it sets.
func (c *Client) send(ctx context.Context, method, path, key string, header http.Header, in []byte) (*http.Response, []byte, error) {
	var body io.Reader
	if in != nil {
		body = bytes.NewReader(in)
	}
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimRight(c.URL, "/")+path, body)
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("User-Agent", c.userAgent())
	req.Header.Set(agentapi.HeaderAPIVersion, agentapi.APIVersion)
	req.Header.Set(agentapi.HeaderRequestID, uuid.NewString())
	if key != "" {
		req.Header.Set("Authorization", "ApiKey "+key)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, values := range header {
		req.Header[http.CanonicalHeaderKey(name)] = values
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, nil, explain(err, c.Address())
	}
	defer resp.Body.Close()
	limit := int64(maxAnswer)
	if resp.StatusCode != http.StatusOK {
		limit = maxErrorBody
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err != nil {
		return nil, nil, explain(err, c.Address())
	}
	return resp, b, nil
}

// Address returns where requests go: URL, or where a [Switch] has moved it.
func (c *Client) Address() string {
	if s, ok := c.HTTP.Transport.(*Switch); ok {
		return s.URL()
	}
	return c.URL
}

func statusError(resp *http.Response, body []byte) *StatusError {
	e := &StatusError{HTTPStatus: resp.StatusCode, RetryAfter: backoff.RetryAfter(resp.Header, time.Now())}
	var a agentapi.Error
	if json.Unmarshal(body, &a) == nil {
		e.Code, e.Message = a.Code, a.Message
	}
	if e.Message == "" {
		e.Message = http.StatusText(resp.StatusCode)
	}
	return e
}
