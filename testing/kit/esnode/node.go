package esnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/muster-fleet/muster/testing/kit/child"
)

const (
	// startTimeout bounds a start: three nodes take 16 s on two idle cores, and many times
	// that beside other tests.
	startTimeout = 5 * time.Minute
	// stopTimeout bounds an orderly shutdown, which flushes the memory.
	stopTimeout = 30 * time.Second
	// goneTimeout bounds the end of a killed process.
	goneTimeout = 20 * time.Second

	poll = 50 * time.Millisecond
)

// heap is the heap of a node: enough for 100,000 small documents, and small enough for
// three nodes beside the tests.
const heap = "384m"

// Node is one process of a cluster, running or not. It keeps its ports and its data when
// it is started again. It is not safe for concurrent use.
type Node struct {
	Name string
	URL  string

	cluster         *Cluster
	dir             string
	http, transport int // ports

	cmd   *exec.Cmd // nil while it does not run
	stdin io.Closer
	done  <-chan struct{}
	log   *os.File
}

// PID returns the id of the node's process, or 0 while it does not run.
func (n *Node) PID() int {
	if n.cmd == nil {
		return 0
	}
	return n.cmd.Process.Pid
}

// Log returns what the node has logged so far.
func (n *Node) Log() string {
	text, _ := os.ReadFile(n.logFile()) // empty if it was never started
	return string(text)
}

func (n *Node) logFile() string { return filepath.Join(n.dir, "node.log") }

// Data returns the folder of the node's indices, each in a folder named by its UUID.
func (n *Node) Data() string { return filepath.Join(n.dir, "data", "indices") }

// Start starts a stopped node again and waits until it has joined the cluster. More than
// half of the nodes must run. [Cluster.Start] starts all of them.
func (n *Node) Start(ctx context.Context) error {
	if n.cmd != nil {
		return fmt.Errorf("node %s runs", n.Name)
	}
	if err := n.launch(); err != nil {
		return fmt.Errorf("node %s: %w", n.Name, err)
	}
	if err := n.cluster.ready(ctx); err != nil {
		return errors.Join(err, n.Kill())
	}
	return nil
}

// launch starts the process and does not wait for the node to answer.
func (n *Node) launch() error {
	config := filepath.Join(n.dir, "config")
	if err := os.MkdirAll(config, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(config, "log4j2.properties"), loggingConfig, 0o644); err != nil {
		return err
	}
	log, err := os.OpenFile(n.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	args := []string{
		"-Xms" + heap, "-Xmx" + heap, "-XX:+UseSerialGC", "-XX:+ExitOnOutOfMemoryError",
		"-Dlog4j2.disable.jmx=true", "-Dlog4j.shutdownHookEnabled=false",
	}
	if !n.cluster.steady {
		args = append(args, "-XX:TieredStopAtLevel=1")
	}
	args = append(args, "--module-path", filepath.Join(n.cluster.dist, "lib"), "--add-modules=jdk.net,ALL-MODULE-PATH",
		"--class-path", n.cluster.launcher, "Launcher", config)
	for _, s := range n.settings() {
		args = append(args, s.name+"="+s.value)
	}
	c := exec.Command(n.cluster.java, args...)
	c.Dir, c.Stdout, c.Stderr = n.dir, log, log
	stdin, err := c.StdinPipe()
	if err != nil {
		return errors.Join(err, log.Close())
	}
	done, err := child.Start(c, nil)
	if err != nil {
		return errors.Join(err, log.Close())
	}
	n.cmd, n.stdin, n.done, n.log = c, stdin, done, log
	return nil
}

type setting struct{ name, value string }

func (n *Node) settings() []setting {
	out := []setting{
		{"path.home", n.cluster.dist},
		{"path.data", filepath.Join(n.dir, "data")},
		{"path.logs", filepath.Join(n.dir, "logs")},
		{"cluster.name", n.cluster.name},
		{"node.name", n.Name},
		{"network.host", host},
		{"http.port", strconv.Itoa(n.http)},
		{"transport.port", strconv.Itoa(n.transport)},
		// Small pools, the same on every machine.
		{"node.processors", "2"},
		// Otherwise nodes refuse writes on a machine whose disk is 90 % full.
		{"cluster.routing.allocation.disk.threshold_enabled", "false"},
	}
	if len(n.cluster.nodes) == 1 {
		out = append(out, setting{"discovery.type", "single-node"})
	} else {
		out = append(
			out,
			setting{"discovery.seed_hosts", n.cluster.each(func(o *Node) string { return host + ":" + strconv.Itoa(o.transport) })},
			setting{"cluster.initial_master_nodes", n.cluster.each(func(o *Node) string { return o.Name })},
		)
	}
	for name, value := range n.cluster.settings {
		out = append(out, setting{name, value})
	}
	return out
}

// ended reports whether the process of a node that should run has ended.
func (n *Node) ended() bool {
	select {
	case <-n.done:
		return true
	default:
		return false
	}
}

// Kill kills the node with SIGKILL. It does nothing if the node does not run.
func (n *Node) Kill() error {
	if n.cmd == nil {
		return nil
	}
	_ = n.cmd.Process.Kill() // it may have ended
	return n.gone(goneTimeout)
}

// Stop shuts the node down by closing its standard input.
func (n *Node) Stop() error {
	if n.cmd == nil {
		return nil
	}
	_ = n.stdin.Close() // it may have ended
	if err := n.gone(stopTimeout); err != nil {
		return errors.Join(err, n.Kill())
	}
	return nil
}

// gone waits until the process has ended.
func (n *Node) gone(timeout time.Duration) error {
	select {
	case <-n.done:
	case <-time.After(timeout):
		return fmt.Errorf("node %s (process %d) has not ended after %s; its log ends:\n%s", n.Name, n.PID(), timeout, lastLines([]byte(n.Log()), tail))
	}
	n.cmd = nil
	_ = n.stdin.Close() // closed already, unless it was killed
	return n.log.Close()
}
