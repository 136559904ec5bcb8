package admin_test

import (
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

var fuzzBodies = flag.Int("bodies", 40, "random bodies for each call")

// TestRandomBodiesNeverBreakTheServer sends bodies that mostly follow the specification and
// are wrong in places: every answer is below 500, and a refusal says why.
func TestRandomBodiesNeverBreakTheServer(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	spec := loadSpec(t)
	seed := rand.Uint64()
	f := fuzzer{spec: spec, Rand: rand.New(rand.NewPCG(seed, 0)), known: []string{a.ID, "default", "1.1.0", "*"}} //nolint:gosec // repeatable by its seed
	accepted := map[string]bool{}
	for _, call := range adminapi.Calls() {
		schema := spec.of(t, call).RequestBody.Content["application/json"].Schema
		if schema == nil || !call.Kibana() {
			continue
		}
		path := parameter.ReplaceAllString(call.Path, a.ID)
		for range *fuzzBodies {
			body, err := json.Marshal(f.value(schema, 0))
			if err != nil {
				t.Fatal(err)
			}
			got := s.Admin(call.Method, path, body)
			if got.Status >= http.StatusInternalServerError || got.Status >= http.StatusBadRequest && got.ErrorBody().Message == "" {
				t.Errorf("seed %d: %s with %s answered %d %s", seed, call.ID, body, got.Status, got.Body)
			}
			if got.Status == http.StatusOK {
				accepted[call.ID] = true
			}
		}
	}
	if len(accepted) < 5 {
		t.Errorf("seed %d: only %d calls accepted a body, so the bodies are too odd", seed, len(accepted))
	}
}

// fuzzer makes random values.
type fuzzer struct {
	spec
	*rand.Rand
	known []string // texts that the server knows
}

// odd are values that few schemas allow.
var odd = []any{
	nil, true, "", 0, -1, 1e300, 0.5,
	[]any{},
	map[string]any{},
	[]any{nil},
	map[string]any{"": nil},
	"\x00", "\u202e", strings.Repeat("x", 5000), "../..", "1.0.0-", "P1D", "9999999999h", "https://", "2026-99-99T00:00:00Z",
}

// value returns a value of a schema or, once in eight times, an odd one.
func (f fuzzer) value(of *schema, depth int) any {
	for of != nil && of.Ref != "" {
		of = f.Components.Schemas[strings.TrimPrefix(of.Ref, "#/components/schemas/")]
	}
	if of == nil || depth > 6 || f.IntN(8) == 0 {
		return odd[f.IntN(len(odd))]
	}
	switch {
	case len(of.AllOf) > 0:
		return f.value(of.AllOf[f.IntN(len(of.AllOf))], depth)
	case len(of.Enum) > 0 && f.IntN(4) > 0:
		return of.Enum[f.IntN(len(of.Enum))]
	}
	switch of.Type {
	case "object":
		m := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(of.Properties)) {
			p := of.Properties[name]
			if slices.Contains(of.Required, name) && f.IntN(10) > 0 || f.IntN(2) == 0 {
				m[name] = f.value(p, depth+1)
			}
		}
		if f.IntN(6) == 0 {
			m["unknown"] = f.value(nil, depth+1)
		}
		return m
	case "array":
		list := make([]any, f.IntN(4))
		for i := range list {
			list[i] = f.value(of.Items, depth+1)
		}
		return list
	case "boolean":
		return f.IntN(2) == 0
	case "integer", "number":
		return []any{0, 1, 2, 600, 3600, -1, 1 << 53, 1.5}[f.IntN(8)]
	case "string":
		return append([]string{"web", "https://fleet.example:8220", "2026-12-01T00:00:00Z", "name:web*", "8.15.5"}, f.known...)[f.IntN(5+len(f.known))]
	}
	return odd[f.IntN(len(odd))]
}
