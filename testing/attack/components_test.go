package attack

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/manifest"
	"github.com/muster-fleet/muster/packaging/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/fakepkg"
)

// signedComponent returns a component's package for the victim, with its signature under
// the archive's name and that of the signature.
func (v *victim) signedComponent(name, version string) (archive string, files map[string][]byte) {
	v.t.Helper()
	spec := fakepkg.ComponentSpec(v.t, fakepkg.Component(name), version, map[string]string{"bin/" + name: name, "conf/" + name + ".conf": version})
	spec.Manifest.OS, spec.Manifest.Arch = "linux", "amd64"
	return v.readSigned(fakepkg.Signed(v.t, v.t.TempDir(), v.key, spec))
}

func (v *victim) readSigned(path string) (archive string, files map[string][]byte) {
	v.t.Helper()
	files = map[string][]byte{}
	for _, suffix := range []string{"", trust.SignatureSuffix} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			v.t.Fatal(err)
		}
		files[filepath.Base(path)+suffix] = data
	}
	return filepath.Base(path), files
}

// TestStolenServerCannotPassOneSignedPackageForAnother has packages of two components and of
// an agent, all of one version and soundly signed, and gives each under the names of the others.
func TestStolenServerCannotPassOneSignedPackageForAnother(t *testing.T) {
	v := newVictim(t, "1.0.0")
	agent, served := v.readSigned(filepath.Join(v.publish("2.4.0"), archiveName("2.4.0")))
	names := []string{agent}
	for _, component := range []string{"web", "db"} {
		name, files := v.signedComponent(component, "2.4.0")
		names = append(names, name)
		for file, data := range files {
			served[file] = data
		}
	}
	for _, asked := range names {
		for _, given := range names {
			expect, err := v.ring.Expect(t.Context(), asked, func(_ context.Context, beside string, _ int64) ([]byte, error) {
				return served[strings.Replace(beside, asked, given, 1)], nil
			})
			if err == nil {
				_, err = expect.Verify(bytes.NewReader(served[given]))
			}
			if asked == given && err != nil || asked != given && (!errors.Is(err, trust.ErrBadSignature) || !strings.Contains(err.Error(), "it was made for "+given)) {
				t.Errorf("%s under the name of %s: %v", given, asked, err)
			}
		}
	}

	// An order to upgrade the agent to what is a component.
	web := manifest.ComponentArchiveName("web", "2.4.0", "linux", "amd64", "tar.gz")
	for _, suffix := range []string{"", trust.SignatureSuffix} {
		v.server.Publish(agent+suffix, served[web+suffix])
	}
	v.start()
	state, failure := v.order("renamed", agentapi.UpgradeData{Version: "2.4.0", Force: true})
	if state != agentapi.UpgradeFailed || !strings.Contains(failure, "it was made for "+web) {
		t.Errorf("the agent ends in %s %q", state, failure)
	}
	if got := v.running().Version; got != "1.0.0" {
		t.Errorf("the host runs %s", got)
	}
}
