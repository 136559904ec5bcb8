package attack

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakepkg"
)

// signedComponent signs a component's package for the victim, and returns its file.
func (v *victim) signedComponent(name, version string) string {
	v.t.Helper()
	spec := fakepkg.ComponentSpec(v.t, fakepkg.Component(name), version, map[string]string{"bin/" + name: name, "conf/" + name + ".conf": version})
	spec.Manifest.OS, spec.Manifest.Arch = "linux", "amd64"
	archive := fakepkg.Build(v.t, v.t.TempDir(), spec)
	v.sign(archive)
	return archive
}

// TestStolenServerCannotPassOneSignedPackageForAnother has packages of two components and of
// an agent, all of one version and soundly signed, and gives each under the names of the others.
func TestStolenServerCannotPassOneSignedPackageForAnother(t *testing.T) {
	v := newVictim(t, "1.0.0")
	files := []string{filepath.Join(v.publish("2.4.0"), archiveName("2.4.0")), v.signedComponent("web", "2.4.0"), v.signedComponent("db", "2.4.0")}
	server, err := (gateway.Trust{Fingerprint: v.server.CAPin}).HTTPClient(v.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer server.CloseIdleConnections()
	for _, asked := range files {
		for _, given := range files {
			data, err := os.ReadFile(given)
			if err != nil {
				t.Fatal(err)
			}
			expect, err := v.trust(server).Expect(t.Context(), filepath.Base(asked), nil)
			if err == nil {
				_, err = expect.Verify(bytes.NewReader(data))
			}
			if asked == given && err != nil || asked != given && !errors.Is(err, tuf.ErrMismatch) {
				t.Errorf("%s under the name of %s: %v", given, asked, err)
			}
		}
	}

	// An order to upgrade the agent to what is a component.
	web, err := os.ReadFile(files[1])
	if err != nil {
		t.Fatal(err)
	}
	v.server.Publish(archiveName("2.4.0"), web)
	v.start()
	state, failure := v.order("renamed", agentapi.UpgradeData{Version: "2.4.0", Force: true})
	if state != agentapi.UpgradeFailed || !strings.Contains(failure, "another content than expected") {
		t.Errorf("the agent ends in %s %q", state, failure)
	}
	if got := v.running().Version; got != "1.0.0" {
		t.Errorf("the host runs %s", got)
	}
}
