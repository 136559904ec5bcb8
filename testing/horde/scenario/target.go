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

// Target is the server that is loaded. Either Start is set, or Server, CAFile,
// EnrollmentToken, AdminURL and AdminKey are.
type Target struct {
	// Start starts the server in a temporary folder.
	Start bool
	// Elasticsearch is the URL of its store; empty: the embedded one.
	Elasticsearch string
	// Muster is the program to start; empty: it is built. A program of another commit
	// is compared with this one's by turns.
	Muster string
	// Keep leaves the folder of a server that was started: its store and its log.
	Keep bool

	// Server is the base URL for agents of a server that runs already.
	Server string
	// CAFile is its authority's certificate.
	CAFile          string
	EnrollmentToken string
	AdminURL        string
	AdminKey        string
	// PID is the server's process on this machine, whose memory and processor time are
	// measured; 0: they are not.
	PID int
	// Owned allows a server that is not on this machine.
	Owned bool
}

// Validate checks that the target is complete, and that it is on this machine or
// the caller's.
func (t Target) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.Start {
		if t.Server != "" {
			bad("--start and --server: give one of them")
		}
		if t.Elasticsearch != "" {
			errs = append(errs, t.own("--elasticsearch", t.Elasticsearch, "http", "https"))
		}
		return errors.Join(errs...)
	}
	if t.Server == "" {
		return errors.New("name a server with --server, --ca, --enrollment-token, --admin-url and --admin-key, or let one be started with --start")
	}
	if t.Elasticsearch != "" || t.Muster != "" {
		bad("--elasticsearch and --muster belong to --start")
	}
	errs = append(errs, t.own("--server", t.Server, "https"), t.own("--admin-url", t.AdminURL, "https"))
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

// site is the server of a run.
type site struct {
	Target
	ca      string      // PEM
	dir     string      // everything that was started, empty: nothing was
	started *lab.Server // nil: it ran already

	mu      sync.Mutex
	running int    // the process of started, 0: none
	debug   string // where it serves profiles
}

// naturalPoll makes polls end at any time up to five minutes. From the first second
// on a fleet then checks in as often as one that has run for long.
const naturalPoll = "checkin:\n  poll: 5m\n  poll_jitter: 4m59s\nlog:\n  level: warn\n"

// servesProfiles makes the server serve profiles, on a port that nobody else has.
const servesProfiles = "debug:\n  listen: 127.0.0.1:0\n"

// open starts the server, if it is to be started.
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
		fmt.Fprintln(progress, "The server's store and log are kept in "+s.dir)
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
	if s.started, err = l.StartServerWith(ctx, lab.ServerOptions{Config: config}); err != nil {
		return s, err
	}
	s.record()
	info := s.started.Info
	s.Server, s.AdminURL, s.AdminKey, s.EnrollmentToken = info.AgentURL, info.AdminURL, info.AdminKey, info.EnrollToken
	pem, err := os.ReadFile(filepath.Join(s.started.Data, "tls", "ca.crt"))
	s.ca = string(pem)
	return s, err
}

// pids has the server's process, if it is known.
func (s *site) pids() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	pid := s.PID
	if s.Start {
		pid = s.running
	}
	if pid == 0 {
		return nil
	}
	return []int{pid}
}

// record stores which process runs, and where it serves profiles.
func (s *site) record() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.debug = s.started.PID(), s.started.Info.DebugURL
}

// debugURL is where the server serves profiles.
func (s *site) debugURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.debug
}

// restart stops the server and starts it again. It returns when the server answered.
func (s *site) restart(ctx context.Context) (up herd.Instant, err error) {
	if err = s.started.Stop(); err == nil {
		err = s.started.Start(ctx)
	}
	s.record()
	return herd.Now(), err
}

// close stops what was started and removes it.
func (s *site) close() error {
	var err error
	if s.started != nil {
		err = s.started.Stop()
	}
	if s.dir != "" && !s.Keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// unique is a name for this run, in what the store keeps of it.
func unique() string { return fmt.Sprintf("load-%d-%d", time.Now().Unix(), os.Getpid()) }
