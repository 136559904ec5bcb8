package store_test

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// older is a document as this program knows it, newer one that a later version writes.
type (
	olderInner struct {
		Name string `json:"name"`
		Note string `json:"note,omitempty"`
	}
	olderBase struct {
		ID string `json:"id"`
	}
	older struct {
		olderBase
		At    time.Time             `json:"at,omitzero"`
		Inner *olderInner           `json:"inner,omitempty"`
		ByKey map[string]olderInner `json:"by_key,omitempty"`
		List  []olderInner          `json:"list,omitempty"`
		Raw   json.RawMessage       `json:"raw,omitempty"`
		Own   string                `json:"-"`
	}
)

func TestUnknownMembersSurviveAWrite(t *testing.T) {
	const stored = `{"id":"a","at":"2026-01-01T00:00:00Z","new":{"x":[1,2.50]},"inner":{"name":"n","note":"x","new":1},` +
		`"by_key":{"k":{"name":"n","new":true},"gone":{"name":"g","new":1}},"list":[{"name":"one","new":1},{"name":"two","new":2},{"name":"three"}],"raw":{"any":1.0}}`
	for _, c := range []struct {
		name   string
		change func(*older)
		want   string
	}{
		{"nothing changed", func(*older) {}, stored},
		{
			"a member changed, one was added, and some went", func(v *older) {
				v.ID, v.Inner.Note = "b", ""
				delete(v.ByKey, "gone")
				v.ByKey["added"] = olderInner{Name: "d"}
			},
			`{"id":"b","at":"2026-01-01T00:00:00Z","new":{"x":[1,2.50]},"inner":{"name":"n","new":1},` +
				`"by_key":{"k":{"name":"n","new":true},"added":{"name":"d"}},"list":[{"name":"one","new":1},{"name":"two","new":2},{"name":"three"}],"raw":{"any":1.0}}`,
		},
		{
			"a list lost its first element, and got another", func(v *older) { v.List = append(v.List[1:], olderInner{Name: "four"}) },
			`{"id":"a","at":"2026-01-01T00:00:00Z","new":{"x":[1,2.50]},"inner":{"name":"n","note":"x","new":1},` +
				`"by_key":{"k":{"name":"n","new":true},"gone":{"name":"g","new":1}},"list":[{"name":"two","new":2},{"name":"three"},{"name":"four"}],"raw":{"any":1.0}}`,
		},
		{
			"an element changed: it may be another one", func(v *older) { v.List[0].Name, v.Inner, v.ByKey = "uno", nil, nil },
			`{"id":"a","at":"2026-01-01T00:00:00Z","new":{"x":[1,2.50]},"list":[{"name":"uno"},{"name":"two","new":2},{"name":"three"}],"raw":{"any":1.0}}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var u store.Unknowns
			var v older
			if err := store.Decode(&u, []byte(stored), &v); err != nil || !u.Seen() {
				t.Fatalf("decoded: %v, unknown members were seen: %v", err, u.Seen())
			}
			c.change(&v)
			doc, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			got := store.KeepUnknown(reflect.TypeFor[older](), []byte(stored), doc)
			if !sameJSON(t, got, []byte(c.want)) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A component's upgrade is one type with an agent's, under other names of its members.
func TestUnknownMembersOfAComponentsUpgradeSurvive(t *testing.T) {
	const stored = `{"id":"a","component_upgrades":{"web":{"action_id":"act","target_version":"2.0.0","from_version":"1.0.0","new":{"x":1}}}}`
	var u store.Unknowns
	var a fleet.Agent
	if err := store.Decode(&u, []byte(stored), &a); err != nil || !u.Seen() {
		t.Fatalf("the unknown member is seen: %v, %v", u.Seen(), err)
	}
	a.BeginOf("web", "next", "3.0.0", time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)) // from no version: the agent reports none
	doc, err := a.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Upgrades map[string]map[string]json.RawMessage `json:"component_upgrades"`
	}
	if err := json.Unmarshal(store.KeepUnknown(reflect.TypeFor[fleet.Agent](), []byte(stored), doc), &got); err != nil {
		t.Fatal(err)
	}
	web := got.Upgrades["web"]
	if string(web["new"]) != `{"x":1}` || string(web["action_id"]) != `"next"` || web["from_version"] != nil {
		t.Errorf("the upgrade is stored as %s", web)
	}
}

func TestDocumentsOfThisVersionHaveNoUnknownMembers(t *testing.T) {
	var u store.Unknowns
	var v older
	for doc, ok := range map[string]bool{
		`{"id":"a","inner":{"name":"n"},"raw":{"any":{"x":1}}}`: true,
		`{"ID":"a"}`: true, // as json.Unmarshal
		`{"id":1}`:   false,
		`{"id":`:     false,
	} {
		if err := store.Decode(&u, []byte(doc), &v); (err == nil) != ok {
			t.Errorf("%s: %v", doc, err)
		}
	}
	if u.Seen() {
		t.Error("unknown members were seen")
	}
}

func sameJSON(t *testing.T, a, b []byte) bool {
	t.Helper()
	var va, vb any
	if err := json.Unmarshal(a, &va); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if err := json.Unmarshal(b, &vb); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
	return reflect.DeepEqual(va, vb)
}
