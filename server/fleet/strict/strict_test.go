package strict_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
)

type shape struct {
	Name  string `json:"name"`
	Count int    `json:"count" zero:"refused"`
	inner
	Items  []inner           `json:"items"`
	Labels map[string]string `json:"labels"`
	Own    json.RawMessage   `json:"own"`
}

type inner struct {
	Wait fleet.Duration `json:"wait"`
	At   *time.Time     `json:"at"`
	Part float64        `json:"part_of_all"`
	Key  []byte         `json:"key"`
}

var plain = strict.Options{Wrong: func(v *strict.Value, t reflect.Type, _ error) string {
	return "is " + string(v.JSON()) + ", want " + strict.Want(t)
}}

func lines(faults []strict.Fault) string {
	var out []string
	for _, f := range faults {
		out = append(out, fmt.Sprintf("%d %s %s", f.Line, f.Path, f.Text))
	}
	return strings.Join(out, "\n")
}

func node(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Content[0]
}

const wrong = `{"labels": {"a": 1}, "partOfAll": 1, "name": [], "count": 0, "items": [{"wait": 5, "at": "noon"}, 7, null],
 "name": "x", "own": {"any": [1]}, "key": "*", "wait": null}`

const wants = ` labels.a is 1, want a string
 partOfAll is not a known key: did you mean part_of_all?
 name is [], want a string
 count is 0, want more than that: leave it out for the default
 items[0].wait is 5, want a duration such as 10m
 items[0].at is "noon", want a time such as 2026-01-31T12:00:00Z
 items[1] is 7, want an object
 name is given twice
 key is "*", want a list`

func TestAllFaultsAreReturnedInTheOrderOfTheText(t *testing.T) {
	for range 20 {
		v, err := strict.JSON([]byte(wrong))
		if err != nil {
			t.Fatal(err)
		}
		if _, faults := v.Into(new(shape), plain); lines(faults) != "0"+strings.ReplaceAll(wants, "\n", "\n0") {
			t.Fatalf("the faults are\n%s", lines(faults))
		}
	}
	v, err := strict.YAML(node(t, wrong))
	if err != nil {
		t.Fatal(err)
	}
	if _, faults := v.Into(new(shape), plain); lines(faults) != "0"+strings.ReplaceAll(wants, "\n", "\n0") {
		t.Errorf("of YAML they are\n%s", lines(faults))
	}
}

func TestScalarsOfAFileHaveTheTypesOfTheirFields(t *testing.T) {
	v, err := strict.Typed(node(t, "name: 1.10\ncount: 5\npart_of_all: 2\nwait: 5m\nat: 2026-01-31T12:00:00Z\nlabels: {a: true}\nitems:\n- part_of_all:\n"))
	if err != nil {
		t.Fatal(err)
	}
	var got shape
	_, faults := v.Into(&got, strict.Options{})
	if len(faults) > 0 || got.Name != "1.10" || got.Count != 5 || got.Part != 2 || got.Wait.D() != 5*time.Minute || got.At == nil || got.Labels["a"] != "true" || len(got.Items) != 1 {
		t.Errorf("%+v\n%s", got, lines(faults))
	}
	v, err = strict.Typed(node(t, "name: {}\ncount: '5'\nitems:\n- wait: &a soon\n  nome: x\n- wait: *a\nlabels: 5\nown: {a: 1}\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := `1 name is a mapping or a list, want a text
2 count is "5", want a whole number
4 items[0].wait is "soon", want a duration such as 10m
5 items[0].nome is not a known key, want one of wait, at, part_of_all, key
6 items[1].wait is a YAML alias: write the value out
7 labels is not a mapping, want keys such as name: [value]
8 own is "", want a list`
	if _, faults := v.Into(&got, strict.Options{}); lines(faults) != want {
		t.Errorf("the faults are\n%s", lines(faults))
	}
}

func TestNullsAndUnknownKeysFollowTheOptions(t *testing.T) {
	const text = `{"name":null,"a":{"b":[1,"<>"]},"items":[],"labels":null}`
	for _, row := range []struct {
		o                       strict.Options
		faults, warnings, after string
	}{
		{strict.Options{}, "0 a is not a known key, want one of name, count, wait, at, part_of_all, key, items, labels, own", "", text},
		{strict.Options{DropNull: true, Unknown: func(path, _ string, _ []string) (string, bool) { return "is ignored", path == "a" }}, "", "0 a is ignored", `{"items":[]}`},
		{strict.Options{Null: func(path string) string { return strings.TrimPrefix(path, "labels") }, Unknown: func(string, string, []string) (string, bool) { return "", false }}, "0 name name\n0 a ", "", text},
	} {
		v, err := strict.JSON([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		row.o.Wrong = plain.Wrong
		warnings, faults := v.Into(new(shape), row.o)
		if lines(faults) != row.faults || lines(warnings) != row.warnings || string(v.JSON()) != row.after {
			t.Errorf("%s\n%s\n%s", lines(faults), lines(warnings), v.JSON())
		}
	}
}

func TestFaultsAreBounded(t *testing.T) {
	v, err := strict.JSON([]byte(`{"items":[` + strings.Repeat("1,", 999) + `1]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, faults := v.Into(new(shape), plain)
	if len(faults) != 101 || faults[100].Text != "has more faults" {
		t.Errorf("there are %d, the last is %+v", len(faults), faults[len(faults)-1])
	}
}

// What has no faults is decoded as package json does, and JSON returns the same value.
func FuzzInto(f *testing.F) {
	for _, seed := range []string{wrong, "{}", `{"name":"\ud800","own":[1e300]}`, "[", `{"items":[{"wait":"5m"}],"count":null}`, "{\"name\":\"\xff\"} 1", "null"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		v, err := strict.JSON(text, jsontext.AllowInvalidUTF8(true))
		if err != nil {
			return
		}
		var got, want, again any
		if json.Unmarshal(text, &want) != nil || json.Unmarshal(v.JSON(), &again) != nil || !reflect.DeepEqual(want, again) {
			t.Errorf("%q becomes %q", text, v.JSON())
		}
		if _, faults := v.Into(&got, plain); len(faults) > 0 || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, want %v: %s", text, got, want, lines(faults))
		}
		v.Into(new(shape), plain)
	})
}
