package e2e

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/port"
)

// Each error says what to try, and leaves no installation on the host.
func TestFailedEnrolmentLeavesNoInstallation(t *testing.T) {
	w := newWorld(t, harness.HostOptions{})
	ctx := t.Context()
	info := w.Server.Info
	revoked, err := w.Server.CLI(ctx, "keys", "create", "--name", "revoked", "-o", "json")
	check(t, err)
	revokedID := field(t, revoked, "id")
	revokedToken, err := os.ReadFile(field(t, revoked, "api_key_file"))
	check(t, err)
	_, err = w.Server.CLI(ctx, "keys", "revoke", revokedID)
	check(t, err)
	nobody, err := port.Address()
	check(t, err)

	good := map[string]string{"--url": info.AgentURL, "--token": info.EnrollToken, "--ca-pin": info.CAPin, "--trust-root": w.Publisher.TrustRoot}
	for name, c := range map[string]struct{ flag, value, want string }{
		"a token that was never made": {"--token", "bm90OmFrZXk=", "enrollment token is not valid"},
		"a revoked token":             {"--token", strings.TrimSpace(string(revokedToken)), "revoked"},
		"a token that is not one":     {"--token", "???", "no enrollment token"},
		"the pin of another CA":       {"--ca-pin", capin.Of([]byte("another")), "--ca-pin"},
		"a pin that is not one":       {"--ca-pin", "sha256:12", "64 hexadecimal digits"},
		"a server that is not there":  {"--url", "https://" + nobody, "nothing listens there"},
		"a digest that is not one":    {"--trust-root", "sha256:nope", "64 lower-case hexadecimal digits"},
		"the digest of another root":  {"--trust-root", "sha256:" + strings.Repeat("0", 64), "none of the server's 1 root files has it"},
		"no root":                     {"--trust-root", "", "--trust-root"},
		"the admin API's port":        {"--url", info.AdminURL, "is not the port for agents"},
		"an address without https":    {"--url", "http://fleet.example.com:8220", "https"},
	} {
		t.Run(name, func(t *testing.T) {
			top := filepath.Join(w.Dir, "refused")
			args := []string{"--package", w.Archives["1.0.0"]}
			for flag, value := range good {
				if flag == c.flag {
					value = c.value
				}
				if value != "" {
					args = append(args, flag, value)
				}
			}
			_, err := w.InstallCommand(ctx, top, args...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it said %v, want a word of %q", err, c.want)
			}
			if _, err := os.Lstat(top); err == nil {
				t.Errorf("%s was left behind", top)
			}
		})
	}
	agents, err := w.Server.Agents(ctx)
	if err != nil || len(agents) != 0 {
		t.Errorf("agents after refusals: %d, %v", len(agents), err)
	}
}

func TestImpossibleUpgradesAreRefused(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	ctx, h := t.Context(), w.Hosts[0]
	windows := filepath.Join(w.Dir, "muster-agent-1.1.0-windows-amd64.zip")
	program := filepath.Join(w.Dir, "program.exe")
	check(t, os.WriteFile(program, []byte(fakepkg.Program("windows", "amd64")), 0o755))
	out, err := exec.CommandContext(ctx, w.Programs.Muster, "package", "build", "--version", "1.1.0", "--os", "windows", "--arch", "amd64",
		"--format", "zip", "--out", windows, "--file", "muster-agent.exe="+program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	check(t, w.Server.Publish(ctx, w.Publisher, windows))

	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"a version nobody published":   {[]string{"--version", "9.9.9", h.ID}, "no package of version 9.9.9 is published"},
		"a version that is none":       {[]string{"--version", "latest", h.ID}, "three numbers"},
		"a package for another system": {[]string{"--version", "1.1.0", h.ID}, "none of the agents can be upgraded"},
		"an agent that is not there":   {[]string{"--version", "1.0.0", "nobody"}, "there is no agent with the id or host name nobody"},
		"no agent":                     {[]string{"--version", "1.0.0"}, "no agents are named"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := w.Server.CLI(ctx, append([]string{"agents", "upgrade"}, c.args...)...)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it said %v, want a word of %q", err, c.want)
			}
		})
	}
	list, err := harness.Get[adminapi.ActionStatusList](ctx, w.Server, "/api/fleet/agents/action_status")
	if err != nil || len(list.Items) != 0 {
		t.Errorf("actions after refusals: %d, %v", len(list.Items), err)
	}
}

func TestServerStartErrors(t *testing.T) {
	t.Parallel()
	p, err := harness.Build()
	check(t, err)
	dir := t.TempDir()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer taken.Close()
	config := func(text string) string {
		path := filepath.Join(t.TempDir(), "server.yml")
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	damaged := filepath.Join(dir, "damaged")
	check(t, os.MkdirAll(damaged, 0o700))
	check(t, os.WriteFile(filepath.Join(damaged, "muster.db"), bytes.Repeat([]byte("not a store "), 100), 0o600))
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"a port that is taken":           {[]string{"--agents-listen", taken.Addr().String()}, []string{"agents.listen", "address already in use", "--agents-listen"}},
		"an address that is none":        {[]string{"--admin-listen", "8221"}, []string{"admin.listen", "host:port"}},
		"a configuration not there":      {[]string{"--config", "/nowhere/server.yml"}, []string{"/nowhere/server.yml"}},
		"a key nobody knows":             {[]string{"--config", config("agent: {listen: ':1'}")}, []string{"there is no key agent", "--example-config"}},
		"a value that is not understood": {[]string{"--config", config("checkin: {poll: soon}")}, []string{"soon"}},
		"half a certificate":             {[]string{"--config", config("tls: {key: /x}")}, []string{"certificate and key go together"}},
		"a damaged store":                {[]string{"--data", damaged}, []string{"muster.db"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"server", "--data", filepath.Join(t.TempDir(), "data"), "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
			ctx, cancel := context.WithTimeout(t.Context(), harness.WaitLimit)
			defer cancel()
			out, err := exec.CommandContext(ctx, p.Muster, append(args, c.args...)...).CombinedOutput()
			if err == nil || ctx.Err() != nil {
				t.Fatalf("it started: %s", out)
			}
			for _, want := range c.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("it said %q, want a word of %q", out, want)
				}
			}
			if strings.Contains(string(out), "goroutine") {
				t.Errorf("it panicked: %s", out)
			}
		})
	}
}

// field returns the first text field of a name in any JSON.
func field(t *testing.T, text, name string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, `"`+name+`": "`)
	value, _, ok2 := strings.Cut(rest, `"`)
	if !ok || !ok2 {
		t.Fatalf("%s has no %s", text, name)
	}
	return value
}
