// Package beacon is how the watcher of a host speaks to the server: the credential
// of its own, since the agent is what may be broken, and the one call it is good
// for. The agent writes the credential when it is enrolled; the watcher sends.
package beacon

import (
	"fmt"
	"net/url"

	"github.com/muster-fleet/muster/packaging/disk"
	"github.com/muster-fleet/muster/packaging/layout"
)

const (
	identityKind    = "watcher-identity"
	identityVersion = 1
)

// Identity is the watcher's own credential: good for the beacons of one agent and
// for nothing else. Enrolment writes it beside the agent's, which the watcher
// never reads: it must be able to speak when the agent has lost its own.
type Identity struct {
	AgentID string `json:"agent_id"`
	// APIKey is base64(id:secret), as the Authorization header wants it.
	APIKey    string `json:"api_key"`
	ServerURL string `json:"server_url"`
	// CAPEM is the certificate the server's must chain to. With it empty,
	// CAFingerprint decides; with both empty, the host's own roots.
	CAPEM string `json:"ca_pem,omitempty"`
	// CAFingerprint is sha256:<hex> of that certificate's DER form.
	CAFingerprint string `json:"ca_fingerprint,omitempty"`
}

// Load returns the credential of the host under top, or nil when there is none:
// the server gives out none, or the host was enrolled before it did. A damaged
// one counts as none, with err telling why.
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

// Save writes the credential of the host under top, for the owner alone.
func Save(d disk.Disk, top string, id Identity) error {
	if err := id.validate(); err != nil {
		return err
	}
	return disk.WriteRecord(d, "watcher identity", layout.Path(top, layout.WatcherIdentityFile), identityKind, identityVersion, id)
}

// Remove forgets the credential, as an agent does that leaves its server.
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
