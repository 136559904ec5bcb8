package rollout

import "github.com/muster-fleet/muster/server/fleet"

// Check says what is wrong with a plan, whatever the fleet: each refusal names
// its field. Resolve first.
func Check(p *fleet.Plan) error { panic("unwritten") }

// Resolve fills in what a plan leaves out: the upgrade manifest's values (nil:
// manual mode), artifacts from the catalog, and defaults, so that the stored
// plan says everything.
func Resolve(p *fleet.Plan, manifest *UpgradeManifest, c fleet.Catalog) error { panic("unwritten") }

// UpgradeManifest is upgrades/<profile>/<id>.yaml.
type UpgradeManifest struct {
	Profile     string           `json:"profile"`
	ID          string           `json:"id"`
	Description string           `json:"description,omitempty"`
	Version     string           `json:"version"`
	Source      string           `json:"source_version,omitempty"`
	SourceURI   string           `json:"source_uri,omitempty"`
	Artifacts   []fleet.Artifact `json:"artifacts,omitempty"`
	Migration   fleet.Migration  `json:"migration,omitzero"`
	// ContentHash is sha256:… of the file's raw bytes.
	ContentHash string `json:"content_hash"`
}
