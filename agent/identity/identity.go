// Package identity stores an agent's identity in the file identity in the top folder: its
// id and key, its server, and the publishers it trusts. Enrolment writes it and the daemon
// reads it. Only the owner may read the file, since it holds the agent's API key.
package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

const (
	kind    = "identity"
	version = 1
)

// Identity is the result of an enrolment.
type Identity struct {
	AgentID string `json:"agent_id"`
	// APIKey is base64(id:secret), the form of the Authorization header.
	APIKey    string `json:"api_key"`
	ServerURL string `json:"server_url"`
	// EnrolledURL is where the host was enrolled, if its policy has moved it to ServerURL since.
	EnrolledURL string `json:"enrolled_url,omitempty"`
	// CAPEM is the certificate that the server's must chain to. If it is empty
	// CAFingerprint is used, and if both are, the host's own roots.
	CAPEM string `json:"ca_pem,omitempty"`
	// CAFingerprint is sha256:<hex> of that certificate's DER form.
	CAFingerprint string    `json:"ca_fingerprint,omitempty"`
	EnrolledAt    time.Time `json:"enrolled_at"`
	// MachineID is that of the machine that was enrolled; empty if it was not known.
	MachineID string `json:"machine_id,omitempty"`
}

// EnrolledElsewhere reports whether another machine than this one was enrolled. A machine without
// an id is taken for the one that was.
func (id *Identity) EnrolledElsewhere(machineID string) bool {
	return id.MachineID != "" && machineID != "" && id.MachineID != machineID
}

// Enrolled returns the address that the host was enrolled with, which no policy changes.
func (id *Identity) Enrolled() string { return cmp.Or(id.EnrolledURL, id.ServerURL) }

// ErrNotEnrolled is returned if the host has no identity.
var ErrNotEnrolled = errors.New("this host is not enrolled: run muster-agent enroll --url <server> --token-file <file of the enrollment token> --trust-root <digest of the publishers' root>")

// Load reads the identity of the host under top.
func Load(d disk.Disk, top string) (*Identity, error) {
	path := layout.Path(top, layout.IdentityFile)
	var id Identity
	err := disk.ReadRecord(d, "identity", path, kind, version, &id)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNotEnrolled
	}
	if errors.Is(err, disk.ErrDamaged) {
		return nil, fmt.Errorf("%w; remove %s and enrol this host again", err, path)
	}
	if err != nil {
		return nil, err
	}
	if err := id.validate(); err != nil {
		return nil, fmt.Errorf("%s: %w; remove it and enrol this host again", path, err)
	}
	return &id, nil
}

// Save writes the identity of the host under top.
func Save(d disk.Disk, top string, id Identity) error {
	if err := id.validate(); err != nil {
		return fmt.Errorf("identity: %w", err)
	}
	return disk.WriteRecord(d, "identity", layout.Path(top, layout.IdentityFile), kind, version, id)
}

// Remove removes the identity of the host under top.
func Remove(d disk.Disk, top string) error {
	return disk.RemoveRecord(d, "identity", layout.Path(top, layout.IdentityFile))
}

func (id Identity) validate() error {
	u, err := url.Parse(id.ServerURL)
	switch {
	case id.AgentID == "":
		return errors.New("agent_id: is empty")
	case id.APIKey == "":
		return errors.New("api_key: is empty")
	case err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http"):
		return fmt.Errorf("server_url: is %q, want https://host:port", id.ServerURL)
	}
	return nil
}
