package elastic_test

import (
	_ "embed"
	"encoding/json"
	"flag"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/esnode"
)

//go:embed role.json
var roles []byte

// needed are the privileges that each kind of request needs, according to Elasticsearch's
// documentation: index privileges, or those of the cluster. The test node has no security
// features that could verify them.
var needed = map[string]string{
	"POST /_bulk":                  "write",
	"POST /_mget":                  "read",
	"POST /_search":                "read",
	"POST /{index}/_search":        "read",
	"POST /{index}/_pit":           "read",
	"DELETE /_pit":                 "read",
	"POST /{index}/_refresh":       "maintenance",
	"GET /{index}/_stats/docs":     "monitor",
	"GET /{index}/_mapping":        "view_index_metadata",
	"PUT /{index}":                 "create_index",
	"PUT /{index}/_mapping":        "manage",
	"PUT /_index_template/{index}": "cluster manage_index_templates",
}

// recordedCalls records the kinds of requests that pass a proxy.
type recordedCalls struct {
	proxy *esnode.Proxy

	mu    sync.Mutex
	kinds map[string]string // the path of one request of each kind
}

// through starts a proxy for a place, and returns the place as it is reached through it.
func (r *recordedCalls) through(t *testing.T, p esnode.Place) esnode.Place {
	t.Helper()
	r.proxy = esnode.StartProxy(t, p.Access, esnode.ProxyOptions{})
	r.kinds = map[string]string{}
	r.proxy.Break(esnode.Slow(0).On(func(req *http.Request) bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.kinds[kindOf(req)] = req.URL.Path
		return false
	}))
	return esnode.Place{Access: r.proxy.Access(), Prefix: p.Prefix}
}

// kindOf returns the method and path of a request without the names of indices.
func kindOf(r *http.Request) string {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	for i, part := range parts {
		if !strings.HasPrefix(part, "_") && (i == 0 || parts[i-1] == "_index_template") {
			parts[i] = "{index}"
		}
	}
	return r.Method + " /" + strings.Join(parts, "/")
}

// granted returns the role that grants each privilege. Cluster privileges begin with
// "cluster".
func granted(t *testing.T) map[string]string {
	t.Helper()
	var file map[string]struct {
		Cluster []string
		Indices []struct{ Names, Privileges []string }
	}
	must(t, json.Unmarshal(roles, &file))
	out := map[string]string{}
	for role, r := range file {
		for _, p := range r.Cluster {
			out["cluster "+p] = role
		}
		for _, i := range r.Indices {
			if !slices.Equal(i.Names, []string{"muster-*"}) {
				t.Errorf("the role %s is for %v", role, i.Names)
			}
			for _, p := range i.Privileges {
				out[p] = role
			}
		}
	}
	return out
}

// check compares the recorded requests with the privileges that the roles grant.
func (r *recordedCalls) check(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	privileges, used := granted(t), map[string]bool{}
	for _, kind := range slices.Sorted(maps.Keys(r.kinds)) {
		privilege, known := needed[kind]
		role := privileges[privilege]
		switch {
		case !known:
			t.Errorf("%s (such as %s): add the privilege that it needs", kind, r.kinds[kind])
		case role == "":
			t.Errorf("%s needs %q, which no role grants", kind, privilege)
		}
		used[privilege] = true
		t.Logf("%-30s %-32s %s", kind, privilege, role)
	}
	if len(r.kinds) == 0 || strings.Contains(flag.Lookup("test.run").Value.String(), "/") {
		return // a part of the contract makes only some of the requests
	}
	for kind := range needed {
		if kind != "PUT /{index}/_mapping" && r.kinds[kind] == "" && !t.Failed() {
			t.Errorf("%s is never requested: remove it", kind)
		}
	}
	for privilege, role := range privileges {
		if !used[privilege] && privilege != needed["PUT /{index}/_mapping"] {
			t.Errorf("the role %s grants %q, which no request needs", role, privilege)
		}
	}
}

// A server whose indices are up to date needs no setup privileges; an upgrade does.
func TestOnlySetupNeedsSetupPrivileges(t *testing.T) {
	p := esnode.Shared(t)
	must(t, open(t, p).Ping(t.Context()))
	setUp := func(during string) []string {
		var calls recordedCalls
		must(t, open(t, calls.through(t, p)).Ping(t.Context()))
		privileges := granted(t)
		var out []string
		calls.mu.Lock()
		defer calls.mu.Unlock()
		for _, kind := range slices.Sorted(maps.Keys(calls.kinds)) {
			if privileges[needed[kind]] != "muster_running" {
				out = append(out, kind)
			}
		}
		t.Logf("%s: %v", during, out)
		return out
	}
	if got := setUp("a start"); len(got) > 0 {
		t.Errorf("a start requests %v", got)
	}
	put(t, p, http.MethodPut, "audit/_mapping", `{"_meta":{"muster_schema":0}}`)
	if got, want := setUp("an upgrade"), []string{"PUT /_index_template/{index}", "PUT /{index}/_mapping"}; !slices.Equal(got, want) {
		t.Errorf("an upgrade requests %v, want %v", got, want)
	}
}
