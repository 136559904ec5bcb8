package gitops

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/server/rollout/spec/spectest"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// older is an object of v1alpha1 with fields that v1alpha2 has moved or removed.
const older = `
metadata: {name: web, labels: {team: web}}
spec:
  selector: {labels: {tier: [front]}}
  site: berlin
  agentVersion: 1.0.0
  requestRollout: 8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01
  inPlaceRollout: true
  forcePromote: 00000000-0000-0000-0000-000000000000
  limits: {max_parallel: 5}
`

func TestOlderObjectIsReadInBothVersions(t *testing.T) {
	k := startKubernetes(t)
	k.install(definition(t))
	created := k.create(v1alpha1, older)

	read := k.get(v1alpha2, "web")
	want := map[string]any{
		"selector": map[string]any{"labels": map[string]any{"tier": []any{"front"}, "site": []any{"berlin"}}},
		"agent":    map[string]any{"version": "1.0.0"},
		"limits":   map[string]any{"max_parallel": int64(5)},
	}
	if !reflect.DeepEqual(read.Object["spec"], want) {
		t.Errorf("in v1alpha2 the spec is %v, want %v", read.Object["spec"], want)
	}
	if read.Object["status"] != nil {
		t.Errorf("nobody has written a status, and it is %v", read.Object["status"])
	}
	if read.GetUID() != created.GetUID() || !reflect.DeepEqual(read.GetLabels(), map[string]string{"team": "web"}) {
		t.Errorf("in v1alpha2 the metadata are %v, in v1alpha1 they were %v", read.Object["metadata"], created.Object["metadata"])
	}
	// The stored object has nothing that only v1alpha1 has.
	back := k.get(v1alpha1, "web")
	if !reflect.DeepEqual(back.Object["spec"], want) {
		t.Errorf("back in v1alpha1 the spec is %v, want %v", back.Object["spec"], want)
	}
}

func TestObjectsAreStoredInTheNewerVersion(t *testing.T) {
	k := startKubernetes(t)
	k.install(definition(t))
	k.create(v1alpha1, older)
	k.create(v1alpha2, "metadata: {name: db}\nspec: {selector: {policies: [db]}, agent: {version: 1.0.0}}")
	for _, name := range []string{"web", "db"} {
		if got := k.stored(name).GetAPIVersion(); got != spec.APIVersion {
			t.Errorf("%s is stored in %s, want %s", name, got, spec.APIVersion)
		}
	}
	if got := k.definition().Status.StoredVersions; !reflect.DeepEqual(got, []string{v1alpha2}) {
		t.Errorf("the stored versions are %v, want only %s", got, v1alpha2)
	}
}

// An API server drops fields that the definition does not have, or refuses them here.
func TestDefinitionHasEveryField(t *testing.T) {
	k := startKubernetes(t)
	k.install(definition(t))
	for i := range 10 {
		f := spectest.Full().Example(i)
		f.Metadata = spec.Metadata{Name: fmt.Sprintf("fleet-%d", i)}
		u := &unstructured.Unstructured{}
		check(t, u.UnmarshalJSON(spectest.JSON(t, f)))
		declared, status := u.Object["spec"], u.Object["status"]

		strict := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
		_, err := k.fleets(v1alpha2).Create(t.Context(), u, strict)
		check(t, err)
		k.writeStatus(v1alpha2, f.Metadata.Name, status)
		if got := k.get(v1alpha2, f.Metadata.Name); !reflect.DeepEqual(got.Object["spec"], declared) || !reflect.DeepEqual(got.Object["status"], status) {
			t.Errorf("%s was written as\n%v\n%v\nand is read as\n%v\n%v", f.Metadata.Name, declared, status, got.Object["spec"], got.Object["status"])
		}

		// A client of v1alpha1 writes what it has read.
		old := k.get(v1alpha1, f.Metadata.Name)
		copied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": old.GetAPIVersion(), "kind": old.GetKind(), "metadata": map[string]any{"name": f.Metadata.Name + "-copy"}, "spec": old.Object["spec"]}}
		_, err = k.fleets(v1alpha1).Create(t.Context(), copied, strict)
		check(t, err)
		k.writeStatus(v1alpha1, copied.GetName(), old.Object["status"])
		if got := k.get(v1alpha2, copied.GetName()); !reflect.DeepEqual(got.Object["spec"], declared) || !reflect.DeepEqual(got.Object["status"], status) {
			t.Errorf("%s was written as\n%v\n%v\nand is, copied in v1alpha1,\n%v\n%v", f.Metadata.Name, declared, status, got.Object["spec"], got.Object["status"])
		}
	}
}

