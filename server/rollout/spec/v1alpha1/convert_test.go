package v1alpha1_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/spectest"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
)

func TestNothingIsLostToV1alpha1AndBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := spectest.Fleet().Draw(t, "object")
		doc := spectest.JSON(t, f)
		old, err := v1alpha1.FromV1alpha2(doc)
		if err != nil {
			t.Fatalf("%s: %v", doc, err)
		}
		valid(t, old)
		back, err := v1alpha1.ToV1alpha2(old)
		if err != nil {
			t.Fatalf("%s: %v", old, err)
		}
		same(t, back, doc)
		// Applying it over itself is no change either.
		again, err := v1alpha1.FromV1alpha2(back)
		if err != nil {
			t.Fatal(err)
		}
		same(t, again, old)
	})
}

// valid fails unless the types of v1alpha1 have every field of the object.
func valid(t rapid.TB, doc []byte) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(doc))
	d.DisallowUnknownFields()
	var f v1alpha1.Fleet
	if err := d.Decode(&f); err != nil {
		t.Fatalf("%s is not valid: %v", doc, err)
	}
	for _, id := range []string{f.Spec.RequestRollout, f.Spec.ForcePromote, f.Status.LastCompletedRolloutRequest} {
		if id != "" && len(id) != 36 {
			t.Fatalf("%s has %q where a UUID belongs", doc, id)
		}
	}
}

func same(t rapid.TB, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatalf("%s: %v", got, err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Fatalf("the object is\n%s, want\n%s", got, want)
	}
}

// Objects of v1alpha1 with what they are in v1alpha2, with the hashes as they were released: never
// correct one, but the code.
func TestReleasedConversionsNeverChange(t *testing.T) {
	doc, err := os.ReadFile(filepath.Join("testdata", "conversions.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name string          `json:"name"`
		From json.RawMessage `json:"v1alpha1"`
		To   json.RawMessage `json:"v1alpha2"`
		Hash string          `json:"hash"`
	}
	if err := json.Unmarshal(doc, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			valid(t, c.From)
			got, err := v1alpha1.ToV1alpha2(c.From)
			if err != nil {
				t.Fatal(err)
			}
			same(t, got, c.To)
			var f spec.Fleet
			if err := json.Unmarshal(got, &f); err != nil {
				t.Fatal(err)
			}
			if hash := spec.Hash(&f); hash != c.Hash {
				t.Errorf("the hash is %s, and was released as %s", hash, c.Hash)
			}
			if f.Status.RequestedRolloutHash == "" {
				return
			}
			old, err := v1alpha1.FromV1alpha2(got)
			if err != nil {
				t.Fatal(err)
			}
			again, err := v1alpha1.ToV1alpha2(old)
			if err != nil {
				t.Fatal(err)
			}
			same(t, again, got)
		})
	}
	if len(cases) == 0 {
		t.Error("there are no cases")
	}
}

// A field that a newer server adds, or a typing error, reaches the one who refuses or prunes it.
func TestUnknownFieldsStay(t *testing.T) {
	const old = `{"apiVersion":"muster.dev/v1alpha1","kind":"Fleet","metadata":{"name":"web","managedFields":[{"manager":"kubectl","fieldsV1":{"f:spec":{}}}],"ownerReferences":[{"uid":"1"}],"namespace":"n","finalizers":["x"]},
		"spec":{"selector":{"all":true,"unheard":1},"site":"berlin","strategy":{"kind":"rolling","of":{"later":[1]}},"number":12345678901234567890},"status":{"other":true}, "extra":{}}`
	got, err := v1alpha1.ToV1alpha2([]byte(old))
	if err != nil {
		t.Fatal(err)
	}
	var f struct {
		Status spec.Status `json:"status"`
	}
	if err := json.Unmarshal(got, &f); err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer(`v1alpha1`, `v1alpha2`, `"unheard":1`, `"unheard":1,"labels":{"site":["berlin"]}`, `"site":"berlin",`, ``,
		`"other":true`, `"other":true,"requestedRolloutHash":"`+f.Status.RequestedRolloutHash+`","lastCompletedRolloutHash":"`+f.Status.LastCompletedRolloutHash+`"`).Replace(old)
	same(t, got, []byte(want))
	if !bytes.Contains(got, []byte("12345678901234567890")) {
		t.Errorf("a large number was rounded in %s", got)
	}
}

