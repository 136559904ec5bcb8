package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/cli"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/elasticpkg"
	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/flaghelp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(esnode.With(m)) }

// operator runs muster commands with a home folder of its own.
type operator struct {
	t    *testing.T
	home string
}

func newOperator(t *testing.T) operator {
	t.Helper()
	home := t.TempDir()
	for name, value := range map[string]string{
		"HOME": home, "XDG_CONFIG_HOME": filepath.Join(home, ".config"), "AppData": home,
		"MUSTER_URL": "", "MUSTER_API_KEY": "", "MUSTER_CA_PIN": "",
	} {
		t.Setenv(name, value)
	}
	return operator{t, home}
}

// result is the outcome of a command.
type result struct {
	code     int
	out, err string
}

// syncBuffer is a buffer that a test can read while a command writes.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs `muster args…` in the background. ended receives its exit code.
func (o operator) start(ctx context.Context, stdin string, args ...string) (out, errOut *syncBuffer, ended <-chan int) {
	out, errOut = &syncBuffer{}, &syncBuffer{}
	cmd := cli.New(apptest.Version)
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetOut(out)
	cmd.SetErr(errOut)
	code := make(chan int, 1)
	go func() { code <- cli.Run(ctx, cmd) }()
	return out, errOut, code
}

func (o operator) try(args ...string) result { return o.tryWith("", args...) }

func (o operator) tryWith(stdin string, args ...string) result {
	ctx, cancel := context.WithTimeout(context.Background(), apptest.WaitLimit)
	defer cancel()
	out, errOut, ended := o.start(ctx, stdin, args...)
	return result{<-ended, out.String(), errOut.String()}
}

// run runs a command that must succeed, and returns its standard output.
func (o operator) run(args ...string) string {
	o.t.Helper()
	got := o.try(args...)
	if got.code != 0 {
		o.t.Fatalf("muster %s: exit code %d: %s", strings.Join(args, " "), got.code, got.err)
	}
	return got.out
}

// fails runs a command that must fail with the exit code and a message that contains all
// of says.
func (o operator) fails(code int, args []string, says ...string) {
	o.t.Helper()
	o.failed(o.try(args...), code, args, says...)
}

func (o operator) failed(got result, code int, args []string, says ...string) {
	o.t.Helper()
	if got.code != code || !strings.Contains("\n"+got.err, "\nmuster: ") {
		o.t.Errorf("muster %s: exit code %d, want %d: %s", strings.Join(args, " "), got.code, code, got.err)
	}
	for _, s := range says {
		if !strings.Contains(got.err, s) {
			o.t.Errorf("muster %s says %q, want %q", strings.Join(args, " "), got.err, s)
		}
	}
}

// asJSON runs a command with -o json and decodes what it prints.
func asJSON[T any](o operator, args ...string) T {
	o.t.Helper()
	var v T
	text := o.run(append(args, "-o", "json")...)
	dec := json.NewDecoder(strings.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		o.t.Fatalf("muster %s -o json: %v: %s", strings.Join(args, " "), err, text)
	}
	return v
}

func (o operator) contains(text string, want ...string) {
	o.t.Helper()
	for _, w := range want {
		if !strings.Contains(text, w) {
			o.t.Errorf("%q is not in\n%s", w, text)
		}
	}
}

