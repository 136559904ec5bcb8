package app_test

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"gopkg.in/yaml.v3"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(esnode.With(m)) }

type poll struct {
	resp agentapi.CheckinResponse
	err  error
	at   time.Time
}

// park sends a check-in and returns when the server has stored it.
func park(s *apptest.Server, a *apptest.Agent) <-chan poll {
	answered := make(chan poll, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), apptest.WaitLimit)
		defer cancel()
		resp, err := a.Checkin(ctx, s, nil)
		answered <- poll{resp, err, time.Now()}
	}()
	s.Parked(a)
	return answered
}

func TestShutdownAnswersParkedPollsAndEndsStreams(t *testing.T) {
	s := apptest.Start(t)
	a := s.Enroll("web-01", "1.0.0")
	answered := park(s, a)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.AdminURL+"/api/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = apptest.Headers("Authorization", "ApiKey "+s.AdminKey)
	stream, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	if line, err := bufio.NewReader(stream.Body).ReadString('\n'); err != nil || line != ": muster\n" {
		t.Fatalf("the stream begins with %q, %v", line, err)
	}

	start := time.Now()
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > app.Drain/2 {
		t.Errorf("the shutdown took %s", took)
	}
	if got := <-answered; got.err != nil || got.resp.Actions == nil || len(got.resp.Actions) != 0 {
		t.Errorf("the parked poll got %+v, %v", got.resp, got.err)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream was cut off: %v", err)
	}
	if _, err := s.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: s.AgentURL + agentapi.PathStatus}); err == nil {
		t.Error("the server still answers")
	}
}

func TestShutdownCompletesDownloadsAndUploads(t *testing.T) {
	s := apptest.Start(t)
	p := s.Publisher()
	a := s.Enroll("web-01", "1.0.0")
	dir := t.TempDir()
	pkg := fakepkg.Describe("1.1.0")
	const size = 16 << 20 // more than sockets hold
	archive := fakepkg.Write(t, dir, "muster-agent-1.1.0-linux-amd64.tar.gz", append(fakepkg.Sound(t, pkg),
		fakepkg.Entry{Name: fakepkg.Top(pkg) + "/" + pkg.VersionedHome + "/noise", Body: noise(size)}))
	if got := p.Push(archive); got.Status != http.StatusOK {
		t.Fatalf("push: %s", got.Body)
	}
	want, err := os.Stat(archive)
	if err != nil {
		t.Fatal(err)
	}

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.AgentURL+agentapi.PathArtifacts+filepath.Base(archive), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = apptest.Headers("Authorization", "ApiKey "+a.Key)
	resp, err := s.Client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.CopyN(io.Discard, resp.Body, 1<<20)
	if err != nil {
		t.Fatal(err)
	}

	// An upload of which the server has the first half.
	second := p.Archive(dir, "1.2.0")
	body, err := os.ReadFile(second)
	if err != nil {
		t.Fatal(err)
	}
	half, rest := io.Pipe()
	uploaded := make(chan apptest.Answer, 1)
	go func() {
		answer, err := s.Do(context.Background(), apptest.Request{
			Method: http.MethodPut, URL: s.AdminURL + "/api/v1/packages/" + filepath.Base(second),
			Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey), Body: half,
		})
		if err != nil {
			answer.Body = []byte(err.Error())
		}
		uploaded <- answer
	}()
	if _, err := rest.Write(body[:len(body)/2]); err != nil {
		t.Fatal(err)
	}
	apptest.Eventually(t, "the upload to begin", func() string {
		if pushes, err := filepath.Glob(filepath.Join(s.Data, "packages", ".push-*")); err != nil || len(pushes) == 0 {
			return "no bytes are stored"
		}
		return ""
	})

	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop() }()
	apptest.Eventually(t, "the listener to close", func() string {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.AdminURL, "https://"))
		if err == nil {
			conn.Close()
			return "it accepts connections"
		}
		return ""
	})
	if _, err := rest.Write(body[len(body)/2:]); err != nil {
		t.Fatal(err)
	}
	rest.Close()
	if answer := <-uploaded; answer.Status != http.StatusOK {
		t.Errorf("the upload answered %d %s", answer.Status, answer.Body)
	}
	more, err := io.Copy(io.Discard, resp.Body)
	if err != nil || got+more != want.Size() {
		t.Errorf("the download brought %d of %d bytes, %v", got+more, want.Size(), err)
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

func TestActionOfOneServerReachesAgentParkedAtAnother(t *testing.T) {
	first := apptest.Start(t)
	second := apptest.StartBeside(t, first)
	if second.AdminKey != "" {
		t.Fatal("the second server created a first key")
	}
	if first.CAPin != second.CAPin {
		t.Fatal("the second server has a CA of its own")
	}
	first.Publisher().Publish("1.1.0")
	a := first.Enroll("web-01", "1.0.0")
	answered := park(second, a)
	asked := time.Now()
	apptest.Decode[adminapi.UpgradeResponse](t, first.Admin(http.MethodPost, "/api/fleet/agents/"+a.ID+"/upgrade", map[string]string{"version": "1.1.0"}))
	got := <-answered
	if got.err != nil || len(got.resp.Actions) != 1 {
		t.Fatalf("the poll at the other server got %+v, %v", got.resp, got.err)
	}
	if took := got.at.Sub(asked); took > time.Second {
		t.Errorf("that took %s", took)
	}
}

func TestErrorOfAPortInUseNamesTheFlag(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for flag, set := range map[string]func(*app.Config){
		"--agents-listen": func(c *app.Config) { c.Agents.Listen = l.Addr().String() },
		"--admin-listen":  func(c *app.Config) { c.Admin.Listen = l.Addr().String() },
	} {
		dir := t.TempDir()
		db, err := sqlite.Open(t.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		c := app.Defaults()
		c.Data, c.Agents.Listen, c.Admin.Listen = dir, "127.0.0.1:0", "127.0.0.1:0"
		set(&c)
		_, err = app.New(t.Context(), app.Options{Config: c, Store: db, Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), flag) || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), l.Addr().String()) {
			t.Errorf("with the port of %s taken: %v", flag, err)
		}
	}
}

func TestExampleConfigurationEqualsDefaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "server.yml")
	if err := os.WriteFile(path, []byte(app.Example), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := app.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if text(t, got) != text(t, app.Defaults()) {
		t.Errorf("the example means\n%s\nthe defaults are\n%s", text(t, got), text(t, app.Defaults()))
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func text(t *testing.T, c app.Config) string {
	t.Helper()
	b, err := yaml.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestConfigurationErrorNamesTheKey(t *testing.T) {
	for _, c := range []struct{ file, says string }{
		{"agents:\n  listn: :1\n", "line 2: there is no key listn"},
		{"checkin:\n  poll: soon\n", "line 2"},
		{"log:\n  level: loud\n", "loud"},
		{"- a list\n", "line 1"},
		{"data: [\n", "line"},
		{"data: ''\n", "data: is empty"},
		{"agents: {listen: '8220'}\n", "agents.listen: is \"8220\""},
		{"admin: {listen: nowhere}\n", "admin.listen: is \"nowhere\""},
		{"limits: {max_agents: -1}\n", "limits.max_agents: is -1"},
		{"limits: {max_agent: 1}\n", "there is no key max_agent"},
		{"limits: {memory_bytes: 512}\n", "limits.memory_bytes: is 512"},
		{"debug: {listen: ':6060'}\n", "debug.listen: is \":6060\", which others can reach"},
		{"debug: {listen: '192.0.2.1:6060'}\n", "debug.listen: is \"192.0.2.1:6060\""},
		{"webhooks: {allow: [10.0.0.0/8, 'https://chat']}\n", "webhooks.allow[1]: is \"https://chat\", want a network"},
		{"agents: {url: 'http://x'}\n", "agents.url: is \"http://x\""},
		{"admin: {url: 'https://x/path'}\n", "admin.url"},
		{"tls: {certificate: a.pem}\n", "tls: certificate and key go together"},
		{"checkin: {poll: 5}\n", "line 1: `5` is no duration, want one such as 30s"},
		{"agents: x\n", "line 1: `x` is not a value of this key"},
		{"dota: x\n", "line 1: there is no key dota"},
		{"data: [\n", "not YAML, line 1: did not find"},
		{"checkin: {poll: 5ms}\n", "checkin.poll: is 5ms"},
		{"checkin: {poll: 5s, poll_jitter: 5s}\n", "checkin.poll_jitter: is 5s"},
		{"rollouts: {default: {}}\n", "line 1: there is no key default"},
		{"rollouts:\n  defaults:\n    limits: {max_parallels: 5}\n", "line 3: rollouts.defaults.limits.max_parallels is not a known key, want one of max_parallel, per"},
		{"rollouts: {defaults: {version: 1.0.0}}\n", "rollouts.defaults.version is not a known key"},
		{"rollouts: {defaults: {limits: {max_parallel: many}}}\n", "rollouts.defaults.limits.max_parallel"},
		{"rollouts: {defaults: {limits: {max_parallel: 0}}}\n", "rollouts.defaults.limits.max_parallel is 0, want more than that"},
		{"rollouts: {defaults: {health: {wait: 20}}}\n", "rollouts.defaults.health.wait"},
		{"rollouts: {defaults: 5}\n", "rollouts.defaults"},
		{"rollouts: {defaults: {health: {wait: 5000h}}}\n", "rollouts.defaults.health.wait: is 5000h, want 0 to 2208h"},
		{"rollouts: {defaults: {pace: {soak: 5m}}}\n", "rollouts.defaults.pace.soak: cannot have a default"},
	} {
		path := filepath.Join(t.TempDir(), "server.yml")
		if err := os.WriteFile(path, []byte(c.file), 0o600); err != nil {
			t.Fatal(err)
		}
		config, err := app.Load(path)
		if err == nil {
			err = config.Validate()
		} else if !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v does not name the file", c.file, err)
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want %q", c.file, err, c.says)
		}
	}
	if _, err := app.Load(filepath.Join(t.TempDir(), "none.yml")); err == nil || !strings.Contains(err.Error(), "none.yml") {
		t.Errorf("a missing file: %v", err)
	}
	empty := filepath.Join(t.TempDir(), "empty.yml")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := app.Load(empty); err != nil || text(t, got) != text(t, app.Defaults()) {
		t.Errorf("an empty file: %v", err)
	}
}

func TestRolloutDefaultsAreReadAsAPlanIs(t *testing.T) {
	c := load(t, `
rollouts:
  defaults:
    strategy: {canary: {percent: 2.5, over: [site]}}
    limits: {max_parallel: 50, per: [{label: Site, max: 2}]}
    failure: {count: 5}
    health: {wait: 20m}
    pace: {windows: [{days: [mon], from: 22:00, to: 04:00, zone: Europe/Berlin}]}
`)
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	d := c.Rollouts.Defaults
	if d.Strategy.Canary.Percent != 2.5 || d.Limits.Per[0].Max != 2 || *d.Failure.Count != 5 || d.Health.Wait.D() != 20*time.Minute || d.Pace.Windows[0].From != "22:00" {
		t.Errorf("they are %s", d)
	}
	const want = `strategy.canary.percent: 2.5, strategy.canary.over: ["site"], limits.max_parallel: 50, limits.per: [{"label":"Site","max":2}], failure.count: 5, health.wait: 20m, ` +
		`pace.windows: [{"days":["mon"],"from":"22:00","to":"04:00","zone":"Europe/Berlin"}]`
	if s := settingsOf(c)["rollouts.defaults"]; s.Value != want || s.Origin != adminapi.OriginFile || s.Description == "" {
		t.Errorf("the setting is %q, %+v", s.Value, s)
	}
	if s := settingsOf(app.Defaults())["rollouts.defaults"]; s.Value != "" || s.Origin != adminapi.OriginDefault {
		t.Errorf("without the key the setting is %+v", s)
	}
}

func TestUpgradesDir(t *testing.T) {
	c := app.Defaults()
	c.Data = "here"
	if got, want := c.UpgradesDir(), filepath.Join("here", "upgrades"); got != want {
		t.Errorf("without the key it is %s, want %s", got, want)
	}
	path := filepath.Join(t.TempDir(), "server.yml")
	if err := os.WriteFile(path, []byte("upgrades: /etc/muster/upgrades\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := app.Load(path)
	if err != nil || c.UpgradesDir() != "/etc/muster/upgrades" {
		t.Errorf("with the key it is %s, %v", c.UpgradesDir(), err)
	}
}
