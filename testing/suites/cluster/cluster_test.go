package cluster

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

const (
	// Replicas and nodes: with three, one of each can die.
	Replicas = 3
	Nodes    = 3
	// WaitLimit bounds every wait for what takes seconds on an idle machine. A busy
	// machine may need thirty times as long.
	WaitLimit = 3 * time.Minute
	poll      = 50 * time.Millisecond
	// logTail is how much of a server's log is shown when a test fails.
	logTail = 4_000
	// proxyKey is the API key that the proxy demands, base64 of an id and a secret.
	proxyKey = "bXVzdGVyOmEta2V5LW9mLXRoZS10ZXN0cw=="
)

func TestMain(m *testing.M) { os.Exit(harness.With(m).Run()) }

// Cluster is several servers on one Elasticsearch. It is not safe for concurrent use.
type Cluster struct {
	ES      *esnode.Cluster
	Servers []*harness.Server // by their numbers; they keep their addresses
	// Store is the tests' own client of the servers' store.
	Store *elastic.Store
	// TLS trusts the servers.
	TLS *tls.Config
	// Proxy is between the servers and the first node; nil without Options.Proxied.
	Proxy *esnode.Proxy

	t      testing.TB
	fleet  *harness.Fleet
	config string
}

// Options of a cluster.
type Options struct {
	Servers, Nodes int
	// Proxied servers reach Elasticsearch through a proxy, which can be broken. To
	// them it is a secured Elasticsearch: it has a certificate of its own authority,
	// and turns away who does not show an API key.
	Proxied bool
	// Config is added to the servers' configuration.
	Config string
}

// Start starts Elasticsearch and the servers. They end with the test, which shows
// how their logs end if it failed.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	c := &Cluster{t: t, ES: esnode.Start(t, esnode.Options{Nodes: o.Nodes}), config: o.Config}
	if o.Proxied {
		c.Proxy = esnode.StartProxy(t, c.ES.Access(), esnode.ProxyOptions{TLS: true})
		c.Proxy.Demand(esnode.Access{APIKey: proxyKey})
	}
	// Not t.TempDir: its name holds the test's.
	dir, err := os.MkdirTemp("", "mcluster-")
	c.must(err)
	t.Cleanup(func() { c.must(os.RemoveAll(dir)) })
	built, err := harness.Build()
	c.must(err)
	c.fleet = &harness.Fleet{Dir: dir, Programs: built.Programs}
	t.Cleanup(c.stop)
	// Opening the store here creates the indices, which on a busy machine takes longer
	// than the time limit of a server's start.
	c.Store, err = elastic.Open(t.Context(), elastic.Options{URLs: c.ES.URLs()})
	c.must(err)
	t.Cleanup(func() { _ = c.Store.Close() })
	// The first server creates the folders of which the others get copies.
	c.Servers = make([]*harness.Server, o.Servers)
	c.must(c.startServer(t.Context(), 0))
	var starting errgroup.Group
	for i := 1; i < o.Servers; i++ {
		starting.Go(func() error { return c.startServer(t.Context(), i) })
	}
	c.must(starting.Wait())
	c.TLS, err = capin.TLSConfig(c.Servers[0].Info.CAPin, "127.0.0.1")
	c.must(err)
	// Until every index has a second copy, the death of a node loses data.
	c.must(c.ES.Wait(t.Context(), "each index has a second copy", func(h esnode.Health) bool { return h.Status == "green" }))
	return c
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// startServer starts one more server with a data folder of its own. Each server has the
// nodes in another order.
func (c *Cluster) startServer(ctx context.Context, i int) error {
	hosts := c.ES.URLs()
	hosts = slices.Concat(hosts[i%len(hosts):], hosts[:i%len(hosts)])
	settings := map[string]any{"hosts": hosts}
	if c.Proxy != nil {
		var err error
		if settings, err = c.proxied(); err != nil {
			return err
		}
	}
	store, err := json.Marshal(settings) // which is YAML too
	if err != nil {
		return err
	}
	o := harness.ServerOptions{Name: c.Name(i), Config: fmt.Sprintf("store: {elasticsearch: %s}\n%s", store, c.config)}
	if i > 0 {
		o.Seed = c.Servers[0]
	}
	c.Servers[i], err = c.fleet.StartServerWith(ctx, o)
	return err
}

// proxied returns a server's configuration for the proxy, with the key and the authority
// in files.
func (c *Cluster) proxied() (map[string]any, error) {
	a := c.Proxy.Access()
	settings := map[string]any{"hosts": a.URLs}
	for key, text := range map[string][]byte{"ca": a.CA, "api_key_file": []byte(a.APIKey + "\n")} {
		file := filepath.Join(c.fleet.Dir, key)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return nil, err
		}
		settings[key] = file
	}
	return settings, nil
}

func (c *Cluster) stop() {
	for i, s := range c.Servers {
		if s == nil {
			continue // it was never started
		}
		if err := s.Stop(); err != nil {
			c.t.Errorf("%s: %v", c.Name(i), err)
		}
	}
	if !c.t.Failed() {
		return
	}
	for i, s := range c.Servers {
		if s == nil {
			continue
		}
		log := c.Log(i)
		c.t.Logf("the log of %s ends:\n%s", c.Name(i), log[max(0, len(log)-logTail):])
	}
}

// Name returns the name of a server in histories.
func (*Cluster) Name(i int) string { return fmt.Sprint("server-", i) }

// AgentURLs returns the URLs for agents by the numbers of the servers.
func (c *Cluster) AgentURLs() []string {
	var out []string
	for _, s := range c.Servers {
		out = append(out, s.Info.AgentURL)
	}
	return out
}

// Log returns what a server has logged so far.
func (c *Cluster) Log(i int) string {
	text, _ := os.ReadFile(c.Servers[i].Log) // empty if it was never started
	return string(text)
}

// Primary returns the node that has the primary shard of an index.
func (c *Cluster) Primary(t testing.TB, index string) *esnode.Node {
	t.Helper()
	path := "/_cat/shards/" + elastic.DefaultPrefix + index + "?format=json&h=prirep,node"
	status, answer, err := c.ES.Access().Do(t.Context(), http.MethodGet, path, nil)
	if err != nil || status != http.StatusOK {
		t.Fatalf("status %d: %s: %v", status, answer, err)
	}
	var shards []struct{ Prirep, Node string }
	if err := json.Unmarshal(answer, &shards); err != nil {
		t.Fatal(err)
	}
	for _, s := range shards {
		if s.Prirep != "p" {
			continue
		}
		for _, n := range c.ES.Nodes() {
			if n.Name == s.Node {
				return n
			}
		}
	}
	t.Fatalf("no node has the primary of %s: %s", index, answer)
	return nil
}

// Eventually waits until ok returns nil, and otherwise fails with its last error.
func Eventually(t testing.TB, what string, ok func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), WaitLimit)
	defer cancel()
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for last := errors.New("nothing was checked"); ; {
		if err := ok(ctx); err == nil {
			return
		} else if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			t.Fatalf("timed out waiting until %s: %v", what, last)
		case <-tick.C:
		}
	}
}
