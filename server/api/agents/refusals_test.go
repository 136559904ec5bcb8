package agents_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

var agentQuery = store.AgentQuery{Limit: 10}

func zipped(t *testing.T, r io.Reader) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := io.Copy(z, r); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// spaces reads as an endless run of blanks, which JSON ignores.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

func TestRequestIDIsEchoed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for sent, echoed := range map[string]bool{"r-17": true, "": false, "two words": false, strings.Repeat("x", 129): false} {
		got, err := s.Do(t.Context(), apptest.Request{Method: "GET", URL: s.AgentURL + agentapi.PathStatus, Header: apptest.Headers("X-Request-Id", sent)})
		if err != nil {
			t.Fatal(err)
		}
		if id := got.Header.Get("X-Request-Id"); id == "" || (id == sent) != echoed {
			t.Errorf("X-Request-Id %q was answered with %q", sent, id)
		}
	}
}

// Unknown paths are answered as by Fleet Server: a plain 404, and 405 for the method alone.
func TestUnknownPathIsPlain404(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	for _, path := range []string{"/", "/api/fleet/elsewhere", "/api/fleet/agents", "/v1/opamp"} {
		got := s.Agents(http.MethodGet, path, "", nil)
		if got.Status != http.StatusNotFound || string(got.Body) != "404 page not found\n" || got.Header.Get("Content-Type") != "text/plain; charset=utf-8" {
			t.Errorf("GET %s is answered %d %s %q", path, got.Status, got.Header.Get("Content-Type"), got.Body)
		}
	}
	if got := s.Agents(http.MethodGet, agentapi.PathEnroll, "", nil); got.Status != http.StatusMethodNotAllowed {
		t.Errorf("GET of the enrolment is answered %d %s", got.Status, got.Body)
	}
}
