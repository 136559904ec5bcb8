//go:build linux

package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/testing/tools/loadtest/scenario"
)

// The test program also serves as the child process.
func TestMain(m *testing.M) {
	serve := map[string]func(io.ReadCloser, io.WriteCloser) error{scenario.GeneratorSubcommand: scenario.ServeGenerator, scenario.FloorSubcommand: scenario.ServeFloor}
	if len(os.Args) == 2 && serve[os.Args[1]] != nil {
		if err := serve[os.Args[1]](os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// loaded returns a server in this process.
func loaded(s *apptest.Server) scenario.LoadedServer {
	return scenario.LoadedServer{
		Server: s.AgentURL, CAFile: s.CAFile, EnrollmentToken: s.Token,
		AdminURL: s.AdminURL, AdminKey: s.AdminKey, PID: os.Getpid(),
	}
}

// small returns the options of a run of a second or two.
func small(t scenario.LoadedServer) scenario.Options {
	return scenario.Options{LoadedServer: t, Agents: 50, Ramp: 1000, Hold: time.Second, Rounds: 2, Singles: 5}
}

// figures returns the names of a scenario's figures.
func figures(t *scenario.Table, name string) (all []string) {
	for _, r := range t.Rows {
		if r.Scenario == name {
			all = append(all, r.Figure)
		}
	}
	return all
}

func value(t *testing.T, table *scenario.Table, name, figure string) float64 {
	t.Helper()
	for _, r := range table.Rows {
		if r.Scenario == name && r.Figure == figure {
			return r.Median()
		}
	}
	t.Fatalf("%s has no figure %q, only %q", name, figure, figures(table, name))
	return 0
}

// The checks hold on any machine.
func TestEveryScenarioReportsFigures(t *testing.T) {
	t.Parallel() // the tests mostly wait
	s := apptest.Start(t)
	names := scenario.Names[:len(scenario.Names)-1] // restart is below
	o := small(loaded(s))
	o.HTTP2, o.Progress = 0.04, t.Output()
	table, err := scenario.Run(t.Context(), o, names...)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Failures) > 0 {
		t.Fatalf("failures: %q", table.Failures)
	}
	for name, figure := range map[string]string{
		"enrol": "rate", "park": "server RSS, most", "single": "delivered p99", "upgrade-all": "server CPU per deliver + ack + poll",
		"floor": "bare answers, per server core", "checkins": "stable agents, parked and answered", "behind": "single actions while the other is delivered", "churn": "hung up and came back", "slow": "single action beside them, p99", "storm": "admin API, longest",
	} {
		if value(t, table, name, figure) <= 0 {
			t.Errorf("%s, %s is not above 0", name, figure)
		}
	}
	if value(t, table, "floor", "server CPU per bare TLS connection with one request") <= 0 || value(t, table, "park", "first connection and check-in, to a bare TLS connection") <= 0 {
		t.Error("a first connection and check-in is not compared with a bare TLS connection")
	}
	if got := value(t, table, "park", "resumed handshakes, percent"); got != 0 {
		t.Errorf("%v %% of the agents resumed a session when they connected for the first time", got)
	}
	if got := value(t, table, "storm", "resumed handshakes, percent"); got < 90 {
		t.Errorf("%v %% of the agents came back with a ticket, want all", got)
	}
	if first, last := value(t, table, "upgrade-all", "delivered p50"), value(t, table, "upgrade-all", "delivered to the last"); first > last {
		t.Errorf("half had the action after %v s, the last after %v s", first, last)
	}
	for _, r := range table.Rows {
		if r.Scenario == "upgrade-all" && len(r.Values) != 2 {
			t.Errorf("%s was measured %d times in two rounds", r.Figure, len(r.Values))
		}
	}

	// By the server's count, too, every agent has acknowledged its actions.
	list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin(http.MethodGet, "/api/fleet/agents/action_status?perPage=100", nil))
	all := 0
	for _, a := range list.Items {
		if a.NbAgentsAck != a.NbAgentsActioned {
			t.Errorf("%d agents received action %s, %d have acknowledged it", a.NbAgentsActioned, a.ActionId, a.NbAgentsAck)
		}
		if a.NbAgentsActioned == o.Agents {
			all++
		}
	}
	// Two rounds, and one after each of churn and storm.
	if all != 2+1+1 || len(list.Items) < all+5 {
		t.Errorf("of %d actions %d were for all agents", len(list.Items), all)
	}
}

// Agents of several processes load a server that the run starts and restarts, and the
// run profiles all processes.
func TestRunStartsServerAndProfilesAllProcesses(t *testing.T) {
	t.Parallel() // the tests mostly wait
	var progress bytes.Buffer
	o := small(scenario.LoadedServer{Start: true})
	o.Agents, o.Rounds, o.PerProcess, o.Progress = 30, 1, 20, &progress
	o.Profiles = filepath.Join(t.TempDir(), "profiles")
	names := []string{"behind", "checkins", "restart"}
	table, err := scenario.Run(t.Context(), o, names...)
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if len(table.Failures) > 0 {
		t.Errorf("failures: %q", table.Failures)
	}
	if value(t, table, "restart", "all checked in again") <= 0 || value(t, table, "restart", "answers of 5xx") != 0 {
		t.Errorf("the restart is %q", figures(table, "restart"))
	}
	if value(t, table, "behind", "single actions while the other is delivered") < 1 {
		t.Errorf("behind is %q", figures(table, "behind"))
	}
	if !strings.Contains(table.Setup, "one server on the embedded store") {
		t.Errorf("the table is of %s", table.Setup)
	}
	if len(table.Profiled) != len(names) {
		t.Fatalf("%d of %d scenarios were profiled", len(table.Profiled), len(names))
	}
	for i, p := range table.Profiled {
		// Only checkins keeps both sides busy for many samples of a profile.
		if p.Scenario != names[i] || p.Scenario == "checkins" && (p.Server.All <= 0 || p.Generator.All <= 0) {
			t.Errorf("profile %d is of %s, of %s on the server and %s of the agents", i, p.Scenario, p.Server.All, p.Generator.All)
		}
		for _, side := range []string{"server-", "generator-"} {
			if _, err := os.Stat(filepath.Join(o.Profiles, side+p.Scenario+".pprof")); err != nil {
				t.Error(err)
			}
		}
	}
}

func TestRunEndsWhenItsContextIsCanceled(t *testing.T) {
	s := apptest.Start(t)
	o := small(loaded(s))
	o.Hold = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	o.Progress = callOnText("parked for", cancel)
	began := time.Now()
	_, err := scenario.Run(ctx, o, "park")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("that took %s", took)
	}
}

