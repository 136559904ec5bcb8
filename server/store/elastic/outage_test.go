package elastic_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/testing/esnode"
)

// indices are all of a place, without its prefix.
var indices = []string{
	"agents", "agents-access-keys", "actions", "actions-results", "policies", "enrollment-api-keys", "rollouts", "rollout-targets", "audit", "events", "package-data", "documents",
}

// pingPatience is what the server gives a ping.
const pingPatience = 2 * time.Second

// ping says what a ping of two seconds met, and fails the test if it took longer.
func ping(t *testing.T, s store.Store) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pingPatience)
	defer cancel()
	began := time.Now()
	err := s.Ping(ctx)
	if took := time.Since(began); took > pingPatience+5*time.Second { // of a busy machine
		t.Errorf("a ping of %s took %s", pingPatience, took)
	}
	return err
}

// wantWell wants a ping to find nothing wrong, at the latest after half a minute: a
// busy machine may be too slow for one.
func wantWell(t *testing.T, s store.Store) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for err := ping(t, s); err != nil; err = ping(t, s) {
		if time.Now().After(deadline) {
			t.Fatalf("half a minute after it should be well: %v", err)
		}
	}
}

// wantSaid fails the test unless err is for operators, and says what is wanted.
func wantSaid(t *testing.T, err error, want string) {
	t.Helper()
	if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("error is %v (%s), want one of kind %s with %q", err, fleet.KindOf(err), fleet.Unavailable, want)
	}
	if said := fmt.Sprint(err); strings.Contains(said, secretKey) || strings.Contains(said, "://") {
		t.Errorf("the error tells too much: %s", said)
	}
}

// put sends a request that is no part of the store, and must succeed.
func put(t *testing.T, p esnode.Place, method, path, body string) {
	t.Helper()
	status, answer, err := p.Do(t.Context(), method, "/"+p.Prefix+path, []byte(body))
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s %s: status %d: %s: %v", method, path, status, answer, err)
	}
}

// redden takes an index away and leaves one whose only copy no node may have.
func redden(t *testing.T, p esnode.Place, index string) {
	t.Helper()
	put(t, p, http.MethodDelete, index, "")
	put(t, p, http.MethodPut, index+"?wait_for_active_shards=0", `{"settings":{"index.routing.allocation.require._name":"nobody"}}`)
}

func TestPingOfANodeThatIsNotWell(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	wantWell(t, s)
	for name, tc := range map[string]struct {
		fault esnode.Fault
		want  string
	}{
		"half open":          {esnode.Hang(), "did not answer in time"},
		"too slow":           {esnode.Slow(pingPatience + time.Second), "did not answer in time"},
		"too much to do":     {esnode.Refuse(http.StatusTooManyRequests), "is overloaded"},
		"wrong credentials":  {esnode.Refuse(http.StatusUnauthorized), "does not know the credentials"},
		"missing privileges": {esnode.Refuse(http.StatusForbidden), "check the privileges"},
		"no searches":        {esnode.Refuse(http.StatusTooManyRequests).On(path("/_search")), "is overloaded"},
		"no writes":          {esnode.Hang().On(path("/_bulk")), "did not answer in time"},
		"cut off":            {esnode.Cut(), "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Break(tc.fault)
			err := ping(t, s)
			proxy.Heal()
			wantSaid(t, err, tc.want)
			t.Log(err)
			wantWell(t, s)
		})
	}
	t.Run("slow, but not too slow", func(t *testing.T) {
		proxy.Break(esnode.Slow(pingPatience / 4))
		defer proxy.Heal()
		wantWell(t, s)
	})
}

func path(end string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, end) }
}

func TestPingOfNobody(t *testing.T) {
	p := place(t)
	proxy, err := esnode.NewProxy(p.Access, esnode.ProxyOptions{})
	must(t, err)
	s := open(t, esnode.Place{Access: proxy.Access(), Prefix: p.Prefix})
	wantWell(t, s)
	must(t, proxy.Close())
	wantSaid(t, ping(t, s), "connection refused")
}

// Each index in turn, since a disk that is full blocks those that have a part on it.
func TestPingWhereAnIndexTakesNoWrites(t *testing.T) {
	p := place(t)
	s := open(t, p)
	wantWell(t, s)
	for i, index := range indices {
		block := "index.blocks.read_only_allow_delete" // what the flood stage sets
		if i%2 == 1 {
			block = "index.blocks.write"
		}
		put(t, p, http.MethodPut, index+"/_settings", `{"`+block+`":true}`)
		err := ping(t, s)
		wantSaid(t, err, "takes no writes")
		wantSaid(t, err, "["+p.Prefix+index+"]")
		put(t, p, http.MethodPut, index+"/_settings", `{"`+block+`":null}`)
		wantWell(t, s)
	}
	put(t, p, http.MethodPut, "*/_settings", `{"index.blocks.read_only_allow_delete":true}`)
	wantSaid(t, ping(t, s), "and 11 more of the 12 indices")
	put(t, p, http.MethodPut, "*/_settings", `{"index.blocks.read_only_allow_delete":null}`)
}

