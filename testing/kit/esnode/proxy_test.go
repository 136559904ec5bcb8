package esnode

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/port"
)

// through returns a proxy for the shared node, and an index of the test.
func through(t *testing.T, o ProxyOptions) (p *Proxy, direct Access, path string) {
	t.Helper()
	place := Shared(t)
	path = "/" + place.Prefix + "hosts"
	ask(t, place.Access, "PUT", path, index, 200)
	return StartProxy(t, place.Access, o), place.Access, path
}

// status returns the status of a request, or 0 for an error.
func status(t *testing.T, a Access, method, path, body string) (int, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, _, err := a.Do(ctx, method, path, []byte(body))
	return got, err
}

func TestProxyWithoutFaultsPassesEverything(t *testing.T) {
	p, direct, path := through(t, ProxyOptions{})
	ask(t, p.Access(), "PUT", path+"/_create/a?refresh=true", `{"name": "a"}`, 201)
	ask(t, direct, "GET", path+"/_doc/a", "", 200)
	ask(t, p.Access(), "GET", path+"/_doc/b", "", 404)
	if found := ask(t, p.Access(), "GET", path+"/_search?q=name:a", "", 200); !strings.Contains(fmt.Sprint(found), "name:a") {
		t.Errorf("searched through the proxy: %v", found)
	}
	ask(t, p.Access(), "GET", path, "", 200)
	want := map[string]int{"PUT _create": 1, "GET _doc": 1, "GET _search": 1, "GET document": 1}
	if got := p.Counts(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

func TestProxySlow(t *testing.T) {
	p, _, path := through(t, ProxyOptions{})
	const half = 150 * time.Millisecond
	p.Break(Slow(half), Slow(half), Slow(time.Hour).On(func(r *http.Request) bool { return r.Method == http.MethodPost }))
	began := time.Now()
	ask(t, p.Access(), "GET", path, "", 200)
	if took := time.Since(began); took < 2*half {
		t.Errorf("an answer after %s, and it is slow by %s", took, 2*half)
	}
	ctx, cancel := context.WithTimeout(t.Context(), half)
	defer cancel()
	if _, _, err := p.Access().Do(ctx, "POST", path+"/_refresh", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("what takes an hour: %v", err)
	}
}

func TestProxyRefuse(t *testing.T) {
	p, direct, path := through(t, ProxyOptions{})
	bulk := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/_bulk") }
	p.Break(Refuse(429).On(bulk).Times(2), Refuse(503).On(func(r *http.Request) bool { return r.Method == http.MethodDelete }))
	line := "{\"create\": {\"_id\": \"a\"}}\n{\"name\": \"a\"}\n"
	for range 2 {
		ask(t, p.Access(), "GET", path, "", 200)
		e := ask(t, p.Access(), "POST", path+"/_bulk", line, 429)
		if e["status"] != 429.0 || e["error"].(map[string]any)["type"] != "es_rejected_execution_exception" {
			t.Errorf("refused with %v", e)
		}
		ask(t, direct, "GET", path+"/_doc/a", "", 404)
	}
	ask(t, p.Access(), "POST", path+"/_bulk", line, 200)
	ask(t, direct, "GET", path+"/_doc/a", "", 200)
	for range 3 {
		ask(t, p.Access(), "DELETE", path+"/_doc/a", "", 503)
	}
	p.Heal()
	ask(t, p.Access(), "DELETE", path+"/_doc/a", "", 200)
}

func TestProxyCutAndLose(t *testing.T) {
	for _, o := range []ProxyOptions{{}, {TLS: true}} {
		t.Run(fmt.Sprintf("TLS %v", o.TLS), func(t *testing.T) {
			p, direct, path := through(t, o)
			for _, test := range []struct {
				name  string
				fault Fault
				want  int
			}{{"cut", Cut(), 404}, {"lost", Lose(), 200}} {
				p.Break(test.fault)
				got, err := status(t, p.Access(), "PUT", path+"/_create/"+test.name, `{"name": "x"}`)
				if !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("%s: status %d, %v, want a reset connection", test.name, got, err)
				}
				ask(t, direct, "GET", path+"/_doc/"+test.name, "", test.want)
			}
			p.Heal()
			ask(t, p.Access(), "GET", path+"/_doc/lost", "", 200)
		})
	}
}

func TestProxyHang(t *testing.T) {
	for _, o := range []ProxyOptions{{}, {TLS: true}} {
		t.Run(fmt.Sprintf("TLS %v", o.TLS), func(t *testing.T) {
			p, direct, path := through(t, o)
			const waitLimit = 300 * time.Millisecond
			// One connection is open before the fault, another is opened after.
			transport, err := p.Access().transport()
			if err != nil {
				t.Fatal(err)
			}
			defer transport.CloseIdleConnections()
			kept := http.Client{Transport: transport, Timeout: waitLimit}
			get := func() error {
				resp, err := kept.Get(p.Access().URLs[0] + path)
				if err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is kept
				return resp.Body.Close()
			}
			kept.Timeout = 30 * time.Second
			if err := get(); err != nil {
				t.Fatal(err)
			}
			kept.Timeout = waitLimit
			p.Break(Hang())
			if err := get(); !isTimeout(err) {
				t.Errorf("on a connection that stood: %v, want no answer", err)
			}
			for _, path := range []string{path, path + "/_create/a"} {
				ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
				_, _, err := p.Access().Do(ctx, "PUT", path, []byte(`{"name": "a"}`))
				cancel()
				if !isTimeout(err) {
					t.Errorf("on a new connection: %v, want no answer", err)
				}
			}
			p.Heal()
			ask(t, direct, "GET", path+"/_doc/a", "", 404)
			ask(t, p.Access(), "PUT", path+"/_create/a", `{"name": "a"}`, 201)
		})
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestProxyHangOfOneRequest(t *testing.T) {
	p, _, path := through(t, ProxyOptions{})
	p.Break(Hang().Times(1), Cut().Times(0))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, _, err := p.Access().Do(ctx, "GET", path, nil); !isTimeout(err) {
		t.Errorf("the first: %v, want no answer", err)
	}
	ask(t, p.Access(), "GET", path, "", 200)
}

func TestProxyResetsConnectionsToADeadNode(t *testing.T) {
	unused, err := port.Free()
	if err != nil {
		t.Fatal(err)
	}
	p := StartProxy(t, Access{URLs: []string{fmt.Sprintf("http://%s:%d", host, unused)}}, ProxyOptions{})
	if got, err := status(t, p.Access(), "GET", "/", ""); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("status %d, %v, want a reset connection", got, err)
	}
}

func TestProxyChecksCredentials(t *testing.T) {
	p, _, path := through(t, ProxyOptions{})
	kinds := map[string]Access{
		"an API key":      {APIKey: "aWQ6a2V5"},
		"name, password":  {Username: "muster", Password: "päss:word"},
		"a service token": {ServiceToken: "AAEAAW11c3Rlcg"},
		"nothing":         {},
	}
	for demanded, d := range kinds {
		p.Demand(d)
		for shown, s := range kinds {
			want := 401
			if demanded == shown || demanded == "nothing" {
				want = 200
			}
			s.URLs = p.Access().URLs
			if got, err := status(t, s, "GET", path, ""); err != nil || got != want {
				t.Errorf("%s is demanded, %s is shown: status %d, %v, want %d", demanded, shown, got, err, want)
			}
		}
		ask(t, p.Access(), "GET", path, "", 200)
	}
	// A valid key is revoked while the client works.
	p.Demand(Access{APIKey: "bmV3"})
	old := Access{URLs: p.Access().URLs, APIKey: "aWQ6a2V5"}
	if e := ask(t, old, "GET", path, "", 401); !strings.Contains(fmt.Sprint(e), "security_exception") {
		t.Errorf("refused with %v", e)
	}
}

func TestProxyHasItsOwnAuthority(t *testing.T) {
	p, _, path := through(t, ProxyOptions{TLS: true})
	ask(t, p.Access(), "GET", path, "", 200)
	stranger := Access{URLs: p.Access().URLs}
	if got, err := status(t, stranger, "GET", path, ""); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("without the authority: status %d, %v", got, err)
	}
	if got, err := status(t, Access{URLs: []string{"http" + strings.TrimPrefix(stranger.URLs[0], "https")}}, "GET", path, ""); got == 200 {
		t.Errorf("without TLS: status %d, %v", got, err)
	}
	// The chain that the server sends includes the authority, for clients that know only its
	// digest.
	conn, err := tls.Dial("tcp", strings.TrimPrefix(p.Access().URLs[0], "https://"), &tls.Config{InsecureSkipVerify: true}) // the digest is checked instead
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	found := false
	for _, c := range conn.ConnectionState().PeerCertificates {
		sum := sha256.Sum256(c.Raw)
		found = found || hex.EncodeToString(sum[:]) == p.Fingerprint()
	}
	if !found {
		t.Errorf("no certificate the server sends has the fingerprint %s", p.Fingerprint())
	}
}

func TestProxyRequiresAClientCertificate(t *testing.T) {
	p, direct, path := through(t, ProxyOptions{ClientCertificate: true})
	ask(t, p.Access(), "GET", path, "", 200)
	without := p.Access()
	without.Certificate, without.Key = nil, nil
	foreign := p.Access()
	other := StartProxy(t, direct, ProxyOptions{ClientCertificate: true}).Access()
	foreign.Certificate, foreign.Key = other.Certificate, other.Key
	for what, a := range map[string]Access{"no certificate": without, "another authority's": foreign} {
		if got, err := status(t, a, "GET", path, ""); err == nil {
			t.Errorf("with %s: status %d", what, got)
		}
	}
}

func TestProxySendsItsOwnCredentialToTheNode(t *testing.T) {
	inner, _, path := through(t, ProxyOptions{ClientCertificate: true})
	inner.Demand(Access{APIKey: "aW5uZXI"})
	outer := StartProxy(t, inner.Access(), ProxyOptions{})
	outer.Demand(Access{Username: "outer", Password: "x"})
	ask(t, outer.Access(), "GET", path, "", 200)
}

// All methods are called concurrently, for the race detector, and each answer is one of the
// configured ones.
func TestProxyIsSafeForConcurrentUse(t *testing.T) {
	p, _, path := through(t, ProxyOptions{})
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() {
			for range 25 {
				a := p.Access()
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				got, _, err := a.Do(ctx, "GET", path, nil)
				cancel()
				if err != nil && !errors.Is(err, syscall.ECONNRESET) || err == nil && got != 200 && got != 429 && got != 401 {
					t.Errorf("status %d, %v", got, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { clients.Wait(); close(done) }()
	for i := 0; ; i++ {
		select {
		case <-done:
			if n := p.Counts()["GET document"]; n != 100 {
				t.Errorf("counted %d requests, want 100", n)
			}
			return
		case <-time.After(time.Millisecond):
		}
		p.Break([]Fault{Cut(), Lose(), Refuse(429), Slow(time.Millisecond)}[i%4].Times(1 + i%2))
		p.Demand([]Access{{}, {APIKey: "a"}}[i%2])
	}
}
