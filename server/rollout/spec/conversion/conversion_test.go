package conversion_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/conversion"
	"github.com/muster-fleet/muster/server/rollout/spec/spectest"
	"github.com/muster-fleet/muster/server/rollout/spec/v1alpha1"
)

// reviewed converts objects by a ConversionReview, as an API server does.
func reviewed(t rapid.TB, version string, objects ...string) []string {
	t.Helper()
	answer := answerOf(t, version, objects...)
	if answer.Result.Status != "Success" || len(answer.Converted) != len(objects) {
		t.Fatalf("converting %s to %s: %+v", objects, version, answer)
	}
	var out []string
	for i, doc := range answer.Converted {
		if got, want := metadataOf(t, string(doc)), metadataOf(t, objects[i]); !reflect.DeepEqual(got, want) {
			t.Fatalf("metadata became %v, want %v", got, want)
		}
		out = append(out, string(doc))
	}
	return out
}

type answer struct {
	UID       string            `json:"uid"`
	Converted []json.RawMessage `json:"convertedObjects"`
	Result    struct{ Status, Message string }
}

func answerOf(t rapid.TB, version string, objects ...string) answer {
	t.Helper()
	body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"705ab4f5","desiredAPIVersion":%q,"objects":[%s]}}`, version, strings.Join(objects, ","))
	got, err := conversion.Convert([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	var review struct {
		APIVersion, Kind string
		Request          any
		Response         answer
	}
	if err := json.Unmarshal(got, &review); err != nil {
		t.Fatal(err)
	}
	if review.APIVersion != "apiextensions.k8s.io/v1" || review.Kind != "ConversionReview" || review.Request != nil || review.Response.UID != "705ab4f5" {
		t.Fatalf("the answer is %s", got)
	}
	return review.Response
}

func metadataOf(t rapid.TB, doc string) any {
	t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(doc), &o); err != nil {
		t.Fatal(err)
	}
	return o["metadata"]
}

func decode(t rapid.TB, doc string) spec.Fleet {
	t.Helper()
	var f spec.Fleet
	if err := json.Unmarshal([]byte(doc), &f); err != nil {
		t.Fatal(err)
	}
	return f
}

// cluster is a custom resource in an API server, which stores v1alpha2 and has a status
// subresource.
type cluster struct {
	t      rapid.TB
	stored spec.Fleet
}

// upgraded stores an object of v1alpha1 from before the upgrade, as the server does that reads
// and replaces each object when it starts.
func upgraded(t rapid.TB, old string) *cluster {
	return &cluster{t, decode(t, reviewed(t, spec.APIVersion, old)[0])}
}

// apply replaces what users write. The status in doc is ignored, as the API server does.
func (c *cluster) apply(doc string) {
	c.t.Helper()
	if strings.Contains(doc, v1alpha1.APIVersion) {
		doc = reviewed(c.t, spec.APIVersion, doc)[0]
		if strings.Contains(doc, `"status"`) {
			c.t.Fatalf("an object without status has one after the conversion: %s", doc)
		}
	}
	status := c.stored.Status
	c.stored = decode(c.t, doc)
	c.stored.Status = status
}

// viaV1alpha1 changes the spec of what a client reads and writes as v1alpha1, status included.
func (c *cluster) viaV1alpha1(change func(map[string]any)) {
	c.t.Helper()
	var o map[string]any
	if err := json.Unmarshal([]byte(reviewed(c.t, v1alpha1.APIVersion, string(spectest.JSON(c.t, c.stored)))[0]), &o); err != nil {
		c.t.Fatal(err)
	}
	change(o["spec"].(map[string]any))
	c.stored = decode(c.t, reviewed(c.t, spec.APIVersion, string(spectest.JSON(c.t, o)))[0])
}

func (c *cluster) want(what string, completed, requested string, starts bool) {
	c.t.Helper()
	s := c.stored.Status
	if s.LastCompletedRolloutHash != completed || s.RequestedRolloutHash != requested {
		c.t.Errorf("%s: completed %q and requested %q, want %q and %q", what, s.LastCompletedRolloutHash, s.RequestedRolloutHash, completed, requested)
	}
	if changed := spec.Hash(&c.stored) != s.RequestedRolloutHash; changed != starts {
		c.t.Errorf("%s: the hash of the spec differs from the requested one is %v, want %v", what, changed, starts)
	}
}

const (
	requestA, requestB = "8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01", "0a1b2c3d-0000-4000-8000-000000000002"
	metadata           = `"metadata":{"name":"web","namespace":"fleets","uid":"u","resourceVersion":"17","generation":2,"managedFields":[{"manager":"flux","fieldsV1":{"f:spec":{}}}],"ownerReferences":[{"uid":"o"}]}`
)

// old is an object of v1alpha1 with a rollout that was requested, and the one that was completed.
func old(version, requested, completed, promoting string) string {
	return fmt.Sprintf(`{"apiVersion":"muster.dev/v1alpha1","kind":"Fleet",%s,"spec":{"selector":{"all":true},"agent":{"version":%q},"requestRollout":%q},
		"status":{"lastCompletedRolloutRequest":%q,"resourcesHash":"r","conditions":[{"type":"Promoting","status":%q,"reason":"R","message":"m","lastTransitionTime":"2026-11-26T18:00:00Z"}]}}`,
		metadata, version, requested, completed, promoting)
}

// written is an object as users write it.
func written(apiVersion, version, rest string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"Fleet","metadata":{"name":"web"},"spec":{"selector":{"all":true},"agent":{"version":%q}%s}}`, apiVersion, version, rest)
}

