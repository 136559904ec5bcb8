package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	declared "github.com/muster-fleet/muster/server/rollout/spec"
)

const fleetsPath = "/api/v1/fleets"

// webFleet is an object in YAML, as a person writes it.
const webFleet = `apiVersion: muster.dev/v1alpha2
kind: Fleet
metadata:
  name: web
  labels: {stage: prod}
spec:
  selector:
    labels: {tag:web: ["true"]}
  agent: {version: 2.0.0}
  strategy: {batch_size: 5}
  limits: {max_parallel: 50}
`

// sendFleet sends an object in YAML.
func sendFleet(t *testing.T, s *apptest.Server, method, path, body string) apptest.Answer {
	t.Helper()
	got, err := s.Do(t.Context(), apptest.Request{
		Method: method, URL: s.AdminURL + path, Body: body,
		Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey, "Content-Type", "application/yaml"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// fleetOf decodes an object of an answer with a status.
func fleetOf(t *testing.T, got apptest.Answer, status int) declared.Fleet {
	t.Helper()
	if got.Status != status {
		t.Fatalf("the answer is %d, want %d: %s", got.Status, status, got.Body)
	}
	got.Status = http.StatusOK
	return apptest.Decode[declared.Fleet](t, got)
}

func applyFleet(t *testing.T, s *apptest.Server, body string, status int) declared.Fleet {
	t.Helper()
	return fleetOf(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", body), status)
}

func getFleet(t *testing.T, s *apptest.Server) declared.Fleet {
	t.Helper()
	return fleetOf(t, s.Admin(http.MethodGet, fleetsPath+"/web", nil), http.StatusOK)
}

// keepsItsVersion checks that applying an object that is stored writes nothing. The loop writes
// statuses meanwhile, until it has nothing more to say.
func keepsItsVersion(t *testing.T, s *apptest.Server, body string) {
	t.Helper()
	audited := len(entries(t, s))
	apptest.Eventually(t, "the same object to be the same", func() string {
		before := getFleet(t, s).Metadata
		got := sendFleet(t, s, http.MethodPut, fleetsPath+"/web", body)
		after := getFleet(t, s).Metadata
		if got.Status != http.StatusOK || after.ResourceVersion != before.ResourceVersion || after.Generation != before.Generation {
			return fmt.Sprintf("%d %s", got.Status, got.Body)
		}
		return ""
	})
	if n := len(entries(t, s)); n != audited {
		t.Errorf("the audit trail has %d entries after %d", n, audited)
	}
}

// refusedFleet checks a refusal that has all of the lines in its message.
func refusedFleet(t *testing.T, got apptest.Answer, status int, says ...string) {
	t.Helper()
	lines := strings.Split(got.ErrorBody().Message, "\n")
	for _, line := range says {
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, line) }) {
			t.Errorf("no line has %q:\n%s", line, got.Body)
		}
	}
	if got.Status != status {
		t.Errorf("the answer is %d, want %d: %s", got.Status, status, got.Body)
	}
}

// tryFleets makes the calls about objects of kind Fleet.
func tryFleets(t *testing.T, s *apptest.Server, do func(call *adminapi.Call, body any, params ...string) map[string]any) {
	t.Helper()
	object := func(name, version string) map[string]any {
		return map[string]any{
			"apiVersion": declared.APIVersion, "kind": declared.Kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"selector": map[string]any{"policies": []string{"nowhere"}}, "agent": map[string]any{"version": version}},
		}
	}
	do(adminapi.CreateFleet.Call, object("lab", "2.0.0"))
	do(adminapi.ApplyFleet.Call, object("lab", "3.0.0"), "lab")
	do(adminapi.ApplyFleet.Call, object("edge", "2.0.0"), "edge")
	do(adminapi.GetFleet.Call, nil, "lab")
	do(adminapi.ListFleetCommands.Call, nil, "lab")
	do(adminapi.ListFleets.Call, nil)
	do(adminapi.DiffFleet.Call, object("lab", "2.0.0"), "lab")
	suspendFleet(t, s, "lab")
	do(adminapi.ResumeFleet.Call, map[string]any{"why": "done"}, "lab")
	do(adminapi.DeleteFleet.Call, nil, "lab")
	do(adminapi.DeleteFleet.Call, nil, "edge")
	do(adminapi.ListFleetHistory.Call, nil, "lab")
	do(adminapi.GetFleetSchema.Call, nil)
	do(adminapi.ExportFleets.Call, nil)
	do(adminapi.ConvertFleets.Call, map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"request": map[string]any{"uid": "1", "desiredAPIVersion": "muster.dev/v1alpha1", "objects": []any{object("lab", "2.0.0")}},
	})
}

