package suite

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// nightlyAgents is how many agents the nightly run's load has, which one machine with two cores can
// simulate beside the server.
const nightlyAgents = 10_000

// Nightly runs, one after the other, what takes too long for every day: the tests with all cases of
// their tables, the packages on machines, the whole crash proofs, the outer tools from an empty cache,
// and a large fleet on a real server. Test has one instance of each.
func Nightly(ctx context.Context, root string, out io.Writer) error {
	if err := os.Setenv(toolchain.NightlyRun, "true"); err != nil {
		return err
	}
	for _, s := range []step{
		{"test", "run every test, with whole tables", Test},
		{"release", "install, upgrade and remove the packages on machines", ReleaseTest},
		{"proof", "interrupt everything at every call", Proof},
		{"gitops", "declare fleets by OpenTofu and Kubernetes, built from an empty cache", testGitopsCold},
		{"load", fmt.Sprintf("connect and upgrade %d simulated agents", nightlyAgents), testLoad},
	} {
		fmt.Fprintf(out, "── nightly: %s\n", s.about)
		if err := s.run(ctx, root, out); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// testGitopsCold fetches and builds everything that testGitops needs, as on a machine that has run nothing.
func testGitopsCold(ctx context.Context, root string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "muster-cold-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cold := []string{"GOCACHE=" + filepath.Join(dir, "build"), "GOMODCACHE=" + filepath.Join(dir, "modules"), "GOFLAGS=-modcacherw", "XDG_CACHE_HOME=" + dir}
	return toolchain.RunGroup(ctx, out, filepath.Join(root, "testing", "suites", "gitops"), cold, "go", "test", "-count=1", "-tags="+toolchain.Tags, "-timeout="+proofTimeout, "./...")
}

func testLoad(ctx context.Context, root string, out io.Writer) error {
	return loadTest(ctx, root, out, "upgrade-all", fmt.Sprintf("--agents=%d", nightlyAgents))
}
