//go:build linux

package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/muster-fleet/muster/testing/horde/herd"
	"github.com/muster-fleet/muster/testing/lab"
	"github.com/muster-fleet/muster/testing/toolchain"
)

// Target is the servers that are loaded. Either Start is set, or Servers, CAFile,
// EnrollmentToken, AdminURL and AdminKey are.
type Target struct {
	// Start starts servers in a temporary folder.
	Start bool
	// Replicas is how many are started; 0 means one.
	Replicas int
	// Elasticsearch is the URL of their store; empty: the embedded one, which they
	// share. Prefix is that of its indices, empty: one of this run.
	Elasticsearch string
	// Muster is the program to start; empty: it is built.
	Muster string
	// Keep leaves what was started in its folder: the store, and the servers' logs.
	Keep bool

	// Servers are the base URLs for agents.
	Servers []string
	// CAFile is their authority's certificate.
	CAFile          string
	EnrollmentToken string
	AdminURL        string
	AdminKey        string
	// PIDs are the servers' processes on this machine, whose memory and processor
	// time are measured; none: they are not.
	PIDs []int
	// Owned lets servers be loaded that are not on this machine.
	Owned bool
}

// Validate checks that the target is complete, and that it is on this machine or
// the caller's.
func (t Target) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.Start {
		if len(t.Servers) > 0 {
			bad("--start and --server: give one of them")
		}
		if t.Replicas < 0 || t.Replicas > maxReplicas {
			bad("--replicas: is %d, want 1 to %d", t.Replicas, maxReplicas)
		}
		if t.Elasticsearch != "" {
			errs = append(errs, t.own("--elasticsearch", t.Elasticsearch, "http", "https"))
		}
		return errors.Join(errs...)
	}
	if len(t.Servers) == 0 {
		return errors.New("name a server with --server, --ca, --enrollment-token, --admin-url and --admin-key, or let one be started with --start")
	}
	if t.Replicas > 1 || t.Elasticsearch != "" {
		bad("--replicas and --elasticsearch belong to --start: servers that run are named with --server, once for each")
	}
	for _, s := range t.Servers {
		errs = append(errs, t.own("--server", s, "https"))
	}
	errs = append(errs, t.own("--admin-url", t.AdminURL, "https"))
	for flag, value := range map[string]string{"--ca": t.CAFile, "--enrollment-token": t.EnrollmentToken, "--admin-key": t.AdminKey} {
		if value == "" {
			bad("%s: is missing", flag)
		}
	}
	return errors.Join(errs...)
}

// own refuses what is not an address of this machine.
func (t Target) own(flag, raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || !strings.Contains(" "+strings.Join(schemes, " ")+" ", " "+u.Scheme+" ") {
		return fmt.Errorf("%s: is %q, want %s://host:port", flag, raw, schemes[len(schemes)-1])
	}
	if !t.Owned && !herd.IsLoopback4(u.Hostname()) {
		return fmt.Errorf("%s: %s is not on this machine's loopback: a load test of somebody else's server is an attack. If it is yours, say --i-own-this-server", flag, u.Host)
	}
	return nil
}

// maxReplicas bounds what one machine is asked to run.
const maxReplicas = 32

// site is the servers of a run.
type site struct {
	Target
	ca      string // PEM
	dir     string // everything that was started, empty: nothing was
	started []*lab.Server

	mu      sync.Mutex
	running []int    // the processes of started
	debug   []string // where each serves profiles
}

// naturalPoll lets polls end at any time up to five minutes. From the first second
// on a fleet then checks in as often as one that has run for long.
const naturalPoll = "checkin:\n  poll: 5m\n  poll_jitter: 4m59s\nlog:\n  level: warn\n"

// servesProfiles lets a server serve profiles, on a port that nobody else has.
const servesProfiles = "debug:\n  listen: 127.0.0.1:0\n"