// suspendFleet suspends an object in the store, as an order on its agents does.
func suspendFleet(t *testing.T, s *apptest.Server, name string) {
	t.Helper()
	apptest.Eventually(t, "the object to be suspended", func() string {
		d, err := s.Store.DeclaredFleets().Get(t.Context(), name)
		if err != nil {
			return err.Error()
		}
		var doc map[string]any
		if err := json.Unmarshal(d.Doc, &doc); err != nil {
			return err.Error()
		}
		doc["status"] = map[string]any{"suspended": map[string]any{"by": "kim", "at": "2026-01-31T12:00:00Z"}}
		if d.Doc, err = json.Marshal(doc); err != nil {
			return err.Error()
		}
		if _, err := s.Store.DeclaredFleets().Update(t.Context(), d); err != nil {
			return err.Error()
		}
		return ""
	})
}

func TestApplyingAFleetTwiceWritesItOnce(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	first := applyFleet(t, s, webFleet, http.StatusCreated)
	m := first.Metadata
	if m.UID == "" || m.ResourceVersion == "" || m.Generation != 1 || m.CreationTimestamp == nil {
		t.Errorf("it was created as %+v", m)
	}
	keepsItsVersion(t, s, webFleet)
	// JSON with another order of keys and another notation of a number is the same object.
	same := `{"kind": "Fleet", "apiVersion": "muster.dev/v1alpha2", "spec": {"limits": {"max_parallel": 5e1}, "strategy": {"batch_size": 5}, "agent": {"version": "2.0.0"},
		"selector": {"labels": {"tag:web": ["true"]}}}, "metadata": {"labels": {"stage": "prod"}, "name": "web"}, "status": {"agents": 7}}`
	same = strings.Replace(same, "5e1", "50.0", 1)
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", same), http.StatusBadRequest, "spec.limits.max_parallel is 50.0, want a whole number")
	keepsItsVersion(t, s, strings.Replace(same, "50.0", "50", 1))
	if got := getFleet(t, s); got.Status.Agents != 0 {
		t.Errorf("the status was taken from the body: %+v", got.Status)
	}
	// A label is no change of the spec.
	relabelled := applyFleet(t, s, strings.Replace(webFleet, "prod", "lab", 1), http.StatusOK)
	if relabelled.Metadata.Generation != 1 || relabelled.Metadata.ResourceVersion == m.ResourceVersion {
		t.Errorf("with another label it is %+v", relabelled.Metadata)
	}
	changed := applyFleet(t, s, strings.Replace(webFleet, "2.0.0", "3.0.0", 1), http.StatusOK)
	if changed.Metadata.Generation != 2 || changed.Metadata.UID != m.UID {
		t.Errorf("with another version it is %+v", changed.Metadata)
	}
	forced := applyFleet(t, s, strings.Replace(webFleet, "  labels: {stage: prod}", "  annotations: {muster.dev/force-rollout: once}", 1), http.StatusOK)
	if forced.Metadata.Generation != 3 {
		t.Errorf("forced it is %+v", forced.Metadata)
	}
}

