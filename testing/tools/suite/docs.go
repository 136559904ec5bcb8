package suite

import (
	"context"
	"io"
	"path/filepath"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// Docs builds the site of the documentation into build/site. A dead link fails it.
func Docs(ctx context.Context, root string, out io.Writer) error {
	docs := filepath.Join(root, "ui", "docs")
	if err := toolchain.InstallNPM(ctx, docs, out); err != nil {
		return err
	}
	return toolchain.RunGroup(ctx, out, docs, nil, "npm", "run", "--silent", "build")
}
