package console

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/simfleet"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// The tests in the browser are ui/test/console/*.spec.ts. With MUSTER_UI_SHOTS, a folder, the
// pictures of README and documents are taken instead: `go tool mage shots`.
func TestTheConsole(t *testing.T) {
	root, err := toolchain.Root()
	check(t, err)
	chromium := require.Program(t, "chromium")
	npx := require.Program(t, "npx")
	ui := filepath.Join(root, "ui")
	require.Path(t, filepath.Join(ui, "node_modules", ".package-lock.json"), "run `go tool mage test`, or `npm ci` in ui")
	require.Path(t, filepath.Join(ui, "dist", "index.html"), "run `go tool mage ui`")

	config := "test/console/playwright.config.ts"
	// Ten times faster than hosts are, so that rollouts soon are in the states that are tested.
	o := simfleet.Options{Pace: 0.1, Out: t.Output()}
	if os.Getenv("MUSTER_UI_SHOTS") != "" {
		config = "test/shots/playwright.config.ts"
		o.Hosts, o.Live, o.Pace = 3000, 1200, 0.5
	}
	f, err := simfleet.Start(t.Context(), o)
	check(t, err)
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	})
	artifacts := filepath.Join(root, "testing", "artifacts", "console")
	check(t, os.MkdirAll(artifacts, 0o755))
	check(t, toolchain.Run(t.Context(), t.Output(), ui, []string{
		"MUSTER_UI_LOGIN=" + f.LoginURL, "MUSTER_UI_ARTIFACTS=" + artifacts, "MUSTER_CHROMIUM=" + chromium,
	}, npx, "playwright", "test", "--config", config, "--reporter=list"))
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
