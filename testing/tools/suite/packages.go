package suite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// packages are all packages with Go code, by how their tests run.
type packages struct {
	// raced run under the race detector: they share memory.
	raced []string
	// plain run without it, which takes a fifth of the time.
	plain []string
	// long are those of raced that have long tests, and longTests the names of these tests.
	long, longTests []string
	// harness run without it, since it does not see the separate programs that they test,
	// and slows them down several times.
	harness []string
}

const module = "github.com/muster-fleet/muster/"

// longFirst are the packages whose tests take minutes. Go starts packages in the given
// order, and a long one that starts last would run alone.
var longFirst = []string{"testing/suites/e2e", "testing/suites/cluster", "testing/kit/docker", "testing/suites/console", "server/store/elastic", "server/store/sqlite", "server/cli", "server/api/admin", "agent/component", "server/rollout/reconcile"}

func listPackages(ctx context.Context, root string, out io.Writer) (p packages, err error) {
	c := exec.CommandContext(ctx, "go", "list", "-tags="+toolchain.Tags, "./...")
	// Apart from the list, since go reports there what it downloads.
	c.Dir, c.Stderr = root, out
	list, err := c.Output()
	if err != nil {
		return p, fmt.Errorf("list the packages: %w", err)
	}
	rank := func(pkg string) int {
		if i := slices.Index(longFirst, pkg); i >= 0 {
			return i
		}
		return len(longFirst)
	}
	all := strings.Fields(strings.ReplaceAll(string(list), module, ""))
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, pkg := range all {
		if pkg == proofPackage {
			continue
		}
		if testsPrograms(pkg) {
			p.harness = append(p.harness, "./"+pkg)
			continue
		}
		sharesMemory, long, err := look(filepath.Join(root, filepath.FromSlash(pkg)))
		if err != nil {
			return p, err
		}
		if !sharesMemory {
			p.plain = append(p.plain, "./"+pkg)
			continue
		}
		p.raced = append(p.raced, "./"+pkg)
		if len(long) > 0 {
			p.long, p.longTests = append(p.long, "./"+pkg), append(p.longTests, long...)
		}
	}
	return p, nil
}

// proofPackage has nothing but the crash proof of the agent, which is long.
const proofPackage = "testing/suites/faults"

// testsPrograms reports whether a package's tests are about separate programs: those of this
// repository, a Docker engine, or systemd in a machine. In packages of testing/ that it does
// not name, servers and agents run in the tests' own process.
func testsPrograms(pkg string) bool {
	if pkg == "agent/runtime/docker" || pkg == "agent/runtime/systemd" {
		return true
	}
	return strings.HasPrefix(pkg, "testing/") && !strings.HasPrefix(pkg, "testing/suites/simulation") && !strings.HasPrefix(pkg, "testing/tools/loadtest")
}

// synchronizes are the packages whose importers share memory between goroutines.
var synchronizes = []string{"sync", "sync/atomic", "golang.org/x/sync/errgroup", "golang.org/x/sync/singleflight", "golang.org/x/sync/semaphore"}

// look reports how the tests of the package in dir run.
//
// It shares memory if it, or one of its tests, starts goroutines or imports what synchronizes them.
// Code that does neither has no data race of its own; what calls it at the same time from several
// goroutines does one of the two, and is tested under the race detector.
//
// long are its tests that call require.Time, such as those that interrupt what they test at every call: they
// try hundreds of cases one after the other. Under the race detector they would take several times as long.
func look(dir string) (sharesMemory bool, long []string, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return false, nil, err
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return false, nil, err
		}
		for _, imported := range parsed.Imports {
			sharesMemory = sharesMemory || slices.Contains(synchronizes, strings.Trim(imported.Path.Value, `"`))
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				sharesMemory = true
			case *ast.FuncDecl:
				if strings.HasSuffix(file, "_test.go") && strings.HasPrefix(n.Name.Name, "Test") && takesTime(n) {
					long = append(long, n.Name.Name)
				}
			}
			return true
		})
	}
	return sharesMemory, long, nil
}

// takesTime reports whether a test calls require.Time.
func takesTime(test *ast.FuncDecl) (does bool) {
	ast.Inspect(test, func(n ast.Node) bool {
		if call, ok := n.(*ast.SelectorExpr); ok {
			pkg, ok := call.X.(*ast.Ident)
			does = does || ok && pkg.Name == "require" && call.Sel.Name == "Time"
		}
		return true
	})
	return does
}

// uninstrumented are flags that exclude SQLite in Go from the race detector, which would
// spend most of the time of a store's tests there. SQLite shares no memory with the code
// around it, which is instrumented.
var uninstrumented = []string{"-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc/...=-race=false"}

func (p packages) testRaced(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "raced", p.raced, append([]string{"-race", "-skip=" + p.longPattern()}, uninstrumented...)...)
}

func (p packages) testPlain(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "plain", p.plain)
}

// testLong runs what testRaced leaves out.
func (p packages) testLong(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "long", p.long, "-run="+p.longPattern())
}

// longPattern matches the names of the long tests.
func (p packages) longPattern() string { return "^(" + strings.Join(p.longTests, "|") + ")$" }

func (p packages) testProof(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "proof", []string{"./" + proofPackage})
}

// testHarness runs two packages at a time: their tests mostly wait for the programs, nodes and machines
// that they start.
func (p packages) testHarness(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "harness", p.harness, "-p=2")
}

// goTest runs Go tests, prints a line for each package, those that passed only when they were
// repeated, and then the number of test functions: the number that gotestsum prints includes all
// subtests.
//
// A test that fails runs once more, and the suite names it. The programs' tests have deadlines, which
// a machine that stood still for a minute misses. What fails for its own reason fails again: a
// property begins with the case that it has found. After a data race nothing is repeated, nor after
// more than ten failures, which no pause explains.
func goTest(ctx context.Context, root string, out io.Writer, name string, packages []string, flags ...string) error {
	events, repeated := filepath.Join(root, "build", "tests-"+name+".json"), filepath.Join(root, "build", "repeated-"+name+".txt")
	if err := errors.Join(os.MkdirAll(filepath.Dir(events), 0o755), os.WriteFile(repeated, nil, 0o644)); err != nil {
		return err // the report of an earlier run is not this one's
	}
	command := []string{
		"go", "tool", "gotestsum", "--format=pkgname", "--format-hide-empty-pkg", "--jsonfile=" + events,
		"--rerun-fails=1", "--rerun-fails-run-root-test", "--rerun-fails-abort-on-data-race",
		"--rerun-fails-report=" + repeated, "--packages=" + strings.Join(packages, " "), "--",
		"-vet=off", "-tags=" + toolchain.Tags, "-timeout=" + goTimeout, // lint has vetted it
	}
	failed := toolchain.RunGroup(ctx, out, root, nil, slices.Concat(command, flags)...)
	if report, err := os.ReadFile(repeated); err == nil && len(bytes.TrimSpace(report)) > 0 {
		fmt.Fprintf(out, "Repeated, with the number of failures:\n%s\n", bytes.TrimSpace(report))
	}
	if failed != nil {
		return failed
	}
	n, err := countFunctions(events)
	fmt.Fprintf(out, "%d test functions\n", n)
	return err
}

// countFunctions counts the test functions in a file of `go test -json`.
func countFunctions(file string) (n int, err error) {
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for dec := json.NewDecoder(f); ; {
		var event struct{ Action, Test string }
		switch err := dec.Decode(&event); {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, fmt.Errorf("%s: %w", file, err)
		}
		if event.Action == "run" && !strings.Contains(event.Test, "/") {
			n++
		}
	}
}
