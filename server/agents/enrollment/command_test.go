package enrollment

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var access = Access{AgentURL: "https://fleet.example.com:8220", CAPin: "sha256:ab", CA: []byte("-----BEGIN CERTIFICATE-----\nMIIB+/==\n-----END CERTIFICATE-----\n"), TrustRoot: "sha256:cd"}

func TestCommandsAreOneLineAndNameTheServer(t *testing.T) {
	for _, platform := range Platforms {
		line := access.Command(platform)
		for _, part := range []string{
			"https://fleet.example.com:8220/api/muster/agent/" + platform, "--ca-pin sha256:ab", "--trust-root sha256:cd", "MIIB+/==",
		} {
			if !strings.Contains(line, part) {
				t.Errorf("%s: %q is not in %s", platform, part, line)
			}
		}
		if strings.Contains(line, "\n") || strings.Contains(line, "RWQ1") {
			t.Errorf("%s: %s", platform, line)
		}
	}
}

// Every user of a host can read the arguments of its processes.
func TestTokenIsInNoProcessList(t *testing.T) {
	bin, seen := t.TempDir(), filepath.Join(t.TempDir(), "seen")
	for name, script := range map[string]string{
		"curl":         `echo "curl $*" >>"$SEEN"; echo "stdin $(cat)" >>"$SEEN"`,
		"tar":          `d=$4/muster/data/1.0.0; mkdir -p "$d"; cp "$(dirname "$0")/muster-agent" "$d"; echo "tar $*" >>"$SEEN"`,
		"muster-agent": `echo "muster-agent $*" >>"$SEEN"; echo "variable $MUSTER_ENROLLMENT_TOKEN" >>"$SEEN"`,
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil { //nolint:gosec // a program
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("aWQ6c2VjcmV0\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, token := range []string{"aWQ6c2VjcmV0", "$(cat " + file + ")"} {
		for line, want := range map[string][]string{
			access.Command("linux-amd64"): {`stdin header = "Authorization: ApiKey aWQ6c2VjcmV0"`, "variable aWQ6c2VjcmV0", "muster-agent install --url https://fleet.example.com:8220"},
			WithToken(access.Install()):   {"variable aWQ6c2VjcmV0", "muster-agent install --url https://fleet.example.com:8220"},
		} {
			_ = os.Remove(seen)
			sh := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, TokenWord, token))
			sh.Dir, sh.Env = t.TempDir(), []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "SEEN=" + seen}
			if out, err := sh.CombinedOutput(); err != nil {
				t.Fatalf("%s\nended with %v: %s", line, err, out)
			}
			text, err := os.ReadFile(seen)
			if err != nil {
				t.Fatal(err)
			}
			for _, part := range want {
				if !strings.Contains(string(text), part) {
					t.Errorf("%q is not in what the programs of\n%s\nhave got:\n%s", part, line, text)
				}
			}
			for got := range strings.Lines(string(text)) {
				if strings.Contains(got, "aWQ6c2VjcmV0") && !strings.HasPrefix(got, "stdin ") && !strings.HasPrefix(got, "variable ") {
					t.Errorf("the token is in the process list: %s", got)
				}
			}
		}
	}
	// Here nothing runs PowerShell: the token stands nowhere but in a variable and in what curl reads.
	line := access.Command("windows-amd64")
	for _, part := range []string{`"header = ""Authorization: ApiKey ` + TokenWord + `""" | curl.exe --config - `, `$env:MUSTER_ENROLLMENT_TOKEN = "` + TokenWord + `"; & `} {
		if before, after, ok := strings.Cut(line, part); ok {
			line = before + after
		} else {
			t.Errorf("%q is not in %s", part, line)
		}
	}
	if strings.Contains(line, TokenWord) {
		t.Errorf("the token is an argument in %s", line)
	}
}

func TestCommandWithoutARootHasAPlaceForIt(t *testing.T) {
	a := access
	a.TrustRoot = ""
	if got := a.Install(); a.Trusted() || !strings.HasSuffix(got, "--trust-root <digest of the publishers' root>") {
		t.Error(got)
	}
}

// Nothing that a setting contains is run by a shell.
func TestWordsAreQuoted(t *testing.T) {
	for _, word := range []string{"https://a.example:8220/x?y=$(id)&z", "it's `id`; \\", "a b", "", "$HOME"} {
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "printf %s "+shell(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q became %q, %v", word, out, err)
		}
	}
	for word, want := range map[string]string{"a": "a", "@a": "'@a'", "it's $x": "'it''s $x'"} {
		if got := powerShell(word); got != want {
			t.Errorf("%q became %s, want %s", word, got, want)
		}
	}
}
