package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/harness"
	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// The browser tests run against a real server and real agents. They are
// ui/test/upgrade.spec.ts and, with the same hosts, ui/test/component.spec.ts,
// ui/test/rollouts.spec.ts and ui/test/query.spec.ts.
func TestUpgradeInTheBrowser(t *testing.T) {
	root, err := toolchain.Root()
	check(t, err)
	chromium := require.Program(t, "chromium")
	npx := require.Program(t, "npx")
	require.Path(t, filepath.Join(root, "ui", "node_modules", ".package-lock.json"), "run `go tool mage test`, or `npm ci` in ui")
	require.Path(t, filepath.Join(root, "ui", "dist", "index.html"), "run `go tool mage ui`")

	// A browser on a busy machine takes seconds to show a phase.
	w := newWorld(t, harness.HostOptions{Grace: 20 * time.Second}, "web-01", "web-02", "db-01")
	w.Publish("1.1.0", w.Programs.Agent)
	w.Publish("1.3.0", w.Programs.Unhealthy)
	w.Publish("1.4.0", w.Programs.Agent)
	w.Publish("1.5.0", w.Programs.Agent)
	component := w.publishPage("2.0.0", "2.1.0", "2.2.0")

	// Screenshots are kept as a result of the test.
	artifacts := filepath.Join(root, "testing", "artifacts")
	check(t, os.MkdirAll(artifacts, 0o755))
	err = toolchain.Run(t.Context(), t.Output(), filepath.Join(root, "ui"), []string{
		"MUSTER_UI_LOGIN=" + w.Server.Info.LoginURL, "MUSTER_UI_VERSION=1.1.0", "MUSTER_UI_BROKEN=1.3.0", "MUSTER_UI_ROLLOUT=1.4.0",
		"MUSTER_UI_QUERY=1.5.0", "MUSTER_UI_PAGE=" + component.URL(), "MUSTER_UI_PAGE_VERSIONS=2.0.0 2.1.0 2.2.0", "MUSTER_UI_ARTIFACTS=" + artifacts, "MUSTER_CHROMIUM=" + chromium,
	}, npx, "playwright", "test", "--config", "test/playwright.config.ts", "--reporter=list")
	check(t, err)
	for _, shot := range []string{"agents-upgraded.png", "agents-rolled-back.png", "staged.png", "component-upgraded.png", "component-rolled-back.png", "rollout-preview.png", "rollout-completed.png", "query-upgrade.png", "query-unenroll.png"} {
		if fi, err := os.Stat(filepath.Join(artifacts, shot)); err != nil || fi.Size() == 0 {
			t.Errorf("screenshot %s: %v", shot, err)
		}
	}
}

// publishPage publishes three versions of a component that serves a page, of which the last
// ends at once, and lists it in the policy of all hosts.
func (w *world) publishPage(versions ...string) *harness.Page {
	w.Helper()
	page, err := w.NewPage()
	check(w, err)
	var archives []string
	for i, version := range versions {
		archive, err := page.Build(w.Context(), w.Publisher, version, i == len(versions)-1)
		check(w, err)
		archives = append(archives, archive)
	}
	check(w, w.Server.Publish(w.Context(), w.Publisher, archives...))
	// Long enough for a browser on a busy machine to open a menu while a version is observed.
	check(w, page.List(w.Context(), w.Server, 8, 0))
	return page
}
