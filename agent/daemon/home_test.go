package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/agent/backoff"
	"github.com/muster-fleet/muster/agent/config"
	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/agent/queue"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/watcher/handoff"
)

const home, thief = "http://home.test", "http://thief.test"

// poll is how long the servers hold a poll: long, since each check-in writes to the disk.
const poll = 6 * time.Hour

// neighbourhood is the servers of home.test and thief.test in one, in virtual time. It has the agents of
// the test.
type neighbourhood struct {
	mu sync.Mutex
	// home answers what an agent asks at a server.
	home func(server string) (status int, hosts []string)
	// policy is fleet.hosts of the policy that a server sends to an agent that reports another revision.
	policy   map[string][]string
	revision map[string]int64
	unenrol  string // the agent that gets an UNENROLL
	asked    map[string][]time.Time
	polled   map[string]string // agent → the server that it polled last
}

func (n *neighbourhood) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	server, agent := "http://"+r.Host, strings.Split(r.URL.Path, "/")[4]
	body, _ := io.ReadAll(r.Body)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/home"):
		n.asked[agent] = append(n.asked[agent], time.Now())
		status, hosts := n.home(server)
		w.WriteHeader(status)
		if status == http.StatusOK {
			_ = json.NewEncoder(w).Encode(agentapi.Home{Hosts: append([]string{}, hosts...)})
		}
		return
	case strings.HasSuffix(r.URL.Path, "/acks"):
		_ = json.NewEncoder(w).Encode(agentapi.AckResponse{Action: "acks"})
		return
	}
	n.polled[agent] = server
	var req agentapi.CheckinRequest
	_ = json.Unmarshal(body, &req)
	resp := agentapi.CheckinResponse{Action: "checkin"}
	switch {
	case n.unenrol == agent:
		n.unenrol = ""
		resp.Actions = []agentapi.Action{{ID: "u", Type: agentapi.ActionUnenroll}}
	case req.PolicyRevisionIdx < n.revision[server]:
		data, _ := json.Marshal(map[string]any{"policy": map[string]any{"id": "p", "fleet": map[string]any{"hosts": n.policy[server]}}})
		resp.Actions = []agentapi.Action{{ID: fmt.Sprintf("policy:p:%d", n.revision[server]), Type: agentapi.ActionPolicyChange, Data: data}}
	default:
		n.mu.Unlock()
		err := backoff.Sleep(r.Context(), poll)
		n.mu.Lock()
		if err != nil {
			return
		}
	}
	_ = json.NewEncoder(w).Encode(resp)
}