// A default that a server fills in would look like a change to every tool that compares.
func TestFleetIsReturnedAsItWasWritten(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	applyFleet(t, s, webFleet+"  paused: false\n", http.StatusCreated)
	var got struct{ Spec json.RawMessage }
	if err := json.Unmarshal(s.Admin(http.MethodGet, fleetsPath+"/web", nil).Body, &got); err != nil {
		t.Fatal(err)
	}
	want := `{"selector":{"labels":{"tag:web":["true"]}},"agent":{"version":"2.0.0"},"strategy":{"batch_size":5},"limits":{"max_parallel":50},"paused":false}`
	if string(got.Spec) != want {
		t.Errorf("it is returned as\n%s\nwant\n%s", got.Spec, want)
	}
}

func TestFleetIsRefusedWithEveryPath(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	bad := `apiVersion: muster.dev/v1alpha2
kind: Fleet
metadata:
  name: web
  labell: {a: b}
  namespace: default
spec:
  selector: {labels: {site: berlin}}
  agent: {version: 2}
  agent: {version: 2.0.0}
  strategy:
    cannary: {size: 1}
    batch_size: many
  limits: {maxParallel: 4}
  pace: {soak: soon}
`
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", bad), http.StatusBadRequest,
		"metadata.labell is not a known field: did you mean labels?",
		"spec.selector.labels.site is \"berlin\", want a list",
		"spec.agent.version is 2, want a string: put it in quotes",
		"spec.agent is given twice",
		"spec.strategy.cannary is not a known field: did you mean canary?",
		"spec.strategy.batch_size is \"many\", want a whole number",
		"spec.limits.maxParallel is not a known field: did you mean max_parallel?",
		"spec.pace.soak is \"soon\", want a duration such as 10m",
	)
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", strings.Replace(webFleet, "name: web", "name: db", 1)), http.StatusBadRequest, `metadata.name is "db", but the request is for "web"`)
	invalid := `{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet","metadata":{"name":"web","labels":{"a b":"c"}},"spec":{
		"selector":{"kuery":"tags: ("},"components":[{"name":"web"},{"name":"web","version":"1.0.0","manifest":{"profile":"p","id":"i"}}],
		"forcePromote":"abc","strategy":{"kind":"rolling","canary":{}}}}`
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", invalid), http.StatusBadRequest,
		"metadata.labels.a b has the name", "spec.components[0] has neither version nor manifest", "spec.components[1].name is \"web\", as that of spec.components[0]",
		"spec.components[1] has both version and manifest", "spec.forcePromote is \"abc\"", "spec.selector.kuery the query cannot be parsed")
	if got := s.Admin(http.MethodGet, fleetsPath+"/web", nil); got.Status != http.StatusNotFound {
		t.Errorf("a refused object is there: %s", got.Body)
	}
}

func TestUnknownFieldsAreOnlyWarningsIfAsked(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	got := sendFleet(t, s, http.MethodPut, fleetsPath+"/web?validate=warn", strings.Replace(webFleet, "batch_size", "batchsize", 1))
	f := fleetOf(t, got, http.StatusCreated)
	warnings := strings.Join(got.Header.Values("Warning"), "\n")
	if !strings.Contains(warnings, `299 - "spec.strategy.batchsize is not a known field and is ignored: did you mean batch_size?"`) || !strings.Contains(warnings, `299 - "agent 2.0.0 is not published: its rollout starts once it is"`) {
		t.Errorf("the warnings are\n%s", warnings)
	}
	if strings.Contains(string(got.Body), "batchsize") || f.Spec.Strategy.BatchSize != 0 {
		t.Errorf("the field was stored: %s", got.Body)
	}
}

