package elastic_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

var now = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func agent(id string) fleet.Agent {
	return fleet.Agent{ID: id, Type: "PERMANENT", Active: true, PolicyID: "default", AccessKeyID: "key-" + id, EnrolledAt: now, Version: "1.0.0"}
}

func action(id string, agents ...string) fleet.Action {
	return fleet.Action{ID: id, Type: agentapi.ActionUpgrade, Agents: agents, Actioned: len(agents), CreatedAt: now}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// throughProxy opens a store that reaches its node through a proxy.
func throughProxy(t *testing.T) (store.Store, *esnode.Proxy, esnode.Place) {
	t.Helper()
	p := place(t)
	proxy := esnode.StartProxy(t, p.Access, esnode.ProxyOptions{})
	proxy.Demand(esnode.Access{APIKey: secretKey})
	p.Access = proxy.Access()
	return open(t, p), proxy, p
}

// secretKey must not appear in any error.
const secretKey = "c2VjcmV0LWlkOnNlY3JldC1rZXk="

func open(t *testing.T, p esnode.Place) store.Store {
	t.Helper()
	opts, err := options(p)
	must(t, err)
	s, err := elastic.Open(t.Context(), opts)
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	return s
}

// calls has one call of each kind.
var calls = map[string]func(context.Context, store.Store) error{
	"read": func(ctx context.Context, s store.Store) error { _, err := s.Agents().Get(ctx, "a"); return err },
	"write": func(ctx context.Context, s store.Store) error {
		return s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: time.Now(), Status: "online"}})
	},
	"list": func(ctx context.Context, s store.Store) error {
		_, _, err := s.Agents().List(ctx, store.AgentQuery{Limit: 5})
		return err
	},
	"walk": func(ctx context.Context, s store.Store) error {
		return s.Agents().Census(ctx, func(fleet.Census) {})
	},
	"follow": func(ctx context.Context, s store.Store) error { _, err := s.Actions().After(ctx, 0, 5); return err },
	"ping":   func(ctx context.Context, s store.Store) error { return s.Ping(ctx) },
}

func TestFaultsAreUnavailableAndCallsSucceedAfterThem(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	must(t, s.Agents().Create(t.Context(), agent("a")))
	for name, fault := range map[string]esnode.Fault{
		"credentials revoked":      esnode.Refuse(http.StatusUnauthorized),
		"privileges missing":       esnode.Refuse(http.StatusForbidden),
		"overloaded":               esnode.Refuse(http.StatusTooManyRequests),
		"failing":                  esnode.Refuse(http.StatusInternalServerError),
		"no node behind the proxy": esnode.Refuse(http.StatusServiceUnavailable),
		"connection cut":           esnode.Cut(),
		"hanging":                  esnode.Hang(),
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Break(fault)
			var all sync.WaitGroup
			for what, call := range calls {
				all.Go(func() {
					// Shorter than the store's own timeout of ten seconds.
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					defer cancel()
					err := call(ctx, s)
					if fleet.KindOf(err) != fleet.Unavailable {
						t.Errorf("%s: error is %v (%s), want one of kind %s", what, err, fleet.KindOf(err), fleet.Unavailable)
						return
					}
					if s := fmt.Sprint(err, fmt.Sprintf("%+v", err)); strings.Contains(s, secretKey) || strings.Contains(s, "http://") {
						t.Errorf("%s: the error contains a secret or a URL: %s", what, s)
					}
				})
			}
			all.Wait()
			proxy.Heal()
			for what, call := range calls {
				if err := call(t.Context(), s); err != nil {
					t.Errorf("after the fault, %s: %v", what, err)
				}
			}
		})
	}
}

func TestOverloadedNodeIsRetried(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	proxy.Break(esnode.Refuse(http.StatusTooManyRequests).Times(2))
	must(t, s.Agents().Create(t.Context(), agent("a")))
	proxy.Break(esnode.Refuse(http.StatusServiceUnavailable).Times(2))
	_, err := s.Agents().Get(t.Context(), "a")
	must(t, err)
}

