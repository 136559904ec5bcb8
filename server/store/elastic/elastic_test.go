package elastic_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/elastic"
	"github.com/muster-fleet/muster/server/store/storetest"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestMain(m *testing.M) { os.Exit(esnode.With(m).Run()) }

// listLag is more than the refresh interval of the indices, to allow for a busy machine.
const listLag = 10 * time.Second

func TestContractOnANode(t *testing.T) {
	require.Time(t, "repeats the whole contract on a node")
	var calls recordedCalls
	storetest.Run(t, storetest.Config{
		NewLocation: func(sub *testing.T) string {
			p := place(sub)
			// The proxy lasts until t ends. It is not started before the first location, because
			// the process to be killed starts no node.
			if calls.proxy == nil {
				calls.through(t, p)
			}
			p.Access = calls.proxy.Access()
			return asText(t, p) // so that another process can open it
		},
		Open: openPlace, ListLag: listLag, Damage: damage,
	})
	calls.check(t)
}

// damage replaces the text of the first document of each index, and of each noun.
func damage(t *testing.T, location, doc string) {
	var p esnode.Place
	must(t, json.Unmarshal([]byte(location), &p))
	ask := func(path string, body []byte, out any) {
		status, answer, err := p.Do(t.Context(), http.MethodPost, path, body)
		if err != nil || status != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", path, status, answer, err)
		}
		must(t, json.Unmarshal(answer, out))
	}
	ask("/"+p.Prefix+"*/_refresh", nil, new(struct{}))
	var found struct {
		Hits struct {
			Hits []struct {
				Index  string                     `json:"_index"`
				ID     string                     `json:"_id"`
				Source struct{ Noun, Doc string } `json:"_source"`
			} `json:"hits"`
		} `json:"hits"`
	}
	ask("/"+p.Prefix+"*/_search", []byte(`{"size":5000,"_source":["noun","doc"],"query":{"exists":{"field":"_id"}}}`), &found)
	var bulk bytes.Buffer
	seen := map[[2]string]bool{}
	for _, h := range found.Hits.Hits {
		kind := [2]string{h.Index, h.Source.Noun}
		if h.Source.Doc == "" || seen[kind] {
			continue
		}
		seen[kind] = true
		for _, line := range []any{
			map[string]any{"update": map[string]any{"_index": h.Index, "_id": h.ID}},
			map[string]any{"doc": map[string]any{"doc": doc}},
		} {
			must(t, json.NewEncoder(&bulk).Encode(line))
		}
	}
	var done struct {
		Errors bool `json:"errors"`
	}
	ask("/_bulk?refresh=true", bulk.Bytes(), &done)
	if done.Errors || len(seen) < 20 {
		t.Fatalf("%d kinds were damaged, errors: %t", len(seen), done.Errors)
	}
}

func asText(t *testing.T, p esnode.Place) string {
	t.Helper()
	b, err := json.Marshal(p)
	must(t, err)
	return string(b)
}

// free are the places that no test uses. They are reused, because creating the indices takes a
// small node seconds, and each of a hundred tests needs an empty place. Sequence numbers
// then do not start at 1, as in production.
var free struct {
	sync.Mutex
	places []esnode.Place
}

// place returns an empty place, whose indices may exist. A test that damages them must use
// esnode.Shared.
func place(t *testing.T) esnode.Place {
	t.Helper()
	for {
		p, ok := takeFree()
		if !ok {
			p = esnode.Keep(t)
		} else if emptied, err := empty(t.Context(), p); err != nil {
			t.Fatal(err)
		} else if !emptied {
			continue
		}
		t.Cleanup(func() {
			free.Lock()
			defer free.Unlock()
			free.places = append(free.places, p)
		})
		return p
	}
}

func takeFree() (esnode.Place, bool) {
	free.Lock()
	defer free.Unlock()
	n := len(free.places)
	if n == 0 {
		return esnode.Place{}, false
	}
	p := free.places[n-1]
	free.places = free.places[:n-1]
	return p, true
}

// maxEmpty is the most documents that are deleted to reuse a place.
const maxEmpty = 5_000

// empty deletes all documents of a place, and reports whether it has.
func empty(ctx context.Context, p esnode.Place) (bool, error) {
	ask := func(method, path string, body []byte, out any) error {
		status, answer, err := p.Do(ctx, method, path, body)
		if err == nil && status != http.StatusOK {
			err = fmt.Errorf("%s %s: status %d: %s", method, path, status, answer)
		}
		if err == nil {
			err = json.Unmarshal(answer, out)
		}
		return err
	}
	var none struct{}
	if err := ask(http.MethodPost, "/"+p.Prefix+"*/_refresh", nil, &none); err != nil {
		return false, err
	}
	var found struct {
		Hits struct {
			Hits []struct {
				Index string `json:"_index"`
				ID    string `json:"_id"`
			} `json:"hits"`
		} `json:"hits"`
	}
	if err := ask(http.MethodGet, fmt.Sprintf("/%s*/_search?size=%d&_source=false", p.Prefix, maxEmpty+1), nil, &found); err != nil {
		return false, err
	}
	if n := len(found.Hits.Hits); n == 0 || n > maxEmpty {
		return n == 0, nil
	}
	var body bytes.Buffer
	for _, h := range found.Hits.Hits {
		if err := json.NewEncoder(&body).Encode(map[string]any{"delete": h}); err != nil {
			return false, err
		}
	}
	var done struct {
		Errors bool `json:"errors"`
	}
	err := ask(http.MethodPost, "/_bulk?refresh=true", body.Bytes(), &done)
	return err == nil && !done.Errors, err
}

func openPlace(ctx context.Context, place string) (store.Store, error) {
	var p esnode.Place
	if err := json.Unmarshal([]byte(place), &p); err != nil {
		return nil, err
	}
	opts, err := options(p)
	if err != nil {
		return nil, err
	}
	return elastic.Open(ctx, opts)
}

func options(p esnode.Place) (elastic.Options, error) {
	opts := elastic.Options{
		URLs: p.URLs, Prefix: p.Prefix, Username: p.Username, Password: p.Password, APIKey: p.APIKey, ServiceToken: p.ServiceToken, CACert: p.CA,
	}
	if p.Certificate != nil {
		pair, err := tls.X509KeyPair(p.Certificate, p.Key)
		if err != nil {
			return opts, err
		}
		opts.ClientCertificate = &pair
	}
	return opts, nil
}
