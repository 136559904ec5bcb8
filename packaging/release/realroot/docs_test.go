//go:build linux

package realroot

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/docs"
	"github.com/muster-fleet/muster/testing/kit/nspawn"
)

// firstUpgradeLimit is what the documentation promises: from nothing to the first upgraded host, and
// back, by its commands alone.
const firstUpgradeLimit = 10 * time.Minute

// blockLimit bounds a block: the longest upgrades a host and goes back, each in a minute.
const blockLimit = 4 * time.Minute

// A person who follows the documentation, page by page, on a new machine. A shell keeps what the
// pages set.
func TestDocumentedCommandsWorkAsWritten(t *testing.T) {
	m := boot(t, nspawn.Options{Name: "docs", OwnNetwork: true})
	m.run(`printf '127.0.0.1 localhost\n127.0.1.1 docs\n' > /etc/hosts`) // as Debian's installer does
	m.run("mkdir /srv/releases && cd /srv/releases && cp " + filepath.Join(folder, "*", "muster_*_"+runtime.GOARCH+".deb") + " " + filepath.Join(folder, "*", "muster-agent-*-linux-"+runtime.GOARCH+".tar.gz") + " .")
	pages := filepath.Join("..", "..", "..", "ui", "docs")
	for _, page := range docs.Pages {
		blocks, err := docs.Read(pages, page)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for _, b := range blocks {
			if b.NotRun != "" {
				t.Logf("%s:%d is not run: %s", b.Page, b.Line, b.NotRun)
				continue
			}
			const environment = "/srv/environment"
			script := fmt.Sprintf("set -euo pipefail; cd /srv/releases; touch %[1]s; . %[1]s\n%[2]s\nexport -p > %[1]s", environment, b.Commands)
			if out, err := m.shell(script); err != nil {
				t.Fatalf("ui/docs/%s:%d: %v\n%s%s", b.Page, b.Line, err, b.Commands, out)
			}
		}
		took := time.Since(began).Round(time.Second)
		t.Logf("%s took %s", page, took)
		if page == docs.Pages[0] && took > firstUpgradeLimit {
			t.Errorf("the first page took %s, want at most %s", took, firstUpgradeLimit)
		}
	}
}

// shell runs a script in a shell of root's, which is what `sudo` needs no password for.
func (m *machine) shell(script string) (string, error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), blockLimit)
	defer cancel()
	out, err := m.Run(ctx, "env", "HOME=/srv", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C.UTF-8", "bash", "-c", "exec 2>&1 </dev/null\n"+script)
	m.t.Logf("$ %s\n%s", strings.TrimSpace(script), out)
	return out, err
}
