// Package suite implements `go tool mage test`, `unit`, `check`, `nightly`, `lint`, `fmt`, `docs`,
// `release`, `releaseTest`, `fleet`, `shots`, `bench`, `proof` and `clean`: it runs the tools of
// several languages and returns one result.
package suite

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/prooffile"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// goTimeout bounds the Go tests of one package, so that a deadlock prints its goroutines.
// Tests with real programs and the crash proof take up to ten minutes on a slow machine
// with two cores that runs other steps as well.
const goTimeout = "30m"

// proofTimeout bounds the whole crash proof, which also tries every sync that is known to
// be redundant.
const proofTimeout = "60m"

// benchTimeout bounds the benchmarks of a package. Those of testing/suites/bench take longer than the ten
// minutes that are the default.
const benchTimeout = "60m"

// toolsModfile pins the tools whose dependencies must not become dependencies of the
// product.
const toolsModfile = "testing/tools/tools.mod"

// Test runs everything, in two sequences of steps that run at the same time: one uses the
// CPU, the other mostly waits for the programs and nodes that it starts. Steps that
// fail fast come first.
func Test(ctx context.Context, root string, out io.Writer) (err error) {
	began := time.Now()
	defer useMemory(out)()
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		return fmt.Errorf("%w: the browser test needs the web UI", err)
	}
	pkgs, err := listPackages(ctx, root, out)
	if err != nil {
		return err
	}
	programs := filepath.Join(root, "build", "programs")
	if _, err := toolchain.BuildPrograms(ctx, root, programs, "", out); err != nil {
		return err
	}
	if err := os.Setenv(toolchain.BuiltPrograms, programs); err != nil {
		return err
	}
	stop := shareElasticsearch(ctx, out)
	defer func() { err = errors.Join(err, stop()) }()
	err = runParallel(ctx, root, out, []step{
		{"lint", "lint the code", Lint},
		{"ui", "check the web UI's types and run its tests", testUI},
		{"vet", "compile and vet the packages for Windows and macOS", vetOtherSystems},
		{"raced", fmt.Sprintf("test the %d packages that share memory, under the race detector", len(pkgs.raced)), pkgs.testRaced},
		{"plain", fmt.Sprintf("test the %d other packages", len(pkgs.plain)), pkgs.testPlain},
		{"long", fmt.Sprintf("run %d long tests of theirs without it, such as interruptions at every call", len(pkgs.longTests)), pkgs.testLong},
	}, []step{
		{"programs", fmt.Sprintf("test %d packages that start programs, nodes and machines", len(pkgs.harness)), pkgs.testHarness},
		{"clients", "run Elastic's own client of Kibana's Fleet API", testClients},
		{"gitops", "declare fleets by OpenTofu and a Kubernetes API server", testGitops},
		{"release", "make the packages of a release, and check them", testRelease},
		{"proof", "interrupt agent and watcher at every call of an upgrade", pkgs.testProof},
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "All tests passed in %s.\n", time.Since(began).Round(time.Second))
	return nil
}

