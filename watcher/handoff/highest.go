package handoff

import (
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Highest is the highest version that was ever committed on the host. The agent refuses
// lower ones, so that whoever has stolen the server cannot move the host back to an old
// version with known faults. The watcher writes it when it commits; it never decreases.
type Highest struct {
	Version string    `json:"version"` // full version
	At      time.Time `json:"at"`      // when it was first committed
}

// Raise returns h, or a record of the version if that is higher or h is nil.
func (h *Highest) Raise(version string, at time.Time) *Highest {
	if h != nil {
		if order, err := manifest.CompareVersions(version, h.Version); err != nil || order <= 0 {
			return h
		}
	}
	return &Highest{Version: version, At: at}
}

// WriteHighest stores the highest version.
func WriteHighest(d disk.Disk, top string, h Highest) error {
	return disk.WriteRecord(d, "highest version", layout.Path(top, layout.HighestFile), "highest-version", recordVersion, h)
}

// ReadHighest returns the highest version, or nil if no watcher has recorded one: then the
// running version is the highest. For a damaged record it returns nil and an error.
func ReadHighest(d disk.Disk, top string) (*Highest, error) {
	h, err := disk.FindRecord[Highest](d, "highest version", layout.Path(top, layout.HighestFile), "highest-version", recordVersion)
	if err == nil && h != nil {
		_, err = manifest.ParseVersion(h.Version)
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}