func TestWriteWithLostResponseIsNotExecutedTwice(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	ctx := t.Context()
	bulk := func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/_bulk") }
	lose := func() { proxy.Break(esnode.Lose().On(bulk).Times(1)) }
	lost := func(err error) {
		t.Helper()
		if fleet.KindOf(err) != fleet.Unavailable {
			t.Fatalf("error is %v (%s), want one of kind %s", err, fleet.KindOf(err), fleet.Unavailable)
		}
	}
	lose()
	_, err := s.Actions().Create(ctx, action("act", "a"))
	lost(err)
	if _, err = s.Actions().Create(ctx, action("act", "a")); fleet.KindOf(err) != fleet.Conflict {
		t.Fatalf("the second attempt returned %v", err)
	}
	list, err := s.Actions().After(ctx, 0, 9)
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%d actions are stored, want 1", len(list))
	}

	must(t, s.Agents().Create(ctx, agent("a")))
	a, err := s.Agents().Get(ctx, "a")
	must(t, err)
	a.PolicyRev++
	lose()
	_, err = s.Agents().Update(ctx, a)
	lost(err)
	if _, err = s.Agents().Update(ctx, a); fleet.KindOf(err) != fleet.Conflict {
		t.Fatalf("the second attempt returned %v, want a conflict with the first", err)
	}
	if a, err = s.Agents().Get(ctx, "a"); err != nil || a.PolicyRev != 1 {
		t.Fatalf("the change was executed %d times: %v", a.PolicyRev, err)
	}
	lose()
	touch := []fleet.Touch{{AgentID: "a", At: now.Add(time.Second), Status: "online"}}
	lost(s.Agents().Touch(ctx, touch))
	must(t, s.Agents().Touch(ctx, touch))
	lose()
	results := []fleet.Result{{ActionID: "act", AgentID: "a", Timestamp: now}}
	_, err = s.Results().Put(ctx, results)
	lost(err)
	if changed, err := s.Results().Put(ctx, results); err != nil || changed[0] {
		t.Fatalf("the second attempt returned %v, %v", changed, err)
	}
}

func TestIndexWithAWriteBlockCanBeRead(t *testing.T) {
	p := place(t)
	s := open(t, p)
	must(t, s.Agents().Create(t.Context(), agent("a")))
	block := func(v string) {
		t.Helper()
		status, answer, err := p.Do(t.Context(), http.MethodPut, "/"+p.Prefix+"agents/_settings", []byte(`{"index.blocks.read_only_allow_delete":`+v+`}`))
		if err != nil || status != http.StatusOK {
			t.Fatalf("status %d: %s: %v", status, answer, err)
		}
	}
	block("true")
	began := time.Now()
	err := s.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: "a", At: time.Now(), Status: "online"}})
	if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "takes no writes") {
		t.Errorf("error is %v (%s)", err, fleet.KindOf(err))
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("the error took %s", took)
	}
	if _, err := s.Agents().Get(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	block("null")
	must(t, s.Agents().Touch(t.Context(), []fleet.Touch{{AgentID: "a", At: time.Now(), Status: "online"}}))
}