// secretIn returns the secret in a file that only its user can read.
func (o operator) secretIn(file string) string {
	o.t.Helper()
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		o.t.Fatalf("the file of the secret is %v, %v", info, err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		o.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// login logs in with the first admin key.
func (o operator) login(s *apptest.Server) {
	o.t.Helper()
	if got := o.tryWith(s.AdminKey+"\n", "login", "--url", s.AdminURL, "--ca-pin", s.CAPin); got.code != 0 {
		o.t.Fatalf("login: %s", got.err)
	}
}

// loggedIn returns an operator who has logged in to a new server.
func loggedIn(t *testing.T, options ...func(*app.Options)) (operator, *apptest.Server) {
	t.Helper()
	o := newOperator(t)
	s := apptest.Start(t, options...)
	o.login(s)
	return o, s
}

func quick(o *app.Options) {
	o.Config.Check.Poll, o.Config.Check.PollJitter = 100*time.Millisecond, 0
}

func TestLogin(t *testing.T) {
	o := newOperator(t)
	s := apptest.Start(t)
	login := []string{"login", "--url", s.AdminURL, "--ca-pin", s.CAPin}

	o.fails(1, []string{"agents", "list"}, "not logged in", "muster login --url")
	o.fails(2, []string{"login"}, "--url is missing")
	o.failed(o.tryWith("", login...), 1, login, "no admin key on standard input")
	o.failed(o.tryWith(fleet.NewCredential().Encode(), login...), 1, login, "not valid here", "muster admin-key")
	wrongPin := []string{"login", "--url", s.AdminURL, "--ca-pin", "sha256:" + strings.Repeat("00", 32)}
	o.failed(o.tryWith(s.AdminKey, wrongPin...), 1, wrongPin, "does not come from the pinned CA", "compare --ca-pin")
	noPin := []string{"login", "--url", s.AdminURL}
	o.failed(o.tryWith(s.AdminKey, noPin...), 1, noPin, "pass --ca-pin")
	badPin := []string{"login", "--url", s.AdminURL, "--ca-pin", "abc"}
	o.failed(o.tryWith(s.AdminKey, badPin...), 1, badPin, "--ca-pin", "64 hexadecimal digits")
	agents := []string{"login", "--url", s.AgentURL, "--ca-pin", s.CAPin}
	o.failed(o.tryWith(s.AdminKey, agents...), 1, agents, s.AgentURL+" is the port for agents", "8221")
	plain := []string{"login", "--url", strings.Replace(s.AdminURL, "https", "http", 1)}
	o.failed(o.tryWith(s.AdminKey, plain...), 1, plain, "want https://host:port")
	if _, err := os.Stat(filepath.Join(o.home, ".config", "muster")); err == nil {
		t.Error("a failed login wrote the context file")
	}

	o.contains(o.tryWith(s.AdminKey+"\n", login...).out, "Logged in to "+s.AdminURL, `"first key"`)
	file := filepath.Join(o.home, ".config", "muster", "context.yml")
	info, err := os.Stat(file)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the context file is %v, %v", info, err)
	}
	o.contains(o.run("agents", "list"), "HOST")
	// A trailing slash names the same server. The saved key is not sent to another server.
	o.run("agents", "list", "--url", s.AdminURL+"/")
	o.fails(1, []string{"agents", "list", "--url", "https://other:8221"}, "not logged in")

	keyFile := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyFile, []byte(s.AdminKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := asJSON[adminapi.Session](o, append(login, "--api-key-file", keyFile)...); got.Name != "first key" {
		t.Errorf("the session is %+v", got)
	}
	if err := os.WriteFile(file, []byte("urls: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"agents", "list"}, "context.yml", "log in again with it")

	t.Setenv("MUSTER_URL", s.AdminURL)
	t.Setenv("MUSTER_API_KEY", s.AdminKey)
	t.Setenv("MUSTER_CA_PIN", s.CAPin)
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	o.run("status")
}

func TestServerThatDoesNotListenIsReported(t *testing.T) {
	o := newOperator(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("MUSTER_URL", "https://"+l.Addr().String())
	t.Setenv("MUSTER_API_KEY", fleet.NewCredential().Encode())
	l.Close()
	o.fails(1, []string{"status"}, "nothing listens at https://"+l.Addr().String(), "is the server running?")
}

func TestFlagHelpHasNoBackQuotes(t *testing.T) { flaghelp.Check(t, cli.New("test")) }

func TestWrongArgumentsAreUsageErrors(t *testing.T) {
	o := newOperator(t)
	for _, c := range []struct {
		line, says string
	}{
		{"agnets", "did you mean agents?"},
		{"agents lst", "or list?"},
		{"package pull", "has no command"},
		{"agents list all", "takes no arguments"},
		{"agents list --al", "unknown flag"},
		{"agents get", "want one agent, by id or host name"},
		{"agents get a b", "want one agent, by id or host name"},
		{"agents upgrade --version 1.0.0", "no agents are named"},
		{"agents upgrade a", "--version is missing"},
		{"agents upgrade a --version 1 --timeout soon", "--timeout"},
		{"actions cancel", "want one action id"},
		{"keys revoke", "want one key id"},
		{"policies create", "the policy's name"},
		{"package push", "no archive is named"},
		{"package inspect", "no archive is named"},
		{"status -o xml", "--output is \"xml\""},
		{"server now", "takes no arguments"},
	} {
		args := strings.Fields(c.line)
		o.fails(2, args, c.says)
	}
	for _, line := range []string{"", "agents", "package", "--help", "agents upgrade --help", "--version"} {
		if got := o.try(strings.Fields(line)...); got.code != 0 || got.out == "" {
			t.Errorf("muster %s: exit code %d, %q", line, got.code, got.out+got.err)
		}
	}
}

func TestListGetAndStatusShowAgents(t *testing.T) {
	o, s := loggedIn(t, quick)
	a, b := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.0.0")
	a.MustCheckin(nil)
	o.contains(o.run("agents", "list"), "web-01", "healthy", "now", "web-02", "enrolling", "never")
	o.contains(o.run("agents", "get", a.ID), "web-01", "message      Running")
	web := apptest.Component("web-server", "2.4.0")
	web.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: "2.5.0", ActionID: "x", State: agentapi.UpgradeWatching, Metadata: agentapi.UpgradeMetadata{Phase: agentapi.PhaseVerifying}}
	web.Rollbacks, web.RollbackProblems = []string{"2.3.0"}, []agentapi.RollbackProblem{{Version: "2.3.0", Reason: "its image is gone"}}
	a.Components = []agentapi.Component{web, {ID: "logs", Type: "process", Status: "DEGRADED", Message: "Slow"}}
	a.MustCheckin(nil)
	o.contains(o.run("agents", "get", a.ID), "component    web-server 2.4.0 (systemd): HEALTHY Running\n", "upgrade: watching 2.5.0 (verifying)\n", "kept 2.3.0: its image is gone\n", "component    logs (process): DEGRADED Slow\n")
	o.contains(o.run("agents", "list", "--kuery", "components.name: web-server and components.version < 2.5.0"), "web-01")
	if got := asJSON[adminapi.AgentItem](o, "agents", "get", a.ID); got.Item.Id != a.ID {
		t.Errorf("get shows agent %s", got.Item.Id)
	}
	o.fails(1, []string{"agents", "get", "nobody"}, "there is no agent with the id or host name nobody")
	o.contains(o.run("status"), "online       1", "all          2")
	type status struct {
		adminapi.AgentStatusResponse
		OpenIncidents int      `json:"open_incidents"`
		ServerRemarks []string `json:"server_remarks"`
	}
	if got := asJSON[status](o, "status"); got.Results.All != 2 || got.OpenIncidents != 0 || len(got.ServerRemarks) != 0 {
		t.Errorf("status is %+v", got)
	}
	asJSON[adminapi.Empty](o, "agents", "unenroll", b.ID, "--revoke")
	if got := asJSON[adminapi.AgentList](o, "agents", "list"); got.Total != 1 {
		t.Errorf("%d agents are listed", got.Total)
	}
	if got := asJSON[adminapi.AgentList](o, "agents", "list", "--inactive"); got.Total != 2 {
		t.Errorf("--inactive lists %d agents", got.Total)
	}
}

func TestKeysAndPoliciesAreCreatedListedAndRevoked(t *testing.T) {
	o, s := loggedIn(t)
	o.contains(o.run("policies", "list"), "default", "Default policy")
	if got := o.run("policies", "create", "web servers", "--id", "web"); got != "web\n" {
		t.Errorf("create prints %q", got)
	}
	o.fails(1, []string{"policies", "create", "web servers"}, "Agent Policy 'web' already exists with name 'web servers'")
	asJSON[adminapi.PolicyItem](o, "policies", "create", "others")
	if got := asJSON[adminapi.PolicyList](o, "policies", "list"); got.Total != 3 {
		t.Errorf("there are %d policies", got.Total)
	}

	file := filepath.Join(t.TempDir(), "components.yaml")
	o.fails(1, []string{"policies", "update", "web", "--components", file}, "`muster policies update --example` prints a list of components to start from")
	o.fails(2, []string{"policies", "update", "web"}, "want --components FILE")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("components:\n- name: web-server\n  runtime: docker\n  artifact:\n    image: web:latest\n")
	o.fails(1, []string{"policies", "update", "web", "--components", file}, "components.yaml:5: components[0].artifact.image: is \"web:latest\", want an image by its digest")
	write("components:\n- name: web-server\n  runtime: systemd\n  artifact:\n    package: web\n")
	o.fails(1, []string{"policies", "update", "web", "--components", file}, "components.yaml:5: components[0].artifact.package is not a known key, want one of image")
	write("components:\n- name: web-server\n  unit: web.service\n")
	o.fails(1, []string{"policies", "update", "web", "--components", file}, "components.yaml:3: components[0].unit is not a known key, want one of name, ")
	write("components:\n- name: web-server\n  runtime: systemd\n  lockstep: true\n  in_force: {version: 1.0.0}\n")
	o.fails(1, []string{"policies", "update", "web", "--components", file}, "components[0].in_force: is set by the server, from rollouts in lockstep: leave it out")
	write("components:\n- name: web-server\n  runtime: systemd\n  lockstep: true\n")
	o.run("policies", "update", "web", "--components", file)
	o.contains(o.run("policies", "show", "web"), "web-server by systemd, in lockstep: no version is in force until a rollout in lockstep")
	write("{}")
	o.fails(1, []string{"policies", "update", "web", "--components", file}, "components is missing: write `components: []`")
	write(o.run("policies", "update", "--example"))
	o.contains(o.run("policies", "update", "web", "--components", file), "web has revision 3 with 1 component; its 0 agents get it now", "web-server 2.4.0 is installed where no version of it is, by an automatic rollout; a version that is installed does not change")
	o.contains(o.run("policies", "show", "web"), "runs         web-server 2.4.0 by systemd")
	o.contains(o.run("policies", "update", "web", "--upgrade-window", "mon,tue 22:00-04:00 Europe/Berlin", "--upgrade-window", "05:00-06:00"), "revision 4 with 1 component", "automatic upgrades begin mon,tue 22:00-04:00 Europe/Berlin and 05:00-06:00 UTC")
	o.contains(o.run("policies", "show", "web"), "upgrades     mon,tue 22:00-04:00 Europe/Berlin and 05:00-06:00 UTC")
	o.fails(1, []string{"policies", "update", "web", "--upgrade-window", "monday 22:00-04:00"}, "upgrade_windows[0].days")
	o.fails(2, []string{"policies", "update", "web", "--upgrade-window", "at night"}, `--upgrade-window is "at night", want days, times and a zone`)
	o.contains(o.run("policies", "update", "web", "--upgrade-window", "always"), "automatic upgrades begin at any time")

	lab := strings.TrimSpace(o.run("policies", "copy", "web", "lab"))
	o.contains(o.run("policies", "show", lab), "lab  "+lab, "after 336h0m0s of silence", "agents       0")
	o.fails(2, []string{"policies", "copy", "web"}, "the name of the new one")
	o.contains(o.run("policies", "delete", lab), "deleted "+lab+" (lab)")
	o.fails(1, []string{"policies", "show", lab}, "Agent policy not found")

	o.contains(o.run("keys", "create", "--policy", "web", "--expires", "24h"), "muster-agent install --url "+s.AgentURL, s.CAPin, "--trust-root <digest of the publishers' root>")
	p := s.Publisher()
	o.contains(o.run("keys", "create"), "--trust-root "+tuf.Digest(p.Root), "No agent is published for linux-amd64, linux-arm64, darwin-arm64, windows-amd64: publish one with `muster package push`")
	o.fails(1, []string{"keys", "create", "--name", "arm", "--platform", "linux-arm64"}, `no agent that hosts accept is published for "linux-arm64"`, "muster package push")
	o.fails(1, []string{"keys", "create", "--name", "arm", "--platform", "amiga"}, `--platform is "amiga", want one of linux-amd64, linux-arm64, darwin-arm64, windows-amd64`)
	if list := o.run("keys", "list"); strings.Contains(list, "arm (") {
		t.Errorf("a key was created for a host that cannot be installed:\n%s", list)
	}
	p.Publish("1.0.0")
	o.contains(o.run("keys", "create"), "Install muster-agent-1.0.0-linux-amd64.tar.gz on a host and enrol it, as root:\n  d=$(mktemp -d", `"Authorization: ApiKey %s"\n' "$(cat `, `MUSTER_ENROLLMENT_TOKEN="$(cat `)
	o.fails(1, []string{"keys", "create", "--policy", "none"}, `muster: Agent policy "none" not found`, "muster policies list")
	o.fails(1, []string{"keys", "create", "--expires", "soon"}, "muster: expiration: ")
	k := asJSON[struct {
		adminapi.EnrollmentKeyCreated
		File     string                       `json:"api_key_file"`
		Commands []adminapi.EnrollmentCommand `json:"commands"`
	}](o, "keys", "create", "--name", "lab")
	s.Token = o.secretIn(k.File)
	s.Enroll("web-01", "1.0.0")
	// The token can be shown again, and a list has none.
	again := asJSON[struct {
		adminapi.EnrollmentKeyItem
		File     string                       `json:"api_key_file"`
		Commands []adminapi.EnrollmentCommand `json:"commands"`
	}](o, "keys", "show", k.Item.Id)
	if got := o.secretIn(again.File); got != s.Token || again.Item.ApiKey != nil {
		t.Errorf("shown again it is %q, want %q", got, s.Token)
	}
	o.contains(o.run("keys", "show", k.Item.Id), "muster-agent install --url "+s.AgentURL, s.CAPin)
	o.fails(1, []string{"keys", "show", "none"}, "Enrollment api key none not found")
	o.fails(1, []string{"keys", "create", "--name", "lab"}, "An enrollment key named lab already exists for agent policy default")
	for _, k := range asJSON[adminapi.EnrollmentKeyList](o, "keys", "list").Items {
		if k.ApiKey != nil {
			t.Errorf("the list has the token of %s", k.Name)
		}
	}
	o.contains(o.run("keys", "list"), "lab ("+k.Item.Id+")", "never", "first key")
	asJSON[adminapi.ActionWord](o, "keys", "revoke", k.Item.Id)
	if got := s.Agents(http.MethodPost, agentapi.PathEnroll, s.Token, agentapi.EnrollRequest{Type: "PERMANENT"}); got.Status != http.StatusUnauthorized {
		t.Errorf("the revoked token answered %d", got.Status)
	}
	if got := o.run("keys", "revoke", k.Item.Id); got != "revoked\n" {
		t.Errorf("revoking twice prints %q", got)
	}
	o.fails(1, []string{"keys", "revoke", "none"})
}

func TestPackagesArePushedListedAndWithdrawn(t *testing.T) {
	o, _ := loggedIn(t)
	dir := t.TempDir()
	key := filepath.Join(dir, "targets-1.key")
	name := "muster-agent-1.1.0-linux-amd64.tar.gz"
	archive := fakepkg.Write(t, dir, name, fakepkg.Sound(t, fakepkg.Describe("1.1.0")))
	o.fails(1, []string{"package", "push", archive}, archive, "muster package keys publish")
	o.run("package", "keys", "init", "--dir", dir, "--no-password")
	o.contains(o.run("package", "push", archive, "--targets-key", key), "published 1.1.0 for linux/amd64")
	o.run("package", "push", archive) // changes nothing
	o.contains(o.run("package", "list"), "1.1.0", "linux/amd64", "yes")
	if got := asJSON[adminapi.PackageList](o, "package", "list"); len(got.Items) != 1 || got.Items[0].File != name {
		t.Errorf("published are %+v", got)
	}
	o.fails(1, []string{"package", "push", filepath.Join(dir, "none.tar.gz")}, "none.tar.gz")
	web := fakepkg.BuildComponent(t, dir, fakepkg.Component("web"), "2.4.0", map[string]string{"bin/web": "", "conf/web.conf": ""})
	o.contains(o.run("package", "push", web), "published web 2.4.0 for ", "hosts that trust the root do not install it yet")
	o.contains(o.run("package", "list"), "COMPONENT", "RUNTIME", "2.4.0", "web", "process")
	o.run("package", "withdraw", filepath.Base(web))
	fakepkg.FlipBit(t, archive)
	o.fails(1, []string{"package", "push", archive}, archive)
	asJSON[adminapi.ActionWord](o, "package", "withdraw", name)
	o.fails(1, []string{"package", "withdraw", name})
}

func TestElasticsPackagesArePushedWithWhatIsBesideThem(t *testing.T) {
	o, _ := loggedIn(t)
	dir := t.TempDir()
	elastic := elasticpkg.NewPublisher(t)
	archive := elastic.Archive(t, dir, "8.16.0")
	o.fails(1, []string{"package", "push", "--elastic", archive}, "muster package trust KEY.asc")
	key := filepath.Join(dir, "GPG-KEY-elastic-agent")
	if err := os.WriteFile(key, []byte(elastic.PublicKey), 0o600); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"package", "trust", "no-such.asc"}, "muster: public_key: ")
	o.contains(o.run("package", "trust", key, "--name", "Elastic"), elastic.KeyID())
	o.fails(2, []string{"package", "push", archive}, "needs --elastic")
	o.fails(2, []string{"package", "push", "--elastic", "muster-agent-1.1.0-linux-amd64.tar.gz"}, "Elastic's own names")
	o.fails(2, []string{"package", "push", "--elastic", archive, "--floor", "1.0.0"}, "--elastic excludes")
	for _, beside := range []string{".sha512", ".asc"} {
		text, err := os.ReadFile(archive + beside)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(archive + beside); err != nil {
			t.Fatal(err)
		}
		o.fails(1, []string{"package", "push", "--elastic", archive}, archive+beside, "put it beside the archive")
		if err := os.WriteFile(archive+beside, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o.contains(o.run("package", "push", "--elastic", archive), "published 8.16.0 for linux/amd64")
	o.contains(o.run("package", "list"), "linux/amd64, Elastic", elastic.KeyID())
	o.contains(o.run("package", "trust"), elastic.KeyID(), "Elastic")
	o.run("package", "withdraw", filepath.Base(archive))
	o.contains(o.run("package", "distrust", elastic.KeyID()), elastic.KeyID())
}

func TestUpgradePreviewsOrdersAndCancels(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0", "1.2.0")
	good, current := s.Enroll("good", "1.0.0"), s.Enroll("current", "1.1.0")

	o.fails(1, []string{"agents", "upgrade", good.ID, "--version", "7.0.0"}, "no package of version 7.0.0", "muster package push")
	dry := o.run("agents", "upgrade", good.ID, current.ID, "--version", "1.1.0", "--dry-run")
	o.contains(dry, "1 would be upgraded to 1.1.0, 1 would not", "already runs 1.1.0")
	if got := asJSON[adminapi.UpgradePreview](o, "agents", "upgrade", good.ID, "--version", "1.1.0", "--dry-run"); got.Will != 1 {
		t.Errorf("the dry run says %+v", got)
	}
	if list := asJSON[adminapi.ActionStatusList](o, "actions", "list"); len(list.Items) != 0 {
		t.Fatal("a dry run created an action")
	}
	o.contains(o.run("agents", "upgrade", current.ID, "--version", "1.1.0"), "nothing to do: the version is already 1.1.0 on 1 agent")

	action := asJSON[adminapi.ActionCreated](o, "agents", "upgrade", good.ID, "--version", "1.1.0").ActionId
	o.contains(o.run("actions", "list"), action, "UPGRADE", "IN_PROGRESS", "first key")
	o.contains(o.run("agents", "list"), "sent 1.1.0")
	o.contains(o.run("agents", "timeline", good.ID), "to 1.1.0: sent (by first key)", "enrolled: The host enrolled.")
	o.contains(o.run("agents", "failures"), "no upgrade has failed")
	o.contains(o.run("actions", "cancel", action), "cancelled")
	o.contains(o.run("actions", "list"), "CANCELLED")
	o.fails(1, []string{"actions", "cancel", "none"})
	o.contains(o.run("agents", "upgrade", good.ID, "--version", "1.2.0", "--source-uri", "https://mirror.example", "--force"), "Upgrading 1 of 1 agent to 1.2.0")
}

func TestVersionIsStagedAndFollowed(t *testing.T) {
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	web, old := s.Enroll("web-01", "1.0.0"), s.Enroll("old-01", "1.0.0")
	web.Staged = []string{}
	web.MustCheckin(nil)
	old.MustCheckin(nil)

	o.fails(1, []string{"agents", "stage", "web-01", "--version", "7.0.0"}, "no package of version 7.0.0")
	o.fails(2, []string{"agents", "stage", "web-01"}, "--version is missing")
	o.contains(o.run("agents", "stage", "web-01", "old-01", "--version", "1.1.0", "--dry-run"), "1 would stage 1.1.0, 1 would not", "upgrade the agent first")
	o.fails(1, []string{"agents", "stage", "old-01", "--version", "1.1.0"}, "none of the agents can stage it")

	done := make(chan struct{})
	go func() {
		defer close(done)
		apptest.Eventually(t, "a STAGE", func() string {
			for _, a := range web.MustCheckin(nil).Actions {
				if a.Type == agentapi.ActionStage {
					web.Staged = []string{"1.1.0"}
					web.MustCheckin(nil)
					web.Ack("", a.ID)
					return ""
				}
			}
			return "no action"
		})
	}()
	got := o.try("agents", "stage", "web-01", "--version", "1.1.0", "--wait")
	<-done
	o.contains(got.out, "1 agent staged 1.1.0 by action")
	o.contains(got.err, "1 of 1 staged, 0 failed")
	o.contains(o.run("agents", "list", "--kuery", "staged_versions: 1.1.0"), "web-01")
	o.contains(o.run("agents", "get", "web-01"), "staged", "1.1.0")
	o.contains(o.run("actions", "list"), "STAGE", "COMPLETE")
	o.fails(1, []string{"agents", "stage", "web-01", "--version", "1.1.0"}, "has staged 1.1.0 already")
}

// upgradeAndWait starts an upgrade with --wait and returns its action.
func (o operator) upgradeAndWait(s *apptest.Server, a *apptest.Agent, args ...string) (action string, out, errOut *syncBuffer, ended <-chan int) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), apptest.WaitLimit)
	o.t.Cleanup(cancel)
	out, errOut, ended = o.start(ctx, "", append([]string{"agents", "upgrade", "--wait"}, args...)...)
	apptest.Eventually(o.t, "the action", func() string {
		doc := s.Fleet(a.ID)
		action = doc.UpgradeActionID
		if !doc.Upgrading() {
			return "so far: " + errOut.String()
		}
		return ""
	})
	apptest.Eventually(o.t, "the first phase", func() string {
		if !strings.Contains(errOut.String(), "requested") {
			return "so far: " + errOut.String()
		}
		return ""
	})
	return action, out, errOut, ended
}

func TestUpgradeWaitReportsTheOutcome(t *testing.T) {
	t.Run("succeeded", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a := s.Enroll("web-01", "1.0.0")
		id, out, errOut, ended := o.upgradeAndWait(s, a, a.ID, "--version", "1.1.0", "-o", "json")
		a.MustCheckin(nil)
		a.Ack("", id)
		a.Version = "1.1.0"
		a.MustCheckin(apptest.Details(id, "1.1.0", agentapi.UpgradeWatching))
		apptest.Eventually(t, "the watch to be shown", func() string {
			if !strings.Contains(errOut.String(), "watching 1.1.0") {
				return "so far: " + errOut.String()
			}
			return ""
		})
		a.MustCheckin(nil)
		if code := <-ended; code != 0 || !strings.Contains(out.String(), id) || !json.Valid([]byte(out.String())) {
			t.Errorf("exit code %d: %s\n%s", code, out, errOut)
		}
		o.contains(errOut.String(), "runs 1.1.0")
	})
	t.Run("rolled back", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a := s.Enroll("web-01", "1.0.0")
		id, out, errOut, ended := o.upgradeAndWait(s, a, a.ID, "--version", "1.1.0")
		details := apptest.Details(id, "1.1.0", agentapi.UpgradeRollback)
		details.Metadata.Reason = "it crashed 3 times"
		a.MustCheckin(details)
		if code := <-ended; code != 1 || out.String() != "" {
			t.Errorf("exit code %d: %s", code, out)
		}
		o.contains(errOut.String(), "it crashed 3 times", "1 of 1 agent not upgraded")
	})
	t.Run("cancelled", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a := s.Enroll("web-01", "1.0.0")
		id, _, errOut, ended := o.upgradeAndWait(s, a, a.ID, "--version", "1.1.0")
		o.run("actions", "cancel", id)
		if code := <-ended; code != 1 {
			t.Errorf("exit code %d", code)
		}
		o.contains(errOut.String(), "runs 1.0.0", "1 of 1 agent not upgraded")
	})
	t.Run("one agent refused", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a, later := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.2.0")
		_, _, errOut, ended := o.upgradeAndWait(s, a, a.ID, later.ID, "--version", "1.1.0")
		a.Version = "1.1.0"
		a.MustCheckin(nil)
		if code := <-ended; code != 1 {
			t.Errorf("exit code %d", code)
		}
		o.contains(errOut.String(), "1.2.0", "1 of 2 agents not upgraded")
	})
	t.Run("one agent runs it already", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a, current := s.Enroll("web-01", "1.0.0"), s.Enroll("web-02", "1.1.0")
		_, out, errOut, ended := o.upgradeAndWait(s, a, a.ID, current.ID, "--version", "1.1.0")
		a.Version = "1.1.0"
		a.MustCheckin(nil)
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d: %s", code, errOut.String())
		}
		o.contains(out.String(), "1 agent upgraded by action")
	})
	t.Run("timed out", func(t *testing.T) {
		o, s := loggedIn(t, quick)
		s.Publisher().Publish("1.1.0")
		a := s.Enroll("web-01", "1.0.0")
		o.fails(1, []string{"agents", "upgrade", a.ID, "--version", "1.1.0", "--wait", "--timeout", "1s"}, "1 of 1 agent not done within 1s (--timeout): web-01 is in phase “requested”; it continues: see `muster agents list`")
	})
}

