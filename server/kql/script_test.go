package kql_test

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/kql"
)

var update = flag.Bool("update", false, "write what the scripts answer into them")

// TestScripts runs the queries of testdata. A script consists of comments and cases:
//
//	status: online and not tags: old
//	----
//	the expected result, up to an empty line
//
// A query that begins with Go is a Go string, for blanks at the ends and invisible
// characters. With -update the results are written.
func TestScripts(t *testing.T) {
	answers := map[string]func(query string) string{
		"parse":   func(query string) string { return answer(kql.Parse(query))(showNode) },
		"compile": func(query string) string { return answer(kql.Compile(query, schema, now))(showFilter) },
		"suggest": showSuggestion,
	}
	for name, ask := range answers {
		t.Run(name, func(t *testing.T) { runScript(t, filepath.Join("testdata", name+".txt"), ask) })
	}
}

func answer[T any](result T, err error) func(show func(T) string) string {
	return func(show func(T) string) string {
		if err != nil {
			return "error: " + err.Error()
		}
		return show(result)
	}
}

func runScript(t *testing.T, file string, ask func(query string) string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	lines := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	cases := 0
	for i := 0; i < len(lines); i++ {
		if lines[i] == "" || strings.HasPrefix(lines[i], "#") {
			out.WriteString(lines[i] + "\n")
			continue
		}
		if i+1 == len(lines) || lines[i+1] != "----" {
			t.Fatalf("%s:%d: %q is not followed by ----", file, i+1, lines[i])
		}
		query := lines[i]
		if quoted, ok := strings.CutPrefix(query, "Go "); ok {
			if query, err = strconv.Unquote(quoted); err != nil {
				t.Fatalf("%s:%d: %v", file, i+1, err)
			}
		}
		var got string
		for line := range strings.Lines(ask(query)) {
			// A query may end with blanks, which editors remove from a file.
			got += strings.TrimRight(line, " \n") + "\n"
		}
		got = strings.TrimSuffix(got, "\n")
		out.WriteString(lines[i] + "\n----\n" + got + "\n")
		line := i + 1
		var want []string
		for i += 2; i < len(lines) && lines[i] != ""; i++ {
			want = append(want, lines[i])
		}
		i--
		cases++
		if want := strings.Join(want, "\n"); got != want && !*update {
			t.Errorf("%s:%d: %s\nanswers\n%s\nand should answer\n%s", file, line, query, got, want)
		}
	}
	if cases == 0 {
		t.Errorf("%s has no cases", file)
	}
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