// writeStatus writes a status as a server does, which Kubernetes lets nobody write with the rest.
func (k *kubernetes) writeStatus(version, name string, status any) {
	k.t.Helper()
	u := k.get(version, name)
	u.Object["status"] = status
	_, err := k.fleets(version).UpdateStatus(k.t.Context(), u, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict})
	check(k.t, err)
}

// progressing is the status of an object with a rollout under way, after an earlier one.
func progressing() spec.Status {
	return spec.Status{
		ObservedGeneration: 1, RequestedRolloutHash: strings.Repeat("a", 64), LastCompletedRolloutHash: strings.Repeat("b", 64), Sequence: 2,
		Rollout: &spec.RolloutStatus{ID: "fleet-web-2", Version: "1.1.0", State: "running", Waiting: "waits for 3 agents"},
		Agents:  7, Versions: map[string]map[string]int{"agent": {"1.0.0": 5, "1.1.0": 2}},
		Conditions: []spec.Condition{{Type: spec.Progressing, Status: spec.True, Reason: "RollingOut", Message: "a rollout is under way", LastTransitionTime: time.Unix(1_800_000_000, 0).UTC(), ObservedGeneration: 1}},
	}
}

// decoded returns a value as an API server returns it.
func decoded(t *testing.T, v any) map[string]any {
	t.Helper()
	u := &unstructured.Unstructured{}
	check(t, u.UnmarshalJSON(spectest.JSON(t, map[string]any{"apiVersion": "v1", "kind": "Any", "value": v})))
	return u.Object["value"].(map[string]any)
}

func TestStatusSurvivesBothVersions(t *testing.T) {
	k := startKubernetes(t)
	k.install(definition(t))
	k.create(v1alpha2, "metadata: {name: web}\nspec: {selector: {all: true}, agent: {version: 1.1.0}}")
	status := progressing()
	k.writeStatus(v1alpha2, "web", decoded(t, status))

	// A client of v1alpha1 reads the status, and writes it with a condition of its own.
	old := k.get(v1alpha1, "web")
	if got, want := old.Object["status"], decoded(t, status); !reflect.DeepEqual(got, want) {
		t.Errorf("in v1alpha1 the status is\n%v, want\n%v", got, want)
	}
	waiting := spec.Condition{Type: spec.Stalled, Status: spec.True, Reason: "Waits", Message: "for an approval", LastTransitionTime: time.Unix(1_800_000_100, 0).UTC()}
	status.Conditions = append(status.Conditions, waiting)
	k.writeStatus(v1alpha1, "web", decoded(t, status))
	if got := typed(t, k.get(v1alpha2, "web")).Status; !reflect.DeepEqual(got, status) {
		t.Errorf("written in v1alpha1, the status is\n%+v, want\n%+v", got, status)
	}
}

