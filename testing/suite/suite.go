// Package suite is what `go tool mage test`, `lint`, `fmt`, `bench`, `proof` and
// `clean` do: it puts the tools of several languages into one run with one result.
package suite

import (
	"context"
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
// goroutines printed. Real programs and the crash proof, side by side under the
// race detector, take up to ten minutes each on a slow machine of two cores.
const goTimeout = "30m"

// proofTimeout bounds the crash proof, which takes some minutes on two cores: it
// also tries every sync that is known to be redundant.
const proofTimeout = "60m"

// toolsModfile pins the tools whose dependencies should not become the
// product's.
const toolsModfile = "testing/tools/tools.mod"

// Test runs everything: the form of the code first, for it is quick to fail.
func Test(ctx context.Context, root string, out io.Writer) error {
	began := time.Now()
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		return fmt.Errorf("%w: the browser test needs the web UI", err)
	}
	for _, step := range []struct {
		name string
		run  func(context.Context, string, io.Writer) error
	}{
		{"lint", Lint},
		{"web UI", testUI},
		{"other systems", vetOtherSystems},
		{"Go", testGo},
		{"crash proof and large fleets", testWhole},
	} {
		fmt.Fprintf(out, "── %s (%s)\n", step.name, time.Since(began).Round(time.Second))
		if err := step.run(ctx, root, out); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	fmt.Fprintf(out, "All tests passed in %s.\n", time.Since(began).Round(time.Second))
	return nil
}

func testUI(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.InstallUI(ctx, root, out); err != nil {
		return err
	}
	ui := filepath.Join(root, "ui")
	if err := toolchain.Run(ctx, out, ui, nil, "npm", "run", "--silent", "typecheck"); err != nil {
		return err
	}
	return toolchain.Run(ctx, out, ui, nil, "npm", "test", "--silent")
}

// vetOtherSystems compiles and vets what runs on hosts for the systems that are
// not tested here.
func vetOtherSystems(ctx context.Context, root string, out io.Writer) error {
	for _, goos := range []string{"windows", "darwin"} {
		if err := toolchain.Run(ctx, out, root, []string{"GOOS=" + goos, "CGO_ENABLED=0"}, "go", "vet", "./agent/...", "./watcher/...", "./packaging/..."); err != nil {
			return err
		}
	}
	return nil
}

// longFirst are the packages whose tests take minutes. Go starts packages in the
// order in which they are named: one of these that comes last has the machine to
// itself, and waits.
var longFirst = []string{"./testing/e2e", "./testing/faults", "./testing/cluster", "./server/store/elastic", "./server/store/sqlite", "./testing/esnode", "./server/cli"}

// unwatched are packages that the race detector does not look into: SQLite in Go.
// Its memory is its own, which the detector passes over, call by call, in most of
// the time that the tests of a store would take. What is around it is watched.
var unwatched = []string{"-gcflags=modernc.org/sqlite/lib=-race=false", "-gcflags=modernc.org/libc/...=-race=false"}

func testGo(ctx context.Context, root string, out io.Writer) error {
	return toolchain.Run(ctx, out, root, nil, slices.Concat(
		[]string{"go", "tool", "gotestsum", "--format=pkgname", "--format-hide-empty-pkg", "--", "-race"}, unwatched,
		// Lint has vetted it.
		[]string{"-vet=off", "-tags=" + toolchain.Tags, "-timeout=" + goTimeout}, longFirst, []string{"./..."})...)
}

// testWhole runs what is too slow to run whole under the race detector, with
// everything else: an upgrade interrupted at every call, a rollout whose server is
// killed at every write (there it is a part of each), and the large fleet.
func testWhole(ctx context.Context, root string, out io.Writer) error {
	// Side by side: while one is built or at its last test, the others have the cores.
	all, ctx := errgroup.WithContext(ctx)
	for _, test := range [][]string{
		{"./testing/faults"},
		{"./server/rollout", "-run=AtAnyWrite"},
		{"./testing/horde", "-run=TestScripts/large"},
	} {
		all.Go(func() error {
			args := append([]string{"go", "test", "-tags=" + toolchain.Tags, "-timeout=" + goTimeout}, test...)
			return toolchain.Run(ctx, out, root, nil, args...)
		})
	}
	return all.Wait()
}

// Lint checks form: formatting, vet, and the linters of .golangci.yml.
func Lint(ctx context.Context, root string, out io.Writer) error {
	return toolchain.Run(ctx, out, root, nil, "go", "tool", "-modfile="+toolsModfile, "golangci-lint", "run", "./...")
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
