package host

import (
	"context"

	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/check"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
)

// Check runs a check of the package.
func (h *Host) Check(ctx context.Context, home string, c manifest.Check) error {
	return check.Run(ctx, layout.Path(h.Top, home), c)
}
