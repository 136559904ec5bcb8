package kibanaclient

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	// The dependencies of the client's own tests.
	_ "github.com/gofrs/uuid/v5"
	_ "github.com/stretchr/testify/require"
)

// TestOwnTestsOfTheClient runs the tests that are in the client's module, its integration
// tests among them. It leaves out TestFleetPackage, which installs an integration, as
// Muster has none, and TestGetUrl, which needs no server and expects how an older version
// of Go parses URLs.
func TestOwnTestsOfTheClient(t *testing.T) {
	c := exec.CommandContext(t.Context(), "go", "test", "-count=1", "-skip=^TestFleetPackage$|^TestGetUrl$", "-v", "github.com/elastic/elastic-agent-libs/kibana")
	c.Env = append(os.Environ(), "SSL_CERT_FILE="+caFile(),
		"KIBANA_HOST="+fleet.server.Info.AdminURL, "KIBANA_USERNAME="+fleet.id, "KIBANA_PASSWORD="+fleet.secret)
	out, err := c.CombinedOutput()
	if err != nil || bytes.Contains(out, []byte("--- SKIP")) {
		t.Errorf("%v\n%s", err, out)
	}
}
