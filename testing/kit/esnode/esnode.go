// Package esnode starts a real Elasticsearch for tests and for `go tool mage es`: one or
// more nodes, each a process on loopback that can be killed and started again. It fetches
// Elasticsearch once from Maven Central into the user's cache folder, and needs Maven and
// Java 17. A [Proxy] between a client and a node can delay, break or authenticate requests.
//
// [Shared] gives each test its own indices, on one node for all tests of a package or on
// the Elasticsearch named by these environment variables:
//
//	MUSTER_TEST_ELASTICSEARCH          its URL; https://user:password@host:9200 with a user name and password
//	MUSTER_TEST_ELASTICSEARCH_API_KEY  an API key instead, as in the Authorization header after "ApiKey"
//	MUSTER_TEST_ELASTICSEARCH_CA       a PEM file with the authority of its certificate
//
// Tests that harm nodes start their own with [Start], and are skipped if the first
// variable is set, also with CI=true.
//
// The published server lacks security, scripts, the calls by query, and every field type
// and feature that is not in its core.
package esnode

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/muster-fleet/muster/testing/kit/port"
)

//go:embed log4j2.properties
var loggingConfig []byte

const (
	// host is the address on which nodes listen.
	host = port.Host
	// maxNodes bounds a cluster: each node takes 350 MB, and a core for some seconds.
	maxNodes = 5
	// startAttempts bounds the starts if another process takes a free port before the node.
	startAttempts = 3
	// portTaken is in the log of a node whose port is taken.
	portTaken = "Address already in use"
	// tail is how many lines of a log an error shows: a Java failure with its causes.
	tail = 25
	// askTimeout bounds one request for a node's health.
	askTimeout = 5 * time.Second
)

// Options configure a cluster. The zero value is one node on a free port.
type Options struct {
	// Nodes is the number of nodes; 0 means 1.
	Nodes int
	// Port is the HTTP port of a single node; 0 means a free port.
	Port int
	// Steady is for long use and for measurements. Other nodes use only Java's quick
	// compiler: they start with half of the work, and are slower afterwards.
	Steady bool
	// Settings are added to those of every node, by their Elasticsearch names.
	Settings map[string]string
}

// Cluster is a cluster of nodes. It is not safe for concurrent use.
type Cluster struct {
	tools
	dir      string
	name     string
	steady   bool
	settings map[string]string
	nodes    []*Node
}

// tools are the program java, and the folders of the jars and of the compiled Launcher.
type tools struct{ java, dist, launcher string }

func findTools(ctx context.Context) (tools, error) {
	var t tools
	var err error
	if t.java, err = Java(ctx); err != nil {
		return t, err
	}
	if t.dist, err = Fetch(ctx); err != nil {
		return t, err
	}
	t.launcher, err = compileLauncher(ctx, t.java, t.dist)
	return t, err
}

// New starts a cluster and returns when all its nodes have joined it. ctx bounds the
// start, not the cluster. The caller must close it.
func New(ctx context.Context, o Options) (*Cluster, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	t, err := findTools(ctx)
	if err != nil {
		return nil, err
	}
	return startNew(ctx, o, t)
}

func (o Options) validate() error {
	switch {
	case o.Nodes < 0 || o.Nodes > maxNodes:
		return fmt.Errorf("a cluster of %d nodes: at most %d run on one machine", o.Nodes, maxNodes)
	case o.Port != 0 && o.Nodes > 1:
		return errors.New("a port can be chosen for a single node only")
	case o.Port != 0 && !port.IsFree(o.Port):
		return fmt.Errorf("port %d of %s is not free: choose another, or none", o.Port, host)
	}
	return nil
}

func startNew(ctx context.Context, o Options, t tools) (*Cluster, error) {
	for attempt := 1; ; attempt++ {
		c, err := newCluster(o, t)
		if err != nil {
			return nil, err
		}
		if err = c.Start(ctx); err == nil {
			return c, nil
		}
		another := o.Port == 0 && strings.Contains(c.logs(), portTaken)
		err = errors.Join(err, c.Close())
		if !another || attempt == startAttempts {
			return nil, err
		}
	}
}

func newCluster(o Options, t tools) (*Cluster, error) {
	dir, err := os.MkdirTemp("", "muster-es-")
	if err != nil {
		return nil, err
	}
	// Nodes of different clusters must not join each other.
	c := &Cluster{tools: t, dir: dir, name: filepath.Base(dir), steady: o.Steady, settings: maps.Clone(o.Settings)}
	for i := range max(1, o.Nodes) {
		n := &Node{Name: "n" + strconv.Itoa(i+1), cluster: c, http: o.Port}
		n.dir = filepath.Join(dir, n.Name)
		for _, p := range []*int{&n.http, &n.transport} {
			if *p == 0 {
				if *p, err = port.Free(); err != nil {
					return nil, errors.Join(err, os.RemoveAll(dir))
				}
			}
		}
		n.URL = "http://" + net.JoinHostPort(host, strconv.Itoa(n.http))
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// Nodes returns all nodes, running or not.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns node i, counted from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// URLs returns the URLs of all nodes, running or not.
func (c *Cluster) URLs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.URL)
	}
	return out
}

