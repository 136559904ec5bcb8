package yamltext_test

import (
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/packaging/pkg/yamltext"
)

// doubling returns a text of n lines, each of which stands for twice the line before.
func doubling(n int) string {
	var text strings.Builder
	text.WriteString("a0: &a0 [x, x]\n")
	for i := range n {
		fmt.Fprintf(&text, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return text.String()
}

// long returns a text that repeats a value of size bytes n times.
func long(size, n int) string {
	return "a: &a " + strings.Repeat("x", size) + "\nb: [" + strings.Repeat("*a,", n) + "]\n"
}

func TestAliasesCountByBytes(t *testing.T) {
	for name, row := range map[string]struct{ text, want string }{
		"none":                    {"a: 1\nb: [1, 2]\n", ""},
		"empty":                   {"", ""},
		"only a comment":          {"# nothing\n", ""},
		"a few":                   {"a: &a {b: 1}\nc: *a\nd: {<<: *a}\n", ""},
		"up to the bound":         {long(1<<10-1, yamltext.MaxAliased>>10), ""},
		"a long text without any": {"a: [" + strings.Repeat("1,", 300<<10) + "]", ""},
		"few values, many bytes":  {long(100<<10, 3), "line 2: the aliases up to *a stand for more than 262144 bytes"},
		"a Fleet object's worth":  {long(100<<10, 39_000), "line 2: the aliases"},
		"aliases of aliases":      {doubling(40), "stand for more than"},
		"in keys":                 {"a: &a " + strings.Repeat("x", 200<<10) + "\n? *a\n: 1\n? [*a]\n: 2\n", "stand for more than"},
		"merged":                  {"a: &a {b: " + strings.Repeat("x", 200<<10) + "}\nc: {<<: [*a, *a]}\n", "stand for more than"},
		"itself":                  {"a: &a [*a]\n", "line 1: the value of *a contains itself"},
		"each other":              {"a: &a\n  b: &b [1, *a]\n  c: *b\n", "contains itself"},
		"levels":                  {strings.Repeat("[", 102) + strings.Repeat("]", 102), "more than 100 levels"},
		"levels by aliases":       {"a: &a " + strings.Repeat("[", 60) + strings.Repeat("]", 60) + "\nb: " + strings.Repeat("[", 60) + "*a" + strings.Repeat("]", 60), "more than 100 levels"},
		"not YAML":                {"a: [", "did not find expected node content"},
	} {
		t.Run(name, func(t *testing.T) {
			var v map[string]any
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := yamltext.Unmarshal([]byte(row.text), &v)
			runtime.ReadMemStats(&after)
			if used := (after.TotalAlloc - before.TotalAlloc) >> 20; used > 256 {
				t.Errorf("it took %d MiB", used)
			}
			if name == "levels" { // no map
				var list []any
				err = yamltext.Unmarshal([]byte(row.text), &list)
			}
			if row.want == "" && err != nil || row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)) {
				t.Errorf("the error is %v, want %q", err, row.want)
			}
			if name == "not YAML" {
				return
			}
			if got := yamltext.CheckText([]byte("a: 1\n---\n" + row.text)); (got == nil) != (err == nil) {
				t.Errorf("the text is checked with %v, and decoded with %v", got, err)
			}
		})
	}
}

// Within the bounds the result is that of the library.
func TestUnmarshalIsThatOfTheLibrary(t *testing.T) {
	for _, text := range []string{"a: &a {b: [1, true, null, 1.5]}\nc: *a\n", "null\n", "", "a: 1\na: 2\n", "- 1\n", "a: &a 1\nb: {<<: {c: *a}}\n", "{\"a\": 2026-01-31}"} {
		text := []byte(text)
		var want, got map[string]any
		wantErr, err := yaml.Unmarshal(text, &want), yamltext.Unmarshal(text, &got)
		if fmt.Sprint(wantErr) != fmt.Sprint(err) || !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %v, %v; the library has %v, %v", text, got, err, want, wantErr)
		}
	}
}
