package elasticagent

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Agent is one agent. Its fields may be changed between calls.
type Agent struct {
	URL    string // of the server
	HTTP   *http.Client
	Source string // agent.download.sourceURI of its policy
	// PublisherKey is the armored key that is built into it: Elastic's, in a real one.
	PublisherKey string
	// AsksServer: it tries the server's keys too, as 8.16.6 was seen to do in the process in
	// which its policy changed its hosts. It did not after a restart, and 9.5.2 never did.
	AsksServer bool

	ID, Key       string
	Host, Version string
	// Family and Platform are those of its operating system; it reports no type of it.
	Family, Platform string
	Status           string // online, error, starting or DEGRADED
	Message          string
	// Details are those of its upgrade, nil for none.
	Details *agentapi.UpgradeDetails
	// SendsRevision: it sends the revision of its policy, as 9.x does.
	SendsRevision bool
	// Keeps are the versions that it can go back to, which 9.3 and later report.
	Keeps          []agentapi.Rollback
	PolicyID       string
	PolicyRevision int64

	token string
}

// New returns an agent on Debian that is not enrolled.
func New(url string, client *http.Client, host, version string) *Agent {
	return &Agent{URL: url, HTTP: client, Host: host, Version: version, Family: "debian", Platform: "debian", Status: "online", Message: "Running"}
}

// Metadata returns its local metadata.
func (a *Agent) Metadata() json.RawMessage {
	core, build, _ := strings.Cut(a.Version, "+")
	core, snapshot := strings.CutSuffix(core, "-SNAPSHOT")
	if build != "" {
		core += "+" + build
	}
	m := map[string]any{
		"elastic": map[string]any{"agent": map[string]any{
			"id": a.ID, "version": core, "snapshot": snapshot, "upgradeable": true, "log_level": "info", "complete": false, "unprivileged": false,
			"build.original": a.Version + " (build: 0098d8b60382ac6bdbd361853125a192e597f9f3 at 2024-11-04 06:23:33 +0000 UTC)",
		}},
		"host": map[string]any{"architecture": "x86_64", "hostname": a.Host, "name": a.Host, "id": "m-" + a.Host, "ip": []string{"10.0.0.7/24"}, "mac": []string{"02-42-AC-11-00-02"}},
		"os":   map[string]any{"family": a.Family, "kernel": "6.1.0-27-amd64", "platform": a.Platform, "version": "12 (bookworm)", "name": "Debian GNU/Linux", "full": "Debian GNU/Linux bookworm(12 (bookworm))"},
	}
	b, err := json.Marshal(m)
	if err != nil {
		panic(err) // texts always encode
	}
	return b
}

// Enroll asks for the server's status and enrols with a token.
func (a *Agent) Enroll(ctx context.Context, token string) error {
	if _, err := a.do(ctx, http.MethodGet, agentapi.PathStatus, token, nil); err != nil {
		return err
	}
	body := map[string]any{
		"type": "PERMANENT", "shared_id": "", "enrollment_id": "",
		"metadata": map[string]any{"local": a.Metadata(), "user_provided": map[string]any{}, "tags": []string{}},
	}
	answer, err := a.do(ctx, http.MethodPost, agentapi.PathEnroll, token, body)
	if err != nil {
		return err
	}
	var enrolled agentapi.EnrollResponse
	if err := json.Unmarshal(answer, &enrolled); err != nil {
		return err
	}
	a.ID, a.Key, a.PolicyID = enrolled.Item.ID, enrolled.Item.AccessAPIKey, enrolled.Item.PolicyID
	return nil
}