func hashOf(t rapid.TB, version string) string {
	f := decode(t, written(spec.APIVersion, version, ""))
	return spec.Hash(&f)
}

func TestUpgradeFromV1alpha1ByApplyingV1alpha1(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestA, requestA, "False"))
	c.apply(written(v1alpha1.APIVersion, "1.3.0", ""))
	c.want("a change without requestRollout", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), true)
	c.apply(written(v1alpha1.APIVersion, "1.2.0", `,"requestRollout":"`+requestB+`"`))
	c.want("a new requestRollout without a change", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), false)
}

func TestUpgradeFromV1alpha1ByApplyingV1alpha2(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestA, requestA, "False"))
	c.apply(written(spec.APIVersion, "1.3.0", ""))
	c.want("a change", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), true)
}

func TestUpgradeFromV1alpha2ByApplyingV1alpha1(t *testing.T) {
	c := stored(t, "1.2.0")
	c.apply(written(v1alpha1.APIVersion, "1.2.0", `,"requestRollout":"`+requestA+`"`))
	c.want("the same", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), false)
	c.apply(written(v1alpha1.APIVersion, "1.3.0", `,"requestRollout":"`+requestA+`"`))
	c.want("a change", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), true)
}

func TestUpgradeFromV1alpha2ByApplyingV1alpha2(t *testing.T) {
	c := stored(t, "1.2.0")
	c.apply(written(spec.APIVersion, "1.2.0", `,"strategy":{"kind":"rolling"}`))
	c.want("the same", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), false)
	c.apply(written(spec.APIVersion, "1.3.0", ""))
	c.want("a change", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), true)
}

// stored is an object of v1alpha2 whose rollout is completed.
func stored(t *testing.T, version string) *cluster {
	c := &cluster{t, decode(t, written(spec.APIVersion, version, ""))}
	c.stored.Status = spec.Status{RequestedRolloutHash: hashOf(t, version), LastCompletedRolloutHash: hashOf(t, version), Sequence: 1}
	return c
}

func TestUpgradeFromV1alpha1MidRolloutNotPromoting(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestB, requestA, "False"))
	c.want("the rollout is done again", "", hashOf(t, "1.2.0"), false)
}

func TestUpgradeFromV1alpha1MidRolloutPromoting(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestB, requestA, "True"))
	c.want("the promotion is completed, whatever its hash", "", "", true)
	if p := c.stored.Status.Condition(spec.Promoting); p == nil || p.Status != spec.True || p.Reason != "R" {
		t.Errorf("the condition is %+v, want it as it was", p)
	}
}

func TestUpgradeWithAPreviousRolloutInProgress(t *testing.T) {
	c := stored(t, "1.2.0")
	c.stored.Spec.Agent.Version = "1.3.0"
	c.stored.Status.RequestedRolloutHash = hashOf(t, "1.3.0")
	c.viaV1alpha1(func(s map[string]any) { s["agent"] = map[string]any{"version": "1.4.0"} })
	c.want("a change in the middle of a rollout", hashOf(t, "1.2.0"), hashOf(t, "1.3.0"), true)
}

func TestUpgradeTriggeredByAnnotation(t *testing.T) {
	c := stored(t, "1.2.0")
	c.apply(strings.Replace(written(v1alpha1.APIVersion, "1.2.0", ""), `{"name":"web"}`, `{"name":"web","annotations":{"muster.dev/force-rollout":"1"}}`, 1))
	c.want("the annotation alone", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), true)
}

