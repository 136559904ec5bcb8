package component

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/muster-fleet/muster/agent/primitive"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// Uninstall removes the components under an agent's top folder that depend on the agent, and
// returns the names of the others: a unit or a container goes on without it. No agent may
// run.
func Uninstall(ctx context.Context, d disk.Disk, top string, adapters map[string]runtime.Adapter) (left []string, err error) {
	folder := filepath.Join(top, FolderName)
	entries, err := d.ReadDir(op, folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, e := range entries {
		stays, err := uninstall(ctx, d, filepath.Join(folder, e.Name()), e.Name(), adapters)
		if err != nil {
			errs = append(errs, fmt.Errorf("component %s: %w", e.Name(), err))
		}
		if stays {
			left = append(left, e.Name())
		}
	}
	if len(errs) == 0 && len(left) == 0 {
		errs = append(errs, d.RemoveAll(op, folder))
	}
	return left, errors.Join(errs...)
}

func uninstall(ctx context.Context, d disk.Disk, dir, name string, adapters map[string]runtime.Adapter) (stays bool, err error) {
	s, err := readState(d, dir)
	if err != nil || s.Installed == nil {
		return err != nil, err
	}
	adapter, ok := adapters[s.Runtime].(runtime.Supervisor)
	if !ok {
		return true, nil
	}
	r, err := primitive.Release(d, dir, name, *s.Installed)
	if err != nil {
		return true, err
	}
	if err := adapter.Remove(ctx, r); err != nil {
		return true, err
	}
	return false, d.RemoveAll(op, dir)
}