// An index without its primary copy: calls say so in seconds, not in the minute that
// Elasticsearch would have them wait.
func TestARedIndex(t *testing.T) {
	p := esnode.Shared(t)
	s := open(t, p)
	ctx := t.Context()
	must(t, s.Agents().Create(ctx, agent("a")))
	redden(t, p, "agents")
	err := ping(t, s)
	wantSaid(t, err, "look at the health of the cluster")
	wantSaid(t, err, "["+p.Prefix+"agents]")
	t.Log(err)
	for name, call := range map[string]func() error{
		"read":   func() error { _, err := s.Agents().Get(ctx, "a"); return err },
		"write":  func() error { return s.Agents().Create(ctx, agent("b")) },
		"search": func() error { return s.Agents().Census(ctx, func(fleet.Census) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			wantSaid(t, call(), "look at the health of the cluster")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("it took %s to say so", took)
			} else {
				t.Log(took)
			}
		})
	}
}

// What pings leave behind is in no list, and uses up no number of the orders.
func TestPingLeavesNothingBehind(t *testing.T) {
	s := open(t, place(t))
	ctx := t.Context()
	before, err := s.Actions().Create(ctx, action("one", "a"))
	must(t, err)
	for range 5 {
		wantWell(t, s)
	}
	after, err := s.Actions().Create(ctx, action("two", "a"))
	must(t, err)
	if after != before+1 {
		t.Errorf("five pings took the numbers between %d and %d", before, after)
	}
	_, agents, err := s.Agents().List(ctx, store.AgentQuery{})
	must(t, err)
	_, audit, err := s.Audit().List(ctx, store.AuditQuery{})
	must(t, err)
	_, webhooks, err := s.Webhooks().List(ctx, 0, 0)
	must(t, err)
	_, last, err := s.Events().Bounds(ctx)
	must(t, err)
	if agents+audit+webhooks+int(last) != 0 {
		t.Errorf("there are %d agents, %d audit entries, %d webhooks, and event %d", agents, audit, webhooks, last)
	}
}

// One of three nodes hangs. It costs a call or two half of their time, and no more.
func TestOneOfThreeNodesHangs(t *testing.T) {
	p := place(t)
	place := esnode.Place{Prefix: p.Prefix}
	var proxies []*esnode.Proxy
	for range 3 {
		proxy := esnode.StartProxy(t, p.Access, esnode.ProxyOptions{})
		proxies, place.URLs = append(proxies, proxy), append(place.URLs, proxy.Access().URLs...)
	}
	s := open(t, place)
	must(t, s.Agents().Create(t.Context(), agent("a")))
	proxies[1].Break(esnode.Hang())
	for i := range 12 {
		// Half of it is enough for a busy machine, too.
		ctx, cancel := context.WithTimeout(t.Context(), 3*pingPatience)
		if err := s.Ping(ctx); err != nil {
			t.Errorf("ping %d: %v", i, err)
		}
		cancel()
	}
	began := time.Now()
	for range 30 {
		_, err := s.Agents().Get(t.Context(), "a")
		must(t, err)
	}
	if took := time.Since(began); took > 25*time.Second { // each hang would be five
		t.Errorf("30 reads took %s: the node that hangs is asked again and again", took)
	}
}

// forgetful passes connections on until it is told to forget those there are, as a
// firewall does that was restarted: nothing is answered on them any more, and
// nobody is told.
type forgetful struct {
	listener net.Listener
	to       string
	age      atomic.Int64 // connections of an earlier one are forgotten
	taken    atomic.Int64
}

func startForgetful(t *testing.T, to string) *forgetful {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &forgetful{listener: l, to: strings.TrimPrefix(to, "http://")}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.taken.Add(1)
			all.Go(func() { f.pass(c) })
		}
	})
	t.Cleanup(func() {
		must(t, l.Close())
		all.Wait()
	})
	return f
}

// pass copies what goes back and forth, until one of both ends it.
func (f *forgetful) pass(c net.Conn) {
	age := f.age.Load()
	defer c.Close()
	node, err := net.Dial("tcp", f.to)
	if err != nil {
		return
	}
	defer node.Close()
	go func() {
		defer c.Close()
		_, _ = io.Copy(c, node) // ends with either
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if f.age.Load() != age {
			continue
		}
		if _, err := node.Write(buf[:n]); err != nil {
			return
		}
	}
}

// A timeout on one forgotten connection is a reason to trust none of the others.
func TestConnectionsThatWereForgottenCostOneTimeout(t *testing.T) {
	p := place(t)
	// The node may be a secured one elsewhere, whose certificate names its own host:
	// a proxy knows how it is reached.
	proxy := esnode.StartProxy(t, p.Access, esnode.ProxyOptions{})
	f := startForgetful(t, proxy.Access().URLs[0])
	s := open(t, esnode.Place{Access: esnode.Access{URLs: []string{"http://" + f.listener.Addr().String()}}, Prefix: p.Prefix})
	ctx := t.Context()
	list := func(ctx context.Context) error {
		_, _, err := s.Agents().List(ctx, store.AgentQuery{Limit: 5})
		return err
	}
	var together sync.WaitGroup
	for range 16 {
		together.Go(func() {
			if err := list(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	if n := f.taken.Load(); n < 4 {
		t.Fatalf("there are only %d connections", n)
	}
	f.age.Add(1)
	hurry, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	wantSaid(t, list(hurry), "did not answer in time")
	again, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	must(t, list(again))
}
