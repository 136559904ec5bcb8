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
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// indices are the names of all indices without their prefix.
var indices = []string{
	"agents", "agents-access-keys", "actions", "actions-results", "policies", "enrollment-api-keys", "rollouts", "rollout-targets", "audit", "events", "package-data", "documents",
}

// pingTimeout is the server's timeout of a Ping.
const pingTimeout = 2 * time.Second

// ping calls Ping with pingTimeout, and fails the test if it takes much longer.
func ping(t *testing.T, s store.Store) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), pingTimeout)
	defer cancel()
	began := time.Now()
	err := s.Ping(ctx)
	if took := time.Since(began); took > pingTimeout+5*time.Second { // allowing for a busy machine
		t.Errorf("a ping of %s took %s", pingTimeout, took)
	}
	return err
}

// wantHealthy fails the test unless a Ping succeeds within half a minute. On a busy machine
// some may time out.
func wantHealthy(t *testing.T, s store.Store) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for err := ping(t, s); err != nil; err = ping(t, s) {
		if time.Now().After(deadline) {
			t.Fatalf("ping fails for half a minute: %v", err)
		}
	}
}

// wantUnavailable fails the test unless err is of kind Unavailable, contains want, and
// contains neither a secret nor a URL.
func wantUnavailable(t *testing.T, err error, want string) {
	t.Helper()
	if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(fmt.Sprint(err), want) {
		t.Errorf("error is %v (%s), want one of kind %s with %q", err, fleet.KindOf(err), fleet.Unavailable, want)
	}
	if text := fmt.Sprint(err); strings.Contains(text, secretKey) || strings.Contains(text, "://") {
		t.Errorf("the error contains a secret or a URL: %s", text)
	}
}

// put sends a request directly to the node, and fails the test unless it succeeds.
func put(t *testing.T, p esnode.Place, method, path, body string) {
	t.Helper()
	status, answer, err := p.Do(t.Context(), method, "/"+p.Prefix+path, []byte(body))
	if err != nil || status != http.StatusOK {
		t.Fatalf("%s %s: status %d: %s: %v", method, path, status, answer, err)
	}
}

// makeRed replaces an index with one whose primary shard no node may allocate.
func makeRed(t *testing.T, p esnode.Place, index string) {
	t.Helper()
	put(t, p, http.MethodDelete, index, "")
	put(t, p, http.MethodPut, index+"?wait_for_active_shards=0", `{"settings":{"index.routing.allocation.require._name":"nobody"}}`)
}

func TestPingReportsWhatIsWrongWithTheNode(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	wantHealthy(t, s)
	for name, tc := range map[string]struct {
		fault esnode.Fault
		want  string
	}{
		"hanging":            {esnode.Hang(), "did not answer in time"},
		"too slow":           {esnode.Slow(pingTimeout + time.Second), "did not answer in time"},
		"overloaded":         {esnode.Refuse(http.StatusTooManyRequests), "is overloaded"},
		"wrong credentials":  {esnode.Refuse(http.StatusUnauthorized), "does not know the credentials"},
		"missing privileges": {esnode.Refuse(http.StatusForbidden), "check the privileges"},
		"searches rejected":  {esnode.Refuse(http.StatusTooManyRequests).On(path("/_search")), "is overloaded"},
		"writes hanging":     {esnode.Hang().On(path("/_bulk")), "did not answer in time"},
		"connection cut":     {esnode.Cut(), "cannot be reached"},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Break(tc.fault)
			err := ping(t, s)
			proxy.Heal()
			wantUnavailable(t, err, tc.want)
			t.Log(err)
			wantHealthy(t, s)
		})
	}
	t.Run("slow, but not too slow", func(t *testing.T) {
		proxy.Break(esnode.Slow(pingTimeout / 4))
		defer proxy.Heal()
		wantHealthy(t, s)
	})
}

func path(end string) func(*http.Request) bool {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, end) }
}

func TestPingReportsARefusedConnection(t *testing.T) {
	p := place(t)
	proxy, err := esnode.NewProxy(p.Access, esnode.ProxyOptions{})
	must(t, err)
	s := open(t, esnode.Place{Access: proxy.Access(), Prefix: p.Prefix})
	wantHealthy(t, s)
	must(t, proxy.Close())
	wantUnavailable(t, ping(t, s), "connection refused")
}