func TestOpenPresentsCredentialsAndVerifiesTheServer(t *testing.T) {
	node := place(t)
	for name, tc := range map[string]struct {
		demand  esnode.Access
		options esnode.ProxyOptions
		print   bool // trust the authority only by its fingerprint
	}{
		"nothing":                         {},
		"an API key":                      {demand: esnode.Access{APIKey: secretKey}},
		"a user and a password":           {demand: esnode.Access{Username: "muster", Password: "pass:word/ä"}},
		"a service token":                 {demand: esnode.Access{ServiceToken: "AAEAAWVsYXN0aWM"}},
		"trust in a private authority":    {options: esnode.ProxyOptions{TLS: true}, demand: esnode.Access{APIKey: secretKey}},
		"trust in a fingerprint":          {options: esnode.ProxyOptions{TLS: true}, print: true},
		"a certificate":                   {options: esnode.ProxyOptions{TLS: true, ClientCertificate: true}},
		"a certificate, by a fingerprint": {options: esnode.ProxyOptions{TLS: true, ClientCertificate: true}, print: true},
	} {
		t.Run(name, func(t *testing.T) {
			proxy := esnode.StartProxy(t, node.Access, tc.options)
			proxy.Demand(tc.demand)
			p := esnode.Place{Access: proxy.Access(), Prefix: node.Prefix}
			opts, err := options(p)
			must(t, err)
			if tc.print {
				opts.CACert, opts.CAFingerprint = nil, proxy.Fingerprint()
			}
			s, err := elastic.Open(t.Context(), opts)
			must(t, err)
			must(t, s.Ping(t.Context()))
			must(t, s.Close())

			wrong := opts
			switch {
			case tc.options.ClientCertificate:
				wrong.ClientCertificate = nil
			case tc.print:
				wrong.CAFingerprint = strings.Repeat("ab", 32)
			case tc.options.TLS:
				wrong.CACert = nil
			case tc.demand.APIKey != "":
				wrong.APIKey = "b3RoZXI6a2V5"
			case tc.demand.Username != "":
				wrong.Password = "other"
			case tc.demand.ServiceToken != "":
				wrong.ServiceToken = "b3RoZXI"
			default:
				return
			}
			s, err = elastic.Open(t.Context(), wrong)
			if err == nil {
				must(t, s.Close())
				t.Fatal("Open succeeded with wrong credentials")
			}
			if fleet.KindOf(err) != fleet.Unavailable {
				t.Errorf("error is %v (%s)", err, fleet.KindOf(err))
			}
			for _, secret := range []string{wrong.APIKey, wrong.Password, wrong.ServiceToken} {
				if secret != "" && strings.Contains(err.Error(), secret) {
					t.Errorf("the error contains the secret: %v", err)
				}
			}
			t.Log(err)
		})
	}
}

func TestOpenRefusesAServerThatIsNotElasticsearch(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "{}") }))
	defer other.Close()
	_, err := elastic.Open(t.Context(), elastic.Options{URLs: []string{other.URL}})
	if err == nil || !strings.Contains(err.Error(), "not Elasticsearch") {
		t.Fatalf("error is %v", err)
	}
}

func TestOpenRefusesInvalidOptions(t *testing.T) {
	url := []string{"https://es.example:9200"}
	for want, opts := range map[string]elastic.Options{
		"no URL":                        {},
		"is not of the form":            {URLs: []string{"es.example:9200"}},
		"credentials in it":             {URLs: []string{"https://muster:hush@es.example:9200"}},
		"more than one":                 {URLs: url, Username: "u", APIKey: "k"},
		"one is given alone":            {URLs: url, Username: "u"},
		"cannot begin":                  {URLs: url, Prefix: "Muster-"},
		"no certificate in PEM":         {URLs: url, CACert: []byte("none")},
		"not a SHA-256":                 {URLs: url, CAFingerprint: "abcd"},
		"a URL is not of the form http": {URLs: []string{"https://muster:hush@[es:9200"}},
	} {
		_, err := elastic.Open(t.Context(), opts)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("error is %v, want one with %q", err, want)
		}
	}
}

func TestOpenRefusesForeignIndices(t *testing.T) {
	t.Run("of a newer Muster", func(t *testing.T) {
		p := esnode.Shared(t)
		must(t, open(t, p).Policies().Create(t.Context(), fleet.Policy{ID: "p"}))
		meta := []byte(`{"_meta":{"muster_schema":99}}`)
		if status, answer, err := p.Do(t.Context(), http.MethodPut, "/"+p.Prefix+"policies/_mapping", meta); err != nil || status != http.StatusOK {
			t.Fatalf("status %d: %s: %v", status, answer, err)
		}
		refused(t, p, "newer Muster")

		opts, err := options(p)
		must(t, err)
		if _, err := elastic.Open(t.Context(), opts); !errors.Is(err, store.ErrNewer) {
			t.Errorf("error is %v, and no store.ErrNewer", err)
		}
		asIs := opts
		asIs.AsIs = true
		s, err := elastic.Open(t.Context(), asIs)
		must(t, err)
		_, err = s.Policies().Get(t.Context(), "p")
		must(t, errors.Join(err, s.Close()))
		refused(t, p, "newer Muster") // it was left as it is

		if err := elastic.Downgrade(t.Context(), opts, 0); err == nil || !strings.Contains(err.Error(), "has no way back to 0") {
			t.Errorf("error is %v, want one that there is no way back", err)
		}
		must(t, elastic.Downgrade(t.Context(), opts, elastic.NewestSchema()))
		_, err = open(t, p).Policies().Get(t.Context(), "p")
		must(t, err)
	})
	t.Run("of somebody else", func(t *testing.T) {
		p := esnode.Shared(t)
		if status, answer, err := p.Do(t.Context(), http.MethodPut, "/"+p.Prefix+"events", nil); err != nil || status != http.StatusOK {
			t.Fatalf("status %d: %s: %v", status, answer, err)
		}
		refused(t, p, "was not created by Muster")
		if status, _, err := p.Do(t.Context(), http.MethodHead, "/"+p.Prefix+"agents", nil); err != nil || status != http.StatusNotFound {
			t.Errorf("another index was created: status %d, %v", status, err)
		}
	})
}

