package elastic_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/testing/esnode"
)

// The first schema had ActionSeq only in the packed document.
func TestActionSeqOfTheFirstSchemaIsKept(t *testing.T) {
	p := esnode.Shared(t)
	ctx := t.Context()
	seqs := map[string]int64{"a": 5, "b": 7, "c": 0, "d": 3, "e": 1 << 40}
	ids := []string{"a", "b", "c", "d", "e"}
	creator := open(t, p)
	for _, id := range ids {
		must(t, creator.Agents().Create(ctx, agent(id)))
	}
	downgradeToFirstSchema(t, p, seqs)

	s, other := open(t, p), open(t, p)
	want := func(what string, numbers ...int64) {
		t.Helper()
		list, err := other.Agents().GetMany(ctx, ids)
		must(t, err)
		var got []int64
		for i := range list {
			got = append(got, list[i].Last.ActionSeq)
		}
		if !slices.Equal(got, numbers) {
			t.Errorf("%s, ActionSeqs are %v, want %v", what, got, numbers)
		}
	}
	want("at first", 5, 7, 0, 3, 1<<40)
	read, err := other.Agents().GetMany(ctx, ids)
	must(t, err)

	// s has read none of them.
	later := now.Add(time.Second)
	must(t, s.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: later, ActionSeq: 4}, {AgentID: "b", At: later, ActionSeq: 9}, {AgentID: "c", At: later, Status: "online"}}))
	_, err = s.Agents().Update(ctx, read[3])
	must(t, err)
	errs, err := s.Agents().UpdateMany(ctx, []fleet.Agent{read[4]})
	if must(t, err); errs[0] != nil {
		t.Fatal(errs[0])
	}
	want("after touches and changes", 5, 9, 0, 3, 1<<40)

	// other has cached what it read, which is outdated for some agents.
	must(t, other.Agents().Touch(ctx, []fleet.Touch{{AgentID: "a", At: later, ActionSeq: 6}, {AgentID: "d", ActionSeq: 2}, {AgentID: "e", At: later, ActionSeq: 8}}))
	_, err = store.UpdateAgent(ctx, other.Agents(), "b", func(a *fleet.Agent) bool { a.Version = "2.0.0"; return true })
	must(t, err)
	want("after more touches and changes", 6, 9, 0, 3, 1<<40)
}

// downgradeToFirstSchema recreates the index of agents with the mappings and documents of the
// first schema.
func downgradeToFirstSchema(t *testing.T, p esnode.Place, seqs map[string]int64) {
	t.Helper()
	ask := func(method, path string, body, answer any) {
		t.Helper()
		var b []byte
		if body != nil {
			var err error
			b, err = json.Marshal(body)
			must(t, err)
		}
		status, got, err := p.Do(t.Context(), method, path, b)
		must(t, err)
		if status != http.StatusOK && status != http.StatusCreated {
			t.Fatalf("%s %s: status %d: %s", method, path, status, got)
		}
		if answer != nil {
			must(t, json.Unmarshal(got, answer))
		}
	}
	type object = map[string]any
	name := p.Prefix + "agents"
	var indices map[string]struct {
		Mappings object `json:"mappings"`
	}
	ask(http.MethodGet, "/"+name+"/_mapping", nil, &indices)
	mappings := indices[name].Mappings
	mappings["_meta"] = object{"muster_schema": 1}
	delete(mappings["properties"].(object), "action_seq_no")

	sources := map[string]object{}
	for id, seq := range seqs {
		var found struct {
			Source object `json:"_source"`
		}
		ask(http.MethodGet, fmt.Sprintf("/%s/_doc/%s", name, id), nil, &found)
		if _, ok := found.Source["action_seq_no"]; !ok {
			t.Fatalf("the agent has no action_seq_no: %v", found.Source)
		}
		delete(found.Source, "action_seq_no")
		var doc object
		must(t, json.Unmarshal([]byte(found.Source["doc"].(string)), &doc))
		doc["action_seq_no"] = seq
		b, err := json.Marshal(doc)
		must(t, err)
		found.Source["doc"] = string(b)
		sources[id] = found.Source
	}
	ask(http.MethodDelete, "/_index_template/"+name, nil, nil)
	ask(http.MethodDelete, "/"+name, nil, nil)
	ask(http.MethodPut, "/"+name, object{"mappings": mappings}, nil)
	for id, source := range sources {
		ask(http.MethodPut, fmt.Sprintf("/%s/_doc/%s", name, id), source, nil)
	}
}