// A full disk blocks the indices with a shard on it, which may be any of them.
func TestPingReportsAWriteBlockOnAnyIndex(t *testing.T) {
	p := place(t)
	s := open(t, p)
	wantHealthy(t, s)
	for i, index := range indices {
		block := "index.blocks.read_only_allow_delete" // set by Elasticsearch on a full disk
		if i%2 == 1 {
			block = "index.blocks.write"
		}
		put(t, p, http.MethodPut, index+"/_settings", `{"`+block+`":true}`)
		err := ping(t, s)
		wantUnavailable(t, err, "takes no writes")
		wantUnavailable(t, err, "["+p.Prefix+index+"]")
		put(t, p, http.MethodPut, index+"/_settings", `{"`+block+`":null}`)
		wantHealthy(t, s)
	}
	put(t, p, http.MethodPut, "*/_settings", `{"index.blocks.read_only_allow_delete":true}`)
	wantUnavailable(t, ping(t, s), "and 12 more of the 13 indices")
	put(t, p, http.MethodPut, "*/_settings", `{"index.blocks.read_only_allow_delete":null}`)
}

// Calls on an index without a primary shard fail within seconds. Elasticsearch's default
// timeout is a minute.
func TestCallsOnARedIndexFailWithinSeconds(t *testing.T) {
	p := esnode.Shared(t)
	s := open(t, p)
	ctx := t.Context()
	must(t, s.Agents().Create(ctx, agent("a")))
	makeRed(t, p, "agents")
	err := ping(t, s)
	wantUnavailable(t, err, "look at the health of the cluster")
	wantUnavailable(t, err, "["+p.Prefix+"agents]")
	t.Log(err)
	for name, call := range map[string]func() error{
		"read":   func() error { _, err := s.Agents().Get(ctx, "a"); return err },
		"write":  func() error { return s.Agents().Create(ctx, agent("b")) },
		"search": func() error { return s.Agents().Census(ctx, func(fleet.Census) {}) },
	} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			wantUnavailable(t, call(), "look at the health of the cluster")
			if took := time.Since(began); took > 20*time.Second {
				t.Errorf("the error took %s", took)
			} else {
				t.Log(took)
			}
		})
	}
}

// Ping adds no document to lists, and uses up no sequence number of actions and events.
func TestPingLeavesNothingBehind(t *testing.T) {
	s := open(t, place(t))
	ctx := t.Context()
	before, err := s.Actions().Create(ctx, action("one", "a"))
	must(t, err)
	for range 5 {
		wantHealthy(t, s)
	}
	after, err := s.Actions().Create(ctx, action("two", "a"))
	must(t, err)
	if after != before+1 {
		t.Errorf("five pings used up the numbers between %d and %d", before, after)
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

// If one of three nodes hangs, a few calls take longer, and all succeed.
func TestCallsSucceedWhileOneOfThreeNodesHangs(t *testing.T) {
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
		// Half of this time suffices even on a busy machine.
		ctx, cancel := context.WithTimeout(t.Context(), 3*pingTimeout)
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
	if took := time.Since(began); took > 25*time.Second { // each attempt on the hanging node takes 5 s
		t.Errorf("30 reads took %s: the hanging node is tried repeatedly", took)
	}
}

// silentFirewall forwards connections. When generation is incremented, it silently drops the
// packets of existing connections, as a firewall does that was restarted.
type silentFirewall struct {
	listener   net.Listener
	to         string
	generation atomic.Int64 // connections of an earlier generation are dropped
	accepted   atomic.Int64
}

func startSilentFirewall(t *testing.T, to string) *silentFirewall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	f := &silentFirewall{listener: l, to: strings.TrimPrefix(to, "http://")}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.accepted.Add(1)
			all.Go(func() { f.forward(c) })
		}
	})
	t.Cleanup(func() {
		must(t, l.Close())
		all.Wait()
	})
	return f
}

// forward copies bytes in both directions until one end closes.
func (f *silentFirewall) forward(c net.Conn) {
	generation := f.generation.Load()
	defer c.Close()
	node, err := net.Dial("tcp", f.to)
	if err != nil {
		return
	}
	defer node.Close()
	go func() {
		defer c.Close()
		_, _ = io.Copy(c, node) // ends when either end closes
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if f.generation.Load() != generation {
			continue
		}
		if _, err := node.Write(buf[:n]); err != nil {
			return
		}
	}
}

// After a timeout on one connection, the other idle connections are not used any more.
func TestSilentlyDroppedConnectionsCostOneTimeout(t *testing.T) {
	p := place(t)
	// The node may have a certificate for its own host name, which the proxy can verify.
	proxy := esnode.StartProxy(t, p.Access, esnode.ProxyOptions{})
	f := startSilentFirewall(t, proxy.Access().URLs[0])
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
	if n := f.accepted.Load(); n < 4 {
		t.Fatalf("there are only %d connections", n)
	}
	f.generation.Add(1)
	short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
	defer cancel()
	wantUnavailable(t, list(short), "did not answer in time")
	again, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	must(t, list(again))
}