// run runs the agents for a virtual time, and returns their identities at its end.
func (n *neighbourhood) run(t *testing.T, tops []string, moved bool, d time.Duration) (ids []identity.Identity, unenrolled []bool) {
	n.asked, n.polled = map[string][]time.Time{}, map[string]string{}
	synctest.Test(t, func(t *testing.T) {
		l := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
		srv := &http.Server{Handler: n}
		ctx, cancel := context.WithCancel(context.Background())
		var all sync.WaitGroup
		all.Go(func() { _ = srv.Serve(l) })
		for i, top := range tops {
			id := identity.Identity{AgentID: fmt.Sprintf("agent-%d", i), APIKey: "k", ServerURL: home + "/"}
			if stored, err := identity.Load(disk.OS{}, top); err == nil {
				id = *stored
			} else if moved {
				id.ServerURL, id.EnrolledURL = thief, home+"/"
			}
			sw, err := gateway.Trust{Dial: l.dial}.Switch(id.ServerURL)
			if err != nil {
				t.Fatal(err)
			}
			client := sw.Client()
			cfg := config.Default()
			cfg.Checkin.PollTimeout = 2 * poll
			o := Options{
				Top: top, Running: handoff.Install{Identity: manifest.Identity{Version: "1.0.0", Hash: "aaaaaa"}, Home: "data/muster-agent-1.0.0-aaaaaa"},
				GOOS: "linux", GOARCH: "amd64", Config: cfg, Disk: disk.OS{}, Muster: true, HTTP: client, Other: client, Switch: sw, Identity: &id,
				Lock: func(string, string) (func() error, error) { return func() error { return nil }, nil },
			}
			all.Go(func() {
				defer client.CloseIdleConnections()
				if err := (Agent{Options: o}).Run(ctx); err != nil {
					t.Errorf("%s: %v", id.AgentID, err)
				}
			})
		}
		time.Sleep(d)
		cancel()
		synctest.Wait()
		if err := srv.Close(); err != nil {
			t.Error(err)
		}
		all.Wait()
		synctest.Wait()
	})
	for i, top := range tops {
		id, err := identity.Load(disk.OS{}, top)
		if err != nil {
			id = &identity.Identity{ServerURL: home}
			if moved {
				id.ServerURL = thief
			}
		}
		q, err := queue.Open(disk.OS{}, queue.Path(filepath.Join(top, "data/muster-agent-1.0.0-aaaaaa")), fmt.Sprintf("agent-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		ids, unenrolled = append(ids, *id), append(unenrolled, q.Unenrolled())
	}
	return ids, unenrolled
}

func tops(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for i := range n {
		top := filepath.Join(t.TempDir(), fmt.Sprint(i))
		if err := os.MkdirAll(filepath.Join(top, "data"), 0o755); err != nil {
			t.Fatal(err)
		}
		out = append(out, top)
	}
	return out
}

// A thief's server that answers well keeps a host for a day or so. A host that was moved for a reason
// stays.
func TestMovedAgentAsksTheServerOfItsEnrolmentOnceADay(t *testing.T) {
	require.Time(t, "runs dozens of agents for days")
	for name, c := range map[string]struct {
		status int
		hosts  []string // of the policy at home
		want   string
	}{
		"home has not moved it":          {http.StatusOK, nil, home},
		"home has moved it elsewhere":    {http.StatusOK, []string{home}, home},
		"home has moved it there":        {http.StatusOK, []string{"http://x.test", thief + "/"}, thief},
		"home does not know its key":     {http.StatusUnauthorized, nil, thief},
		"home is older, or another kind": {http.StatusNotFound, nil, thief},
		"home is away":                   {http.StatusServiceUnavailable, nil, thief},
	} {
		t.Run(name, func(t *testing.T) {
			const days, agents = 3, 12
			n := &neighbourhood{
				home: func(server string) (int, []string) {
					if server != home {
						t.Errorf("%s was asked", server)
					}
					return c.status, c.hosts
				},
				// The thief has raised the number of the policy.
				policy:   map[string][]string{home: c.hosts, thief: {thief}},
				revision: map[string]int64{home: 3, thief: 900},
			}
			began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // synctest's
			ids, _ := n.run(t, tops(t, agents), true, days*24*time.Hour)
			hours := map[int]int{}
			for i, id := range ids {
				agent := fmt.Sprintf("agent-%d", i)
				if got := strings.TrimRight(id.ServerURL, "/"); got != c.want || n.polled[agent] != c.want {
					t.Errorf("%s is stored at %s and polls %s, want %s", agent, got, n.polled[agent], c.want)
				}
				asked := n.asked[agent]
				if len(asked) == 0 || asked[0].Sub(began) > 24*time.Hour+homeCheck {
					t.Fatalf("%s asked at %v", agent, asked)
				}
				hours[int(asked[0].Sub(began).Hours())]++
				switch most := days*24/18 + 1; {
				case c.want == home && len(asked) != 1:
					t.Errorf("%s is at home and asked at %v", agent, asked)
				case c.want == thief && (len(asked) < 2 || len(asked) > most):
					t.Errorf("%s asked %d times in %d days", agent, len(asked), days)
				}
			}
			for hour, n := range hours {
				if n > agents/2 {
					t.Errorf("%d of %d agents asked in hour %d", n, agents, hour)
				}
			}
		})
	}
}

// An agent that restarts often asks no more often, and one whose host was off asks soon.
func TestTimeOfTheNextQuestionSurvivesRestarts(t *testing.T) {
	n := &neighbourhood{home: func(string) (int, []string) { return http.StatusOK, []string{thief} }}
	hosts := tops(t, 1)
	total := 0
	for range 5 { // each begins at the same virtual time
		n.run(t, hosts, true, 6*time.Hour)
		total += len(n.asked["agent-0"])
	}
	if total > 5 {
		t.Errorf("asked %d times", total)
	}
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name             string
		stored           time.Time
		earliest, latest time.Duration
	}{
		{"nothing", time.Time{}, 0, homeEvery},
		{"later", now.Add(5 * time.Hour), 5 * time.Hour, 5 * time.Hour},
		{"while the host was off", now.Add(-time.Hour), 0, homeOverdue},
		{"before the clock was set back", now.Add(9000 * time.Hour), 0, homeEvery},
	} {
		first, last := homeDue(c.stored, now, 0).Sub(now), homeDue(c.stored, now, 0.999).Sub(now)
		if first != c.earliest || last > c.latest || last < c.latest*9/10 {
			t.Errorf("%s: between %s and %s, want %s and %s", c.name, first, last, c.earliest, c.latest)
		}
	}
	if first, last := homeAgain(now, 0).Sub(now), homeAgain(now, 0.999).Sub(now); first != 18*time.Hour || last > 30*time.Hour {
		t.Errorf("the next one is between %s and %s later", first, last)
	}
}

// After an UNENROLL the agent asks nothing else.
func TestUnenrolledAgentReturnsWhenItIsWantedBack(t *testing.T) {
	for name, c := range map[string]struct {
		moved  bool
		wanted map[string]bool
		want   string // where it polls; "" nowhere
	}{
		"nobody wants it":                        {false, nil, ""},
		"its server wants it back":               {false, map[string]bool{home: true}, home},
		"a thief has moved and unenrolled it":    {true, map[string]bool{home: true}, home},
		"the server that it was moved to wants":  {true, map[string]bool{thief: true}, thief},
		"it was moved, and nobody wants it back": {true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := &neighbourhood{unenrol: "agent-0", policy: map[string][]string{thief: {thief}}, revision: map[string]int64{home: 1, thief: 900}}
			began := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
			n.home = func(server string) (int, []string) {
				switch {
				case time.Since(began) < 48*time.Hour:
					delete(n.polled, "agent-0") // called with mu locked
				case c.wanted[server]:
					return http.StatusOK, nil
				}
				return http.StatusUnauthorized, nil
			}
			_, unenrolled := n.run(t, tops(t, 1), c.moved, 5*24*time.Hour)
			if got := n.polled["agent-0"]; got != c.want || unenrolled[0] != (c.want == "") {
				t.Errorf("it polls %q, unenrolled: %v; want %q", got, unenrolled[0], c.want)
			}
			if asked := n.asked["agent-0"]; len(asked) < 2 || len(asked) > 16 {
				t.Errorf("asked at %v", asked)
			}
		})
	}
}

