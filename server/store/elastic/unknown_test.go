package elastic_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// A newer server has added fields to documents, which this one reads, changes and writes.
func TestFieldsOfANewerServerSurvive(t *testing.T) {
	p := esnode.Shared(t)
	s, ctx := open(t, p), t.Context()
	must(t, s.Agents().Create(ctx, agent("a")))
	must(t, s.Agents().Create(ctx, agent("b")))
	must(t, s.Policies().Create(ctx, fleet.Policy{ID: "p", Name: "p"}))
	must(t, s.Freezes().Create(ctx, fleet.Freeze{ID: "f"}))
	must(t, s.Targets().Create(ctx, []fleet.Target{{RolloutID: "r", AgentID: "a", State: fleet.TargetPending}}))
	type source = map[string]json.RawMessage
	read := func(path string) (doc string, all source) {
		t.Helper()
		status, got, err := p.Do(ctx, http.MethodGet, "/"+p.Prefix+path, nil)
		must(t, err)
		var found struct {
			Source source `json:"_source"`
		}
		if must(t, json.Unmarshal(got, &found)); status != http.StatusOK {
			t.Fatalf("%s: status %d: %s", path, status, got)
		}
		must(t, json.Unmarshal(found.Source["doc"], &doc))
		return doc, found.Source
	}
	paths := []string{"agents/_doc/a", "agents/_doc/b", "policies/_doc/p", "documents/_doc/freeze%2Ff", "rollout-targets/_doc/r:a"}
	for _, path := range paths {
		doc, all := read(path)
		text, err := json.Marshal(`{"of_a_newer_server":{"n":1},` + strings.TrimPrefix(doc, "{"))
		must(t, err)
		all["doc"] = text
		body, err := json.Marshal(all)
		must(t, err)
		if status, got, err := p.Do(ctx, http.MethodPut, "/"+p.Prefix+path+"?refresh=true", body); err != nil || status != http.StatusOK {
			t.Fatalf("%s: status %d, %v: %s", path, status, err, got)
		}
	}

	list, err := s.Agents().GetMany(ctx, []string{"a", "b"})
	must(t, err)
	for i := range list {
		list[i].Version = "9.9.9"
	}
	_, err = s.Agents().Update(ctx, list[0])
	must(t, err)
	errs, err := s.Agents().UpdateMany(ctx, list[1:])
	must(t, err)
	must(t, errs[0])
	policy, err := s.Policies().Get(ctx, "p")
	must(t, err)
	policy.Name = "9.9.9"
	_, err = s.Policies().Update(ctx, policy)
	must(t, err)
	freeze, err := s.Freezes().Get(ctx, "f")
	must(t, err)
	freeze.Name = "9.9.9"
	_, err = s.Freezes().Update(ctx, freeze)
	must(t, err)
	targets, err := s.Targets().GetMany(ctx, "r", []string{"a"})
	must(t, err)
	targets[0].To = "9.9.9"
	_, errs, err = s.Targets().UpdateMany(ctx, targets)
	must(t, err)
	must(t, errs[0])

	for _, path := range paths {
		if doc, _ := read(path); !strings.Contains(doc, `"of_a_newer_server":{"n":1}`) || !strings.Contains(doc, "9.9.9") {
			t.Errorf("%s is %s", path, doc)
		}
	}
}
