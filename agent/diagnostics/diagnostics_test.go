package diagnostics

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/watcher/beacon"
)

var now = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// unpack returns the files of an archive by name.
func unpack(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := zip.NewReader(bytes.NewReader(b), int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		out[f.Name] = string(text)
	}
	return out
}

func write(t *testing.T, top, name, text string) {
	t.Helper()
	if err := os.WriteFile(layout.Path(top, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestDiagnosticsDescribeTheAgentWithoutSecrets(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(layout.Path(top, layout.DataDir), 0o700); err != nil {
		t.Fatal(err)
	}
	agentKey, watcherKey := base64.StdEncoding.EncodeToString([]byte("agent-key:agentsecret")), base64.StdEncoding.EncodeToString([]byte("watcher-key:watchersecret"))
	if err := identity.Save(disk.OS{}, top, identity.Identity{AgentID: "a", APIKey: agentKey, ServerURL: "https://fleet.test"}); err != nil {
		t.Fatal(err)
	}
	if err := beacon.Save(disk.OS{}, top, beacon.Identity{AgentID: "a", APIKey: watcherKey, ServerURL: "https://fleet.test"}); err != nil {
		t.Fatal(err)
	}
	write(t, top, layout.ConfigFile, "server:\n  url: https://user:urlsecret@fleet.test\npassword: 'yamlsecret'\n")
	write(t, top, layout.MarkerFile, `{"action_id":"act","enrollment_token":"jsonsecret"}`)
	write(t, top, layout.AgentLogFile, strings.Join([]string{
		"sent " + agentKey + " and " + watcherKey, "secret agentsecret, key watchersecret", "Authorization: ApiKey headersecret",
		"ran muster-agent enroll --token flagsecret --url https://fleet.test", "the token was refused", "curl -H 'authorization: Bearer bearersecret'",
	}, "\n"))
	write(t, top, layout.WatcherLogFile, strings.Repeat("a line of the log\n", maxLog/10)+"the last line")

	var b bytes.Buffer
	s := Source{Disk: disk.OS{}, Top: top, Version: map[string]string{"version": "1.2.3"}, Health: map[string]string{"state": "HEALTHY"}, Goroutines: true, Now: now}
	if err := s.Collect(&b); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, b.Bytes())
	for name, text := range files {
		for _, secret := range []string{"agentsecret", "watchersecret", "urlsecret", "yamlsecret", "jsonsecret", "headersecret", "flagsecret", "bearersecret", agentKey, watcherKey} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has %s:\n%.500s", name, secret, text)
			}
		}
	}
	for name, want := range map[string]string{
		"version.json": `"version": "1.2.3"`, "state.json": "HEALTHY", layout.ConfigFile: "https://[hidden]@fleet.test", layout.MarkerFile: `"action_id":"act"`,
		layout.AgentLogFile: "the token was refused", layout.WatcherLogFile: "a line of the log\nthe last line", "goroutines.txt": "TestDiagnosticsDescribe",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("%s is %.500q, want it to have %q", name, files[name], want)
		}
	}
	if got := files[layout.WatcherLogFile]; len(got) > maxLog || !strings.HasPrefix(got, "a line") {
		t.Errorf("the log has %d bytes and begins with %.30q", len(got), got)
	}
	for _, name := range []string{layout.IdentityFile, layout.WatcherIdentityFile, "errors.txt"} {
		if _, ok := files[name]; ok {
			t.Errorf("the diagnostics have %s", name)
		}
	}
}

func TestDiagnosticsNameWhatCouldNotBeRead(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(layout.Path(top, layout.AgentLogFile), 0o700); err != nil { // a folder in its place
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := (Source{Disk: disk.OS{}, Top: top, Problem: "the agent does not run", Now: now}).Collect(&b); err != nil {
		t.Fatal(err)
	}
	files := unpack(t, b.Bytes())
	if got := files["errors.txt"]; !strings.Contains(got, "state.json: the agent does not run") || !strings.Contains(got, layout.AgentLogFile) {
		t.Errorf("errors.txt is %q", got)
	}
	if got := FileName(now); got != "muster-agent-diagnostics-2026-01-31T12-00-00Z-00.zip" {
		t.Errorf("the file is %s", got)
	}
}