// shareElasticsearch starts a node for the tests that only need one: each package would start its own, which
// takes a core for half a minute. Without Java or the jars it starts none, and those tests say what they need.
func shareElasticsearch(ctx context.Context, out io.Writer) (stop func() error) {
	node, err := esnode.New(ctx, esnode.Options{})
	if err != nil {
		fmt.Fprintf(out, "There is no Elasticsearch for tests to share: %v\n", err)
		return func() error { return nil }
	}
	_ = os.Setenv(esnode.SharedVariable, node.URLs()[0]) // it fails for invalid names only
	return node.Close
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

// vetOtherSystems compiles and vets the programs for hosts, for systems whose tests do not
// run here.
func vetOtherSystems(ctx context.Context, root string, out io.Writer) error {
	for _, goos := range []string{"windows", "darwin"} {
		if err := toolchain.RunGroup(ctx, out, root, []string{"GOOS=" + goos, "CGO_ENABLED=0"}, "go", "vet", "./agent/...", "./watcher/...", "./packaging/..."); err != nil {
			return err
		}
	}
	return nil
}

// testClients tests a module of its own.
func testClients(ctx context.Context, root string, out io.Writer) error {
	dir := filepath.Join(root, "testing", "suites", "kibanaclient")
	if err := toolchain.RunGroup(ctx, out, dir, nil, "go", "vet", "./..."); err != nil {
		return err
	}
	return toolchain.RunGroup(ctx, out, dir, nil, "go", "test", "-tags="+toolchain.Tags, "-timeout="+goTimeout, "./...")
}

// gitopsTools are what the tests of testing/suites/gitops import of others. OpenTofu and its provider
// are programs, which the tests build.
var gitopsTools = []string{"k8s.io/apiextensions-apiserver/pkg/cmd/server/testing", "go.etcd.io/etcd/server/v3/embed"}

// testGitops tests a module of its own. It is skipped if the tools cannot be fetched: without
// them its tests cannot even be compiled.
func testGitops(ctx context.Context, root string, out io.Writer) error {
	dir := filepath.Join(root, "testing", "suites", "gitops")
	var why bytes.Buffer
	if err := toolchain.RunGroup(ctx, &why, dir, nil, append([]string{"go", "build"}, gitopsTools...)...); err != nil {
		if ctx.Err() != nil || os.Getenv("CI") == "true" { // CI must run all tests, as in testing/kit/require
			return fmt.Errorf("%w\n%s", err, why.String())
		}
		fmt.Fprintf(out, "skipped: %v: run it with a network, which fetches the API server once\n%s", err, why.String())
		return nil
	}
	if err := toolchain.RunGroup(ctx, out, dir, nil, "go", "vet", "-tags="+toolchain.Tags, "./..."); err != nil {
		return err
	}
	// Not from the cache, which does not notice that the server has changed.
	return toolchain.RunGroup(ctx, out, dir, nil, "go", "test", "-count=1", "-tags="+toolchain.Tags, "-timeout="+goTimeout, "./...")
}

// Lint checks the formatting and runs the linters, those of .golangci.yml and of ui/biome.jsonc.
func Lint(ctx context.Context, root string, out io.Writer) error {
	if err := lintUI(ctx, root, out); err != nil {
		return err
	}
	return toolchain.RunGroup(ctx, out, root, nil, "go", "tool", "-modfile="+toolsModfile, "golangci-lint", "run", "./...")
}

func lintUI(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.InstallUI(ctx, root, out); err != nil {
		return err
	}
	return toolchain.RunGroup(ctx, out, filepath.Join(root, "ui"), nil, "npm", "run", "--silent", "lint")
}

// Format formats the code and generates the generated files.
func Format(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.Run(ctx, out, root, nil, "go", "generate", "./server/api/adminapi"); err != nil {
		return err
	}
	if err := toolchain.Run(ctx, out, root, nil, "go", "run", "-tags="+toolchain.Tags, "./testing/tools/crd", "packaging/release/kubernetes/crd.yaml"); err != nil {
		return err
	}
	if err := toolchain.Run(ctx, out, root, nil, "go", "run", "-tags="+toolchain.Tags, "./testing/tools/reference", "ui/docs/reference"); err != nil {
		return err
	}
	if err := toolchain.InstallUI(ctx, root, out); err != nil {
		return err
	}
	for _, script := range []string{"generate", "format"} {
		if err := toolchain.Run(ctx, out, filepath.Join(root, "ui"), nil, "npm", "run", "--silent", script); err != nil {
			return err
		}
	}
	return toolchain.Run(ctx, out, root, nil, "go", "tool", "-modfile="+toolsModfile, "golangci-lint", "fmt", "./...")
}

// Fleet runs a server with a simulated fleet until ctx ends. The program is built after the web
// UI, which it contains.
func Fleet(ctx context.Context, root string, out io.Writer, hosts, live, port int) error {
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		fmt.Fprintf(out, "The web UI is not built: %v\n", err) // the API works without it, and Vite shows the pages
	}
	program := filepath.Join(root, "build", "fleet")
	if err := toolchain.Run(ctx, out, root, nil, "go", "build", "-tags="+toolchain.Tags, "-o", program, "./testing/tools/fleet"); err != nil {
		return err
	}
	err := toolchain.Run(ctx, out, root, nil, program, fmt.Sprintf("-hosts=%d", hosts), fmt.Sprintf("-live=%d", live), fmt.Sprintf("-port=%d", port))
	if ctx.Err() != nil {
		return nil // Ctrl-C is how it ends
	}
	return err
}