// open starts what is to be started.
func (t Target) open(ctx context.Context, tag string, profiles bool, progress io.Writer) (_ *site, err error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	s := &site{Target: t}
	if !t.Start {
		pem, err := os.ReadFile(t.CAFile)
		s.ca = string(pem)
		return s, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "muster-load-"); err != nil {
		return s, err
	}
	if t.Keep {
		fmt.Fprintln(progress, "What the servers write is kept in "+s.dir)
	}
	l := &lab.Lab{Dir: s.dir, Programs: toolchain.Programs{Muster: t.Muster}}
	if t.Muster == "" {
		fmt.Fprintln(progress, "Building muster …")
		root, err := toolchain.Root()
		if err != nil {
			return s, fmt.Errorf("%w: run it there, or name a program with --muster", err)
		}
		if l.Programs, err = toolchain.BuildServer(ctx, root, filepath.Join(s.dir, "bin"), progress); err != nil {
			return s, err
		}
	} else if l.Programs.Muster, err = filepath.Abs(t.Muster); err != nil {
		return s, err
	}
	config := naturalPoll
	if profiles {
		config += servesProfiles
	}
	if t.Elasticsearch != "" {
		config += fmt.Sprintf("store:\n  elasticsearch:\n    hosts: [%q]\n    prefix: %q\n", t.Elasticsearch, tag+"-")
	}
	for n := range max(1, t.Replicas) {
		o := lab.ServerOptions{Name: fmt.Sprintf("server-%d", n), Config: config}
		var server *lab.Server
		switch {
		case n == 0:
			server, err = l.StartServerWith(ctx, o)
		case t.Elasticsearch != "":
			o.Seed = s.started[0]
			server, err = l.StartServerWith(ctx, o)
		default:
			o.Name = "server-0" // one data folder
			server, err = s.started[0].Twin(ctx)
		}
		if server != nil {
			s.started = append(s.started, server)
		}
		if err != nil {
			return s, err
		}
		s.Servers = append(s.Servers, server.Info.AgentURL)
	}
	s.know()
	first := s.started[0].Info
	s.AdminURL, s.AdminKey, s.EnrollmentToken = first.AdminURL, first.AdminKey, first.EnrollToken
	pem, err := os.ReadFile(filepath.Join(s.started[0].Data, "tls", "ca.crt"))
	s.ca = string(pem)
	return s, err
}

// pids are the servers' processes.
func (s *site) pids() []int {
	if !s.Start {
		return s.PIDs
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// know takes down which processes run.
func (s *site) know() {
	var (
		pids  []int
		debug []string
	)
	for _, server := range s.started {
		debug = append(debug, server.Info.DebugURL)
		if pid := server.PID(); pid != 0 {
			pids = append(pids, pid)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.debug = pids, debug
}

// adminURLs are those of the servers that were started.
func (s *site) adminURLs() (urls []string) {
	for _, server := range s.started {
		urls = append(urls, server.Info.AdminURL)
	}
	return urls
}

// debugURL is where the server of a number serves profiles.
func (s *site) debugURL(n int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.debug[n]
}

// restart stops all servers that were started, and starts them again. It tells when
// they answered.
func (s *site) restart(ctx context.Context) (up herd.Instant, err error) {
	for _, server := range s.started {
		err = errors.Join(err, server.Stop())
	}
	for _, server := range s.started {
		if err == nil {
			err = server.Start(ctx)
		}
	}
	s.know()
	return herd.Now(), err
}

// close stops what was started and removes it.
func (s *site) close() error {
	errs := make([]error, len(s.started))
	var all sync.WaitGroup
	for i, server := range s.started {
		all.Go(func() { errs[i] = server.Stop() })
	}
	all.Wait()
	err := errors.Join(errs...)
	if s.dir != "" && !s.Keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// unique is a name for this run, in what the store keeps of it.
func unique() string { return fmt.Sprintf("load-%d-%d", time.Now().Unix(), os.Getpid()) }