// A user's file without a status does not remove the stored one, whichever way it is written.
func TestOlderObjectOverNewerKeepsTheStatus(t *testing.T) {
	k := startKubernetes(t)
	k.install(definition(t))
	const text = "metadata: {name: web}\nspec: {selector: {all: true}, agent: {version: %s}}"
	k.create(v1alpha2, fmt.Sprintf(text, "1.0.0"))
	status := progressing()
	k.writeStatus(v1alpha2, "web", decoded(t, status))

	for i, write := range []func(u *unstructured.Unstructured) (*unstructured.Unstructured, error){
		func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) { // kubectl replace
			u.SetResourceVersion(k.get(v1alpha1, "web").GetResourceVersion())
			return k.fleets(v1alpha1).Update(t.Context(), u, metav1.UpdateOptions{})
		},
		func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) { // kubectl apply
			patch, err := json.Marshal(u)
			check(t, err)
			return k.fleets(v1alpha1).Patch(t.Context(), "web", "application/merge-patch+json", patch, metav1.PatchOptions{})
		},
		func(u *unstructured.Unstructured) (*unstructured.Unstructured, error) { // kubectl apply --server-side
			return k.fleets(v1alpha1).Apply(t.Context(), "web", u, metav1.ApplyOptions{FieldManager: "flux", Force: true})
		},
	} {
		version := fmt.Sprintf("1.%d.0", i+1)
		u := object(t, v1alpha1, fmt.Sprintf(text, version))
		check(t, unstructured.SetNestedField(u.Object, fmt.Sprintf("8f14e45f-ceea-467f-a0e6-3f6b1a2c9d0%d", i), "spec", "requestRollout"))
		written, err := write(u)
		check(t, err)
		if written.GetAPIVersion() != spec.Group+"/"+v1alpha1 {
			t.Errorf("write %d answers in %s", i, written.GetAPIVersion())
		}
		read := k.get(v1alpha2, "web")
		if got := typed(t, read); got.Spec.Agent.Version != version || !reflect.DeepEqual(got.Status, status) {
			t.Errorf("write %d led to version %s and the status\n%+v, want %s and\n%+v", i, got.Spec.Agent.Version, got.Status, version, status)
		}
		// The hash differs from the requested one, by which the server starts a rollout.
		if got := read.GetGeneration(); got != int64(i+2) {
			t.Errorf("write %d led to generation %d, want %d", i, got, i+2)
		}
	}
}

func TestInvalidObjectIsRefusedWithItsPath(t *testing.T) {
	k := startKubernetes(t)
	k.install(definition(t))
	for _, test := range []struct{ version, text, want string }{
		{v1alpha2, "spec: {agent: {version: 1.0.0}}", "spec.selector: Required value"},
		{v1alpha2, "spec: {selector: {all: true}, strategy: {kind: sideways}}", `spec.strategy.kind: Unsupported value: "sideways"`},
		{v1alpha2, "spec: {selector: {all: true}, limits: {max_parallel: many}}", "spec.limits.max_parallel: Invalid value"},
		{v1alpha2, "spec: {selector: {all: true}, limits: {max_parallel: 1.5}}", "spec.limits.max_parallel: Invalid value"},
		{v1alpha2, "spec: {selector: {labels: {site: berlin}}}", "spec.selector.labels.site: Invalid value"},
		{v1alpha2, "spec: {selector: {all: true}, components: [{version: 1.0.0}]}", "spec.components[0].name: Required value"},
		{v1alpha2, "spec: {selector: {all: true}, strategy: {cannary: {size: 1}}}", `unknown field "spec.strategy.cannary"`},
		{v1alpha2, "spec: {selector: {all: true}, requestRollout: 8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01}", `unknown field "spec.requestRollout"`},
		{v1alpha1, "spec: {selector: {all: true}, requestRollout: soon}", "spec.requestRollout"},
		{v1alpha1, "spec: {selector: {all: true}, site: [berlin]}", "spec.site: Invalid value"},
	} {
		u := object(t, test.version, "metadata: {name: web}\n"+test.text)
		_, err := k.fleets(test.version).Create(t.Context(), u, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want an error with %q", test.text, err, test.want)
		}
	}
	list, err := k.fleets(v1alpha2).List(t.Context(), metav1.ListOptions{})
	check(t, err)
	if len(list.Items) != 0 {
		t.Errorf("%d of the refused objects are stored", len(list.Items))
	}
}

