package spec_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
	"github.com/muster-fleet/muster/server/rollout/spec"
)

const small = `apiVersion: muster.dev/v1alpha2
kind: Fleet
metadata: {name: web}
spec:
  selector: {all: true}
  agent: {version: 2.0.0}
`

// decodes decodes and checks an object, and returns the lines of the error.
func decodes(body string, mode spec.Mode) (f spec.Fleet, written string, lines []string) {
	f, raw, _, err := spec.Decode([]byte(body), mode)
	if err == nil {
		err = spec.Check(&f).Err()
	}
	if err != nil {
		lines = strings.Split(err.Error(), "\n")
	}
	return f, string(raw), lines
}

func TestYAMLAndJSONAreTheSameObject(t *testing.T) {
	yaml := small + `  pace: {soak: 10m, windows: [{from: "22:00", to: "04:00"}]}
  strategy: {kind: all_at_once, deadline: 2026-01-31T12:00:00Z, batch_percent: null}
  health: &h {wait: 5m}
`
	text := `{"apiVersion": "muster.dev/v1alpha2", "kind": "Fleet", "metadata": {"name": "web"}, "spec": {"selector": {"all": true}, "agent": {"version": "2.0.0"},
		"pace": {"soak": "10m", "windows": [{"from": "22:00", "to": "04:00"}]}, "strategy": {"kind": "all_at_once", "deadline": "2026-01-31T12:00:00Z"}, "health": {"wait": "5m"}}}`
	a, writtenA, wrongA := decodes(yaml, spec.Strict)
	b, writtenB, wrongB := decodes(text, spec.Strict)
	if wrongA != nil || wrongB != nil || !reflect.DeepEqual(a, b) || a.Spec.Strategy.Deadline == nil {
		t.Errorf("%v %v\n%+v\n%+v", wrongA, wrongB, a, b)
	}
	var x, y any
	if json.Unmarshal([]byte(writtenA), &x) != nil || json.Unmarshal([]byte(writtenB), &y) != nil || !reflect.DeepEqual(x, y) {
		t.Errorf("they are stored as\n%s\n%s", writtenA, writtenB)
	}
}

func TestAZeroThatStandsForAnAbsentValueIsRefused(t *testing.T) {
	for _, n := range rollouttest.PlanNumbers() {
		part, _, _ := strings.Cut(n.Path, ".")
		if !slices.Contains([]string{"strategy", "limits", "failure", "health", "pace"}, part) {
			continue
		}
		var rules map[string]json.RawMessage
		if err := json.Unmarshal([]byte(n.JSON), &rules); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []spec.Mode{spec.Strict, spec.Warn} {
			_, _, _, err := spec.Decode(fmt.Appendf(nil, "%s  %s: %s\n", small, part, rules[part]), mode)
			if refused := err != nil && strings.HasPrefix(err.Error(), "spec."+n.Path+" is 0"); refused != (n.Zero == "refused") || err != nil && !refused {
				t.Errorf("%s is %s: %v", n.JSON, n.Zero, err)
			}
		}
	}
}

func TestObjectsAreRefusedWithTheirPath(t *testing.T) {
	with := func(line string) string { return small + line + "\n" }
	for _, row := range []struct{ name, body, says string }{
		{"nothing", "", "the object is empty"},
		{"a list", "[]", "the object is a list"},
		{"half an object", `{"kind": `, "the object is not JSON"},
		{"two objects", small + "---\n" + small, "more than one YAML document"},
		{"text after it", `{"kind":"Fleet","apiVersion":"x"} x`, "is not JSON"},
		{"no YAML", "a: b: c", "the object is not YAML"},
		{"another kind", strings.Replace(small, "kind: Fleet", "kind: Pod", 1), `kind is "Pod", want Fleet`},
		{"no version of the API", strings.Replace(small, "apiVersion: muster.dev/v1alpha2\n", "", 1), "apiVersion is missing, want muster.dev/v1alpha2"},
		{"a version of the API there is not", strings.Replace(small, "v1alpha2", "v9", 1), `apiVersion is "muster.dev/v9", want muster.dev/v1alpha2`},
		{"no name", strings.Replace(small, "name: web", "labels: {}", 1), "metadata.name is missing"},
		{"a name that is no host's", strings.Replace(small, "name: web", "name: Web_1", 1), `metadata.name is "Web_1"`},
		{"a label of no form", strings.Replace(small, "name: web", "name: web, labels: {x: a b}", 1), `metadata.labels.x has the value "a b"`},
		{"a label with an empty domain", strings.Replace(small, "name: web", "name: web, labels: {/x: a}", 1), "metadata.labels./x has the prefix"},
		{"nothing desired", strings.Replace(small, "  agent: {version: 2.0.0}\n", "", 1), "spec desires nothing"},
		{"half a version", strings.Replace(small, "2.0.0", "'2.0'", 1), `spec.agent.version`},
		{"a manifest without an id", strings.Replace(small, "{version: 2.0.0}", "{manifest: {profile: edge}}", 1), "spec.agent.manifest.id is missing"},
		{"nobody", strings.Replace(small, "{all: true}", "{}", 1), "spec.selector is empty"},
		{"a number that is whole", with("  limits: {max_parallel: 1.5}"), "spec.limits.max_parallel is 1.5, want a whole number"},
		{"a component twice", with("  components: [{name: web, version: 1.0.0}, {name: web, version: 1.0.0}]"), `spec.components[1].name is "web", as that of spec.components[0]`},
		{"variables of nothing", with("  configuration: {variables: {db: {a: b}}}"), "spec.configuration.variables.db are variables of a component that spec.components does not have"},
		{"canaries of a rolling rollout", with("  strategy: {canary: {size: 1}}"), "spec.strategy.canary"},
		{"agents in lockstep", with("  strategy: {kind: lockstep}"), "spec.strategy"},
		{"a window without a time", with("  pace: {windows: [{from: 24:00, to: '04:00'}]}"), "spec.pace.windows[0].from"},
		{"a merge", with("  <<: {paused: true}"), "spec.<< is not a known field"},
		{"a member given twice", with("  paused: true\n  paused: false"), "spec.paused"},
		{"a list of objects that is one of texts", with("  components: [web]"), `spec.components[0] is "web", want an object with manifest, name, version`},
		{"not a number of JSON", with("  failure: {percent: .inf}"), "is not a number of JSON"},
		{"a long value", with("  paused: " + strings.Repeat("x", 100)), "spec.paused is a string of 102 bytes"},
	} {
		if _, _, lines := decodes(row.body, spec.Strict); !slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, row.says) }) {
			t.Errorf("%s: %q does not say %q", row.name, lines, row.says)
		}
	}
}