// Shots takes the pictures of the web UI for README and documents.
func Shots(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.BuildUI(ctx, root, out); err != nil {
		return err
	}
	env := []string{"MUSTER_UI_SHOTS=" + filepath.Join(root, "ui", "shots")}
	return toolchain.RunGroup(ctx, out, root, env, "go", "test", "-count=1", "-v", "-tags="+toolchain.Tags, "-run=TestTheConsole", "./testing/suites/console")
}

// Bench runs the benchmarks of every package, and then the load test with a fleet of a
// size suited to this machine, which writes testing/tools/loadtest/RESULTS.md.
func Bench(ctx context.Context, root string, out io.Writer) error {
	if err := toolchain.Run(ctx, out, root, nil, "go", "test", "-tags="+toolchain.Tags, "-run=^$", "-bench=.", "-benchmem", "-timeout="+benchTimeout, "./..."); err != nil {
		return err
	}
	return loadTest(ctx, root, out, "standard", "--results="+loadResults(root))
}

// Profiles writes how the server and its agents spend CPU time to a section of its own in
// testing/tools/loadtest/RESULTS.md, which Bench does not change.
func Profiles(ctx context.Context, root string, out io.Writer) error {
	return loadTest(ctx, root, out, "checkins", "upgrade-all", "storm", "--profiles="+filepath.Join(root, "build", "profiles"), "--results="+loadResults(root))
}

func loadResults(root string) string {
	return filepath.Join(root, "testing", "tools", "loadtest", "RESULTS.md")
}

// loadTest runs the load test with a server that it starts.
func loadTest(ctx context.Context, root string, out io.Writer, args ...string) error {
	program := filepath.Join(root, "build", "loadtest")
	if err := toolchain.Run(ctx, out, root, nil, "go", "build", "-tags="+toolchain.Tags, "-o", program, "./testing/tools/loadtest"); err != nil {
		return err
	}
	return toolchain.Run(ctx, out, root, nil, append([]string{program, "--start"}, args...)...)
}

// Proof runs the whole crash proofs, prints their progress, and writes their tables beside
// their tests.
func Proof(ctx context.Context, root string, out io.Writer) error {
	if err := prove(ctx, root, out, "agent/component", "-test.v", "-test.run=AtAnyCall"); err != nil {
		return err
	}
	return prove(ctx, root, out, proofPackage)
}

func prove(ctx context.Context, root string, out io.Writer, pkg string, args ...string) error {
	program := filepath.Join(root, "build", "proof.test")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		return err
	}
	// Built first and then run, since `go test` would buffer the output.
	if err := toolchain.Run(ctx, out, root, nil, "go", "test", "-c", "-tags="+toolchain.Tags, "-o", program, "./"+pkg); err != nil {
		return err
	}
	dir := filepath.Join(root, filepath.FromSlash(pkg))
	env := []string{prooffile.Variable + "=" + filepath.Join(dir, prooffile.Name)}
	return toolchain.Run(ctx, out, dir, env, append([]string{program, "-test.timeout=" + proofTimeout}, args...)...)
}

// Clean removes everything that was built.
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
