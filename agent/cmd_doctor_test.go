package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/doctor"
)

// A person asks before an agent is installed: can this host have one, and can it reach the server?
func TestDoctorBeforeTheInstallation(t *testing.T) {
	var clock func() time.Time
	status := http.StatusOK
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if clock != nil {
			w.Header().Set("Date", clock().UTC().Format(http.TimeFormat))
		}
		w.WriteHeader(status)
	}))
	defer server.Close()
	sum := sha256.Sum256(server.Certificate().Raw)
	pin := "sha256:" + hex.EncodeToString(sum[:])
	top := filepath.Join(t.TempDir(), "muster")

	finding := func(check string, args ...string) doctor.Finding {
		t.Helper()
		var out, errOut bytes.Buffer
		root := newCommand()
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs(append([]string{"doctor", "--top", top, "-o", "json"}, args...))
		code := execute(t.Context(), root)
		var found []doctor.Finding
		if err := json.Unmarshal(out.Bytes(), &found); err != nil {
			t.Fatalf("%v: %s%s", err, out.String(), errOut.String())
		}
		if (doctor.Err(found) != nil) != (code == 1) {
			t.Errorf("exit status %d of %+v", code, found)
		}
		for _, f := range found {
			if f.Check == check {
				return f
			}
		}
		t.Fatalf("there is no finding of %s in %+v", check, found)
		return doctor.Finding{}
	}
	is := func(got doctor.Finding, level doctor.Level, words string) {
		t.Helper()
		if got.Level != level || !strings.Contains(got.Found+"\n"+got.Mend, words) {
			t.Errorf("found %+v, want %s with %q", got, level, words)
		}
	}

	is(finding("server"), doctor.Warning, "muster-agent doctor --url")
	is(finding("space"), doctor.OK, "an agent needs 300 MiB")
	is(finding("server", "--url", server.URL, "--ca-pin", pin), doctor.OK, "answers")
	is(finding("clock", "--url", server.URL, "--ca-pin", pin), doctor.OK, "agrees with the server's")

	clock = func() time.Time { return time.Now().Add(time.Hour) }
	is(finding("clock", "--url", server.URL, "--ca-pin", pin), doctor.Problem, "timedatectl set-ntp true")

	status = http.StatusUnauthorized
	is(finding("server", "--url", server.URL, "--ca-pin", pin), doctor.Problem, "use the port for agents, 8220")

	is(finding("server", "--url", server.URL, "--ca-pin", "sha256:"+strings.Repeat("ab", 32)), doctor.Problem, "muster ca-pin")
	server.Close()
	is(finding("server", "--url", server.URL, "--ca-pin", pin), doctor.Problem, "systemctl status muster")
	is(finding("server", "--url", "https://nowhere.invalid:8220", "--ca-pin", pin), doctor.Problem, "no host has the name nowhere.invalid")
}

// After an installation was damaged, the agent says which part is.
func TestDoctorOfADamagedInstallation(t *testing.T) {
	top := t.TempDir()
	if err := os.Symlink("data/muster-agent-1.0.0-abc123/muster-agent", filepath.Join(top, "muster-agent")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(top, "agent.yml"), []byte("colour: red\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"doctor", "--top", top})
	code := execute(t.Context(), root)
	for _, words := range []string{
		"leads to a version that is not whole", "muster-agent uninstall, then the line", "colour", "correct the file, and restart the agent",
		"the agent does not run", "this host is not enrolled", "muster keys create", "problems were found",
	} {
		if !strings.Contains(out.String(), words) {
			t.Errorf("it does not print %q", words)
		}
	}
	if code != 1 || t.Failed() {
		t.Errorf("exit status %d, and\n%s", code, out.String())
	}
}
