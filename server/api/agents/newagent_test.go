package agents_test

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestNewHostsDownloadTheNewestAgent(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	path := agentapi.PathAgent + "linux-amd64"
	// Nothing is published yet.
	if got := s.Agents(http.MethodGet, path, s.Token, nil); got.Status != http.StatusNotFound || !strings.Contains(got.ErrorBody().Message, "muster package push") {
		t.Errorf("without a package: %d %s", got.Status, got.Body)
	}
	s.Publisher().Publish("1.9.0", "1.10.0", "2.0.0-SNAPSHOT")
	newest := ""
	for _, p := range apptest.Decode[adminapi.PackageList](t, s.Admin(http.MethodGet, "/api/v1/packages", nil)).Items {
		if p.Version == "1.10.0" {
			newest = p.Sha256
		}
	}
	got := s.Agents(http.MethodGet, path, s.Token, nil)
	sum := sha256.Sum256(got.Body)
	if got.Status != http.StatusOK || hex.EncodeToString(sum[:]) != newest || !strings.Contains(got.Header.Get("Content-Disposition"), "muster-agent-1.10.0-linux-amd64.tar.gz") {
		t.Errorf("the newest release: %d %v", got.Status, got.Header)
	}
	if got := s.Agents(http.MethodHead, path, s.Token, nil); got.Status != http.StatusOK || len(got.Body) > 0 {
		t.Errorf("HEAD: %d with %d bytes", got.Status, len(got.Body))
	}

	// A revoked key opens nothing.
	key := apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin(http.MethodPost, "/api/fleet/enrollment_api_keys", `{"policy_id":"default"}`)).Item
	if got := s.Agents(http.MethodHead, path, *key.ApiKey, nil); got.Status != http.StatusOK {
		t.Errorf("another key: %d", got.Status)
	}
	s.Admin(http.MethodDelete, "/api/fleet/enrollment_api_keys/"+key.Id, nil)
	if got := s.Agents(http.MethodGet, path, *key.ApiKey, nil); got.Status != http.StatusUnauthorized {
		t.Errorf("a revoked key: %d %s", got.Status, got.Body)
	}
	if got := s.Agents(http.MethodGet, path, "", nil); got.Status != http.StatusUnauthorized {
		t.Errorf("no key: %d", got.Status)
	}
}