func TestEventsAreFollowedUntilInterrupted(t *testing.T) {
	o, s := loggedIn(t)
	ctx, leave := context.WithCancel(t.Context())
	out, errOut, ended := o.start(ctx, "", "events", "--after", "0")
	a := s.Enroll("web-01", "1.0.0")
	apptest.Eventually(t, "the event", func() string {
		if !strings.Contains(out.String(), a.ID) {
			return "so far: " + out.String() + errOut.String()
		}
		return ""
	})
	leave()
	if code := <-ended; code != 0 {
		t.Errorf("Ctrl-C gives exit code %d", code)
	}
	var last adminapi.Event
	for line := range strings.Lines(out.String()) {
		last = adminapi.Event{}
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Errorf("%v: %s", err, line)
		}
	}
	if last.Type != fleet.EventAgentEnrolled || last.Subject != a.ID {
		t.Errorf("the last event is %+v", last)
	}
	o.fails(1, []string{"events", "--after", "-1"}, "muster: after: ")
	o.fails(1, []string{"events", "--after", "99999"}, "no longer has all events")

	ctx, leave = context.WithCancel(t.Context())
	out, errOut, ended = o.start(ctx, "", "events", "--after", "0")
	apptest.Eventually(t, "the event", func() string {
		if !strings.Contains(out.String(), a.ID) {
			return "so far: " + out.String() + errOut.String()
		}
		return ""
	})
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	apptest.Eventually(t, "the attempt to connect again", func() string {
		if !strings.Contains(errOut.String(), "connecting again") {
			return "so far: " + errOut.String()
		}
		return ""
	})
	leave()
	if code := <-ended; code != 0 {
		t.Errorf("exit code %d after Ctrl-C while the server is stopped", code)
	}
}

