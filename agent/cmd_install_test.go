package main

import (
	"bytes"
	"os"
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
	help := installSubcommand().Flags().FlagUsages()
	for _, says := range []string{"(default \"/etc\")", "(default \"" + setup.DefaultLocalStateDir + "\")"} {
		if !strings.Contains(help, says) {
			t.Errorf("the help does not say %s:\n%s", says, help)
		}
	}
}

func TestTokenIsReadFromAFileOrStandardInput(t *testing.T) {
	const token = "aWQ6c2VjcmV0"
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	t.Setenv(tokenVariable, "bm90OnRoaXM=")
	for name, file := range map[string]string{"of a file": write("token", token+"\n"), "of standard input": "-"} {
		c := enrollSubcommand()
		c.SetIn(strings.NewReader("\r\n" + token + "\r\n"))
		e := setup.Enrollment{TokenFile: file}
		if err := readToken(c, &e); err != nil || e.Token != token {
			t.Errorf("the token %s is %q, %v", name, e.Token, err)
		}
	}
	for says, flags := range map[string][]string{
		"--token-file: open " + filepath.Join(dir, "none"): {"--token-file", filepath.Join(dir, "none")},
		"empty is empty: want an enrollment token":         {"--token-file", write("empty", "\n")},
		"long has more than 4096 bytes":                    {"--token-file", write("long", strings.Repeat("x", 5000))},
		"[token token-file] were all set":                  {"--token-file", write("other", "x"), "--token", token},
	} {
		for _, command := range []string{"install", "enroll"} {
			if code, out := runCommandLine(t, append([]string{command}, flags...)...); code == 0 || !strings.Contains(out, says) {
				t.Errorf("%s %s exits with %d: %s, want %q", command, strings.Join(flags, " "), code, out, says)
			}
		}
	}
}
