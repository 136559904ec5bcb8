package monitoring

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// source returns the path of a file of packaging/release/monitoring.
func source(t *testing.T, name string) string {
	t.Helper()
	root, err := toolchain.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "packaging", "release", "monitoring", name)
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(source(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.CommandContext(t.Context(), require.Program(t, "promtool"), args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestAlertsFireWhenTheyShould(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint-fatal", source(t, "alerts.yml"))
	promtool(t, "test", "rules", source(t, "alerts_test.yml"))
	tests, readme := read(t, "alerts_test.yml"), read(t, "README.md")
	for _, alert := range alerts(t) {
		fires := `alertname="` + alert + `",alertstate="firing",`
		shown := `(?s)alertname: ` + alert + `\n\s+eval_time: \w+\n\s+exp_alerts:`
		if !strings.Contains(tests, fires) && !regexp.MustCompile(shown).MatchString(tests) {
			t.Errorf("no test in alerts_test.yml makes %s fire", alert)
		}
		if !strings.Contains(readme, "| `"+alert+"` |") {
			t.Errorf("the table in README.md lacks %s", alert)
		}
	}
}

// alerts returns the names of the alerts.
func alerts(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, m := range regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(read(t, "alerts.yml"), -1) {
		out = append(out, m[1])
	}
	if len(out) == 0 {
		t.Fatal("alerts.yml has no alert")
	}
	return out
}

// panel is the part of a panel of the dashboard that the tests read.
type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Datasource struct{ UID string }
		Expr       string
	}
}

// panels returns the panels of the dashboard that have queries.
func panels(t *testing.T) []panel {
	t.Helper()
	var dashboard struct{ Panels []panel }
	if err := json.Unmarshal([]byte(read(t, "dashboard.json")), &dashboard); err != nil {
		t.Fatal(err)
	}
	var out []panel
	for _, p := range dashboard.Panels {
		if p.Type != "row" {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		t.Fatal("the dashboard has no panel")
	}
	return out
}

func TestPanelsAreExplainedAndDoNotOverlap(t *testing.T) {
	t.Parallel()
	ids, cells := map[int]bool{}, map[[2]int]string{}
	for _, p := range panels(t) {
		if p.Description == "" || len(p.Targets) == 0 || ids[p.ID] {
			t.Errorf("the panel %q lacks a description, a query or an ID of its own", p.Title)
		}
		ids[p.ID] = true
		for _, q := range p.Targets {
			if p.Datasource.UID != "${datasource}" || q.Datasource.UID != "${datasource}" {
				t.Errorf("the panel %q does not use the variable datasource", p.Title)
			}
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("the panel %q is on top of %q, or outside of the 24 columns", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
	}
}

// TestPrometheusHasASeriesForEachQuery runs Prometheus with the alerts beside a server on
// which rollouts and groups have ended and run. Each query of the dashboard then has a
// result, and each selector of the alerts matches a series.
func TestPrometheusHasASeriesForEachQuery(t *testing.T) {
	t.Parallel()
	program := require.Program(t, "prometheus")
	s := apptest.Start(t, func(o *app.Options) {
		o.Config.Check.Poll, o.Config.Check.PollJitter = time.Second, 0 // check-ins wait for nothing longer
	})
	useFleet(t, s)
	p := startPrometheus(t, program, s)
	for _, r := range p.rules(t) {
		for _, selector := range selectors.FindAllString(r.Query, -1) {
			p.has(t, "the alert "+r.Name, selector)
		}
	}
	for _, panel := range panels(t) {
		for _, q := range panel.Targets {
			query := variables.Replace(q.Expr)
			for _, selector := range selectors.FindAllString(query, -1) {
				p.has(t, "the panel "+panel.Title, selector)
			}
			p.has(t, "the panel "+panel.Title, query)
		}
	}
}

// selectors matches the metrics of a query with their labels. The alerts and the dashboard
// use those of the server, of its process, and up.
var selectors = regexp.MustCompile(`\b(?:muster|process)_\w+(?:\{[^}]*\})?|\bup\{[^}]*\}`)

// variables replaces what Grafana replaces in queries.
var variables = strings.NewReplacer("$job", "muster", "$instance", ".*", "$__rate_interval", "1m")

// useFleet upgrades an agent in a group of rollouts, which it cancels then, and starts another
// group.
func useFleet(t *testing.T, s *apptest.Server) {
	t.Helper()
	s.Publisher().Publish("2.0.0")
	first, second, third := s.Enroll("db-01", "1.1.0"), s.Enroll("db-02", "1.1.0"), s.Enroll("db-03", "1.1.0")
	for _, a := range []*apptest.Agent{first, second, third} {
		a.MustCheckin(nil)
	}
	done := startGroup(t, s, first, second)
	upgrade := first.MustCheckin(nil).Actions
	if len(upgrade) != 1 {
		t.Fatalf("the agent got %d actions, want its upgrade", len(upgrade))
	}
	first.Ack("", upgrade[0].ID)
	first.Version = "2.0.0"
	first.MustCheckin(nil)
	committed := apptest.Beacon(upgrade[0].ID, agentapi.BeaconCommitted)
	committed.From, committed.To, committed.Agent.Version = "1.1.0", "2.0.0", "2.0.0"
	first.Beacon(committed)
	apptest.Eventually(t, "the upgrade to have ended", func() string {
		list := apptest.Decode[adminapi.RolloutList](t, s.Admin(http.MethodGet, "/api/v1/rollouts", nil))
		if len(list.Items) != 1 || list.Items[0].State != fleet.RolloutCompleted {
			return fmt.Sprintf("%+v", list.Items)
		}
		return ""
	})
	if got := s.Admin(http.MethodPost, "/api/v1/rollout-groups/"+done+"/cancel", nil); got.Status != http.StatusOK {
		t.Fatalf("to cancel the group answered %d: %s", got.Status, got.Body)
	}
	apptest.Eventually(t, "the group to be cancelled", func() string {
		if g := group(t, s, done); g.State != fleet.GroupCancelled {
			return string(g.State)
		}
		return ""
	})
	startGroup(t, s, second, third)
}

// startGroup starts a group that upgrades two agents one after the other, waits for its first
// rollout, and returns its ID.
func startGroup(t *testing.T, s *apptest.Server, one, two *apptest.Agent) string {
	t.Helper()
	member := func(name string, a *apptest.Agent) map[string]any {
		return map[string]any{"name": name, "soak": "10m", "plan": map[string]any{
			"name": "to 2.0.0", "select": map[string]any{"agents": []string{a.ID}}, "strategy": map[string]any{"kind": "all_at_once", "skip_validation": true},
		}}
	}
	draft := apptest.Decode[adminapi.GroupStatusItem](t, s.Admin(http.MethodPost, "/api/v1/rollout-groups", map[string]any{"why": "OPS-1", "plan": map[string]any{
		"name": "spring", "failure_policy": "partial_ok", "desired_versions": map[string]any{"one": "2.0.0", "two": "2.0.0"},
		"members": []any{member("one", one), member("two", two)},
	}})).Item
	path := "/api/v1/rollout-groups/" + draft.ID
	preview := apptest.Decode[adminapi.GroupPreviewItem](t, s.Admin(http.MethodPost, path+"/preview", nil))
	if got := s.Admin(http.MethodPost, path+"/start", map[string]any{"hash": preview.Item.Hash, "why": "OPS-1"}); got.Status != http.StatusOK {
		t.Fatalf("to start the group answered %d: %s", got.Status, got.Body)
	}
	apptest.Eventually(t, "the first agent to be upgraded", func() string {
		if state := group(t, s, draft.ID).Members[0].State; state != fleet.MemberRunning {
			return string(state)
		}
		return ""
	})
	return draft.ID
}

func group(t *testing.T, s *apptest.Server, id string) adminapi.GroupStatus {
	t.Helper()
	return apptest.Decode[adminapi.GroupStatusItem](t, s.Admin(http.MethodGet, "/api/v1/rollout-groups/"+id, nil)).Item
}

// prometheus is a Prometheus that scrapes a server each second.
type prometheus struct{ url string }

// startPrometheus runs a Prometheus with the alerts until the test ends.
func startPrometheus(t *testing.T, program string, s *apptest.Server) prometheus {
	t.Helper()
	dir := t.TempDir()
	server, err := url.Parse(s.AdminURL)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config := write("prometheus.yml", fmt.Sprintf(`
global: {scrape_interval: 1s, evaluation_interval: 1s}
rule_files: [%q]
scrape_configs:
  - job_name: muster
    scheme: https
    tls_config: {ca_file: %q}
    authorization: {type: ApiKey, credentials_file: %q}
    static_configs: [{targets: [%q]}]
`, source(t, "alerts.yml"), s.CAFile, write("key", s.AdminKey), server.Host))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	c := exec.CommandContext(ctx, program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	c.Stdout, c.Stderr = log, log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stop()
		_ = c.Wait() // it was killed
		log.Close()
	})
	var address string
	apptest.Eventually(t, "Prometheus to listen", func() string {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			return err.Error()
		}
		found := listening.FindSubmatch(text)
		if found == nil {
			return "its log is\n" + string(text)
		}
		address = string(found[1])
		return ""
	})
	return prometheus{"http://" + address}
}

// listening matches a line of the log of Prometheus.
var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// get reads an answer of Prometheus, whose errors are answers too.
func (p prometheus) get(t *testing.T, path string, data any) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var out struct {
		Error string
		Data  json.RawMessage
	}
	if err := json.NewDecoder(answer.Body).Decode(&out); err != nil {
		return err
	}
	if out.Error != "" {
		return errors.New(out.Error)
	}
	return json.Unmarshal(out.Data, data)
}

// has waits until a query has a result.
func (p prometheus) has(t *testing.T, who, query string) {
	t.Helper()
	apptest.Eventually(t, who+" to have a result of "+query, func() string {
		var data struct{ Result []json.RawMessage }
		if err := p.get(t, "/api/v1/query?query="+url.QueryEscape(query), &data); err != nil {
			return err.Error()
		}
		if len(data.Result) == 0 {
			return "it is empty"
		}
		return ""
	})
}

type rule struct{ Name, Query, Health, LastError string }

// rules returns the rules once Prometheus has evaluated each without an error.
func (p prometheus) rules(t *testing.T) []rule {
	t.Helper()
	var out []rule
	apptest.Eventually(t, "Prometheus to evaluate the alerts", func() string {
		var data struct{ Groups []struct{ Rules []rule } }
		if err := p.get(t, "/api/v1/rules", &data); err != nil {
			return err.Error()
		}
		out = nil
		for _, g := range data.Groups {
			out = append(out, g.Rules...)
		}
		for _, r := range out {
			if r.Health != "ok" {
				return fmt.Sprintf("%s is %s: %s", r.Name, r.Health, r.LastError)
			}
		}
		if len(out) != len(alerts(t)) {
			return fmt.Sprintf("it has %d of %d alerts", len(out), len(alerts(t)))
		}
		return ""
	})
	return out
}
