package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/terminal"
	"github.com/muster-fleet/muster/testing/flaghelp"
)

func TestFlagHelpHasNoBackQuotes(t *testing.T) { flaghelp.Check(t, newCommand()) }

func TestOutputDoesNotActOnTheTerminal(t *testing.T) {
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs([]string{"status", "--top", filepath.Join(t.TempDir(), "x\x1b[2J\u202e")})
	if code := execute(t.Context(), root); code != 1 || terminal.Escape(out.String()) != out.String() || !strings.Contains(out.String(), `x\u001b[2J\u202e`) {
		t.Errorf("exit code %d, %q", code, out.String())
	}
}
