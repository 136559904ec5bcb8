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

	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

// LoadedServer is the server to load. Either Start is set, or Server, CAFile,
// EnrollmentToken, AdminURL and AdminKey are.
type LoadedServer struct {
	// Start starts the server in a temporary folder.
	Start bool
	// Elasticsearch is the URL of its store; empty means the embedded store.
	Elasticsearch string
	// Muster is the program to start, such as one of another commit; empty means to
	// build it.
	Muster string
	// Keep keeps the folder of the started server, with its store and log.
	Keep bool

	// Server is the base URL for agents of a running server.
	Server string
	// CAFile is the certificate of its authority.
	CAFile          string
	EnrollmentToken string
	AdminURL        string
	AdminKey        string
	// PID is the server's process on this machine, whose memory and CPU time are
	// measured; 0 means not to measure them.
	PID int
	// Owned allows a server that is not on this machine.
	Owned bool
}

// Validate checks that the server is described completely, and that it is on this machine unless
// Owned is set.
func (t LoadedServer) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if t.Start {
		if t.Server != "" {
			bad("--start and --server: give one of them")
		}
		if t.Elasticsearch != "" {
			errs = append(errs, t.checkLocal("--elasticsearch", t.Elasticsearch, "http", "https"))
		}
		return errors.Join(errs...)
	}
	if t.Server == "" {
		return errors.New("name a server with --server, --ca, --enrollment-token, --admin-url and --admin-key, or let one be started with --start")
	}
	if t.Elasticsearch != "" || t.Muster != "" {
		bad("--elasticsearch and --muster belong to --start")
	}
	errs = append(errs, t.checkLocal("--server", t.Server, "https"), t.checkLocal("--admin-url", t.AdminURL, "https"))
	for flag, value := range map[string]string{"--ca": t.CAFile, "--enrollment-token": t.EnrollmentToken, "--admin-key": t.AdminKey} {
		if value == "" {
			bad("%s: is missing", flag)
		}
	}
	return errors.Join(errs...)
}

// checkLocal refuses a URL that is not on this machine, unless t.Owned is set.
func (t LoadedServer) checkLocal(flag, raw string, schemes ...string) error {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || !strings.Contains(" "+strings.Join(schemes, " ")+" ", " "+u.Scheme+" ") {
		return fmt.Errorf("%s: is %q, want %s://host:port", flag, raw, schemes[len(schemes)-1])
	}
	if !t.Owned && !generator.IsLoopback4(u.Hostname()) {
		return fmt.Errorf("%s: %s is not on this machine's loopback: a load test of somebody else's server is an attack. If it is yours, say --i-own-this-server", flag, u.Host)
	}
	return nil
}

// serverUnderTest is the server of a run.
type serverUnderTest struct {
	LoadedServer
	ca      string          // PEM
	dir     string          // its temporary folder; empty if Start is not set
	started *harness.Server // nil if Start is not set

	mu      sync.Mutex
	running int    // the process id of started
	debug   string // the URL of its profiles
}

// naturalPoll makes polls end at random within five minutes, so that the fleet checks in
// from the start as often as one that has run for long.
const naturalPoll = "checkin:\n  poll: 5m\n  poll_jitter: 4m59s\nlog:\n  level: warn\n"

// oneToken lets all hosts enrol with one token, as fast as they can.
const oneToken = "limits:\n  enrollments_per_second: 1000000\n  enrollments_per_hour: 1000000\n"

// servesProfiles makes the server serve profiles on a free port.
const servesProfiles = "debug:\n  listen: 127.0.0.1:0\n"

// open returns the server, and starts it if Start is set.
func (t LoadedServer) open(ctx context.Context, tag string, profiles bool, progress io.Writer) (_ *serverUnderTest, err error) {
	if err := t.Validate(); err != nil {
		return nil, err
	}
	s := &serverUnderTest{LoadedServer: t}
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
	fleet := &harness.Fleet{Dir: s.dir, Programs: toolchain.Programs{Muster: t.Muster}}
	if t.Muster == "" {
		fmt.Fprintln(progress, "Building muster …")
		root, err := toolchain.Root()
		if err != nil {
			return s, fmt.Errorf("%w: run it there, or name a program with --muster", err)
		}
		if fleet.Programs, err = toolchain.BuildServer(ctx, root, filepath.Join(s.dir, "bin"), "", progress); err != nil {
			return s, err
		}
	} else if fleet.Programs.Muster, err = filepath.Abs(t.Muster); err != nil {
		return s, err
	}
	config := naturalPoll
	if t.Muster == "" { // an older program does not know the keys
		config += oneToken
	}
	if profiles {
		config += servesProfiles
	}
	if t.Elasticsearch != "" {
		config += fmt.Sprintf("store:\n  elasticsearch:\n    hosts: [%q]\n    prefix: %q\n", t.Elasticsearch, tag+"-")
	}
	if s.started, err = fleet.StartServerWith(ctx, harness.ServerOptions{Config: config}); err != nil {
		return s, err
	}
	s.record()
	info := s.started.Info
	s.Server, s.AdminURL, s.AdminKey, s.EnrollmentToken = info.AgentURL, info.AdminURL, info.AdminKey, info.EnrollToken
	pem, err := os.ReadFile(filepath.Join(s.started.Data, "tls", "ca.crt"))
	s.ca = string(pem)
	return s, err
}

// pids returns the id of the server's process, if it is known.
func (s *serverUnderTest) pids() []int {
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

// record stores the id of the started process and the URL of its profiles.
func (s *serverUnderTest) record() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.debug = s.started.PID(), s.started.Info.DebugURL
}

// debugURL returns the URL of the server's profiles.
func (s *serverUnderTest) debugURL() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.debug
}

// restart stops and starts the server, and returns the time at which it answers.
func (s *serverUnderTest) restart(ctx context.Context) (up generator.MonoTime, err error) {
	if err = s.started.Stop(); err == nil {
		err = s.started.Start(ctx)
	}
	s.record()
	return generator.Now(), err
}

// close stops the server if it was started, and removes its folder.
func (s *serverUnderTest) close() error {
	var err error
	if s.started != nil {
		err = s.started.Stop()
	}
	if s.dir != "" && !s.Keep {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}

// unique returns a name for this run, used as the agents' tag and the index prefix.
func unique() string { return fmt.Sprintf("load-%d-%d", time.Now().Unix(), os.Getpid()) }