// Checkin sends a long poll, and returns the actions it brings. It applies policies itself,
// or fails with them: then its Status is error and Message says why, as the next check-in does.
func (a *Agent) Checkin(ctx context.Context) ([]agentapi.Action, error) {
	body := map[string]any{
		"status": a.Status, "message": a.Message, "ack_token": a.token, "local_metadata": a.Metadata(), "poll_timeout": "5m0s",
		"components": []any{map[string]any{
			"id": "system/metrics-default", "type": "system/metrics", "status": "HEALTHY", "message": "Healthy: communicating with pid '7'",
			"units": []any{map[string]any{"id": "system/metrics-default", "type": "output", "status": "HEALTHY", "message": "Healthy"}},
		}},
	}
	if a.Details != nil {
		body["upgrade_details"] = a.Details
	}
	if len(a.Keeps) > 0 {
		body["upgrade"] = map[string]any{"rollbacks": a.Keeps}
	}
	if a.SendsRevision {
		body["agent_policy_id"], body["policy_revision_idx"] = a.PolicyID, a.PolicyRevision
	}
	answer, err := a.do(ctx, http.MethodPost, "/api/fleet/agents/"+a.ID+"/checkin", a.Key, body)
	if err != nil {
		return nil, err
	}
	var response agentapi.CheckinResponse
	if err := json.Unmarshal(answer, &response); err != nil {
		return nil, err
	}
	if response.AckToken != "" {
		a.token = response.AckToken
	}
	var others []agentapi.Action
	for _, action := range response.Actions {
		if action.Type != agentapi.ActionPolicyChange {
			others = append(others, action)
		} else if err := a.apply(ctx, action); err != nil {
			return nil, err
		}
	}
	return others, nil
}

// apply applies and acknowledges a policy. A policy that it fails with is not acknowledged.
func (a *Agent) apply(ctx context.Context, action agentapi.Action) error {
	var raw struct {
		Policy map[string]json.RawMessage `json:"policy"`
	}
	if err := json.Unmarshal(action.Data, &raw); err != nil {
		return fmt.Errorf("%s: %w", action.ID, err)
	}
	if why := a.refuses(raw.Policy); why != "" {
		a.Status, a.Message = "error", why
		return nil
	}
	if a.Status == "error" {
		a.Status, a.Message = "online", "Running"
	}
	var data struct {
		Policy struct {
			ID       string `json:"id"`
			Revision int64  `json:"revision"`
			Agent    struct {
				Download struct {
					SourceURI string `json:"sourceURI"`
				} `json:"download"`
			} `json:"agent"`
		} `json:"policy"`
	}
	if err := json.Unmarshal(action.Data, &data); err != nil {
		return fmt.Errorf("%s: %w", action.ID, err)
	}
	a.PolicyID, a.PolicyRevision = data.Policy.ID, data.Policy.Revision
	if uri := data.Policy.Agent.Download.SourceURI; uri != "" {
		a.Source = uri
	}
	return a.Ack(ctx, action.ID)
}

// refuses returns the error with which the agent fails if it applies the policy, or "". From
// 8.18.4 on, inputs and outputs may be lists, and objects that have a field, and nothing else.
func (a *Agent) refuses(policy map[string]json.RawMessage) string {
	if c, err := manifest.CompareVersions(a.Version, "8.18.4"); err != nil || c < 0 {
		return ""
	}
	for _, key := range []string{"inputs", "outputs"} {
		raw, has := policy[key]
		if !has {
			continue
		}
		var value any
		if err := json.Unmarshal(raw, &value); err != nil {
			return err.Error()
		}
		object, isObject := value.(map[string]any)
		if _, isList := value.([]any); !isList && (!isObject || len(object) == 0) {
			return "unsupported type for SkipKeys option " + key
		}
	}
	return ""
}

// Ack acknowledges an action. It never has an error, also if the action failed.
func (a *Agent) Ack(ctx context.Context, actionID string) error {
	body := agentapi.AckRequest{Events: []agentapi.AckEvent{{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, ActionID: actionID, AgentID: a.ID, Timestamp: time.Now().UTC(),
		Message: "Action '" + actionID + "' acknowledged.",
	}}}
	_, err := a.do(ctx, http.MethodPost, "/api/fleet/agents/"+a.ID+"/acks", a.Key, body)
	return err
}

// Phase sets the phase of the upgrade that an action orders.
func (a *Agent) Phase(action agentapi.Action, state agentapi.UpgradeState, metadata agentapi.UpgradeMetadata) {
	var data agentapi.UpgradeData
	_ = json.Unmarshal(action.Data, &data) // a test compares the version
	a.Details = &agentapi.UpgradeDetails{ActionID: action.ID, TargetVersion: data.Version, State: state, Metadata: metadata}
}

