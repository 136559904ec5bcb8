// Package beacon implements the watcher's call to the server and the credential for it. The
// watcher has a credential of its own because the agent may be broken. Enrolment writes it.
package beacon

import (
	"fmt"
	"net/url"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/host/network"
)

const (
	identityKind    = "watcher-identity"
	identityVersion = 1
)

// Identity is the watcher's credential, which permits only the beacons of one agent. The
// watcher never reads the agent's, which may be lost.
type Identity struct {
	AgentID string `json:"agent_id"`
	// APIKey is base64(id:secret), the form of the Authorization header.
	APIKey    string `json:"api_key"`
	ServerURL string `json:"server_url"`
	// CAPEM is the certificate that the server's must chain to. If it is empty
	// CAFingerprint is used, and if both are, the host's own roots.
	CAPEM string `json:"ca_pem,omitempty"`
	// CAFingerprint is sha256:<hex> of that certificate's DER form.
	CAFingerprint string `json:"ca_fingerprint,omitempty"`
	// Network is that of the agent.
	Network network.Settings `json:"network,omitzero"`
}

// Load returns the credential of the host under top, or nil if there is none because the
// server issues none. For a damaged one it returns nil and an error.
func Load(d disk.Disk, top string) (*Identity, error) {
	id, err := disk.FindRecord[Identity](d, "watcher identity", layout.Path(top, layout.WatcherIdentityFile), identityKind, identityVersion)
	if err == nil && id != nil {
		err = id.validate()
	}
	if err != nil {
		return nil, fmt.Errorf("%w; enrol this host again for a new one", err)
	}
	return id, nil
}

// Save writes the credential of the host under top. Only the owner may read the file.
func Save(d disk.Disk, top string, id Identity) error {
	if err := id.validate(); err != nil {
		return err
	}
	return disk.WriteRecord(d, "watcher identity", layout.Path(top, layout.WatcherIdentityFile), identityKind, identityVersion, id)
}

// Remove removes the credential of the host under top.
func Remove(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "watcher identity", layout.Path(top, layout.WatcherIdentityFile))
}

func (id Identity) validate() error {
	u, err := url.Parse(id.ServerURL)
	switch {
	case id.AgentID == "":
		return fmt.Errorf("%s: agent_id: is empty", layout.WatcherIdentityFile)
	case id.APIKey == "":
		return fmt.Errorf("%s: api_key: is empty", layout.WatcherIdentityFile)
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return fmt.Errorf("%s: server_url: is %q, want https://host:port", layout.WatcherIdentityFile, id.ServerURL)
	}
	return nil
}