// textWatcher calls f when text is written.
type textWatcher struct {
	word string
	f    func()
}

func callOnText(word string, f func()) *textWatcher { return &textWatcher{word, f} }

func (w *textWatcher) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.word)) {
		w.f()
	}
	return len(p), nil
}

func TestServersOnOtherMachinesAreRefused(t *testing.T) {
	good := scenario.LoadedServer{Server: "https://127.0.0.1:8220", CAFile: "ca.crt", EnrollmentToken: "t", AdminURL: "https://localhost:8221", AdminKey: "k"}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*scenario.LoadedServer)
		want   string
	}{
		"another machine":        {func(o *scenario.LoadedServer) { o.Server = "https://192.0.2.1:8220" }, "--i-own-this-server"},
		"a name":                 {func(o *scenario.LoadedServer) { o.Server = "https://fleet.example.com:8220" }, "--i-own-this-server"},
		"a name that looks good": {func(o *scenario.LoadedServer) { o.Server = "https://127.0.0.1.example.com" }, "--i-own-this-server"},
		"another's admin API":    {func(o *scenario.LoadedServer) { o.AdminURL = "https://192.0.2.1:8221" }, "--i-own-this-server"},
		"another's store": {func(o *scenario.LoadedServer) {
			*o = scenario.LoadedServer{Start: true, Elasticsearch: "https://es.example.com:9200"}
		}, "--i-own-this-server"},
		"no TLS":                    {func(o *scenario.LoadedServer) { o.Server = "http://127.0.0.1:8220" }, "https://host:port"},
		"no URL":                    {func(o *scenario.LoadedServer) { o.AdminURL = "" }, "--admin-url"},
		"no token":                  {func(o *scenario.LoadedServer) { o.EnrollmentToken = "" }, "--enrollment-token: is missing"},
		"nothing at all":            {func(o *scenario.LoadedServer) { *o = scenario.LoadedServer{} }, "--start"},
		"both":                      {func(o *scenario.LoadedServer) { o.Start = true }, "give one of them"},
		"a program, but no --start": {func(o *scenario.LoadedServer) { o.Muster = "muster" }, "--muster belong to --start"},
	} {
		bad := good
		c.change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: the error is %v, want one with %q", name, err, c.want)
		}
		bad.Owned = true
		if err := bad.Validate(); strings.HasPrefix(c.want, "--i-own") && err != nil {
			t.Errorf("%swith --i-own-this-server is refused: %v", name, err)
		}
	}
}

