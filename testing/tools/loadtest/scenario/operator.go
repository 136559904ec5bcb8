//go:build linux

package scenario

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

// operator orders actions over the admin API.
type operator struct {
	url, key, tag string
	client        *http.Client
}

// adminTimeout bounds a request of the operator, plus perAgentOrder for each agent:
// ten times what an order for all takes.
const (
	adminTimeout  = time.Minute
	perAgentOrder = 3 * time.Millisecond
)

func newOperator(s *serverUnderTest, tag string, agents int) (*operator, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(s.ca)) {
		return nil, errors.New("--ca: has no certificate in PEM")
	}
	return &operator{s.AdminURL, s.AdminKey, tag, &http.Client{
		Timeout:   adminTimeout + time.Duration(agents)*perAgentOrder,
		Transport: &http.Transport{MaxIdleConnsPerHost: apartAgents, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}},
	}}, nil
}

// statusError is an answer other than 200.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("answered %d: %s", e.status, e.text) }

func (o *operator) do(ctx context.Context, method, path string, body any) ([]byte, error) {
	var buf bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&buf).Encode(body); err != nil {
			return nil, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, method, o.url+path, &buf)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "ApiKey "+o.key)
	req.Header.Set("kbn-xsrf", "load")
	req.Header.Set("Content-Type", "application/json")
	resp, err := o.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s %s: %w", method, path, &statusError{resp.StatusCode, string(text[:min(len(text), 300)])})
	}
	return text, nil
}

// order is an ordered upgrade.
type order struct {
	id             string
	sent, answered generator.MonoTime
}

// all returns the query for all agents of the run.
func (o *operator) all() string { return fmt.Sprintf("tags : %q", o.tag) }

// others returns the query for all agents except those set apart.
func (o *operator) others() string {
	return fmt.Sprintf("tags : %q and not tags : %q", o.tag, apartTag(o.tag))
}

// upgrade orders an upgrade of agents, which are ids or a query. It sets source_uri, so
// that no package is needed, and force, so that the upgrade can be ordered again.
func (o *operator) upgrade(ctx context.Context, agents any) (order, error) {
	made := order{sent: generator.Now()}
	text, err := o.do(ctx, http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{
		"agents": agents, "version": "1.1.0", "source_uri": "https://packages.example/", "force": true,
	})
	made.answered = generator.Now()
	if err != nil {
		return made, err
	}
	var got struct {
		ActionID string `json:"actionId"`
	}
	if err := json.Unmarshal(text, &got); err != nil || got.ActionID == "" {
		return made, fmt.Errorf("order an upgrade: the answer has no actionId: %s", text)
	}
	made.id = got.ActionID
	return made, nil
}

// parked returns how many agents the server counts as parked, or false if it did not
// answer.
func (o *operator) parked(ctx context.Context) (n int, counted bool) {
	text, err := o.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return 0, false
	}
	return gauge(text, "muster_agents_parked")
}

// gauge reads a metric without labels from Prometheus's text format.
func gauge(text []byte, name string) (n int, found bool) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			return int(f), err == nil
		}
	}
	return 0, false
}

// probe sends requests to the admin API until it ends, and measures their latency.
type probe struct {
	mu      sync.Mutex
	latency generator.Latency
	errors  []string
	stop    context.CancelFunc
	done    chan struct{}
}

const (
	probeEvery = 100 * time.Millisecond
	// probePath is the list of agents, which operators open during a storm.
	probePath = "/api/fleet/agents?perPage=20"
)

func (o *operator) probe(ctx context.Context) *probe {
	stopped, stop := context.WithCancel(ctx)
	p := &probe{stop: stop, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		tick := time.NewTicker(probeEvery)
		defer tick.Stop()
		for {
			began := time.Now()
			_, err := o.do(ctx, http.MethodGet, probePath, nil)
			if ctx.Err() != nil {
				return
			}
			p.mu.Lock()
			if err == nil {
				p.latency.Add(time.Since(began))
			} else {
				p.errors = append(p.errors, err.Error())
			}
			p.mu.Unlock()
			select {
			case <-stopped.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return p
}

// end sends no more requests, waits for the answer to the one that is sent, which may be the slowest,
// and returns their latency and errors.
func (p *probe) end() (*generator.Latency, []string) {
	p.stop()
	<-p.done
	return &p.latency, p.errors
}