// GoingBack sets what it reports of a rollback that was ordered after a watch, before it goes
// back and when it runs that version: the version that it leaves, and the rollback's action.
func (a *Agent) GoingBack(action agentapi.Action, from string) {
	var data agentapi.UpgradeData
	_ = json.Unmarshal(action.Data, &data)
	a.Details = &agentapi.UpgradeDetails{
		ActionID: action.ID, TargetVersion: from, State: agentapi.UpgradeRollback,
		Metadata: agentapi.UpgradeMetadata{Reason: "manual rollback requested to version " + data.Version},
	}
}

// Download downloads the package of a version, and verifies it with its own key. The source is
// Source, or sourceURI if that is not empty.
func (a *Agent) Download(ctx context.Context, version, sourceURI string) ([]byte, error) {
	source := a.Source
	if sourceURI != "" {
		source = sourceURI
	}
	file := "elastic-agent-" + version + "-linux-x86_64.tar.gz"
	base := strings.TrimSuffix(source, "/") + "/beats/elastic-agent/" + file
	archive, err := a.fetch(ctx, base)
	if err != nil {
		return nil, err
	}
	sum, err := a.fetch(ctx, base+".sha512")
	if err != nil {
		return nil, err
	}
	got := sha512.Sum512(archive)
	if want := hex.EncodeToString(got[:]) + "  " + file; strings.TrimSpace(string(sum)) != want {
		return nil, fmt.Errorf("the digest is %q, want %q", sum, want)
	}
	signature, err := a.fetch(ctx, base+".asc")
	if err != nil {
		return nil, err
	}
	keys, err := a.keys(ctx, version)
	if err != nil {
		return nil, err
	}
	if _, err := openpgp.CheckArmoredDetachedSignature(keys, bytes.NewReader(archive), bytes.NewReader(signature), nil); err != nil {
		return nil, fmt.Errorf("invalid signature for %s: %w", file, err)
	}
	return archive, nil
}

// keys returns the keys that may have signed the package of a version.
func (a *Agent) keys(ctx context.Context, version string) (openpgp.EntityList, error) {
	keys, err := openpgp.ReadArmoredKeyRing(strings.NewReader(a.PublisherKey))
	if err != nil || !a.AsksServer {
		return keys, err
	}
	core, _, _ := strings.Cut(version, "-")
	core, _, _ = strings.Cut(core, "+")
	text, err := a.do(ctx, http.MethodGet, "/api/agents/upgrades/"+core+"/pgp-public-key", "", nil)
	if err != nil {
		return nil, err
	}
	served, err := openpgp.ReadArmoredKeyRing(bytes.NewReader(text))
	return append(keys, served...), err
}

// fetch downloads a file, without credentials.
func (a *Agent) fetch(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "Beat elastic-agent v"+a.Version)
	return a.send(req)
}

func (a *Agent) do(ctx context.Context, method, path, key string, body any) ([]byte, error) {
	var content io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		content = bytes.NewReader(text)
		if strings.HasSuffix(path, "/checkin") { // nothing else is compressed
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, err = z.Write(text)
			if err := errors.Join(err, z.Close()); err != nil {
				return nil, err
			}
			content = &packed
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, content)
	if err != nil {
		return nil, err
	}
	req.URL.ForceQuery = true // it appends a bare ?
	if key != "" {
		req.Header.Set("Authorization", "ApiKey "+key)
	}
	if _, packed := content.(*bytes.Buffer); packed {
		req.Header.Set("Content-Encoding", "gzip")
	}
	for name, value := range map[string]string{
		"User-Agent": "Elastic Agent v" + a.Version, agentapi.HeaderAPIVersion: agentapi.APIVersion, "Content-Type": "application/json",
		"kbn-xsrf": "1", agentapi.HeaderRequestID: "request-of-" + a.Host,
	} {
		req.Header.Set(name, value)
	}
	return a.send(req)
}

// StatusError is an answer other than 200.
type StatusError struct {
	Status int
	Body   string
}

func (e *StatusError) Error() string { return fmt.Sprintf("answered %d: %s", e.Status, e.Body) }

func (a *Agent) send(req *http.Request) ([]byte, error) {
	resp, err := a.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %w", req.Method, req.URL.Path, &StatusError{resp.StatusCode, string(b)})
	}
	return b, err
}