func TestWrongObjectsAreRefusedWithTheField(t *testing.T) {
	const id = `"8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01"`
	for _, c := range []struct{ spec, status, field string }{
		{`{"requestRollout":"now"}`, ``, "spec.requestRollout"},
		{`{"requestRollout":"{8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01}"}`, ``, "spec.requestRollout"},
		{`{"forcePromote":5}`, ``, "spec.forcePromote"},
		{`{"forcePromote":"9f86"}`, ``, "spec.forcePromote"},
		{`{"forcePromoteHash":{}}`, ``, "spec.forcePromoteHash"},
		{`{"site":["berlin"]}`, ``, "spec.site"},
		{`{"site":"berlin","selector":"all"}`, ``, "spec.selector"},
		{`{"site":"berlin","selector":{"labels":[]}}`, ``, "spec.selector.labels"},
		{`{"agentVersion":1.2}`, ``, "spec.agentVersion"},
		{`{"agentVersion":"1.2.0","agent":"1.2.0"}`, ``, "spec.agent"},
		{`{"agentVersion":"1.2.0","agent":{"version":1}}`, ``, "spec.agent.version"},
		{`[]`, ``, "spec"},
		{`{}`, `[]`, "status"},
		{`{}`, `{"lastCompletedRolloutRequest":"x"}`, "status.lastCompletedRolloutRequest"},
		{`{}`, `{"lastCompletedRolloutHash":1}`, "status.lastCompletedRolloutHash"},
		{`{"requestRollout":` + id + `}`, `{"conditions":{}}`, "status.conditions"},
		{`{"strategy":"rolling"}`, `{"lastCompletedRolloutRequest":` + id + `}`, "spec"},
	} {
		doc := `{"apiVersion":"muster.dev/v1alpha1","kind":"Fleet","metadata":{"name":"web"},"spec":` + c.spec
		if c.status != "" {
			doc += `,"status":` + c.status
		}
		_, err := v1alpha1.ToV1alpha2([]byte(doc + "}"))
		checkField(t, doc+"}", err, c.field)
	}
	for doc, field := range map[string]string{
		`5`: "body", `null`: "body", `{`: "body", `{}`: "apiVersion", `{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet"}`: "apiVersion",
		`{"apiVersion":["x"]}`: "apiVersion", `{"apiVersion":"muster.dev/v1alpha1","kind":"Rollout"}`: "kind",
	} {
		_, err := v1alpha1.ToV1alpha2([]byte(doc))
		checkField(t, doc, err, field)
	}
	for rest, field := range map[string]string{`"spec":{"forcePromote":1}`: "spec.forcePromote", `"spec":1`: "spec", `"status":1`: "status", `"status":{"lastCompletedRolloutHash":[]}`: "status.lastCompletedRolloutHash"} {
		doc := `{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet",` + rest + `}`
		_, err := v1alpha1.FromV1alpha2([]byte(doc))
		checkField(t, doc, err, field)
	}
}

func checkField(t *testing.T, doc string, err error, field string) {
	t.Helper()
	if fleet.KindOf(err) != fleet.Invalid || !strings.HasPrefix(err.Error(), "[request "+field+"]: ") {
		t.Errorf("%s: the error is %v, want an invalid %s", doc, err, field)
	}
}

func TestNoDocumentMakesAConversionPanic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := spectest.JSON(t, spectest.Fleet().Draw(t, "object"))
		doc = bytes.Replace(doc, []byte("v1alpha2"), []byte("v1alpha1"), 1)
		// Values of other types at any place.
		for range rapid.IntRange(0, 3).Draw(t, "replacements") {
			at := rapid.IntRange(0, len(doc)-1).Draw(t, "at")
			doc = slices.Replace(doc, at, at+1, []byte(rapid.SampledFrom([]string{"null", "{}", "[", "5", `"`, ":"}).Draw(t, "with"))...)
		}
		if got, err := v1alpha1.ToV1alpha2(doc); err == nil && !json.Valid(got) {
			t.Fatalf("%s became %s", doc, got)
		}
	})
}

func TestWarningsNameWhatHasNoEffect(t *testing.T) {
	got := v1alpha1.Warnings([]byte(`{"apiVersion":"muster.dev/v1alpha1","kind":"Fleet","spec":{"requestRollout":"x","site":"berlin","selector":{}}}`))
	if len(got) != 3 || !strings.Contains(got[1], "spec.requestRollout") || !strings.Contains(got[2], "spec.selector.labels.site") {
		t.Errorf("the warnings are %q", got)
	}
	if got := v1alpha1.Warnings([]byte(`{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet","spec":{}}`)); got != nil {
		t.Errorf("v1alpha2 has the warnings %q", got)
	}
}
