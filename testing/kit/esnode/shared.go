package esnode

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/require"
)

// cleanTimeout bounds the removal of a test's dozen indices, which take some 50 ms each.
const cleanTimeout = time.Minute

// needs requires Java and the jars.
func needs(t testing.TB) tools {
	t.Helper()
	require.Time(t, "starts an Elasticsearch")
	found, err := findTools(t.Context())
	require.Made(t, err, "`go tool mage setup` installs Java and Maven, or says how to, and fetches Elasticsearch from Maven Central")
	return found
}

// Start starts a cluster that the test may harm and that ends with the test. If the test
// fails, it shows the end of the nodes' logs.
func Start(t testing.TB, o Options) *Cluster {
	t.Helper()
	if a, ok, err := fromEnvironment(); err != nil {
		t.Fatal(err)
	} else if ok {
		require.Own(t, fmt.Sprintf("the nodes of %s, which %s names", strings.Join(a.URLs, ", "), urlVariable))
	}
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	c, err := startNew(t.Context(), o, needs(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.show(t)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func (c *Cluster) show(t testing.TB) {
	for _, n := range c.nodes {
		t.Logf("the log of node %s (process %d, 0 is none) ends:\n%s", n.Name, n.PID(), lastLines([]byte(n.Log()), tail))
	}
}

// Place is a test's own part of a shared Elasticsearch.
type Place struct {
	Access
	// Prefix begins the name of every index and template of the test. They are
	// removed when it ends.
	Prefix string
}

// theShared is the node shared by all tests of a package.
var theShared struct {
	sync.Mutex
	willClose bool // With has been called
	cluster   *Cluster
	err       error   // why the node did not start
	kept      []Place // places in an Elasticsearch of the environment
}

// Shared gives a test its own place on one node that all tests of the package
// use, or on the Elasticsearch that the environment names, by [SharedVariable] too.
// The first call starts the node; [With] in TestMain ends it.
func Shared(t testing.TB) Place {
	t.Helper()
	p, _ := newPlace(t)
	t.Cleanup(func() {
		// The test's own context has already ended.
		ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
		defer cancel()
		if err := p.clean(ctx); err != nil {
			t.Errorf("remove what the test left in Elasticsearch: %v", err)
		}
	})
	return p
}

// Keep is [Shared] for a place that later tests also use, since creating many indices takes
// seconds. It is removed after the package's tests.
func Keep(t testing.TB) Place {
	t.Helper()
	p, named := newPlace(t)
	if named { // otherwise the node is removed with the place
		theShared.Lock()
		defer theShared.Unlock()
		theShared.kept = append(theShared.kept, p)
	}
	return p
}

// newPlace returns a new place, and whether it is on an Elasticsearch of the environment.
func newPlace(t testing.TB) (Place, bool) {
	t.Helper()
	a, named, err := fromEnvironment()
	if err != nil {
		t.Fatal(err)
	}
	if shared := os.Getenv(SharedVariable); !named && shared != "" {
		a, named = Access{URLs: []string{shared}}, true
	}
	if !named {
		c, err := startShared(needs(t))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if t.Failed() {
				c.show(t)
			}
		})
		a = c.Access()
	}
	p := Place{Access: a, Prefix: "test-" + strings.ToLower(rand.Text()[:12]) + "-"}
	if status, answer, err := a.Do(t.Context(), http.MethodGet, "/_cat/indices/"+p.Prefix+"*?format=json", nil); err != nil || status != http.StatusOK {
		t.Fatalf("Elasticsearch at %s does not answer as expected: status %d: %s: %v", strings.Join(a.URLs, ", "), status, answer, err)
	}
	return p, named
}

func startShared(t tools) (*Cluster, error) {
	s := &theShared
	s.Lock()
	defer s.Unlock()
	switch {
	case !s.willClose:
		return nil, errors.New("esnode.Shared needs `func TestMain(m *testing.M) { os.Exit(esnode.With(m).Run()) }` in its package, to end the node it starts")
	case s.err != nil:
		return nil, s.err
	case s.cluster == nil:
		// The node outlives the first test.
		s.cluster, s.err = startNew(context.Background(), Options{}, t)
	case s.cluster.nodes[0].ended():
		return nil, fmt.Errorf("the node of this package's tests has ended; its log ends:\n%s", lastLines([]byte(s.cluster.logs()), tail))
	}
	return s.cluster, s.err
}

// Tests are the tests of a package: the *testing.M of its TestMain.
type Tests interface{ Run() int }

// With wraps a package's tests so that the node of [Shared] ends after them:
//
//	func TestMain(m *testing.M) { os.Exit(esnode.With(m).Run()) }
func With(m Tests) Tests { return with{m} }

type with struct{ tests Tests }

func (w with) Run() int {
	s := &theShared
	s.Lock()
	s.willClose = true
	s.Unlock()
	code := w.tests.Run()
	s.Lock()
	defer s.Unlock()
	if s.cluster != nil {
		if err := s.cluster.Close(); err != nil {
			fmt.Println("the node of this package's tests:", err)
			code = max(code, 1)
		}
	}
	for _, p := range s.kept {
		ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
		if err := p.clean(ctx); err != nil {
			fmt.Println("remove what tests left in Elasticsearch:", err)
			code = max(code, 1)
		}
		cancel()
	}
	s.willClose, s.cluster, s.err, s.kept = false, nil, nil, nil
	return code
}

// clean removes every index and template with the prefix. It resolves wildcards itself,
// since a cluster may be configured to refuse a deletion by wildcard.
func (p Place) clean(ctx context.Context) error {
	for _, kind := range []struct{ list, remove string }{
		{"/_resolve/index/%s*?expand_wildcards=all", "/%s"},
		{"/_index_template/%s*", "/_index_template/%s"},
		{"/_component_template/%s*", "/_component_template/%s"},
	} {
		status, answer, err := p.Do(ctx, http.MethodGet, fmt.Sprintf(kind.list, p.Prefix), nil)
		if err != nil {
			return err
		}
		if status == http.StatusNotFound {
			continue // there is no template with the prefix
		}
		if status != http.StatusOK {
			return fmt.Errorf("list %s*: status %d: %s", p.Prefix, status, answer)
		}
		names, err := namesIn(answer)
		if err != nil {
			return err
		}
		for _, name := range names {
			// It may have been removed already.
			status, answer, err := p.Do(ctx, http.MethodDelete, fmt.Sprintf(kind.remove, name), nil)
			if err == nil && status != http.StatusOK && status != http.StatusNotFound {
				err = fmt.Errorf("delete %s: status %d: %s", name, status, answer)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// namesIn reads a listing of indices or templates.
func namesIn(answer []byte) ([]string, error) {
	type named []struct {
		Name string `json:"name"`
	}
	var all struct {
		Indices    named `json:"indices"`
		Templates  named `json:"index_templates"`
		Components named `json:"component_templates"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, err
	}
	var out []string
	for _, list := range []named{all.Indices, all.Templates, all.Components} {
		for _, n := range list {
			out = append(out, n.Name)
		}
	}
	return out, nil
}