func TestDeployOfV1alpha2(t *testing.T) {
	c := &cluster{t, decode(t, written(spec.APIVersion, "1.2.0", ""))}
	c.viaV1alpha1(func(map[string]any) {})
	c.want("an object that was never rolled out", "", "", true)
	if !reflect.DeepEqual(c.stored.Status, spec.Status{}) {
		t.Errorf("it has the status %+v after a round trip", c.stored.Status)
	}
}

func TestRoundTripSimplestCase(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestA, requestA, "False"))
	c.want("after the upgrade there is nothing to do", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), false)
	c.viaV1alpha1(func(map[string]any) {})
	c.want("the same through v1alpha1", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), false)
	c.viaV1alpha1(func(s map[string]any) { s["requestRollout"] = requestB })
	c.want("another requestRollout through v1alpha1", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), false)
	c.apply(written(v1alpha1.APIVersion, "1.3.0", ""))
	c.want("a change", hashOf(t, "1.2.0"), hashOf(t, "1.2.0"), true)
}

func TestRoundTripMidRolloutNotPromoting(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestB, requestA, "False"))
	c.viaV1alpha1(func(map[string]any) {})
	c.want("through v1alpha1", "", hashOf(t, "1.2.0"), false)
}

func TestRoundTripMidRolloutPromoting(t *testing.T) {
	c := upgraded(t, old("1.2.0", requestB, requestA, "True"))
	c.viaV1alpha1(func(s map[string]any) { s["requestRollout"] = requestA })
	c.want("through v1alpha1 it is still promoting", "", "", true)
}

func TestReviewIsTheIdentityThroughV1alpha1(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		doc := string(spectest.JSON(t, spectest.Fleet().Draw(t, "object")))
		back := reviewed(t, spec.APIVersion, reviewed(t, v1alpha1.APIVersion, doc, doc)...)
		var got, want any
		if err := json.Unmarshal([]byte(back[1]), &got); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(doc), &want); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("the object is %s, want %s", back[1], doc)
		}
	})
}

func TestReviewOfObjectsOfBothVersions(t *testing.T) {
	got := reviewed(t, spec.APIVersion, old("1.2.0", requestA, requestA, "False"), written(spec.APIVersion, "1.3.0", ""))
	if v := decode(t, got[1]).Spec.Agent.Version; v != "1.3.0" {
		t.Errorf("the second object has version %q, want them in order", v)
	}
	if none := answerOf(t, spec.APIVersion); none.Result.Status != "Success" || none.Converted == nil {
		t.Errorf("a review of no objects has the answer %+v", none)
	}
}

func TestOneBadObjectFailsTheReview(t *testing.T) {
	good := written(v1alpha1.APIVersion, "1.2.0", "")
	for name, c := range map[string]struct{ object, version, message string }{
		"a wrong field":        {`{"apiVersion":"muster.dev/v1alpha1","kind":"Fleet",` + metadata + `,"spec":{"requestRollout":"now"}}`, spec.APIVersion, `fleet fleets/web: spec.requestRollout is "now", want a UUID`},
		"another kind":         {`{"apiVersion":"muster.dev/v1alpha1","kind":"Rollout","metadata":{"name":"r"}}`, spec.APIVersion, `rollout r: kind is "Rollout"`},
		"another version":      {`{"apiVersion":"muster.dev/v1","kind":"Fleet","metadata":{"name":"web"}}`, spec.APIVersion, `fleet web: apiVersion is "muster.dev/v1", want muster.dev/v1alpha1 or muster.dev/v1alpha2`},
		"no object":            {`5`, spec.APIVersion, "an object without a name: body"},
		"a version to come":    {good, "muster.dev/v1", `fleet web: desiredAPIVersion is "muster.dev/v1"`},
		"a version not wanted": {good, "", `fleet web: desiredAPIVersion is ""`},
	} {
		got := answerOf(t, c.version, good, c.object)
		if got.Result.Status != "Failure" || !strings.HasPrefix(got.Result.Message, c.message) || len(got.Converted) > 0 {
			t.Errorf("%s: the answer is %+v, want a failure that says %q", name, got, c.message)
		}
	}
}

func TestBodiesThatAreNoReviewAreRefused(t *testing.T) {
	for body, field := range map[string]string{
		``: "body", `[]`: "body", `{}`: "body.apiVersion",
		`{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview"}`:                "body.apiVersion",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"Review"}`:                               "body.kind",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`:                     "body.request",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{}}`:        "body.request.uid",
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":1}}`: "body",
	} {
		got, err := conversion.Convert([]byte(body))
		if fleet.KindOf(err) != fleet.Invalid || !strings.HasPrefix(err.Error(), "[request "+field+"]: ") || got != nil {
			t.Errorf("%s: got %s and %v, want an invalid %s", body, got, err, field)
		}
	}
}
