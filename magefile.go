//go:build mage

// The targets of this repository, run as `go tool mage TARGET`. The work is done by
// packages under testing/.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/muster-fleet/muster/testing/kit/esnode"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
	"github.com/muster-fleet/muster/testing/tools/demo"
	"github.com/muster-fleet/muster/testing/tools/suite"
)

// Setup installs what is missing on a Debian machine, and says what to install elsewhere.
func Setup(ctx context.Context) error { return toolchain.Setup(ctx, os.Stdout) }

// Demo runs a server and three agents on this machine, with good and bad packages to upgrade to.
func Demo(ctx context.Context,
	// perform the upgrades, check them, and end
	auto *bool,
) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return demo.Run(ctx, demo.Options{Root: root(), Auto: auto != nil && *auto, Out: os.Stdout})
}

// Fleet runs a server with a simulated fleet on this machine until Ctrl-C, for work on the web UI.
func Fleet(ctx context.Context,
	// how many hosts there are (300), and how many of them carry out orders (60)
	hosts, live *int,
	// the port of the admin API; by default a free one
	port *int,
) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Fleet(ctx, root(), os.Stdout, value(hosts, 300), value(live, 60), value(port, 0))
}

// Shots takes the pictures of the web UI in README and documents, with a simulated fleet, into ui/shots.
func Shots(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Shots(ctx, root(), os.Stdout)
}

// Docs builds the site of the documentation, of the pages in ui/docs, into build/site.
func Docs(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Docs(ctx, root(), os.Stdout)
}

// value returns the value of a flag, or what it is if it is left out.
func value(flag *int, otherwise int) int {
	if flag == nil {
		return otherwise
	}
	return *flag
}

// Es runs an Elasticsearch on this machine until Ctrl-C, for a server that you start yourself.
func Es(ctx context.Context,
	// the port to listen on; by default a free one
	port *int,
) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return esnode.Run(ctx, value(port, 0), os.Stdout)
}

// Build builds the web UI and the three programs into build/bin.
func Build(ctx context.Context) error {
	if err := Ui(ctx); err != nil {
		return err
	}
	_, err := toolchain.BuildPrograms(ctx, root(), filepath.Join(root(), "build", "bin"), os.Getenv("MUSTER_VERSION"), os.Stdout)
	return err
}

// Ui builds the web UI into ui/dist, from where it is embedded.
//
//nolint:staticcheck // mage lists UI as uI
func Ui(ctx context.Context) error { return toolchain.BuildUI(ctx, root(), os.Stdout) }

// Test runs Setup, and then every test that this machine can run.
func Test(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := Setup(ctx); err != nil {
		return err
	}
	return suite.Test(ctx, root(), os.Stdout)
}

// Nightly runs Test with whole tables, ReleaseTest, Proof, and what else takes too long for every day.
func Nightly(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	if err := Setup(ctx); err != nil {
		return err
	}
	return suite.Nightly(ctx, root(), os.Stdout)
}

// Unit runs the quick tests, which start no other programs, in some minutes.
func Unit(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Unit(ctx, root(), os.Stdout)
}

// Check formats, lints and tests what has changed since main.
func Check(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Check(ctx, root(), os.Stdout)
}

// Lint checks the formatting and runs the linters.
func Lint(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Lint(ctx, root(), os.Stdout)
}

// Fmt formats the code and generates the generated files.
func Fmt(ctx context.Context) error { return suite.Format(ctx, root(), os.Stdout) }

// Bench runs the benchmarks, and writes what a fleet costs a server to testing/tools/loadtest/RESULTS.md.
func Bench(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Bench(ctx, root(), os.Stdout)
}

// BenchProfiles writes how a server and its agents spend CPU time to testing/tools/loadtest/RESULTS.md.
func BenchProfiles(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Profiles(ctx, root(), os.Stdout)
}

// Proof interrupts upgrades at every call, and writes the results to testing/suites/faults/PROOF.md and agent/component/PROOF.md.
func Proof(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Proof(ctx, root(), os.Stdout)
}

// Release makes the packages of version $MUSTER_VERSION in build/release, with checksums signed by $MUSTER_RELEASE_KEY.
func Release(ctx context.Context,
	// do not sign the checksums; for trials only
	unsigned *bool,
) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.Release(ctx, root(), os.Stdout, fmt.Sprintf("-unsigned=%t", unsigned != nil && *unsigned))
}

// ReleaseTest installs, upgrades and removes the packages in machines with Debian's tools and with rpm.
func ReleaseTest(ctx context.Context) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	return suite.ReleaseTest(ctx, root(), os.Stdout)
}

// Aliases are other spellings of targets.
var Aliases = map[string]any{"release-test": ReleaseTest}

// Clean removes the files that the other targets built.
func Clean() error { return suite.Clean(root()) }

func root() string {
	dir, err := toolchain.Root()
	if err != nil {
		panic(err) // mage runs in the repository
	}
	return dir
}

func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
