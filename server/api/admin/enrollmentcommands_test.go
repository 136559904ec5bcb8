package admin_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

func TestEachPlatformHasACommandOrAReason(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t, quick)
	read := func() map[string]adminapi.EnrollmentCommand {
		t.Helper()
		items := map[string]adminapi.EnrollmentCommand{}
		for _, c := range answered[adminapi.EnrollmentCommands](t, s.Admin(http.MethodGet, "/api/v1/enrollment_commands", nil)).Items {
			items[c.Platform] = c
		}
		return items
	}
	for platform, c := range read() {
		if c.Command != nil || c.Problem == nil || !strings.Contains(*c.Problem, "muster package push") {
			t.Errorf("%s without a package: %+v", platform, c)
		}
	}
	p := s.Publisher()
	p.Publish("1.0.0", "1.1.0")
	c := read()["linux-amd64"]
	if c.Problem != nil || *c.File != "muster-agent-1.1.0-linux-amd64.tar.gz" || !strings.Contains(*c.Command, "--trust-root "+tuf.Digest(p.Root)) || strings.Contains(*c.Command, s.Token) {
		t.Errorf("with a package: %+v", c)
	}
	if c := read()["windows-amd64"]; c.Command != nil {
		t.Errorf("no package is for Windows: %+v", c)
	}

	// Hosts accept only what the targets name.
	s.Upload(p.Archive(t.TempDir(), "1.2.0"))
	c = read()["linux-amd64"]
	if c.Command == nil || *c.File != "muster-agent-1.1.0-linux-amd64.tar.gz" {
		t.Errorf("with a package that is not signed: %+v", c)
	}
}
