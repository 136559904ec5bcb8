package spec_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/spectest"
)

// The files have objects with the hashes that released servers gave them, one file for each
// schema. A hash that changes would start a rollout for everybody who upgrades the server: never
// correct one, but the code.
func TestReleasedHashesNeverChange(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "hashes", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no files: %v", err)
	}
	for _, name := range files {
		doc, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var cases []struct {
			Name      string     `json:"name"`
			Object    spec.Fleet `json:"object"`
			Canonical string     `json:"canonical"` // what is hashed
			Hash      string     `json:"hash"`
		}
		if err := json.Unmarshal(doc, &cases); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, c := range cases {
			if got := spec.Hash(&c.Object); got != c.Hash {
				t.Errorf("%s: %s: the hash is %s, and was released as %s", name, c.Name, got, c.Hash)
			}
			if sum := sha256.Sum256([]byte(c.Canonical)); hex.EncodeToString(sum[:]) != c.Hash {
				t.Errorf("%s: %s: the released hash is not that of the canonical form", name, c.Name)
			}
		}
	}
}

// The defaults are part of v1alpha2. A server with other defaults must give an object of this
// version the same plan and the same hash, so here they are written out.
func TestDefaultsOfV1alpha2AreFrozen(t *testing.T) {
	over := []string{"os", "arch", "version"}
	for name, c := range map[string]struct{ written, planned fleet.Strategy }{
		"nothing":     {fleet.Strategy{}, fleet.Strategy{Kind: "rolling", BatchPercent: 10}},
		"rolling":     {fleet.Strategy{Kind: "rolling", BatchSize: 5}, fleet.Strategy{Kind: "rolling", BatchSize: 5}},
		"canary":      {fleet.Strategy{Kind: "canary"}, fleet.Strategy{Kind: "canary", BatchPercent: 10, Canary: &fleet.CanaryRule{Size: 10, Pick: "random", Over: over}}},
		"a tenth":     {fleet.Strategy{Kind: "canary", Canary: &fleet.CanaryRule{Percent: 10}}, fleet.Strategy{Kind: "canary", BatchPercent: 10, Canary: &fleet.CanaryRule{Percent: 10, Pick: "random", Over: over}}},
		"stratified":  {fleet.Strategy{Kind: "canary", Canary: &fleet.CanaryRule{Pick: "stratified"}}, fleet.Strategy{Kind: "canary", BatchPercent: 10, Canary: &fleet.CanaryRule{Pick: "stratified", Over: over}}},
		"rings":       {fleet.Strategy{Kind: "rings"}, fleet.Strategy{Kind: "rings", BatchPercent: 10, Rings: &fleet.RingRule{By: "ring"}}},
		"all_at_once": {fleet.Strategy{Kind: "all_at_once"}, fleet.Strategy{Kind: "all_at_once"}},
		"lockstep":    {fleet.Strategy{Kind: "lockstep"}, fleet.Strategy{Kind: "lockstep", Away: "refuse", Patience: fleet.Duration(10 * time.Minute)}},
	} {
		f := spec.Fleet{Spec: spec.Spec{Strategy: c.written}}
		if got := f.Plan(spec.Part{}).Strategy; !reflect.DeepEqual(got, c.planned) {
			t.Errorf("%s: the plan has %+v, want %+v", name, got, c.planned)
		}
		explicit := spec.Fleet{Spec: spec.Spec{Strategy: c.planned}}
		if spec.Hash(&f) != spec.Hash(&explicit) {
			t.Errorf("%s: explicit defaults change the hash", name)
		}
	}
	if size := (fleet.Strategy{Kind: "canary", Canary: &fleet.CanaryRule{Pick: "stratified", Size: 10}}); spec.Hash(&spec.Fleet{Spec: spec.Spec{Strategy: size}}) ==
		spec.Hash(&spec.Fleet{Spec: spec.Spec{Strategy: fleet.Strategy{Kind: "canary", Canary: &fleet.CanaryRule{Pick: "stratified"}}}}) {
		t.Error("10 stratified canaries have the hash of as many as the combinations need")
	}
}

// The server of this version has the same defaults. When it gets others, v1alpha2 keeps its own,
// and this test goes.
func TestDefaultsOfV1alpha2AreThoseOfThisServer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := spectest.Fleet().Draw(t, "object")
		p := f.Plan(spec.Part{})
		ours := plan.WithDefaults(p).Strategy
		p.Strategy = f.Spec.Strategy
		if p.Strategy.Kind == "" {
			p.Strategy.Kind = fleet.Rolling
		}
		if servers := plan.WithDefaults(p).Strategy; !reflect.DeepEqual(ours, servers) {
			t.Fatalf("%+v: v1alpha2 plans %+v, the server %+v", f.Spec.Strategy, ours, servers)
		}
	})
}