func TestDryRunStoresNothing(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	before := len(entries(t, s))
	fleetOf(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web?dryRun=All", webFleet), http.StatusCreated)
	fleetOf(t, sendFleet(t, s, http.MethodPost, fleetsPath+"?dryRun=All", webFleet), http.StatusCreated)
	if got := s.Admin(http.MethodGet, fleetsPath+"/web", nil); got.Status != http.StatusNotFound {
		t.Errorf("a dry run has stored %s", got.Body)
	}
	stored := applyFleet(t, s, webFleet, http.StatusCreated)
	between := len(entries(t, s))
	dry := fleetOf(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web?dryRun=All", strings.Replace(webFleet, "2.0.0", "3.0.0", 1)), http.StatusOK)
	if dry.Spec.Agent.Version != "3.0.0" || dry.Metadata.Generation != 2 {
		t.Errorf("a dry run answers %+v", dry)
	}
	fleetOf(t, s.Admin(http.MethodDelete, fleetsPath+"/web?dryRun=All", nil), http.StatusOK)
	if got := getFleet(t, s); got.Metadata.UID != stored.Metadata.UID || got.Metadata.Generation != 1 {
		t.Errorf("dry runs have changed it to %+v", got)
	}
	if before != between-1 || len(entries(t, s)) != between {
		t.Errorf("dry runs are in the audit trail: %d, %d and %d entries", before, between, len(entries(t, s)))
	}
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web?dryRun=yes", webFleet), http.StatusBadRequest, "want All")
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web?dryRun=All", strings.Replace(webFleet, "kind: Fleet", "kind: Fleets", 1)), http.StatusBadRequest, "kind is \"Fleets\", want Fleet")
}

func TestChangesOfSomebodyElseAreNotLost(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	first := applyFleet(t, s, webFleet, http.StatusCreated)
	pinned := func(key, value string) string {
		return strings.Replace(webFleet, "  name: web\n", fmt.Sprintf("  name: web\n  %s: %q\n", key, value), 1)
	}
	applyFleet(t, s, strings.Replace(webFleet, "2.0.0", "3.0.0", 1), http.StatusOK)
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", pinned("resourceVersion", first.Metadata.ResourceVersion)), http.StatusConflict, "it was changed since you read it")
	apptest.Eventually(t, "the object that was read last to be replaced", func() string { // the loop writes statuses
		if got := sendFleet(t, s, http.MethodPut, fleetsPath+"/web", pinned("resourceVersion", getFleet(t, s).Metadata.ResourceVersion)); got.Status != http.StatusOK {
			return string(got.Body)
		}
		return ""
	})
	refusedFleet(t, sendFleet(t, s, http.MethodPost, fleetsPath, webFleet), http.StatusConflict, "fleet web exists already")

	fleetOf(t, s.Admin(http.MethodDelete, fleetsPath+"/web?why=retired", nil), http.StatusOK)
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", pinned("uid", first.Metadata.UID)), http.StatusConflict, "there is no fleet web any more")
	second := fleetOf(t, sendFleet(t, s, http.MethodPost, fleetsPath, webFleet), http.StatusCreated)
	if second.Metadata.UID == first.Metadata.UID {
		t.Error("another object has the same uid")
	}
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", pinned("uid", first.Metadata.UID)), http.StatusConflict, "it was deleted and created again")
	refusedFleet(t, s.Admin(http.MethodDelete, fleetsPath+"/gone", nil), http.StatusNotFound, "there is no fleet gone")
}

func TestOlderVersionOfTheAPIIsServed(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	old := `apiVersion: muster.dev/v1alpha1
kind: Fleet
metadata: {name: web}
spec:
  selector: {labels: {role: [web]}}
  site: berlin
  agentVersion: 2.0.0
  requestRollout: 7f1c3f0e-58ad-4d4f-9a51-2a8f0a8a5f11
`
	got := sendFleet(t, s, http.MethodPut, fleetsPath+"/web", old)
	var answer struct{ APIVersion string }
	if err := json.Unmarshal(got.Body, &answer); err != nil || got.Status != http.StatusCreated || answer.APIVersion != "muster.dev/v1alpha1" {
		t.Fatalf("it was created as %d %s (%v)", got.Status, got.Body, err)
	}
	if w := strings.Join(got.Header.Values("Warning"), "\n"); !strings.Contains(w, "spec.site is deprecated") || !strings.Contains(w, "muster.dev/v1alpha1 is deprecated") {
		t.Errorf("the warnings are\n%s", w)
	}
	f := getFleet(t, s)
	if f.APIVersion != declared.APIVersion || f.Spec.Agent == nil || f.Spec.Agent.Version != "2.0.0" || !slices.Equal(f.Spec.Selector.Labels["site"], []string{"berlin"}) {
		t.Errorf("it is stored as %+v", f)
	}
	keepsItsVersion(t, s, old)
	older := s.Admin(http.MethodGet, fleetsPath+"/web?apiVersion=muster.dev/v1alpha1", nil)
	if older.Status != http.StatusOK || !strings.Contains(string(older.Body), `"apiVersion":"muster.dev/v1alpha1"`) {
		t.Errorf("as v1alpha1 it is %d %s", older.Status, older.Body)
	}
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", strings.Replace(old, "site:", "sites:", 1)), http.StatusBadRequest, "spec.sites is not a known field: did you mean site?")
	refusedFleet(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web", strings.Replace(old, "v1alpha1", "v2", 1)), http.StatusBadRequest, `apiVersion is "muster.dev/v2"`)
	refusedFleet(t, s.Admin(http.MethodGet, fleetsPath+"/web?apiVersion=v1", nil), http.StatusBadRequest, "want muster.dev/v1alpha1 or muster.dev/v1alpha2")
}

// An object that is stored in another version is converted when it is read.
func TestStoredObjectsAreReadInTheCurrentVersion(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	doc := `{"apiVersion":"muster.dev/v1alpha1","kind":"Fleet","metadata":{"name":"web","uid":"u","generation":3},"spec":{"selector":{"all":true},"agentVersion":"2.0.0"}}`
	if err := s.Store.DeclaredFleets().Create(t.Context(), fleet.DeclaredFleet{Name: "web", Doc: json.RawMessage(doc)}); err != nil {
		t.Fatal(err)
	}
	if f := getFleet(t, s); f.APIVersion != declared.APIVersion || f.Spec.Agent.Version != "2.0.0" {
		t.Errorf("it is read as %+v", f)
	}
}

func TestHistoryOfAFleet(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	first := applyFleet(t, s, webFleet, http.StatusCreated)
	fleetOf(t, sendFleet(t, s, http.MethodPut, fleetsPath+"/web?why=OPS-7", strings.Replace(webFleet, "2.0.0", "3.0.0", 1)), http.StatusOK)
	err := s.Store.Rollouts().Create(t.Context(), fleet.Rollout{ID: "r1", State: fleet.RolloutCompleted, Fleet: "web", SpecHash: declared.Hash(&first)})
	if err != nil {
		t.Fatal(err)
	}
	fleetOf(t, s.Admin(http.MethodDelete, fleetsPath+"/web", nil), http.StatusOK)
	got := apptest.Decode[adminapi.FleetHistory](t, s.Admin(http.MethodGet, fleetsPath+"/web/history", nil))
	if got.Total != 3 || len(got.Items) != 3 {
		t.Fatalf("the history is %+v", got)
	}
	deleted, changed, created := got.Items[0], got.Items[1], got.Items[2]
	if deleted.Action != declared.Deleted || deleted.By != "first key" {
		t.Errorf("the deletion is %+v", deleted)
	}
	if changed.Action != declared.Applied || changed.Why != "OPS-7" || !slices.Equal(changed.Changed, []string{"spec.agent.version"}) || changed.Generation != 2 || len(changed.Rollouts) != 0 {
		t.Errorf("the change is %+v", changed)
	}
	if created.Text != "first key created the fleet web" || created.Hash != declared.Hash(&first) || len(created.Rollouts) != 1 || created.Rollouts[0].ID != "r1" {
		t.Errorf("the creation is %+v", created)
	}
	refusedFleet(t, s.Admin(http.MethodGet, fleetsPath+"/db/history", nil), http.StatusNotFound, "there is no fleet db")
}

func TestFleetsAreListedByLabels(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	for _, name := range []string{"c", "a", "b"} {
		body := strings.Replace(webFleet, "name: web", "name: "+name, 1)
		if name == "b" {
			body = strings.Replace(body, "prod", "lab", 1)
		}
		fleetOf(t, sendFleet(t, s, http.MethodPost, fleetsPath, body), http.StatusCreated)
	}
	for query, want := range map[string]string{
		"": "3 a b c", "?labelSelector=stage=prod": "2 a c", "?labelSelector=stage%3D%3Dlab": "1 b", "?labelSelector=stage=prod,app=x": "0", "?offset=1&limit=1": "3 b", "?offset=9": "3",
	} {
		list := apptest.Decode[adminapi.FleetList](t, s.Admin(http.MethodGet, fleetsPath+query, nil))
		got := fmt.Sprint(list.Metadata.Total)
		for _, f := range list.Items {
			got += " " + f.Metadata.Name
		}
		if got != want || list.Kind != "FleetList" {
			t.Errorf("%s lists %s, want %s", query, got, want)
		}
	}
	refusedFleet(t, s.Admin(http.MethodGet, fleetsPath+"?labelSelector=stage%21%3Dprod", nil), http.StatusBadRequest, "want label=value")
}

func TestDiffSaysWhatApplyingWouldDo(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("2.0.0")
	s.Enroll("web-01", "1.0.0").MustCheckin(nil)
	all := strings.Replace(webFleet, `labels: {tag:web: ["true"]}`, "all: true", 1)
	diff := func(body string) adminapi.FleetDiff {
		t.Helper()
		return apptest.Decode[adminapi.FleetDiff](t, sendFleet(t, s, http.MethodPost, fleetsPath+"/web/diff", body))
	}
	d := diff(all)
	if d.Before != nil || !d.StartsRollout || d.Reason != "the object is new" || len(d.Previews) != 1 || d.Previews[0].Targets != 1 || d.Previews[0].Version != "2.0.0" {
		t.Errorf("a new object: %+v", d)
	}
	if d := diff(strings.Replace(all, "2.0.0", "2.1.0", 1)); len(d.Previews) != 1 || !strings.Contains(d.Previews[0].Error, "2.1.0") {
		t.Errorf("a version that is not published: %+v", d)
	}
	applyFleet(t, s, all+"  paused: true\n", http.StatusCreated)
	if d := diff(strings.Replace(all, "version: 2.0.0", "version: 2.1.0", 1) + "  paused: true\n"); !d.StartsRollout || !slices.Equal(d.Changed, []string{"spec.agent.version"}) || d.WaitsFor != "the object is paused" || d.HashBefore == d.HashAfter {
		t.Errorf("another version: %+v", d)
	}
	if d := diff(strings.Replace(all, "max_parallel: 50", "max_parallel: 60", 1) + "  paused: true\n"); d.HashBefore != d.HashAfter || !slices.Equal(d.Changed, []string{"spec.limits.max_parallel"}) {
		t.Errorf("another limit: %+v", d)
	}
	if n := len(entries(t, s)); getFleet(t, s).Metadata.Generation != 1 {
		t.Errorf("a diff has changed the object, %d entries", n)
	}
}

// Two masters of one agent would undo each other's work.
func TestOrdersOnAgentsOfAFleetTakeThemOver(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0", "2.0.0")
	web, db := s.Enroll("web-01", "1.0.0"), s.Enroll("db-01", "1.0.0")
	for _, a := range []*apptest.Agent{web, db} {
		a.Kept = keeps("0.9.0", fleet.RollbackWindow/2)
		a.MustCheckin(nil)
	}
	applyFleet(t, s, fmt.Sprintf(`{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet","metadata":{"name":"web"},"spec":{"selector":{"agents":[%q]},"agent":{"version":"1.0.0"},"paused":true}}`, web.ID), http.StatusCreated)

	owned := func(what string, got apptest.Answer) {
		t.Helper()
		var e struct{ Code string }
		_ = json.Unmarshal(got.Body, &e)
		if got.Status != http.StatusConflict || e.Code != "fleet_owned" || !strings.Contains(got.ErrorBody().Message, "1 of the agents belong to the fleet web") {
			t.Errorf("%s is not refused: %d %s", what, got.Status, got.Body)
		}
	}
	plan := slow("1.1.0", map[string]any{"select": map[string]any{"agents": []string{web.ID, db.ID}}})
	owned("an upgrade", s.Admin(http.MethodPost, web.Path("upgrade"), `{"version":"1.1.0"}`))
	owned("a bulk upgrade", s.Admin(http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{"version": "1.1.0", "agents": []string{db.ID, web.ID}}))
	owned("an upgrade that takes another object over", s.Admin(http.MethodPost, web.Path("upgrade"), `{"version":"1.1.0","take_over":"db"}`))
	owned("a rollback", s.Admin(http.MethodPost, web.Path("rollback"), nil))
	owned("a bulk rollback", s.Admin(http.MethodPost, "/api/fleet/agents/bulk_rollback", map[string]any{"agents": []string{web.ID}}))
	owned("a rollout", s.Admin(http.MethodPost, "/api/v1/rollouts", plan))
	preview := apptest.Decode[adminapi.UpgradePreview](t, s.Admin(http.MethodPost, "/api/v1/upgrade_preview", map[string]any{"version": "1.1.0", "agents": []string{web.ID}}))
	if preview.Refused == nil || !strings.Contains(*preview.Refused, "belong to the fleet web") {
		t.Errorf("the preview does not say that it would be refused: %+v", preview)
	}
	both := []string{web.ID, db.ID}
	if c := *apptest.Decode[adminapi.UpgradePreview](t, s.Admin(http.MethodPost, "/api/v1/upgrade_preview", map[string]any{"version": "1.1.0", "agents": both})).Causes; len(c) != 1 ||
		c[0].Code != "fleet" || c[0].Count != 1 || c[0].Choice != fleet.ChoiceTakeOver || !strings.Contains(c[0].Text, "belongs to the fleet web") {
		t.Errorf("an upgrade's preview has %+v", c)
	}
	if c := *apptest.Decode[adminapi.RollbackPreview](t, s.Admin(http.MethodPost, "/api/v1/rollback_preview", map[string]any{"agents": both})).Causes; len(c) != 1 || c[0].Code != "fleet" || c[0].Count != 1 {
		t.Errorf("a rollback's preview has %+v", c)
	}
	over := apptest.Decode[adminapi.UpgradePreview](t, s.Admin(http.MethodPost, "/api/v1/upgrade_preview", map[string]any{"version": "1.1.0", "agents": both, "take_over": "web"}))
	if over.Refused != nil || len(*over.Causes) != 0 || over.Will != 2 {
		t.Errorf("the preview of taking over is %+v", over)
	}
	if got := s.Admin(http.MethodPost, db.Path("upgrade"), `{"version":"1.1.0"}`); got.Status != http.StatusOK {
		t.Errorf("an agent of no object is refused: %s", got.Body)
	}
	if getFleet(t, s).Status.Suspended != nil {
		t.Fatal("a refused order has suspended the object")
	}

	got := s.Admin(http.MethodPost, web.Path("upgrade"), `{"version":"1.1.0","take_over":"web","why":"a fix that cannot wait"}`)
	if got.Status != http.StatusOK {
		t.Fatalf("taking over is refused: %s", got.Body)
	}
	f := getFleet(t, s)
	if by := f.Status.Suspended; by == nil || by.By != "first key" || by.Why != "a fix that cannot wait" || f.Metadata.Generation != 1 {
		t.Errorf("the object is %+v", f)
	}
	history := apptest.Decode[adminapi.FleetHistory](t, s.Admin(http.MethodGet, fleetsPath+"/web/history", nil))
	if history.Items[0].Action != declared.Suspended {
		t.Errorf("the history begins with %+v", history.Items[0])
	}
	if got := s.Admin(http.MethodPost, "/api/v1/rollouts", plan); strings.Contains(string(got.Body), "fleet_owned") {
		t.Errorf("agents that were taken over still belong to the object: %s", got.Body)
	}

	resumed := fleetOf(t, s.Admin(http.MethodPost, fleetsPath+"/web/resume", `{"why":"fixed"}`), http.StatusOK)
	if resumed.Status.Suspended != nil {
		t.Error("it is still suspended")
	}
	refusedFleet(t, s.Admin(http.MethodPost, fleetsPath+"/web/resume", nil), http.StatusConflict, "is not suspended")
	suspendFleet(t, s, "web")
	changed := applyFleet(t, s, fmt.Sprintf(`{"apiVersion":"muster.dev/v1alpha2","kind":"Fleet","metadata":{"name":"web"},"spec":{"selector":{"agents":[%q]},"agent":{"version":"1.1.0"},"paused":true}}`, web.ID), http.StatusOK)
	if changed.Status.Suspended != nil {
		t.Error("a new spec does not end the suspension")
	}
}

// A fleet that begins with objects upgrades nobody by that.
func TestExportedObjectsStartNoRollout(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	s.Publisher().Publish("1.1.0")
	s.Enroll("web-01", "1.1.0").MustCheckin(nil)
	policy := map[string]any{"name": "Default policy", "namespace": "default", "required_versions": []any{map[string]any{"version": "1.1.0", "percentage": 100}}}
	if got := s.Admin(http.MethodPut, "/api/fleet/agent_policies/default", policy); got.Status != http.StatusOK {
		t.Fatalf("%s", got.Body)
	}
	list := apptest.Decode[adminapi.FleetList](t, s.Admin(http.MethodGet, "/api/v1/fleet-export", nil))
	if len(list.Items) != 1 || list.Items[0].Metadata.Name != "default" || list.Items[0].Spec.Agent.Version != "1.1.0" {
		t.Fatalf("exported are %+v", list.Items)
	}
	d := apptest.Decode[adminapi.FleetDiff](t, s.Admin(http.MethodPost, fleetsPath+"/default/diff", list.Items[0]))
	if len(d.Previews) != 1 || d.Previews[0].Targets != 0 || d.Previews[0].Skipped != 1 {
		t.Errorf("applying it would do %+v", d.Previews)
	}
	fleetOf(t, s.Admin(http.MethodPut, fleetsPath+"/default", list.Items[0]), http.StatusCreated)
	if again := apptest.Decode[adminapi.FleetList](t, s.Admin(http.MethodGet, "/api/v1/fleet-export", nil)); len(again.Items) != 0 {
		t.Errorf("what an object has is exported: %+v", again.Items)
	}
}

// muster explain and the CRD take their texts from the schema.
func TestSchemaDescribesEveryField(t *testing.T) {
	t.Parallel()
	schema, err := adminapi.Schema("Fleet")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	var visit func(at string, v map[string]any)
	visit = func(at string, v map[string]any) {
		if text, _ := v["description"].(string); text == "" {
			t.Errorf("%s has no description", at)
		}
		n++
		fields, _ := v["properties"].(map[string]any)
		for name, field := range fields {
			visit(at+"."+name, field.(map[string]any))
		}
		if items, ok := v["items"].(map[string]any); ok && items["properties"] != nil {
			visit(at+"[]", items)
		}
		for key, value := range v {
			if value == nil {
				t.Errorf("%s has %q without a value: is a description not in quotes?", at, key)
			}
		}
	}
	visit("Fleet", schema)
	if n < 60 {
		t.Errorf("only %d fields were found", n)
	}
}
