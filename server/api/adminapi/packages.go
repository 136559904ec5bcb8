package adminapi

import (
	"net/http"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

// The operations of the area packages.
var (
	ListAvailableVersions = op[None, VersionList](Call{
		ID: "listAvailableVersions", Method: http.MethodGet, Path: "/api/fleet/agents/available_versions",
		Area: AreaPackages, Permission: "packages.read",
		Summary: "List the versions of published packages, newest first",
		Answer:  "The versions",
	})

	ListPackages = op[None, PackageList](Call{
		ID: "listPackages", Method: http.MethodGet, Path: "/api/v1/packages",
		Area: AreaPackages, Permission: "packages.read",
		Summary: "List published packages, those of agents first, the newest version of each first",
		Answer:  "The packages",
	})

	PushPackage = op[Binary, PackageItem](Call{
		ID: "pushPackage", Method: http.MethodPut, Path: "/api/v1/packages/{file}",
		Area: AreaPackages, Permission: "packages.write",
		Summary:     "Publish a package",
		Description: "The body is the archive. It is accepted only if the publishers have published a root and its manifest matches its name. The signed targets file names the archive, before or after this call. Pushing the same archive again changes nothing; another archive under the same name is refused with 409. An archive of Elastic's, named elastic-agent-8.15.5-linux-x86_64.tar.gz for example, needs its digest and its OpenPGP signature instead; only Elastic Agents install it.",
		BodyType:    "application/octet-stream",
		Answer:      "The package",
		Admission:   Transfer,
		Params: []Param{
			{Name: "file", In: "path", Doc: "Name of the archive, such as muster-agent-1.1.0-linux-amd64.tar.gz, or muster-component-web-2.4.0-linux-amd64.tar.gz for a component"},
			{Name: "Muster-Sha512", In: "header", Doc: "The digest in the .sha512 file of an archive of Elastic's, in hexadecimal digits"},
			{Name: "Muster-Openpgp-Signature", In: "header", Is: []byte(nil), Doc: "The .asc file of an archive of Elastic's, in base64"},
		},
	})

	DeletePackage = op[None, ActionWord](Call{
		ID: "deletePackage", Method: http.MethodDelete, Path: "/api/v1/packages/{file}",
		Area: AreaPackages, Permission: "packages.write",
		Summary:   "Withdraw a package",
		Answer:    "Withdrawn",
		Admission: Transfer,
		Params: []Param{
			{Name: "file", In: "path", Doc: "Name of the archive, such as muster-agent-1.1.0-linux-amd64.tar.gz, or muster-component-web-2.4.0-linux-amd64.tar.gz for a component"},
		},
	})

	ListPublisherKeys = op[None, PublisherKeyList](Call{
		ID: "listPublisherKeys", Method: http.MethodGet, Path: "/api/v1/publisher_keys",
		Area: AreaPackages, Permission: "publisher_keys.read",
		Summary: "List the keys of Elastic's whose packages the server accepts",
		Answer:  "The keys",
	})

	AddPublisherKey = op[AddPublisherKeyRequest, PublisherKeyItem](Call{
		ID: "addPublisherKey", Method: http.MethodPost, Path: "/api/v1/publisher_keys",
		Area: AreaPackages, Permission: "publisher_keys.write",
		Summary:     "Accept Elastic's packages signed by an OpenPGP key",
		Description: "Elastic Agents get the key from the server, and install what it signs.",
		Answer:      "The key",
	})

	RemovePublisherKey = op[None, ActionWord](Call{
		ID: "removePublisherKey", Method: http.MethodDelete, Path: "/api/v1/publisher_keys/{keyId}",
		Area: AreaPackages, Permission: "publisher_keys.write",
		Summary:     "Accept no more packages of Elastic's signed by a key",
		Description: "Packages that are published stay.",
		Answer:      "Removed",
		Params: []Param{
			{Name: "keyId", In: "path", Doc: "16 hexadecimal digits"},
		},
	})

	GetTrust = op[None, Trust](Call{
		ID: "getTrust", Method: http.MethodGet, Path: "/api/v1/trust",
		Area: AreaPackages, Permission: "trust.read",
		Summary: "Get the state of the publishers' signed metadata",
		Answer:  "The state",
	})

	ListTrustFiles = op[None, TrustFileList](Call{
		ID: "listTrustFiles", Method: http.MethodGet, Path: "/api/v1/trust/files",
		Area: AreaPackages, Permission: "trust.read",
		Summary: "List all roots and the newest of each other signed file",
		Answer:  "The files",
	})

	PublishTrustFiles = op[PublishTrustFilesRequest, Trust](Call{
		ID: "publishTrustFiles", Method: http.MethodPost, Path: "/api/v1/trust/files",
		Area: AreaPackages, Permission: "trust.write",
		Summary:     "Publish signed root and targets files, all or none",
		Description: "Files that agents would refuse are refused: too few signatures, a version that is not the next, an expired file. A file that is published already changes nothing. At most 4 MiB at a time.",
		Answer:      "The state after it",
	})
)

// VersionList is the answer of GET /api/fleet/agents/available_versions.
type VersionList struct {
	Items []string `json:"items"`
}

// Package is a published package.
type Package struct {
	File string `json:"file"`
	// With -SNAPSHOT if it is a snapshot
	Version  string `json:"version"`
	Snapshot bool   `json:"snapshot"`
	Hash     string `json:"hash"`
	Os       string `json:"os"`
	Arch     string `json:"arch"`
	// bytes
	Size   int64  `json:"size"`
	Sha256 string `json:"sha256"`
	Sha512 string `json:"sha512"`
	// The OpenPGP key that signed a package of Elastic's; empty for Muster's
	KeyId string `json:"key_id"`
	Maker *Maker `json:"maker,omitempty"`
	// The component whose package it is; absent for an agent's package
	Component *string `json:"component,omitempty"`
	// How hosts run the component: process, systemd or docker for example
	Runtime *string `json:"runtime,omitempty"`
	// The signed targets file names it, so hosts that trust the root install it; absent if no root is
	// published
	Signed *bool `json:"signed,omitempty"`
	// Why hosts that trust the root do not install it
	Withheld *string   `json:"withheld,omitempty"`
	PushedAt time.Time `json:"pushed_at"`
	PushedBy *string   `json:"pushed_by,omitempty"`
}

// PackageItem is the answer of PUT /api/v1/packages/{file}.
type PackageItem struct {
	Item Package `json:"item"`
}

// PackageList is the answer of GET /api/v1/packages.
type PackageList struct {
	Items []Package `json:"items"`
}

// PublisherKey is a key whose packages Elastic Agents trust.
type PublisherKey = fleet.PublisherKey

// PublisherKeyItem is the answer of POST /api/v1/publisher_keys.
type PublisherKeyItem struct {
	Item PublisherKey `json:"item"`
}

// PublisherKeyList is the answer of GET /api/v1/publisher_keys.
type PublisherKeyList struct {
	Items []PublisherKey `json:"items"`
}

// AddPublisherKeyRequest is the body of POST /api/v1/publisher_keys.
type AddPublisherKeyRequest struct {
	PublicKey string  `json:"public_key"`
	Name      *string `json:"name,omitempty"`
}

// Trust is the publishers' signed metadata (The Update Framework).
type Trust struct {
	// A root is published
	Published bool `json:"published"`
	// sha256:<hex> of the newest root, for --trust-root
	TrustRoot *string          `json:"trust_root,omitempty"`
	Root      *TrustRole       `json:"root,omitempty"`
	Targets   *TrustRole       `json:"targets,omitempty"`
	Snapshot  *TrustOnlineRole `json:"snapshot,omitempty"`
	Timestamp *TrustOnlineRole `json:"timestamp,omitempty"`
	// The lowest version that hosts can be upgraded to; absent if there is none
	Floor *string `json:"floor,omitempty"`
	// Number of archives in the targets file
	TargetCount int `json:"target_count"`
	// The server's public keys, the one for new roots first
	OnlineKeys []string `json:"online_keys"`
	// Why this server cannot sign; absent while it can
	Problem *string `json:"problem,omitempty"`
	// Files that expire soon, and who must sign them
	Warnings []string `json:"warnings"`
}

// TrustRole is a file that people sign.
type TrustRole struct {
	File    string    `json:"file" example:"3.root.json"`
	Version int64     `json:"version"`
	Expires time.Time `json:"expires"`
	// Number of keys that must sign
	Threshold int        `json:"threshold"`
	Keys      []TrustKey `json:"keys"`
}

// TrustOnlineRole is a file that the server signs.
type TrustOnlineRole struct {
	Version int64     `json:"version"`
	Expires time.Time `json:"expires"`
}

// TrustKey is a key that signs a file of the trust metadata.
type TrustKey struct {
	// 64 hexadecimal digits
	Id string `json:"id"`
	// Name of its owner; may be empty
	Name      string `json:"name"`
	PublicKey string `json:"public_key" example:"muster-tuf-ed25519 … ann"`
	// The key has signed the published file
	Signed bool `json:"signed"`
}

// TrustFile is a file of the trust metadata.
type TrustFile struct {
	Name string `json:"name" example:"1.root.json"`
	// The file's bytes in base64
	Data []byte `json:"data"`
}

// TrustFileList is the answer of GET /api/v1/trust/files.
type TrustFileList struct {
	Items []TrustFile `json:"items"`
}

// PublishTrustFilesRequest is the body of POST /api/v1/trust/files.
type PublishTrustFilesRequest struct {
	// Signed roots and at most one targets file, each in base64
	Files [][]byte `json:"files"`
}