func TestServersThatAnAgentAsksWhereItBelongs(t *testing.T) {
	for _, c := range []struct {
		here       string
		unenrolled bool
		want       []string
	}{
		{home, false, nil},
		{home, true, []string{home}},
		{thief, false, []string{home}},
		{thief, true, []string{home, thief}},
	} {
		if got := homesToAsk(c.here, home, c.unenrolled); !slices.Equal(got, c.want) {
			t.Errorf("at %s, unenrolled %v: %v, want %v", c.here, c.unenrolled, got, c.want)
		}
	}
}

// stopping is a disk whose machine stops after some calls that change it.
type stopping struct {
	disk.OS
	left int
}

var errStopped = errors.New("the machine has stopped")

func (d *stopping) stops() bool { d.left--; return d.left < 0 }

func (d *stopping) OpenFile(op, path string, flag int, perm fs.FileMode) (disk.File, error) {
	if flag != os.O_RDONLY && d.stops() {
		return nil, errStopped
	}
	return d.OS.OpenFile(op, path, flag, perm)
}

func (d *stopping) Rename(op, from, to string) error {
	if d.stops() {
		return errStopped
	}
	return d.OS.Rename(op, from, to)
}

func (d *stopping) SyncDir(op, path string) error {
	if d.stops() {
		return errStopped
	}
	return d.OS.SyncDir(op, path)
}

// Whenever the machine stops on the way home, the agent is where it was, or at home and without what the
// thief has set.
func TestWayHomeInterruptedAtAnyCall(t *testing.T) {
	require.Time(t, "interrupts the agent at every call")
	for left := 0; ; left++ {
		top := tops(t, 1)[0]
		path := queue.Path(filepath.Join(top, "data/x"))
		q, err := queue.Open(disk.OS{}, path, "a")
		if err != nil {
			t.Fatal(err)
		}
		id := identity.Identity{AgentID: "a", APIKey: "k", ServerURL: thief, EnrolledURL: home}
		if err := errors.Join(identity.Save(disk.OS{}, top, id), q.Accept([]agentapi.Action{
			{ID: "policy:p:900", Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"id":"p","fleet":{"hosts":["` + thief + `"]}}}`)},
		}, "", time.Now(), nil)); err != nil {
			t.Fatal(err)
		}
		broken := &stopping{left: left}
		d := &daemon{Options: Options{Top: top, Disk: broken, Identity: &id}, log: slog.New(slog.DiscardHandler), changes: &gateway.Changes{}}
		if d.queue, err = queue.Open(broken, path, "a"); err != nil {
			t.Fatal(err)
		}
		if d.Switch, err = (gateway.Trust{}).Switch(thief); err != nil {
			t.Fatal(err)
		}
		d.comeHome(home)

		stored, err := identity.Load(disk.OS{}, top)
		if err != nil {
			t.Fatalf("after %d calls: %v", left, err)
		}
		after, err := queue.Open(disk.OS{}, path, "a")
		if err != nil {
			t.Fatalf("after %d calls: %v", left, err)
		}
		_, revision := after.Policy()
		atHome := stored.ServerURL == home && stored.Enrolled() == home
		if !atHome && (stored.ServerURL != thief || stored.Enrolled() != home) || atHome && (revision != 0 || after.Settings().Hosts != nil) {
			t.Errorf("after %d calls: %s, enrolled at %s, revision %d, hosts %v", left, stored.ServerURL, stored.Enrolled(), revision, after.Settings().Hosts)
		}
		if broken.left >= 0 {
			if !atHome || left < 4 {
				t.Errorf("at home: %v, after %d calls", atHome, left)
			}
			return
		}
	}
}
