// Package suite is what `go tool mage test`, `lint`, `fmt`, `bench`, `proof` and
// `clean` do: it puts the tools of several languages into one run with one result.
package suite

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/muster-fleet/muster/testing/toolchain"
)

// goTimeout bounds the Go tests of one package: a deadlock ends with its
// goroutines printed. Real programs, or the crash proof, take up to ten minutes on a
// slow machine of two cores that also runs the other steps.
const goTimeout = "30m"

// proofTimeout bounds the crash proof, which takes some minutes on two cores: it
// also tries every sync that is known to be redundant.
const proofTimeout = "60m"

// toolsModfile pins the tools whose dependencies should not become the
// product's.
const toolsModfile = "testing/tools/tools.mod"

// Test runs everything. Two lanes run side by side: one works all the time, the other
// mostly waits for the programs and nodes that it starts. What fails fast comes first.
func Test(ctx context.Context, root string, out io.Writer) error {
	began := time.Now()
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		return fmt.Errorf("%w: the browser test needs the web UI", err)
	}
	pkgs, err := listPackages(ctx, root)
	if err != nil {
		return err
	}
	err = runLanes(ctx, root, out, []step{
		{"lint", "check the code's form", Lint},
		{"ui", "check the web UI's types and run its tests", testUI},
		{"vet", "compile and vet what runs on Windows and macOS", vetOtherSystems},
		{"go", fmt.Sprintf("test %d packages under the race detector", len(pkgs.raced)), pkgs.testRaced},
		{"proof", "interrupt upgrades and rollouts at every call, and simulate the large fleet", testWhole},
	}, []step{
		{"programs", fmt.Sprintf("test %d packages that start programs, nodes and machines", len(pkgs.harness)), pkgs.testHarness},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "All tests passed in %s.\n", time.Since(began).Round(time.Second))
	return nil
}

func testUI(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.InstallUI(ctx, root, out); err != nil {
		return err
	}
	ui := filepath.Join(root, "ui")
	if err := toolchain.RunGroup(ctx, out, ui, nil, "npm", "run", "--silent", "typecheck"); err != nil {
		return err
	}
	return toolchain.RunGroup(ctx, out, ui, nil, "npm", "test", "--silent")
}

// vetOtherSystems compiles and vets what runs on hosts for the systems that are
// not tested here.
func vetOtherSystems(ctx context.Context, root string, out io.Writer) error {
	for _, goos := range []string{"windows", "darwin"} {
		if err := toolchain.RunGroup(ctx, out, root, []string{"GOOS=" + goos, "CGO_ENABLED=0"}, "go", "vet", "./agent/...", "./watcher/...", "./packaging/..."); err != nil {
			return err
		}
	}
	return nil
}

// packages are all packages with Go code, by how their tests run.
type packages struct {
	// raced run under the race detector.
	raced []string
	// harness run without it: what they test are separate programs, which it does
	// not see, or the machine. So do those of proof.
	harness []string
}

const module = "github.com/muster-fleet/muster/"

// longFirst are the packages whose tests take minutes. Go starts packages in the
// order in which they are named: one of these that comes last has the machine to
// itself, and waits.
var longFirst = []string{"testing/e2e", "testing/cluster", "testing/esnode", "server/store/elastic", "server/store/sqlite", "server/cli"}

func listPackages(ctx context.Context, root string) (p packages, err error) {
	var list bytes.Buffer
	if err := toolchain.Run(ctx, &list, root, nil, "go", "list", "-tags="+toolchain.Tags, "./..."); err != nil {
		return p, fmt.Errorf("%w\n%s", err, list.String())
	}
	rank := func(pkg string) int {
		if i := slices.Index(longFirst, pkg); i >= 0 {
			return i
		}
		return len(longFirst)
	}
	all := strings.Fields(strings.ReplaceAll(list.String(), module, ""))
	slices.SortStableFunc(all, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	for _, pkg := range all {
		switch {
		case pkg == proofPackage:
		case strings.HasPrefix(pkg, "testing/") && !strings.HasPrefix(pkg, simulations):
			p.harness = append(p.harness, "./"+pkg)
		default:
			p.raced = append(p.raced, "./"+pkg)
		}
	}
	return p, nil
}

const (
	// proofPackage runs in testWhole alone.
	proofPackage = "testing/faults"
	// simulations run the server and the agents in the test's process.
	simulations = "testing/horde"
)

// unwatched are packages that the race detector does not instrument: SQLite in Go.
// Its memory is its own, and the detector would take most of the time of a store's
// tests for it. The code around it is instrumented.
var unwatched = []string{"-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc/...=-race=false"}

func (p packages) testRaced(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "raced", slices.Concat([]string{"-race"}, unwatched, p.raced)...)
}

// testHarness runs one package at a time, beside the other lane: most of them wait.
func (p packages) testHarness(ctx context.Context, root string, out io.Writer) error {
	return goTest(ctx, root, out, "harness", append([]string{"-p=1"}, p.harness...)...)
}

