package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestFailedStepCancelsOtherSequencesAndIsShownLast(t *testing.T) {
	var out bytes.Buffer
	waits := func(ctx context.Context, _ string, w io.Writer) error {
		<-ctx.Done()
		fmt.Fprintln(w, "interrupted")
		return ctx.Err()
	}
	ran := false
	broken := errors.New("broken")
	err := runParallel(t.Context(), "", &out,
		[]step{
			{"good", "succeed", func(_ context.Context, _ string, w io.Writer) error { fmt.Fprintln(w, "fine"); return nil }},
			{"bad", "fail", func(_ context.Context, _ string, w io.Writer) error { fmt.Fprint(w, "the reason"); return broken }},
			{"later", "never run", func(context.Context, string, io.Writer) error { ran = true; return nil }},
		},
		[]step{{"waits", "wait", waits}})
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "bad: ") {
		t.Errorf("the error is %v, want the one of step bad", err)
	}
	if ran {
		t.Error("a step ran after an earlier step of its sequence had failed")
	}
	text := out.String()
	for _, line := range []string{"good     fine\n", "good     ── done in 0s\n", "bad      the reason\n", "bad      ── FAILED after 0s: broken\n", "waits    ── stopped after 0s\n"} {
		if !strings.Contains(text, line) {
			t.Errorf("the output lacks %q:\n%s", line, text)
		}
	}
	if strings.Contains(text, "interrupted") {
		t.Errorf("an interrupted step still writes:\n%s", text)
	}
	if !strings.HasSuffix(text, "\nthe reason") {
		t.Errorf("the output does not end with that of the failed step:\n%s", text)
	}
}

func TestInterruptCancelsAllSequences(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	waits := func(ctx context.Context, _ string, _ io.Writer) error { cancel(); <-ctx.Done(); return ctx.Err() }
	if err := runParallel(ctx, "", io.Discard, []step{{"a", "wait", waits}}, []step{{"b", "wait", waits}}); !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
}

func TestCountFunctionsLeavesOutGeneratedCases(t *testing.T) {
	file := filepath.Join(t.TempDir(), "events.json")
	text := `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"TestA"}
{"Action":"run","Package":"p","Test":"TestA/one"}
{"Action":"pass","Package":"p","Test":"TestA/one"}
{"Action":"run","Package":"q","Test":"TestB"}
`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := countFunctions(file); n != 2 || err != nil {
		t.Errorf("there are %d, %v; want 2", n, err)
	}
}

func TestListPackagesHasEveryPackageOnce(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	p, err := listPackages(t.Context(), root, t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if p.harness[0] != "./testing/suites/e2e" || len(p.raced) < 50 {
		t.Errorf("there are %d packages under the race detector, and %q without", len(p.raced), p.harness)
	}
	for _, pkg := range slices.Concat(p.raced, p.harness) {
		if _, err := os.Stat(filepath.Join(root, pkg)); err != nil {
			t.Error(err)
		}
	}
	for _, pkg := range p.raced {
		if strings.HasPrefix(pkg, "./testing/") && !strings.HasPrefix(pkg, "./testing/suites/simulation") && !strings.HasPrefix(pkg, "./testing/tools/loadtest") {
			t.Errorf("%s runs under the race detector", pkg)
		}
	}
}

// On a fresh machine go says beside the list what it downloads.
func TestDownloadsAreNoPackages(t *testing.T) {
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOPROXY", "file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw -mod=mod")
	t.Setenv("GONOSUMDB", "*")
	root := t.TempDir()
	for file, text := range map[string]string{
		"go.mod": "module " + module + "a\n\nrequire golang.org/x/sync " + versionOf(t, "golang.org/x/sync") + "\n",
		"a.go":   "package a\n\nimport _ \"golang.org/x/sync/errgroup\"\n",
	} {
		if err := os.WriteFile(filepath.Join(root, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var said bytes.Buffer
	p, err := listPackages(t.Context(), root, &said)
	if list := slices.Concat(p.raced, p.plain, p.harness); err != nil || len(list) != 1 || !strings.Contains(said.String(), "go: downloading") {
		t.Errorf("the packages are %q: %v; go said\n%s", list, err, &said)
	}
}

// versionOf returns the version of a module that this one requires.
func versionOf(t *testing.T, path string) string {
	t.Helper()
	version, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Version}}", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(version))
}