func TestDocumentsAreBounded(t *testing.T) {
	if _, err := spec.Read(make([]byte, spec.MaxDocument+1)); fleet.KindOf(err) != fleet.TooLarge {
		t.Errorf("a long document: %v", err)
	}
	bomb := "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", 'b'+i, 'b'+i, strings.Repeat(fmt.Sprintf("*%c, ", 'a'+i), 9)+fmt.Sprintf("*%c", 'a'+i))
	}
	// A few thousand values, which mean gigabytes.
	long := "a: &a " + strings.Repeat("x", 100<<10) + "\nb: [" + strings.Repeat("*a,", 38_000) + "]\n"
	for _, text := range []string{bomb, long, "a: &a [*a]"} {
		if _, err := spec.Read([]byte(text)); fleet.KindOf(err) != fleet.Invalid {
			t.Errorf("aliases of aliases: %v", err)
		}
	}
}

// What kubectl prints can be applied.
func TestMetadataOfAClusterIsIgnoredWithAWarning(t *testing.T) {
	body := strings.Replace(small, "{name: web}", "{name: web, namespace: prod, creationTimestamp: null, managedFields: [{a: b}]}", 1) + "status: {anything: [1]}\n"
	_, raw, warnings, err := spec.Decode([]byte(body), spec.Strict)
	if err != nil || len(warnings) != 2 || !strings.Contains(warnings[0], "metadata.namespace has no meaning here") {
		t.Errorf("%v %q", err, warnings)
	}
	if string(raw) != `{"selector":{"all":true},"agent":{"version":"2.0.0"}}` {
		t.Errorf("the spec is %s", raw)
	}
}

func FuzzRead(f *testing.F) {
	for _, seed := range []string{small, "", "[]", `{"kind":"Fleet","apiVersion":"muster.dev/v1alpha2","spec":{"components":[{}]}}`, "a: &a [*a]", "? [a]\n: b", "!!binary x", `{"a":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		object, raw, _, err := spec.Decode(body, spec.Warn)
		if err != nil {
			if k := fleet.KindOf(err); k != fleet.Invalid && k != fleet.TooLarge {
				t.Errorf("%v", err)
			}
			return
		}
		if len(raw) > 0 && !json.Valid(raw) {
			t.Errorf("the spec is %s", raw)
		}
		spec.Check(&object)
	})
}

func TestDifferencesHavePaths(t *testing.T) {
	for _, row := range []struct{ a, b, want string }{
		{`{"spec":{"a":1}}`, `{"spec":{"a":1}}`, ""},
		{`{"spec":{"a":1,"b":{"c":1}}}`, `{"spec":{"a":2,"b":{"c":1,"d":2}}}`, "spec.a spec.b.d"},
		{`{"l":[{"v":1},{"v":2}]}`, `{"l":[{"v":1},{"v":3}]}`, "l[1].v"},
		{`{"l":[1]}`, `{"l":[1,2]}`, "l"},
		{`{"m":{}}`, `{}`, ""},
		{`{"m":{"a":1}}`, `{}`, "m"},
		{`{"m":1}`, `{"m":{"a":1}}`, "m"},
	} {
		var a, b any
		if json.Unmarshal([]byte(row.a), &a) != nil || json.Unmarshal([]byte(row.b), &b) != nil {
			t.Fatal(row)
		}
		if got := strings.Join(spec.Differences(a, b), " "); got != row.want {
			t.Errorf("%s and %s differ at %q, want %q", row.a, row.b, got, row.want)
		}
	}
}

func TestTriggeringPathsAreThoseOfTheHash(t *testing.T) {
	for path, starts := range map[string]bool{
		"spec.agent.version": true, "spec.agent": true, "spec.components": true, "spec.components[2].version": true, "spec.selector.labels.site": true,
		"spec.configuration.variables.web.port": true, "spec.strategy.rings.only[1]": true, "metadata.annotations." + spec.ForceRolloutAnnotation: true,
		"spec.paused": false, "spec.limits": false, "spec.limits.per[0].max": false, "spec.pace.windows": false, "metadata.labels.a": false, "spec.forcePromote": false,
	} {
		if got := len(spec.Triggering([]string{path})) == 1; got != starts {
			t.Errorf("%s starts a rollout: %v", path, got)
		}
	}
}
