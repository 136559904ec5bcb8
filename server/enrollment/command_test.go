package enrollment

import (
	"os/exec"
	"strings"
	"testing"
)

var access = Access{AgentURL: "https://fleet.example.com:8220", CAPin: "sha256:ab", CA: []byte("-----BEGIN CERTIFICATE-----\nMIIB+/==\n-----END CERTIFICATE-----\n"), TrustRoot: "sha256:cd", PublisherKeys: []string{"RWQ1"}}

func TestCommandsAreOneLineAndNameTheServer(t *testing.T) {
	for _, platform := range Platforms {
		line := access.Command(platform)
		for _, part := range []string{
			"https://fleet.example.com:8220/api/muster/agent/" + platform, "ApiKey " + TokenWord, "--token " + TokenWord + " ", "--ca-pin sha256:ab", "--trust-root sha256:cd", "MIIB+/==",
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

func TestHostsWithoutARootTrustThePublishersKeys(t *testing.T) {
	a := access
	a.TrustRoot, a.PublisherKeys = "", []string{"RWQ1", "RWQ2"}
	if got := a.Install(); !a.Trusted() || !strings.HasSuffix(got, "--trust-key RWQ1 --trust-key RWQ2") {
		t.Error(got)
	}
	a.PublisherKeys = nil
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
