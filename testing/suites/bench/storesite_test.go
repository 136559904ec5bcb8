//go:build linux

package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime/pprof"
	"testing"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// kind is a kind of store.
type kind struct{ name, title string }

var (
	embedded      = kind{"sqlite", "embedded"}
	elasticsearch = kind{"elasticsearch", "Elasticsearch"}
)

// site is one store, the servers on it, and the agents that have enrolled.
type site struct {
	*testing.B
	kind kind
	// dir is the data folder of all servers, which share one authority.
	dir string
	// node runs the store, and address is its access; node is nil for the embedded store.
	node    *esnode.Cluster
	address esnode.Access
	proxies []*esnode.Proxy
	servers map[*server]bool // running servers

	adminKey, token fleet.Credential // printed at the first start
	tls             *tls.Config
	agents          []*simAgent
	polls           []*poll                // open polls
	ordered         map[string][]*simAgent // agents with an ordered upgrade, by action
	round           int                    // makes reports differ
	fleet           *largeFleet
}

// server is one server with its own connection to the store.
type server struct {
	app.Info
	store  store.Store
	client *http.Client // of operators
	stop   context.CancelFunc
	done   chan error
}

func newSite(b *testing.B, k kind) *site {
	b.Helper()
	s := &site{B: b, kind: k, servers: map[*server]bool{}, ordered: map[string][]*simAgent{}}
	var err error
	s.dir, err = os.MkdirTemp("", "mbench-")
	s.check(err)
	if k == elasticsearch {
		s.node = esnode.Start(b, esnode.Options{Steady: true})
		s.address = s.node.Access()
	}
	return s
}

// close stops everything except the node, which ends with the benchmark.
func (s *site) close() {
	s.hangUp()
	for _, a := range s.agents {
		a.client.CloseIdleConnections()
	}
	for v := range s.servers {
		s.stop(v)
	}
	for _, p := range s.proxies {
		s.check(p.Close())
	}
	s.check(os.RemoveAll(s.dir))
}

func (s *site) check(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// labelled runs f with a profiler label, which the goroutines started by f inherit.
func (s *site) labelled(who string, f func()) {
	pprof.Do(s.Context(), pprof.Labels("who", who, "store", s.kind.name), func(context.Context) { f() })
}

func (s *site) open(at esnode.Access) (store.Store, error) {
	if s.kind == elasticsearch {
		return elastic.Open(s.Context(), elastic.Options{URLs: at.URLs})
	}
	return sqlite.Open(s.Context(), filepath.Join(s.dir, "muster.db"), sqlite.Options{})
}

// start starts one more server with this access to its store.
func (s *site) start(at esnode.Access) *server {
	s.Helper()
	v := &server{done: make(chan error, 1)}
	s.labelled("server", func() {
		var err error
		v.store, err = s.open(at)
		s.check(err)
		c := app.Defaults()
		c.Data, c.Agents.Listen, c.Admin.Listen = s.dir, "127.0.0.1:0", "127.0.0.1:0"
		c.Limits.EnrollmentsPerSecond = 1_000_000 // all hosts have one token, and are enrolled as fast as they can be
		srv, err := app.New(s.Context(), app.Options{Config: c, Store: v.store, Version: "1.0.0", Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		s.check(err)
		v.Info = srv.Info()
		adminKey, token, first, err := srv.FirstKeys(s.Context())
		s.check(err)
		if first {
			s.adminKey, s.token = adminKey, token
		}
		// Not the benchmark's own context, which ends before the cleanup.
		ctx, stop := context.WithCancel(context.WithoutCancel(s.Context()))
		v.stop = stop
		go func() { v.done <- srv.Run(ctx) }()
	})
	u, err := url.Parse(v.AgentURL)
	s.check(err)
	s.tls, err = capin.TLSConfig(v.CAPin, u.Hostname())
	s.check(err)
	v.client = &http.Client{Transport: &http.Transport{TLSClientConfig: s.tls.Clone(), ForceAttemptHTTP2: true}}
	s.servers[v] = true
	return v
}

func (s *site) stop(v *server) {
	s.Helper()
	delete(s.servers, v)
	v.client.CloseIdleConnections()
	v.stop()
	s.check(<-v.done)
	s.check(v.store.Close())
}

// proxy returns a proxy for the node, which counts requests.
func (s *site) proxy() *esnode.Proxy {
	s.Helper()
	var p *esnode.Proxy
	s.labelled("proxy", func() {
		var err error
		p, err = esnode.NewProxy(s.address, esnode.ProxyOptions{})
		s.check(err)
	})
	s.proxies = append(s.proxies, p)
	return p
}

// ask calls the admin API and decodes the answer into out, which may be nil.
func (s *site) ask(at *server, method, path string, body, out any) error {
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		sent = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(s.Context(), method, at.AdminURL+path, sent)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "ApiKey "+s.adminKey.Encode())
	req.Header.Set("kbn-xsrf", "bench")
	resp, err := at.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return json.Unmarshal(answer, out)
}
