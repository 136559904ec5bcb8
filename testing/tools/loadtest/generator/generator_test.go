//go:build linux

package generator_test

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/rpc"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/tools/loadtest/generator"
)

// waitLimit bounds every wait, at many times its usual time.
const waitLimit = 30 * time.Second

// server is a Fleet server whose answers a test can change.
type server struct {
	*httptest.Server
	mu      sync.Mutex
	checkin func(w http.ResponseWriter, r *http.Request, id string, n int) // n counts the agent's check-ins
	acks    func(w http.ResponseWriter, n int)
	polls   map[string]int
	ackd    map[string]int
	protos  map[string]int
	stop    chan struct{}
}

func newServer(t *testing.T) *server {
	t.Helper()
	s := &server{polls: map[string]int{}, ackd: map[string]int{}, protos: map[string]int{}, stop: make(chan struct{})}
	s.checkin = func(_ http.ResponseWriter, r *http.Request, _ string, _ int) { s.park(r) }
	s.acks = func(w http.ResponseWriter, _ int) {
		answer(w, agentapi.AckResponse{Action: "acks", Items: []agentapi.AckItem{{Status: 200}}})
	}
	mux := http.NewServeMux()
	enrolled := 0
	mux.HandleFunc("POST "+agentapi.PathEnroll, func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		enrolled++
		if enrolled == 1 {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		answer(w, agentapi.EnrollResponse{Action: "created", Item: agentapi.EnrollItem{ID: fmt.Sprintf("agent-%03d", enrolled), AccessAPIKey: "a2V5"}})
	})
	mux.HandleFunc("POST "+agentapi.PathCheckin, func(w http.ResponseWriter, r *http.Request) {
		var req agentapi.CheckinRequest
		if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		id := r.PathValue("id")
		s.mu.Lock()
		s.polls[id]++
		s.protos[r.Proto]++
		n, f := s.polls[id], s.checkin
		s.mu.Unlock()
		f(w, r, id, n)
	})
	mux.HandleFunc("POST "+agentapi.PathAcks, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		id := r.PathValue("id")
		s.ackd[id]++
		n, f := s.ackd[id], s.acks
		s.mu.Unlock()
		f(w, n)
	})
	s.Server = httptest.NewUnstartedServer(mux)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() { close(s.stop); s.Close() })
	return s
}

func answer(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) } // the generator notices an incomplete answer

// park holds a check-in until the client or the test ends.
func (s *server) park(r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-s.stop:
	}
}

// action answers a check-in with an action.
func action(w http.ResponseWriter, agent, id string) {
	answer(w, agentapi.CheckinResponse{AckToken: "1", Action: "checkin", Actions: []agentapi.Action{{ID: id, AgentID: agent, Type: agentapi.ActionUpgrade}}})
}

// startGenerator starts a generator whose agents load the server.
func (s *server) startGenerator(t *testing.T, agents int, change ...func(*generator.Options)) *rpc.Client {
	t.Helper()
	o := generator.Options{
		Server: s.URL, CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})),
		Token: "dG9rZW4=", Tags: []string{"test"}, Version: "1.0.0",
	}
	for _, f := range change {
		f(&o)
	}
	g, err := generator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := net.Pipe()
	go func() { _ = generator.Serve(g, theirs) }() // it fails only for a wrong method
	c := rpc.NewClient(ours)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	enrolled := call[generator.EnrolReply](t, c, "Enrol", generator.EnrolArgs{Count: agents, Workers: 4})
	if enrolled.Failures > 0 || enrolled.Limited != 1 || enrolled.Latency.Count() != int64(agents) {
		t.Fatalf("of %d agents %d enrolled, %d were answered 429: %v", agents, enrolled.Latency.Count(), enrolled.Limited, enrolled.Texts)
	}
	call[generator.Empty](t, c, "Connect", generator.ConnectArgs{})
	return c
}

func call[Reply any](t *testing.T, c *rpc.Client, method string, args any) Reply {
	t.Helper()
	var reply Reply
	if err := c.Call("Generator."+method, args, &reply); err != nil {
		t.Fatal(err)
	}
	return reply
}

