package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/agent/setup"
)

// runCommandLine runs the command line and returns its output.
func runCommandLine(t *testing.T, args ...string) (code int, output string) {
	t.Helper()
	var out bytes.Buffer
	root := newCommand()
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	return execute(t.Context(), root), out.String()
}

func TestInstallRefusesFoldersThatDoNotGoTogether(t *testing.T) {
	dir := t.TempDir()
	for says, flags := range map[string][]string{
		"--top and --prefix exclude each other":                {"--top", dir, "--prefix", "/usr"},
		"--package and --prefix exclude each other":            {"--package", "x.tar.gz", "--prefix", "/usr"},
		"--sysconfdir needs --prefix PREFIX":                   {"--sysconfdir", "/etc"},
		"--localstatedir needs --prefix PREFIX":                {"--localstatedir", "/var", "--top", dir},
		`--prefix is "usr", want an absolute path`:             {"--prefix", "usr"},
		`--prefix is "", want an absolute path`:                {"--prefix", ""},
		`--sysconfdir is "etc", want an absolute path`:         {"--prefix", "/usr", "--sysconfdir", "etc"},
		`--localstatedir is "./var", want an absolute path`:    {"--prefix", "/usr", "--localstatedir", "./var"},
		"run the program in " + dir + "/lib/muster-agent/VERS": {"--prefix", dir, "--sysconfdir", dir + "/etc", "--localstatedir", dir + "/var", "--unsafe-top", "--no-service"},
	} {
		code, out := runCommandLine(t, append([]string{"install"}, flags...)...)
		if code != 1 || !strings.Contains(out, says) {
			t.Errorf("install %s exits with %d: %s, want %q", strings.Join(flags, " "), code, out, says)
		}
	}
	if left, err := filepath.Glob(dir + "/*/*"); err != nil || len(left) > 0 {
		t.Errorf("refused installations leave %q, %v", left, err)
	}
}

func TestFoldersAreCompleted(t *testing.T) {
	for _, flag := range []string{"--top", "--prefix", "--sysconfdir", "--localstatedir"} {
		// The directive of cobra for folders is 16.
		if code, out := runCommandLine(t, "__complete", "install", flag, ""); code != 0 || !strings.Contains(out, ":16\n") {
			t.Errorf("completing %s exits with %d: %q", flag, code, out)
		}
	}
	help := installCommand().Flags().FlagUsages()
	for _, says := range []string{"(default \"/etc\")", "(default \"" + setup.DefaultLocalStateDir + "\")"} {
		if !strings.Contains(help, says) {
			t.Errorf("the help does not say %s:\n%s", says, help)
		}
	}
}
