package attack_test

import (
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

// textMemory is what the process may allocate for one short text, beside all else that it does
// meanwhile. Without a bound each of them takes gigabytes.
const textMemory = 128 << 20

// aliased returns a YAML text of some 200 KB whose aliases mean gigabytes.
func aliased(prefix string) string {
	return prefix + "long: &a " + strings.Repeat("x", 100<<10) + "\nmany: [" + strings.Repeat("*a,", 38_000) + "]\n"
}

func TestAliasesOfOperatorsTextsAreBounded(t *testing.T) {
	s := apptest.Start(t)
	object := apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "kbn-xsrf", "x", "Content-Type", "application/yaml")
	values := apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "kbn-xsrf", "x")
	for _, row := range []struct {
		name, method, path string
		header             http.Header
		body               any
		says               string
	}{
		{"a dry run of a Fleet object", "POST", "/api/v1/fleets?dryRun=All", object, aliased("apiVersion: fleet.muster.dev/v1\nkind: Fleet\nmetadata: {name: x}\nspec: {}\n"), "aliases"},
		{"a Fleet object in another version", "PUT", "/api/v1/fleets/x?dryRun=All", object, aliased("apiVersion: fleet.muster.dev/v1alpha1\nkind: Fleet\nmetadata: {name: x}\nspec: {}\n"), "aliases"},
		{"a difference to a Fleet object", "POST", "/api/v1/fleets/x/diff", object, aliased(""), "aliases"},
		{"config_yaml of an output", "POST", "/api/fleet/outputs", values, map[string]any{"name": "x", "type": "elasticsearch", "hosts": []string{"https://x"}, "config_yaml": aliased("")}, "aliases"},
		{"YAML in a policy's settings", "POST", "/api/fleet/agent_policies", values, map[string]any{"name": "x", "namespace": "default", "advanced_settings": map[string]any{"agent_internal": "a: &a " + strings.Repeat("x", 50<<10) + "\nb: [" + strings.Repeat("*a,", 20_000) + "]\n"}}, "valid YAML string"},
	} {
		t.Run(row.name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			begun := time.Now()
			got, err := s.Do(t.Context(), apptest.Request{Method: row.method, URL: s.AdminURL + row.path, Header: row.header, Body: row.body})
			runtime.ReadMemStats(&after)
			if err != nil || got.Status != http.StatusBadRequest || !strings.Contains(string(got.Body), row.says) {
				t.Errorf("it is answered %d %.300s, %v", got.Status, got.Body, err)
			}
			if used := after.TotalAlloc - before.TotalAlloc; used > textMemory || time.Since(begun) > servedWithin {
				t.Errorf("it took %d MiB and %s", used>>20, time.Since(begun))
			}
			if status := apptest.Decode[adminapi.KibanaStatus](t, s.Admin(http.MethodGet, "/api/status", nil)); status.Status.Overall.Level == "unavailable" {
				t.Errorf("the server is %+v", status.Status)
			}
		})
	}
}
