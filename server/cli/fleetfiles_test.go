package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/rollout/spec"
)

func TestExampleFleetIsValidAndHasEveryKey(t *testing.T) {
	f, _, warnings, err := spec.Decode([]byte(exampleFleet), spec.Strict)
	if err != nil || len(warnings) > 0 {
		t.Fatalf("the example is refused: %v, %q", err, warnings)
	}
	if problems := spec.Check(&f); len(problems) > 0 {
		t.Fatalf("the example has %v", problems)
	}
	whole := regexp.MustCompile(`(?m)^( *)# ([ ]*(?:- )?[A-Za-z_]+:( |$))`).ReplaceAllString(exampleFleet, "$1$2")
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(whole), &doc); err != nil {
		t.Fatal(err)
	}
	missing := missingKeys(doc.Content[0], reflect.TypeFor[spec.Fleet](), "")
	missing = slices.DeleteFunc(missing, func(key string) bool {
		// The server writes these; the second component has a manifest, the others a version.
		return slices.Contains([]string{"status", "metadata.generation", "metadata.creationTimestamp", "spec.agent.manifest", "spec.components.manifest"}, key) ||
			strings.Contains(exampleFleet, "or "+key[strings.LastIndexByte(key, '.')+1:]+": ")
	})
	if len(missing) > 0 {
		t.Errorf("the example lacks %v", missing)
	}
}

