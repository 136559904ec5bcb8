package install_test

import (
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/install"
)

func TestUpgradeNeedsArchiveFilesAndMargin(t *testing.T) {
	for _, row := range []struct {
		name                 string
		size, unpacked, have int64
		want                 int64
	}{
		{"both are known", 1000, 2000, 0, 1100 + 2200},
		{"the files are estimated", 1000, -1, 0, 1100 + 3300},
		{"a part is downloaded", 1000, 2000, 400, 660 + 2200},
		{"all is downloaded", 1000, 2000, 1000, 2200},
	} {
		if got := install.UpgradeNeed(row.size, row.unpacked, row.have); got != row.want+disk.SpaceMargin {
			t.Errorf("%s: %d bytes are needed, want %d", row.name, got, row.want+disk.SpaceMargin)
		}
	}
}
