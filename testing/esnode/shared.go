package esnode

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/require"
)

// cleanTimeout: an index is deleted in some 50 ms, and a test has a dozen.
const cleanTimeout = time.Minute

// Needs demands what a node is made of: Java, and the jars.
func Needs(t testing.TB) {
	t.Helper()
	needs(t)
}

func needs(t testing.TB) tools {
	t.Helper()
	found, err := findTools(t.Context())
	require.Made(t, err, "`go tool mage setup` installs Java and Maven, or says how to, and fetches Elasticsearch from Maven Central")
	return found
}

// Start starts a cluster that the test may harm, and that ends with it. If the
// test fails, it shows how the nodes' logs end.
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

// Place is one test's own part of an Elasticsearch that others use too.
type Place struct {
	Access
	// Prefix begins the name of every index and template of the test. They are
	// removed when it ends.
	Prefix string
}

// theShared is the one node for all tests of a package.
var theShared struct {
	sync.Mutex
	willClose bool // With is at work
	cluster   *Cluster
	err       error   // why there is none
	kept      []Place // of an Elasticsearch that is not ours to close
}

// Shared gives a test its own place on one node that all tests of the package
// use, or on the Elasticsearch named by the environment. The first call starts
// the node; [With] in TestMain ends it.
func Shared(t testing.TB) Place {
	t.Helper()
	p, _ := newPlace(t)
	t.Cleanup(func() {
		// The test's own context has ended.
		ctx, cancel := context.WithTimeout(context.Background(), cleanTimeout)
		defer cancel()
		if err := p.clean(ctx); err != nil {
			t.Errorf("remove what the test left in Elasticsearch: %v", err)
		}
	})
	return p
}

// Keep is [Shared] for a place that later tests use too: indices cost seconds where
// there are many. It is removed when the package's tests have ended.
func Keep(t testing.TB) Place {
	t.Helper()
	p, named := newPlace(t)
	if named { // else the node goes, and the place with it
		theShared.Lock()
		defer theShared.Unlock()
		theShared.kept = append(theShared.kept, p)
	}
	return p
}

// newPlace returns a place of its own, and whether the environment names where.
func newPlace(t testing.TB) (Place, bool) {
	t.Helper()
	a, named, err := fromEnvironment()
	if err != nil {
		t.Fatal(err)
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
		t.Fatalf("Elasticsearch at %s does not answer as it should: status %d: %s: %v", strings.Join(a.URLs, ", "), status, answer, err)
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
		// It outlives the test that happens to be the first.
		s.cluster, s.err = startNew(context.Background(), Options{}, t)
	case s.cluster.nodes[0].ended():
		return nil, fmt.Errorf("the node of this package's tests has ended; its log ends:\n%s", lastLines([]byte(s.cluster.logs()), tail))
	}
	return s.cluster, s.err
}

// Tests are a package's, as TestMain is given them.
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

// clean removes every index and template of the prefix. Wildcards are resolved
// here: a cluster's settings may forbid to delete by them.
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
			continue // no template of such a name
		}
		if status != http.StatusOK {
			return fmt.Errorf("list %s*: status %d: %s", p.Prefix, status, answer)
		}
		names, err := namesIn(answer)
		if err != nil {
			return err
		}
		for _, name := range names {
			// Gone already is as well.
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