// Access returns how clients reach the cluster.
func (c *Cluster) Access() Access { return Access{URLs: c.URLs()} }

func (c *Cluster) each(f func(*Node) string) string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, f(n))
	}
	return strings.Join(out, ",")
}

// Start starts the nodes that do not run, and waits until all have joined the cluster. On
// an error it kills the nodes that it started.
func (c *Cluster) Start(ctx context.Context) error {
	var began []*Node
	err := func() error {
		for _, n := range c.nodes {
			if n.cmd != nil {
				continue
			}
			if err := n.launch(); err != nil {
				return fmt.Errorf("node %s: %w", n.Name, err)
			}
			began = append(began, n)
		}
		return c.ready(ctx)
	}()
	if err != nil {
		for _, n := range began {
			err = errors.Join(err, n.Kill())
		}
	}
	return err
}

// Stop shuts all nodes down and keeps their data.
func (c *Cluster) Stop() error {
	// All begin to stop first: the last one would otherwise wait for a master.
	for _, n := range c.nodes {
		if n.cmd != nil {
			_ = n.stdin.Close() // it may have ended
		}
	}
	return c.all((*Node).Stop)
}

// Close kills the running nodes and removes all files.
func (c *Cluster) Close() error {
	return errors.Join(c.all((*Node).Kill), os.RemoveAll(c.dir))
}

func (c *Cluster) all(f func(*Node) error) error {
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, f(n))
	}
	return errors.Join(errs...)
}

func (c *Cluster) logs() string { return c.each((*Node).Log) }

// Health is the cluster's health as seen by a node.
type Health struct {
	Status     string `json:"status"` // green, yellow or red
	Nodes      int    `json:"number_of_nodes"`
	Active     int    `json:"active_shards"`
	Relocating int    `json:"relocating_shards"`
	Unassigned int    `json:"unassigned_shards"`
	Pending    int    `json:"number_of_pending_tasks"`
}

// reading reports whether the cluster has not read its state yet, and refuses all else. It is
// red then although it has no shards.
func (h Health) reading() bool { return h.Status == "red" && h.Active+h.Unassigned == 0 }

// Health requests the cluster's health from the node.
func (n *Node) Health(ctx context.Context) (Health, error) {
	var h Health
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// With this timeout a node without a master answers soon.
	status, body, err := Access{URLs: []string{n.URL}}.Do(ctx, http.MethodGet, "/_cluster/health?master_timeout=1s", nil)
	if err != nil {
		return h, err
	}
	if status != http.StatusOK {
		return h, fmt.Errorf("status %d: %s", status, body)
	}
	return h, json.Unmarshal(body, &h)
}

// Wait polls the health of the running nodes, one after the other, until ok returns true
// for it. It returns an error with the last health and the end of the log when ctx ends, a
// node's process ends, or after startTimeout.
func (c *Cluster) Wait(ctx context.Context, what string, ok func(Health) bool) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, n := range c.nodes {
		if n.cmd == nil {
			continue
		}
		if err := n.wait(ctx, what, ok); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) wait(ctx context.Context, what string, ok func(Health) bool) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	// After its process has ended, another one may listen on its port.
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	done := n.done // n.done may be replaced by that of the next process
	go func() {
		select {
		case <-done:
			cancel()
		case <-asking.Done():
		}
	}()
	last := "nothing"
	for {
		h, err := n.Health(asking)
		switch {
		case err == nil && ok(h):
			return nil
		case err == nil:
			last = fmt.Sprintf("%+v", h)
		case asking.Err() == nil: // otherwise the request was canceled
			last = err.Error()
		}
		select {
		case <-tick.C:
			continue
		case <-done:
			err = errors.New("its process has ended")
		case <-ctx.Done():
			err = ctx.Err()
		}
		return fmt.Errorf("node %s: timed out waiting until %s: %w; the last health was %s; its log ends:\n%s", n.Name, what, err, last, lastLines([]byte(n.Log()), tail))
	}
}

// ready waits until the running nodes have joined one cluster, and it has read its state.
func (c *Cluster) ready(ctx context.Context) error {
	running := 0
	for _, n := range c.nodes {
		// A node whose process was killed from outside counts as running until Kill.
		if n.cmd != nil {
			running++
		}
	}
	return c.Wait(ctx, fmt.Sprintf("%d nodes are one cluster", running), func(h Health) bool { return h.Nodes == running && !h.reading() })
}
