package gitops

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.With(m).Run()) }

// world returns the server with an agent of version 1.0.0, and a package of 1.1.0, which all tests
// share.
func world(t *testing.T) *harness.World {
	t.Helper()
	return harness.SharedWorld(t, func(w *harness.World) {
		w.Publish("1.1.0", w.Programs.Agent)
		w.AddHosts("1.0.0", harness.HostOptions{}, "web-01")
	})
}

// caFile is the certificate of the authority that signs a server's certificates.
func caFile(s *harness.Server) string { return filepath.Join(s.Data, "tls", "ca.crt") }

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fleetObject returns an object of the server, nil if it has none of that name.
func fleetObject(t *testing.T, name string) *spec.Fleet {
	t.Helper()
	resp, err := world(t).Server.Do(t.Context(), http.MethodGet, "/api/v1/fleets/"+name, nil)
	check(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	check(t, err)
	switch resp.StatusCode {
	case http.StatusNotFound:
		return nil
	case http.StatusOK:
	default:
		t.Fatalf("GET /api/v1/fleets/%s: %s: %s", name, resp.Status, body)
	}
	var f spec.Fleet
	if err := json.Unmarshal(body, &f); err != nil {
		t.Fatalf("GET /api/v1/fleets/%s: %v: %s", name, err, body)
	}
	return &f
}

// rollouts returns the ids of all rollouts, newest first.
func rollouts(t *testing.T) []string {
	t.Helper()
	list, err := harness.Get[adminapi.RolloutList](t.Context(), world(t).Server, "/api/v1/rollouts?perPage=100")
	check(t, err)
	var ids []string
	for _, r := range list.Items {
		ids = append(ids, r.ID)
	}
	return ids
}