// waitForCount waits until ok holds for the generator's count.
func waitForCount(t *testing.T, c *rpc.Client, what string, ok func(*generator.Count) bool) {
	t.Helper()
	var sum generator.Count
	for deadline := time.Now().Add(waitLimit); ; time.Sleep(5 * time.Millisecond) {
		got := call[generator.Count](t, c, "Count", generator.CountArgs{Reset: true})
		sum.Merge(&got)
		if ok(&sum) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s: the count is %+v", what, sum)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFailuresAreCounted(t *testing.T) {
	for name, c := range map[string]struct {
		make func(*server)
		sees func(*generator.Count) bool
	}{
		"an error of the server": {
			func(s *server) {
				s.checkin = func(w http.ResponseWriter, r *http.Request, _ string, n int) {
					if n == 1 {
						w.WriteHeader(http.StatusServiceUnavailable)
						return
					}
					s.park(r)
				}
			},
			func(c *generator.Count) bool { return c.ServerErrors() == 5 && c.Failures == 5 && c.CutOff == 0 },
		},
		"an acknowledgement that is refused": {
			func(s *server) {
				s.checkin = func(w http.ResponseWriter, r *http.Request, id string, n int) {
					if n == 1 {
						action(w, id, "upgrade")
						return
					}
					s.park(r)
				}
				s.acks = func(w http.ResponseWriter, _ int) {
					answer(w, agentapi.AckResponse{Action: "acks", Errors: true, Items: []agentapi.AckItem{{Status: 404, Message: "unknown"}}})
				}
			},
			func(c *generator.Count) bool { return c.Acks == 5 && c.Failures == 5 },
		},
		"another agent's action": {
			func(s *server) {
				s.checkin = func(w http.ResponseWriter, r *http.Request, _ string, n int) {
					if n == 1 {
						action(w, "somebody", "upgrade")
						return
					}
					s.park(r)
				}
			},
			func(c *generator.Count) bool {
				return c.Failures == 5 && strings.Contains(c.Texts[0], "of agent somebody")
			},
		},
		"a connection that ends under a check-in": {
			func(s *server) {
				s.checkin = func(_ http.ResponseWriter, r *http.Request, _ string, n int) {
					if n == 1 {
						panic(http.ErrAbortHandler)
					}
					s.park(r)
				}
			},
			func(c *generator.Count) bool {
				return c.CutOff == 5 && c.Connected == 10 && c.Resumed > 0 && c.Resumed <= 5
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			c.make(s)
			waitForCount(t, s.startGenerator(t, 5), name, c.sees)
		})
	}
}

func TestAgentsObeyRetryAfter(t *testing.T) {
	s := newServer(t)
	var first, second sync.Map
	s.checkin = func(w http.ResponseWriter, r *http.Request, id string, n int) {
		if n == 1 {
			first.Store(id, time.Now())
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		second.Store(id, time.Now())
		s.park(r)
	}
	c := s.startGenerator(t, 5)
	waitForCount(t, c, "all were answered 429 and checked in again", func(c *generator.Count) bool {
		n := 0
		second.Range(func(_, _ any) bool { n++; return true })
		return n == 5 && c.Limited() == 5 && c.Failures == 0
	})
	first.Range(func(id, at any) bool {
		if again, _ := second.Load(id); again.(time.Time).Sub(at.(time.Time)) < time.Second {
			t.Errorf("agent %v was told to retry after 1 s and retried after %s", id, again.(time.Time).Sub(at.(time.Time)))
		}
		return true
	})
}

// Duplicate deliveries are counted, and actions that nobody ordered are reported, over
// HTTP/1.1 and HTTP/2.
func TestDuplicateAndUnorderedActionsAreReported(t *testing.T) {
	s := newServer(t)
	s.checkin = func(w http.ResponseWriter, r *http.Request, id string, n int) {
		switch {
		case n <= 2:
			action(w, id, "ordered")
		case n == 3 && id == "agent-003":
			action(w, id, "foreign")
		default:
			s.park(r)
		}
	}
	c := s.startGenerator(t, 10, func(o *generator.Options) { o.HTTP2 = 0.05 }) // the first five
	got := call[generator.ActionReply](t, c, "Action", generator.ActionArgs{ID: "ordered", Want: 10, Timeout: waitLimit})
	if len(got.Delivered) != 10 || len(got.Acked) != 10 || len(got.Parked) != 10 || got.AckLatency.Count() != 10 {
		t.Errorf("of 10 agents %d were given it, %d have acknowledged and %d polled again", len(got.Delivered), len(got.Acked), len(got.Parked))
	}
	for i := range got.Delivered {
		if age := generator.Now().Sub(got.Delivered[i]); age < 0 || age > waitLimit {
			t.Errorf("delivery %d was %s ago", i, age)
		}
	}
	waitForCount(t, c, "all have polled", func(*generator.Count) bool {
		audit := call[generator.AuditReply](t, c, "Audit", generator.AuditArgs{Ordered: []string{"ordered"}})
		return audit.Duplicates == 10 && len(audit.Unordered) == 1 && audit.Unordered[0] == "foreign"
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.protos["HTTP/1.1"] == 0 || s.protos["HTTP/2.0"] == 0 {
		t.Errorf("the agents spoke %v", s.protos)
	}
}

// Without a share of HTTP/2 the second connection of an agent does not use it either.
func TestPollTwiceUsesTheProtocolOfTheAgent(t *testing.T) {
	s := newServer(t)
	c := s.startGenerator(t, 5)
	polled := func(times int) func(*generator.Count) bool {
		return func(*generator.Count) bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			all := 0
			for _, n := range s.polls {
				all += n
			}
			return all == times
		}
	}
	waitForCount(t, c, "all have polled", polled(5))
	call[generator.Empty](t, c, "PollTwice", generator.PollTwiceArgs{Agents: 5})
	waitForCount(t, c, "all have polled twice", polled(10))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.protos["HTTP/1.1"] != 10 || s.protos["HTTP/2.0"] != 0 {
		t.Errorf("the agents spoke %v, want HTTP/1.1 alone", s.protos)
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	s := newServer(t)
	good := generator.Options{Server: s.URL, CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}))}
	for want, change := range map[string]func(*generator.Options){
		`is ""`:        func(o *generator.Options) { o.Server = "" },
		"https://host": func(o *generator.Options) { o.Server = "http://127.0.0.1:1" },
		"PEM":          func(o *generator.Options) { o.CA = "nothing" },
	} {
		o := good
		change(&o)
		if g, err := generator.New(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v made %v, %v; want an error with %q", o, g, err, want)
		}
	}
}
