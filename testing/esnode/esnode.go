// Package esnode starts a real Elasticsearch for tests, and by hand for
// `go tool mage es`: one node or several, each a process of its own on loopback
// that can be killed and started again. The server comes from Maven Central, is
// fetched once and kept in the user's cache folder; it needs Maven and Java 17.
// A [Proxy] stands between a client and a node to be slow, broken or strict.
//
// [Shared] gives each test its own part of one node for all tests of a package,
// or of an Elasticsearch that these variables name:
//
//	MUSTER_TEST_ELASTICSEARCH          its address; https://user:password@host:9200 with a name and password
//	MUSTER_TEST_ELASTICSEARCH_API_KEY  an API key instead, as it stands in the header after "ApiKey"
//	MUSTER_TEST_ELASTICSEARCH_CA       a PEM file with the authority of its certificate
//
// Tests that harm nodes start their own with [Start], and are skipped where the
// first variable is set, with CI=true as well.
//
// What the published server lacks: security, scripts, the calls by query, and
// every field type and feature that is not in its core.
package esnode

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

//go:embed log4j2.properties
var loggingConfig []byte

const (
	// host is the only place where nodes listen.
	host = "127.0.0.1"
	// maxNodes: each takes 350 MB and a core for some seconds.
	maxNodes = 5
	// startAttempts: a port that was free may be taken before a node has it.
	startAttempts = 3
	// portTaken is what a log then has.
	portTaken = "Address already in use"
	// tail is how many lines of a log an error shows: a Java failure with its causes.
	tail = 25
	// askTimeout bounds one question for a node's health.
	askTimeout = 5 * time.Second
)

// firstPort and lastPort bound where nodes listen: below the ports that systems
// hand out by themselves, so that nobody gets a node's port while it is down.
const (
	firstPort = 20000
	lastPort  = 31999
)

// Options of a cluster; the zero value is one node on a free port.
type Options struct {
	// Nodes is how many there are; 0 is one.
	Nodes int
	// Port is where a single node answers; 0 is a free port.
	Port int
	// Steady nodes are made for long use and for measurements. The others have
	// Java's quick compiler only: they start with half of the work, and do less
	// per second after that.
	Steady bool
	// Settings are added to every node's, by their Elasticsearch names.
	Settings map[string]string
}

// Cluster is a set of nodes that know each other. It is not for concurrent use.
type Cluster struct {
	tools
	dir      string
	name     string
	steady   bool
	settings map[string]string
	nodes    []*Node
}

// tools are what nodes are made of: the program java, and the folders of the jars
// and of the compiled Launcher.
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

// New starts a cluster and returns when all its nodes belong to it. ctx bounds
// the start, not the cluster. The caller closes it.
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
	case o.Port != 0 && !isFree(o.Port):
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
	// Nodes that find each other by chance must not join.
	c := &Cluster{tools: t, dir: dir, name: filepath.Base(dir), steady: o.Steady, settings: maps.Clone(o.Settings)}
	taken := map[int]bool{}
	for i := range max(1, o.Nodes) {
		n := &Node{Name: "n" + strconv.Itoa(i+1), cluster: c, http: o.Port}
		n.dir = filepath.Join(dir, n.Name)
		for _, port := range []*int{&n.http, &n.transport} {
			if *port == 0 {
				if *port, err = freePort(taken); err != nil {
					return nil, errors.Join(err, os.RemoveAll(dir))
				}
			}
		}
		n.URL = "http://" + net.JoinHostPort(host, strconv.Itoa(n.http))
		c.nodes = append(c.nodes, n)
	}
	return c, nil
}

// freePort finds one that nobody has, and notes it in taken.
func freePort(taken map[int]bool) (int, error) {
	const tries = 100
	for range tries {
		port := firstPort + rand.IntN(lastPort-firstPort+1)
		if !taken[port] && isFree(port) {
			taken[port] = true
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d in %d tries", firstPort, lastPort, tries)
}

func isFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

// Nodes are all of them, running or not.
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node gives a node by its number, from 0.
func (c *Cluster) Node(i int) *Node { return c.nodes[i] }

// URLs are where the nodes answer, running or not.
func (c *Cluster) URLs() []string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, n.URL)
	}
	return out
}

// Access is how clients reach it.
func (c *Cluster) Access() Access { return Access{URLs: c.URLs()} }

func (c *Cluster) each(f func(*Node) string) string {
	var out []string
	for _, n := range c.nodes {
		out = append(out, f(n))
	}
	return strings.Join(out, ",")
}

// Start starts the nodes that do not run, and waits until all belong to the
// cluster. If they do not, those it started are killed.
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

// Stop ends all nodes in order; their data stays.
func (c *Cluster) Stop() error {
	// The last of them would wait for the others' master otherwise: all are told
	// first.
	for _, n := range c.nodes {
		if n.cmd != nil {
			_ = n.stdin.Close() // it may have ended
		}
	}
	return c.all((*Node).Stop)
}

// Close kills what runs, and removes every trace.
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

// Health is what a node says of the cluster.
type Health struct {
	Status     string `json:"status"` // green, yellow or red
	Nodes      int    `json:"number_of_nodes"`
	Active     int    `json:"active_shards"`
	Relocating int    `json:"relocating_shards"`
	Unassigned int    `json:"unassigned_shards"`
	Pending    int    `json:"number_of_pending_tasks"`
}

// Health asks the node.
func (n *Node) Health(ctx context.Context) (Health, error) {
	var h Health
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// Without a master it is to say so at once.
	status, body, err := Access{URLs: []string{n.URL}}.Do(ctx, http.MethodGet, "/_cluster/health?master_timeout=1s", nil)
	if err != nil {
		return h, err
	}
	if status != http.StatusOK {
		return h, fmt.Errorf("status %d: %s", status, body)
	}
	return h, json.Unmarshal(body, &h)
}

// Wait asks the running nodes, one after the other, each until ok says yes, or ctx
// or five minutes end; then the error tells what was seen last, and how the log
// ends.
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
	// A question to a process that has ended may find another on its port.
	asking, cancel := context.WithCancel(ctx)
	defer cancel()
	done := n.done // the goroutine may see the next process otherwise
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
		case asking.Err() == nil: // else the question was broken off
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
		return fmt.Errorf("node %s: waited in vain until %s: %w; last seen: %s; its log ends:\n%s", n.Name, what, err, last, lastLines([]byte(n.Log()), tail))
	}
}

// ready waits until the running nodes are one cluster.
func (c *Cluster) ready(ctx context.Context) error {
	running := 0
	for _, n := range c.nodes {
		// One whose process was ended from outside counts until it is killed.
		if n.cmd != nil {
			running++
		}
	}
	return c.Wait(ctx, fmt.Sprintf("%d nodes are one cluster", running), func(h Health) bool { return h.Nodes == running })
}