func TestFilesOfObjects(t *testing.T) {
	web := "apiVersion: muster.dev/v1alpha2\nkind: Fleet\nmetadata:\n  name: web\nspec:\n  selector: {all: true}\n  agent:\n    version: 1.10\n"
	t.Run("have several documents, of which empty ones do not matter", func(t *testing.T) {
		all, err := parseObjects("a.yaml", []byte("# teams\n---\n"+web+"---\n---\n"+strings.Replace(web, "web", "db", 1)))
		if err != nil || len(all) != 2 || all[0].name != "web" || all[1].name != "db" {
			t.Fatalf("they are %+v, %v", all, err)
		}
		if !strings.Contains(string(all[0].text), "version: 1.10\n") {
			t.Errorf("the text is\n%s\nwant the version as it was written", all[0].text)
		}
	})
	t.Run("are JSON, or a list", func(t *testing.T) {
		one := `{"apiVersion": "muster.dev/v1alpha1", "kind": "Fleet", "metadata": {"name": "web"}, "spec": {}}`
		all, err := parseObjects("a.json", []byte(`{"apiVersion": "muster.dev/v1alpha2", "kind": "FleetList", "items": [`+one+`, `+strings.Replace(one, "web", "db", 1)+`]}`))
		if err != nil || len(all) != 2 || all[0].apiVersion != "muster.dev/v1alpha1" || all[1].name != "db" {
			t.Fatalf("they are %+v, %v", all, err)
		}
	})
	t.Run("name the file, the line and the document of an error", func(t *testing.T) {
		for text, want := range map[string]string{
			"a: [":                                  "a.yaml:1: is not YAML",
			web + "---\n- a":                        "a.yaml:10 (document 2): the document is not a mapping",
			"a: b":                                  "a.yaml:1: apiVersion and kind are missing, want muster.dev/v1alpha2 and Fleet",
			"apiVersion: apps/v1\nkind: Deployment": "a.yaml:1: the object is of kind Deployment of apps/v1, want Fleet of muster.dev/v1alpha2",
			"apiVersion: muster.dev/v1alpha2\nkind: Fleet\nmetadata: {}": "a.yaml:1: metadata.name is missing",
		} {
			if _, err := parseObjects("a.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("%q gives %v, want %q", text, err, want)
			}
		}
	})
	t.Run("are found in folders", func(t *testing.T) {
		dir := t.TempDir()
		for name, text := range map[string]string{"web.yaml": web, "notes.txt": "none", "more/db.yml": strings.Replace(web, "web", "db", 1)} {
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		files := objectFiles{files: []string{dir}}
		if all, err := files.read(&cobra.Command{}); err != nil || len(all) != 1 {
			t.Errorf("the folder has %d objects, %v", len(all), err)
		}
		files.recursive = true
		if all, err := files.read(&cobra.Command{}); err != nil || len(all) != 2 {
			t.Errorf("with those below it has %d objects, %v", len(all), err)
		}
		files.files = append(files.files, filepath.Join(dir, "web.yaml"))
		if _, err := files.read(&cobra.Command{}); err == nil || !strings.Contains(err.Error(), "fleet/web is in ") {
			t.Errorf("the same object twice gives %v", err)
		}
	})
}

func TestRefusalOfAnObjectNamesTheLines(t *testing.T) {
	text := "apiVersion: muster.dev/v1alpha2\nkind: Fleet\nmetadata:\n  name: web\n  annotations:\n    muster.dev/force-rollout: a\nspec:\n  limits:\n    per:\n    - label: site\n      max: 0\n  strategy:\n    kind: cannary\n"
	all, err := parseObjects("web.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for message, want := range map[string]string{
		"spec.strategy.kind is odd":                                      "web.yaml:13: spec.strategy.kind is odd",
		"the object desires nothing":                                     "web.yaml:1: the object desires nothing",
		"[request body.spec.limits.per[0].max]: is 0":                    "web.yaml:11: spec.limits.per[0].max: is 0",
		"spec.selector: is missing":                                      "web.yaml:8: spec.selector: is missing", // not in the file
		"metadata.annotations.muster.dev/force-rollout: is odd":          "web.yaml:6: metadata.annotations.muster.dev/force-rollout: is odd",
		"metadata.annotations[muster.dev/force-rollout]: is odd":         "web.yaml:6: metadata.annotations[muster.dev/force-rollout]: is odd",
		"fleet web has another uid":                                      "web.yaml:1: fleet web has another uid",
		"spec.strategy.kind is odd\nspec.limits.per[0].max is too small": "web.yaml:13: spec.strategy.kind is odd\nweb.yaml:11: spec.limits.per[0].max is too small",
	} {
		if got := all[0].locate(refuse(400, message, nil)).Error(); got != want {
			t.Errorf("%s becomes\n%s\nwant\n%s", message, got, want)
		}
	}
}

func TestJSONBecomesYAMLWithTheSameMeaning(t *testing.T) {
	text := `{"b":"1.10","a":[1,2.5,true,null,"true",""],"text":"two\nlines","quote":"a: b # c","c":{"x":{}},"emoji":"\ud83d\ude00"}`
	n, err := yamlOf([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := writeYAML(&out, n); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(out.String(), "b: \"1.10\"\na:\n  - 1\n") {
		t.Errorf("the YAML is\n%s", out.String())
	}
	var was, is any
	if err := json.Unmarshal([]byte(text), &was); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(out.Bytes(), &is); err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(is)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(again, &is); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(was, is) {
		t.Errorf("the JSON becomes %s", again)
	}
}

func TestConditionsToWaitFor(t *testing.T) {
	for text, want := range map[string]condition{
		"delete":                    {},
		"condition=Ready":           {spec.Ready, spec.True},
		"condition=ready=false":     {spec.Ready, spec.False},
		"condition=Stalled=Unknown": {spec.Stalled, spec.Unknown},
	} {
		if got, err := parseCondition(text); err != nil || got != want {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "Ready", "condition=", "condition=Odd", "condition=Ready=Maybe"} {
		if got, err := parseCondition(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestConditionOfAnOldGenerationIsNotMet(t *testing.T) {
	f := spec.Fleet{Metadata: spec.Metadata{Name: "web", Generation: 3}}
	f.Status = spec.Status{ObservedGeneration: 2, Conditions: []spec.Condition{{Type: spec.Ready, Status: spec.True, Reason: "Done"}}}
	c := condition{spec.Ready, spec.True}
	if met, stuck, state := c.metBy(&f, 0); met || stuck || state != "the server has not observed generation 3 yet" {
		t.Errorf("before the server has observed it: %v, %s", met, state)
	}
	f.Status.ObservedGeneration = 3
	if met, _, _ := c.metBy(&f, 3); !met {
		t.Error("the condition of the generation is not met")
	}
	if met, _, _ := c.metBy(&f, 4); met {
		t.Error("a replica that lags behind meets the condition")
	}
	f.Status.Conditions[0] = spec.Condition{Type: spec.Ready, Status: spec.False, Reason: "RollingOut", Message: "3 of 10 agents run it."}
	f.Status.Conditions = append(f.Status.Conditions, spec.Condition{Type: spec.Stalled, Status: spec.True, Reason: "Paused", Message: "Unset spec.paused."})
	if met, stuck, state := c.metBy(&f, 0); met || !stuck || state != "Ready is False: RollingOut: 3 of 10 agents run it; stalled: Unset spec.paused" {
		t.Errorf("it is %v, stuck %v: %s", met, stuck, state)
	}
	for _, c := range []condition{{spec.Stalled, spec.False}, {spec.Ready, spec.False}, {}} {
		if _, stuck, state := c.metBy(&f, 0); stuck {
			t.Errorf("who waits for %s stops at the stall: %s", c, state)
		}
	}
}

func TestSelectorsOfPrune(t *testing.T) {
	if got, err := parseSelector("team=web, stage="); err != nil || !reflect.DeepEqual(got, map[string]string{"team": "web", "stage": ""}) {
		t.Errorf("the labels are %v, %v", got, err)
	}
	for _, text := range []string{"team", "=web", "team!=web", "team==web", "a=b,"} {
		if got, err := parseSelector(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}

func TestFailureInTheMiddleSaysWhatWasApplied(t *testing.T) {
	var w application
	cause := errors.New("the server is gone")
	if got := w.stopped(cause, 3).Error(); got != "the server is gone\nnothing was applied before it" {
		t.Errorf("at the first object it says %q", got)
	}
	w.results = []applied{{name: "web"}, {name: "db"}}
	err := w.stopped(cause, 3)
	if got := err.Error(); got != "the server is gone\napplied before it, 2 of 3: fleet/web, fleet/db" || !errors.Is(err, cause) {
		t.Errorf("at the third object it says %q", got)
	}
}