// The definition of before v1alpha2 has only v1alpha1, and stores it.
func olderDefinition(t *testing.T) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd := definition(t)
	crd.Spec.Conversion = &apiextensions.CustomResourceConversion{Strategy: apiextensions.NoneConverter}
	for _, v := range crd.Spec.Versions {
		if v.Name == v1alpha1 {
			v.Storage = true
			crd.Spec.Versions = []apiextensions.CustomResourceDefinitionVersion{v}
			return crd
		}
	}
	t.Fatalf("the definition has no %s", v1alpha1)
	return nil
}

func TestObjectsOfBeforeAreRewritten(t *testing.T) {
	k := startKubernetes(t)
	k.install(olderDefinition(t))
	k.create(v1alpha1, older)
	// It is not rolling out: the last completed request is the requested one.
	k.writeStatus(v1alpha1, "web", map[string]any{
		"lastCompletedRolloutRequest": "8f14e45f-ceea-467f-a0e6-3f6b1a2c9d01", "resourcesHash": "0a1b",
		"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "RolledOut", "message": "", "lastTransitionTime": "2026-03-01T10:00:00Z"}},
	})

	// Kubernetes gets the definition with v1alpha2.
	now, next := k.definition(), definition(t)
	now.Spec.Versions, now.Spec.Conversion = next.Spec.Versions, next.Spec.Conversion
	now, err := k.definitions.ApiextensionsV1().CustomResourceDefinitions().Update(t.Context(), now, metav1.UpdateOptions{})
	check(t, err)
	harness.Eventually(t, "both versions are served", func() error { return k.served(now) })
	if got := k.stored("web").GetAPIVersion(); got != spec.Group+"/"+v1alpha1 {
		t.Fatalf("before it is rewritten the object is stored in %s", got)
	}
	read := k.get(v1alpha2, "web")
	migrated := typed(t, read)
	if hash := spec.Hash(migrated); migrated.Status.LastCompletedRolloutHash != hash || migrated.Status.RequestedRolloutHash != hash {
		t.Errorf("the object was not rolling out, so both hashes of %+v should be %s", migrated.Status, hash)
	}
	if c := migrated.Status.Condition(spec.Ready); c == nil || c.Reason != "RolledOut" {
		t.Errorf("the conditions are %+v, want the one of before", migrated.Status.Conditions)
	}

	// A replacement without a change stores it in v1alpha2.
	_, err = k.fleets(v1alpha2).Update(t.Context(), read, metav1.UpdateOptions{})
	check(t, err)
	if got := k.stored("web"); got.GetAPIVersion() != spec.APIVersion || got.GetGeneration() != read.GetGeneration() || !reflect.DeepEqual(got.Object["spec"], read.Object["spec"]) {
		t.Errorf("after the replacement etcd has\n%v, want generation %d and\n%v", got, read.GetGeneration(), read.Object["spec"])
	}
	if got := typed(t, k.get(v1alpha2, "web")).Status; !reflect.DeepEqual(got, migrated.Status) {
		t.Errorf("after the replacement the status is\n%+v, want\n%+v", got, migrated.Status)
	}
}

func TestObjectsSurviveAnOutageOfTheServer(t *testing.T) {
	k := startKubernetes(t)
	server, err := world(t).StartServerWith(t.Context(), harness.ServerOptions{Name: "other"})
	check(t, err)
	t.Cleanup(func() { check(t, server.Stop()) })
	k.install(definitionOf(t, server))
	k.create(v1alpha1, older)

	check(t, server.Kill())
	if _, err := k.fleets(v1alpha1).Get(t.Context(), "web", metav1.GetOptions{}); !apierrors.IsInternalError(err) || !strings.Contains(err.Error(), "conversion webhook") {
		t.Errorf("without the server, reading v1alpha1 led to %v", err)
	}
	k.get(v1alpha2, "web") // needs no conversion
	check(t, server.Start(t.Context()))
	k.get(v1alpha1, "web")
}