// goTest runs Go tests, prints a line for each package, and then how many test
// functions ran: the count that gotestsum prints has all generated cases in it.
func goTest(ctx context.Context, root string, out io.Writer, name string, args ...string) error {
	events := filepath.Join(root, "build", "tests-"+name+".json")
	if err := os.MkdirAll(filepath.Dir(events), 0o755); err != nil {
		return err
	}
	command := []string{
		"go", "tool", "gotestsum", "--format=pkgname", "--format-hide-empty-pkg", "--jsonfile=" + events, "--",
		"-vet=off", "-tags=" + toolchain.Tags, "-timeout=" + goTimeout, // lint has vetted it
	}
	if err := toolchain.RunGroup(ctx, out, root, nil, slices.Concat(command, args)...); err != nil {
		return err
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

// testWhole runs what would take hours under the race detector: an upgrade
// interrupted at every call, a rollout whose server is killed at every write (the
// detector sees a part of these), and the large fleet.
func testWhole(ctx context.Context, root string, out io.Writer) error {
	// Side by side: while one is built or at its last test, the others have the cores.
	all, ctx := errgroup.WithContext(ctx)
	for _, test := range [][]string{
		{"./" + proofPackage},
		{"./server/rollout/...", "-run=AtAnyWrite"},
		{"./testing/horde", "-run=TestScripts/large"},
	} {
		all.Go(func() error {
			args := append([]string{"go", "test", "-tags=" + toolchain.Tags, "-timeout=" + goTimeout}, test...)
			return toolchain.RunGroup(ctx, out, root, nil, args...)
		})
	}
	return all.Wait()
}

// Lint checks form: formatting, vet, and the linters of .golangci.yml.
func Lint(ctx context.Context, root string, out io.Writer) error {
	return toolchain.RunGroup(ctx, out, root, nil, "go", "tool", "-modfile="+toolsModfile, "golangci-lint", "run", "./...")
}

// Format formats the code and generates what is generated.
func Format(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.Run(ctx, out, root, nil, "go", "generate", "./server/adminapi"); err != nil {
		return err
	}
	if err := toolchain.InstallUI(ctx, root, out); err != nil {
		return err
	}
	if err := toolchain.Run(ctx, out, filepath.Join(root, "ui"), nil, "npm", "run", "--silent", "generate"); err != nil {
		return err
	}
	return toolchain.Run(ctx, out, root, nil, "go", "tool", "-modfile="+toolsModfile, "golangci-lint", "fmt", "./...")
}

// Bench runs the benchmarks of every package, and then loads a server with a fleet
// of a size fit for this machine. That table goes to testing/horde/RESULTS.md.
func Bench(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.Run(ctx, out, root, nil, "go", "test", "-tags="+toolchain.Tags, "-run=^$", "-bench=.", "-benchmem", "./..."); err != nil {
		return err
	}
	return load(ctx, root, out, "standard")
}

// Profiles writes where the processor time of the server and its agents goes to its own
// section of testing/horde/RESULTS.md, which Bench leaves as it is.
func Profiles(ctx context.Context, root string, out io.Writer) error {
	return load(ctx, root, out, "checkins", "upgrade-all", "storm", "--profiles="+filepath.Join(root, "build", "profiles"))
}

// load runs the load generator with a server that it starts.
func load(ctx context.Context, root string, out io.Writer, args ...string) error {
	program := filepath.Join(root, "build", "load")
	if err := toolchain.Run(ctx, out, root, nil, "go", "build", "-tags="+toolchain.Tags, "-o", program, "./testing/horde/load"); err != nil {
		return err
	}
	args = append(args, "--start", "--results", filepath.Join(root, "testing", "horde", "RESULTS.md"))
	return toolchain.Run(ctx, out, root, nil, append([]string{program}, args...)...)
}

// Proof runs the whole crash proof, tells of its progress, and writes its tables
// to testing/faults/PROOF.md.
func Proof(ctx context.Context, root string, out io.Writer) error {
	faults := filepath.Join(root, "testing", "faults")
	program := filepath.Join(root, "build", "faults.test")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	// Built and then run, since `go test` would keep back what it prints.
	if err := toolchain.Run(ctx, out, root, nil, "go", "test", "-c", "-tags="+toolchain.Tags, "-o", program, "./testing/faults"); err != nil {
		return err
	}
	return toolchain.Run(ctx, out, faults, []string{"MUSTER_PROOF=" + filepath.Join(faults, "PROOF.md")}, program, "-test.timeout="+proofTimeout)
}

// Clean removes what was built.
func Clean(root string) error {
	errs := []error{os.RemoveAll(filepath.Join(root, "build")), os.RemoveAll(filepath.Join(root, "testing", "artifacts")), os.RemoveAll(filepath.Join(root, "ui", "node_modules"))}
	dist := filepath.Join(root, "ui", "dist")
	entries, err := os.ReadDir(dist)
	errs = append(errs, err)
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") {
			errs = append(errs, os.RemoveAll(filepath.Join(dist, e.Name())))
		}
	}
	return errors.Join(errs...)
}
