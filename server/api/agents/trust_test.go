package agents_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A host that has only a root's digest has no key yet.
func TestSignedMetadataNeedsNoKey(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	data := []byte(`{"signatures":[],"signed":{}}`)
	for id, text := range map[string]string{
		"head":           `{"files":[{"name":"1.root.json","digest":"` + tuf.Digest(data) + `"},{"name":"2.root.json","digest":"sha256:lost"}]}`,
		tuf.Digest(data): string(data),
	} {
		if err := s.Store.TrustFiles().Create(t.Context(), fleet.TrustFile{ID: id, Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
	}
	for _, method := range []string{http.MethodGet, http.MethodHead} {
		got := s.Agents(method, agentapi.PathTrust+"1.root.json", "", nil)
		if got.Status != http.StatusOK || got.Header.Get("Content-Length") != "29" || !strings.Contains(got.Header.Get("Cache-Control"), "immutable") {
			t.Errorf("%s: %d %v", method, got.Status, got.Header)
		}
	}
	for name, want := range map[string]struct {
		status int
		code   string
	}{
		"timestamp.json":        {404, "NotFound"},
		"3.root.json":           {404, "NotFound"},
		"head":                  {404, "NotFound"},
		"..%2f..%2fonline.key":  {404, "NotFound"},
		"%2e%2e":                {404, "NotFound"},
		"2.root.json":           {503, "ServiceUnavailable"}, // lost by the store: hosts must not treat it as absent
		"1.root.json?x=y%00":    {200, ""},
		"1.root.json%00":        {404, "NotFound"},
		strings.Repeat("1", 99): {404, "NotFound"},
	} {
		got := s.Agents(http.MethodGet, agentapi.PathTrust+name, "", nil)
		if got.Status != want.status || got.ErrorBody().Code != want.code {
			t.Errorf("%s: %d %s", name, got.Status, got.Body)
		}
	}
	if got := s.Agents(http.MethodPut, agentapi.PathTrust+"1.root.json", "", "x"); got.Status != http.StatusMethodNotAllowed {
		t.Errorf("a PUT got %d", got.Status)
	}
}