// The stream ends when a server is restarted or a load balancer cuts it.
func TestEventsContinueAfterTheStreamIsCut(t *testing.T) {
	var (
		mu    sync.Mutex
		asked []string
	)
	both := make(chan struct{})
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.URL.RawQuery)
		n := len(asked)
		mu.Unlock()
		switch n {
		case 1:
			fmt.Fprint(w, "id: 7\ndata: {\"seq\":7}\n\n")
		case 2:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"message":"the store is away"}`)
		case 3:
			fmt.Fprint(w, "id: 8\ndata: {\"seq\":8}\n\n")
			close(both)
		default:
			<-r.Context().Done()
		}
	}))
	defer server.Close()
	o := newOperator(t)
	t.Setenv("MUSTER_URL", server.URL)
	t.Setenv("MUSTER_API_KEY", "k")
	t.Setenv("MUSTER_CA_PIN", capin.Of(server.Certificate().Raw))
	ctx, leave := context.WithCancel(t.Context())
	out, errOut, ended := o.start(ctx, "", "events")
	select {
	case <-both:
	case <-time.After(20 * time.Second):
		t.Fatalf("so far: %s%s", out.String(), errOut.String())
	}
	apptest.Eventually(t, "both events", func() string {
		if out.String() != "{\"seq\":7}\n{\"seq\":8}\n" {
			return out.String()
		}
		return ""
	})
	leave()
	if code := <-ended; code != 0 || !strings.Contains(errOut.String(), "the store is away; connecting again") {
		t.Errorf("exit code %d, %s", code, errOut.String())
	}
	mu.Lock()
	defer mu.Unlock()
	if want := []string{"", "after=7", "after=7"}; !slices.Equal(asked[:3], want) {
		t.Errorf("it asked for %q, want %q", asked, want)
	}
}
