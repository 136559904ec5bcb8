package monitoring

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/require"
)

const folder = "../../packaging/monitoring"

func promtool(t *testing.T, args ...string) {
	t.Helper()
	require.Program(t, "promtool")
	if out, err := exec.CommandContext(t.Context(), "promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	promtool(t, "check", "rules", filepath.Join(folder, "alerts.yml"))
	promtool(t, "test", "rules", filepath.Join(folder, "alerts_test.yml"))
	rules := read(t, "alerts.yml")
	tests := read(t, "alerts_test.yml")
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) == 0 {
		t.Fatal("no alert was found")
	}
	for _, a := range alerts {
		if !strings.Contains(tests, "- alertname: "+a[1]+"\n") || !strings.Contains(tests, "alertname: "+a[1]+", ") {
			t.Errorf("alerts_test.yml lacks a case in which %s fires, or one in which it does not", a[1])
		}
		if !strings.Contains(read(t, "README.md"), "| "+a[1]+" |") {
			t.Errorf("README.md lacks %s", a[1])
		}
	}
}

// queries returns the queries of the dashboard by the title of their panel.
func queries(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			out[p.Title] = append(out[p.Title], strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
		}
	}
	if len(out) == 0 {
		t.Fatal("the dashboard has no queries")
	}
	return out
}

func TestQueriesOfTheDashboardAreValid(t *testing.T) {
	var rules strings.Builder
	rules.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, list := range queries(t) {
		for _, q := range list {
			n++
			fmt.Fprintf(&rules, "      - {record: \"query:%d\", expr: %q}\n", n, q)
		}
	}
	file := filepath.Join(t.TempDir(), "dashboard.yml")
	if err := os.WriteFile(file, []byte(rules.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

// A panel or an alert on a metric that no server has would be empty, and never say so.
func TestEveryMetricIsExported(t *testing.T) {
	reference, err := os.ReadFile("../../ui/docs/reference/metrics.md") // generated from the server's code
	if err != nil {
		t.Fatal(err)
	}
	used := map[string][]string{}
	name := regexp.MustCompile(`muster_[a-z_]+`)
	for line := range strings.Lines(read(t, "alerts.yml")) {
		if strings.Contains(line, "runbook:") || strings.Contains(line, "summary:") {
			continue
		}
		for _, m := range name.FindAllString(line, -1) {
			used[m] = append(used[m], "alerts.yml")
		}
	}
	for title, list := range queries(t) {
		for _, m := range name.FindAllString(strings.Join(list, "\n"), -1) {
			m = strings.TrimSuffix(m, "_bucket")
			used[m] = append(used[m], "the panel "+title)
		}
	}
	for m, where := range used {
		if !strings.Contains(string(reference), "| `"+m+"` |") {
			t.Errorf("%s uses %s, which no server exports", where[0], m)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
