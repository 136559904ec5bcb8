package harness

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

// client returns a client of the server's admin API. It keeps no connection open after a
// request: each caller has a client of its own, and the server bounds connections.
func (s *Server) client() (*http.Client, error) {
	u, err := url.Parse(s.Info.AdminURL)
	if err != nil {
		return nil, err
	}
	config, err := capin.TLSConfig(s.Info.CAPin, u.Hostname())
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}, err
}

// Do sends a request with the admin key.
func (s *Server) Do(ctx context.Context, method, path string, body any) (*http.Response, error) {
	c, err := s.client()
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&buf).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, s.Info.AdminURL+path, &buf)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "ApiKey "+s.Info.AdminKey)
	req.Header.Set("kbn-xsrf", "muster")
	return c.Do(req)
}

// Get decodes the answer to a request.
func Get[T any](ctx context.Context, s *Server, path string) (T, error) {
	var out T
	resp, err := s.Do(ctx, http.MethodGet, path, nil)
	if err != nil {
		return out, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var e adminapi.Error
		_ = json.NewDecoder(resp.Body).Decode(&e)
		return out, fmt.Errorf("GET %s: %s: %s", path, resp.Status, e.Message)
	}
	return out, json.NewDecoder(resp.Body).Decode(&out)
}

// Agent returns the server's view of a host.
func (s *Server) Agent(ctx context.Context, id string) (adminapi.Agent, error) {
	item, err := Get[adminapi.AgentItem](ctx, s, "/api/fleet/agents/"+id)
	return item.Item, err
}

// Agents returns the server's view of all hosts.
func (s *Server) Agents(ctx context.Context) ([]adminapi.Agent, error) {
	list, err := Get[adminapi.AgentList](ctx, s, "/api/fleet/agents?perPage=10000")
	return list.Items, err
}

// Hostname returns the hostname that an agent has reported.
func Hostname(a adminapi.Agent) string {
	host, _ := a.LocalMetadata["host"].(map[string]any)
	name, _ := host["hostname"].(string)
	return name
}

// pollInterval is the interval of Wait.
const pollInterval = 100 * time.Millisecond

// Wait reads an agent until ok returns true, or ctx ends; then the error has its last
// state.
func (s *Server) Wait(ctx context.Context, id, what string, ok func(adminapi.Agent) bool) (adminapi.Agent, error) {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	var last adminapi.Agent
	for {
		a, err := s.Agent(ctx, id)
		if err == nil {
			last = a
			if ok(a) {
				return a, nil
			}
		}
		select {
		case <-ctx.Done():
			state, _ := json.Marshal(map[string]any{
				"status": last.Status, "version": last.Agent.Version, "upgrade_status": last.UpgradeStatus,
				"upgrade_details": last.UpgradeDetails, "upgrade_started_at": last.UpgradeStartedAt, "upgraded_at": last.UpgradedAt,
			})
			return last, fmt.Errorf("timed out waiting until %s: the last state was %s (%w)", what, state, ctx.Err())
		case <-tick.C:
		}
	}
}

// Online waits until hosts are online with a version, or with any if it is empty, and learns their
// ids. If ctx ends before that, the error names those that are missing.
func (s *Server) Online(ctx context.Context, version string, hosts ...*Host) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		agents, err := s.Agents(ctx)
		var missing []string
		for _, h := range hosts {
			i := slices.IndexFunc(agents, func(a adminapi.Agent) bool {
				return Hostname(a) == h.Name && a.Status == fleet.StatusOnline && (version == "" || a.Agent.Version == version)
			})
			if i < 0 {
				missing = append(missing, h.Name)
				continue
			}
			h.ID = agents[i].Id
		}
		if err == nil && len(missing) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("timed out waiting until %s are online, of %d agents: %w", strings.Join(missing, ", "), len(agents), errors.Join(err, ctx.Err()))
		case <-tick.C:
		}
	}
}

// Follow calls f for every event from now on until ctx ends. It returns when it is
// connected.
func (s *Server) Follow(ctx context.Context, f func(adminapi.Event)) error {
	resp, err := s.Do(ctx, http.MethodGet, "/api/v1/events", nil)
	if err != nil {
		return err
	}
	go func() {
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			data, ok := strings.CutPrefix(lines.Text(), "data: ")
			var e adminapi.Event
			if ok && json.Unmarshal([]byte(data), &e) == nil {
				f(e)
			}
		}
	}()
	return nil
}

// EnrollmentLine creates a key, and returns the line that the command line shows for this platform. It
// reads the token from a file, as wherever the output is no terminal.
func (s *Server) EnrollmentLine(ctx context.Context) (string, error) {
	out, err := s.CLI(ctx, "keys", "create", "--platform", runtime.GOOS+"-"+runtime.GOARCH, "-o", "json")
	if err != nil {
		return "", err
	}
	var created struct {
		Commands []adminapi.EnrollmentCommand `json:"commands"`
	}
	if err := json.Unmarshal([]byte(out), &created); err != nil {
		return "", err
	}
	if len(created.Commands) != 1 || created.Commands[0].Command == nil {
		return "", fmt.Errorf("muster keys create shows %s", out)
	}
	return *created.Commands[0].Command, nil
}
