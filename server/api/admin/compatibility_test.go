package admin_test

import (
	"encoding/json"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

// sections returns the rows of the tables on the compatibility page by their heading, each
// with the names in its first column and the text of its second.
func sections(t *testing.T) map[string][]row {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "COMPATIBILITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]row{}
	heading := ""
	for line := range strings.Lines(string(page)) {
		if name, ok := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); ok && strings.HasPrefix(line, "#") {
			heading = strings.TrimSpace(name)
		}
		columns := strings.Split(line, "|")
		if len(columns) != 4 {
			continue
		}
		r := row{text: strings.TrimSpace(columns[2])}
		for _, name := range inCode.FindAllStringSubmatch(columns[1], -1) {
			r.names = append(r.names, name[1])
		}
		if len(r.names) > 0 {
			out[heading] = append(out[heading], r)
		}
	}
	return out
}

type row struct {
	names []string
	text  string
}

var inCode = regexp.MustCompile("`([^`]+)`")

func names(rows []row) []string {
	var out []string
	for _, r := range rows {
		out = append(out, r.names...)
	}
	slices.Sort(out)
	return out
}

// TestCompatibilityPageIsTrue compares what the page says about the admin API with the
// operations and the specification, which other tests compare with the answers.
func TestCompatibilityPageIsTrue(t *testing.T) {
	t.Parallel()
	page, spec := sections(t), loadSpec(t)
	var calls []string
	for _, call := range adminapi.Calls() {
		if call.Kibana() || call == adminapi.GetStatus.Call {
			calls = append(calls, call.Method+" "+call.Path)
		}
	}
	slices.Sort(calls)
	if got := names(page["Calls"]); !slices.Equal(got, calls) {
		t.Errorf("the page has the calls\n%s\nthe server\n%s", strings.Join(got, "\n"), strings.Join(calls, "\n"))
	}

	for _, object := range []string{"Agent", "Policy", "EnrollmentKey", "ActionStatus", "FleetServerHost", "DownloadSource", "FleetProxy", "Output"} {
		var has, absent []row
		for _, r := range page[object] {
			if strings.HasPrefix(r.text, "not here: ") {
				absent = append(absent, r)
			} else {
				has = append(has, r)
			}
		}
		fields := spec.Components.Schemas[object].fields(spec)
		if got := names(has); !slices.Equal(got, fields) {
			t.Errorf("the page gives %s the fields\n%v\nthe specification\n%v", object, got, fields)
		}
		for _, name := range names(absent) {
			if slices.Contains(fields, name) {
				t.Errorf("the page says that %s has no %s", object, name)
			}
		}
	}

	s := apptest.Start(t)
	absent := names(page["Calls that Muster does not have"])
	if len(absent) == 0 {
		t.Error("the page names no calls that Muster does not have")
	}
	for _, call := range absent {
		method, path, _ := strings.Cut(call, " ")
		got := s.Admin(method, path, nil)
		var answer struct{ Message string }
		if err := json.Unmarshal(got.Body, &answer); err != nil || got.Status != http.StatusNotFound || !strings.Contains(answer.Message, "Muster") {
			t.Errorf("%s: %d %s, want 404 and what Muster has", call, got.Status, got.Body)
		}
	}
}

// fields returns the names of the properties, also of those that it extends.
func (s *schema) fields(in spec) []string {
	for s.Ref != "" {
		s = in.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
	}
	out := slices.Collect(maps.Keys(s.Properties))
	for _, part := range s.AllOf {
		out = append(out, part.fields(in)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