func refused(t *testing.T, p esnode.Place, want string) {
	t.Helper()
	opts, err := options(p)
	must(t, err)
	s, err := elastic.Open(t.Context(), opts)
	if err == nil {
		must(t, s.Close())
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Fatalf("error is %v, want one with %q", err, want)
	}
}

// The number of requests of a check-in must not grow unnoticed.
func TestCheckInMakesThreeRequests(t *testing.T) {
	s, proxy, _ := throughProxy(t)
	ctx := t.Context()
	must(t, s.Agents().Create(ctx, agent("a")))
	checkIn := func(n int) {
		t.Helper()
		a, err := s.Agents().ByAccessKey(ctx, "key-a")
		must(t, err)
		a.PolicyRev = int64(n)
		_, err = s.Agents().Report(ctx, store.Report{Agent: &a, Seen: &fleet.Touch{AgentID: "a", At: now.Add(time.Duration(n) * time.Second), Status: "online"}})
		must(t, err)
		must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: now.Add(time.Duration(n)*time.Second + time.Millisecond)}}))
	}
	total := func() (n int) {
		for _, count := range proxy.Counts() {
			n += count
		}
		return n
	}
	checkIn(1) // caches the owner of the key
	before := total()
	const rounds = 5
	for n := range rounds {
		checkIn(n + 2)
	}
	// One read of the agent, one write with last seen, and one touch while it is parked.
	if got := total() - before; got != 3*rounds {
		t.Errorf("%d check-ins made %d requests, want 3 each: %v", rounds, got, proxy.Counts())
	}
}

// Another writer comes before each write of a call, as often as the call writes again at
// most: its last write must be stored and must be its success.
func TestLastTryOfAWriteCounts(t *testing.T) {
	p := place(t)
	proxy := esnode.StartProxy(t, p.Access, esnode.ProxyOptions{})
	other := open(t, p)
	p.Access = proxy.Access()
	s := open(t, p)
	ctx := t.Context()
	must(t, s.Agents().Create(ctx, agent("a")))
	const tries = 10
	met, at := 0, now
	contend := func(r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "_bulk") || met == tries-1 {
			return false
		}
		met, at = met+1, at.Add(time.Second)
		if err := other.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: at}}); err != nil {
			t.Error(err)
		}
		return true
	}
	for name, call := range map[string]func(a fleet.Agent) error{
		"touch": func(fleet.Agent) error {
			return s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: now, ActionSeq: 7}})
		},
		"update": func(a fleet.Agent) error {
			a.PolicyRev = 7
			_, err := s.Agents().Update(ctx, a)
			return err
		},
	} {
		a, err := s.Agents().Get(ctx, "a")
		must(t, err)
		met = 0
		proxy.Break(esnode.Slow(0).On(contend))
		if err := call(a); err != nil || met != tries-1 {
			t.Errorf("%s after %d other writers: %v", name, met, err)
		}
		proxy.Heal()
	}
	if a, err := s.Agents().Get(ctx, "a"); err != nil || a.PolicyRev != 7 || a.Last.ActionSeq != 7 {
		t.Errorf("the agent is %+v, %v", a, err)
	}
}