func TestInvalidOptionsAreRefused(t *testing.T) {
	good := small(scenario.LoadedServer{Server: "https://127.0.0.1:1", CAFile: "ca.crt", EnrollmentToken: "t", AdminURL: "https://localhost:1", AdminKey: "k"})
	for want, change := range map[string]func(*scenario.Options) []string{
		"--agents: is 0":      func(o *scenario.Options) []string { o.Agents = 0; return nil },
		"--agents: is 200000": func(o *scenario.Options) []string { o.Agents = 2_000_000; return nil },
		"--http2: is 2":       func(o *scenario.Options) []string { o.HTTP2 = 2; return nil },
		"--hold: is":          func(o *scenario.Options) []string { o.Hold = 1000 * time.Hour; return nil },
		"--per-process":       func(o *scenario.Options) []string { o.PerProcess = 1_000_000; return nil },
		"none below 0":        func(o *scenario.Options) []string { o.Rounds = -1; return nil },
		"no scenario \"tea\"": func(*scenario.Options) []string { return []string{"tea"} },
		"behind needs":        func(o *scenario.Options) []string { o.Agents = 1; return []string{"behind"} },
		"--profiles: needs":   func(o *scenario.Options) []string { o.Profiles = "profiles"; return nil },
		"restart needs":       func(*scenario.Options) []string { return []string{"restart"} },
		"no such file":        func(*scenario.Options) []string { return []string{"park"} },
	} {
		o := good
		names := change(&o)
		if _, err := scenario.Run(t.Context(), o, names...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, want one with %q", err, want)
		}
	}
}

func TestReportWritesFailuresAndGoals(t *testing.T) {
	table := &scenario.Table{Machine: "a machine", Setup: "one server", Size: 19_000, Failures: []string{"action x was delivered twice"}, Rows: []*scenario.Row{
		{Scenario: "storm", Figure: "slow enough", Unit: scenario.Seconds, Values: []float64{3, 1, 2}, Goal: scenario.Goal{Most: 2}},
		{Scenario: "enrol", Figure: "rate", Unit: scenario.PerSecond, Values: []float64{400, 499, 450}, Goal: scenario.Goal{Least: 500}},
		{Scenario: "park", Figure: "server RSS", Unit: scenario.Bytes, Values: []float64{150 << 20}},
		{Scenario: "park", Figure: "to the floor", Unit: scenario.Ratio, Values: []float64{1.234}, Goal: scenario.Goal{Most: 1.5}},
		{Scenario: "storm", Figure: "answers of 5xx", Values: []float64{3}, Goal: scenario.Goal{Zero: true}},
	}}
	file := filepath.Join(t.TempDir(), "RESULTS.md")
	if err := table.Report(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"## 19,000 agents, one server\n\na machine, the agents'",
		"| storm | slow enough | 2.00 s | 3.00 s | ≤ 2.00 s | met |",
		"| enrol | rate | 450/s | 400/s | ≥ 500/s | **missed** |",
		"| park | to the floor | 1.23 times |  | ≤ 1.50 times | met |",
		"| storm | answers of 5xx | 3 |  | 0 | **missed** |",
		"\nWithout a goal:\n\n| scenario | figure | median | worst |\n|---|---|--:|--:|\n| park | server RSS | 150 MiB |  |\n",
		"- action x was delivered twice",
	} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the table lacks %q:\n%s", line, text)
		}
	}
}

// Sections of other setups and sections written by people stay in the file.
func TestReportReplacesOnlyTheSectionOfItsSetup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "RESULTS.md")
	table := func(size int, setup string, seconds float64) *scenario.Table {
		return &scenario.Table{Setup: setup, Size: size, Rows: []*scenario.Row{{Scenario: "storm", Figure: "all back", Unit: scenario.Seconds, Values: []float64{seconds}}}}
	}
	profiled := table(18_000, "one server", 3)
	profiled.Profiled = []scenario.Profiled{{Scenario: "storm", Each: "return", Times: 18_000}}
	other := table(9_000, "one server on Elasticsearch", 2)
	for _, one := range []*scenario.Table{table(18_000, "one server", 1), other, profiled, table(9_000, "one server", 4), other} {
		if err := one.Report(file); err != nil {
			t.Fatal(err)
		}
	}
	f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("\n## Limits\n\nThe machine is small.\n"); err != nil || f.Close() != nil {
		t.Fatal(err)
	}
	if err := table(1_000, "one server on Elasticsearch", 5).Report(file); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "#") || strings.HasPrefix(line, "| storm") {
			got = append(got, strings.TrimSpace(line))
		}
	}
	want := []string{
		"# What a fleet costs a server",
		"## 9,000 agents, one server", "| storm | all back | 4.00 s |  |",
		"## 1,000 agents, one server on Elasticsearch", "| storm | all back | 5.00 s |  |",
		"## Where the time goes: 18,000 agents, one server", "### storm: for each return, of 18,000",
		"## Limits",
	}
	if !slices.Equal(got, want) || !strings.Contains(string(text), "The machine is small.\n") {
		t.Errorf("the file has %q, want %q:\n%s", got, want, text)
	}
}

func TestStandardAgentsIsBounded(t *testing.T) {
	one, many := scenario.StandardAgents(1), scenario.StandardAgents(1000)
	if one < 100 || one > 9_500 || many < one || many > 19_000 {
		t.Errorf("for one core it is %d, for a thousand %d", one, many)
	}
}
