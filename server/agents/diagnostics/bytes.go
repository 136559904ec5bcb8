package diagnostics

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// place is where the bytes of chunks are, by the SHA-256 of what is stored.
type place interface {
	// room returns an error if there is no room for a file.
	room(size int64) error
	put(ctx context.Context, key string, b []byte) error
	get(ctx context.Context, key string, w io.Writer) error
	remove(ctx context.Context, key string) error
}

func (s *Service) bytes() place {
	if data := s.Store.PackageData(); data != nil {
		return shared{data}
	}
	return folder{s.Dir, s.Disk}
}

// shared is the store, which other servers read too.
type shared struct{ data store.PackageData }

func (shared) room(int64) error { return nil }

func (p shared) put(ctx context.Context, key string, b []byte) error {
	return p.data.Put(ctx, key, int64(len(b)), bytes.NewReader(b))
}

func (p shared) get(ctx context.Context, key string, w io.Writer) error {
	return p.data.Get(ctx, key, w)
}

func (p shared) remove(ctx context.Context, key string) error { return p.data.Delete(ctx, key) }

// folder is a folder of the one server that the store belongs to.
type folder struct {
	dir  string
	disk disk.Disk
}

const (
	op = "diagnostics"
	// keepFree is how much space a new file leaves on the disk, which the store is on as
	// well: diagnostics are requested when something is wrong already.
	keepFree = 256 << 20
)

func (p folder) room(size int64) error {
	if err := p.disk.MkdirAll(op, p.dir, 0o700); err != nil {
		return p.explain(err)
	}
	free, err := p.disk.Free(op, p.dir)
	if err == nil && free < size+keepFree {
		return p.full(nil)
	}
	return err
}

func (p folder) put(_ context.Context, key string, b []byte) error {
	if err := p.disk.MkdirAll(op, p.dir, 0o700); err != nil {
		return p.explain(err)
	}
	return p.explain(disk.WriteFile(p.disk, op, filepath.Join(p.dir, key), b, 0o600))
}

func (p folder) get(_ context.Context, key string, w io.Writer) error {
	f, err := p.disk.OpenFile(op, filepath.Join(p.dir, key), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fleet.Errorf(fleet.NotFound, "its bytes are not on this server, as after a restore: request the diagnostics again")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(w, f)
	return err
}

func (p folder) remove(_ context.Context, key string) error {
	return p.disk.Remove(op, filepath.Join(p.dir, key))
}

// sweep removes the files of which gone says so, at most most of them.
func (p folder) sweep(gone func(name string, written time.Time) bool, most int) error {
	entries, err := p.disk.ReadDir(op, p.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var errs []error
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !gone(e.Name(), info.ModTime()) {
			continue // removed meanwhile, or none of ours
		}
		if errs = append(errs, p.disk.Remove(op, filepath.Join(p.dir, e.Name()))); len(errs) == most {
			break
		}
	}
	return errors.Join(errs...)
}

func (p folder) explain(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return p.full(err)
	}
	return err
}

func (p folder) full(err error) error {
	return &fleet.Error{Kind: fleet.Unavailable, Message: "the server's disk is full: free some space under " + p.dir + " and request the diagnostics again", Err: err}
}
