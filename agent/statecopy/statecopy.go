// Package statecopy copies the files of a component's state into an archive, and puts them back.
// Package primitive calls it while the component is stopped. The archive is one that tar reads, so
// that people can put it back as well.
package statecopy

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/muster-fleet/muster/packaging/disk"
)

// The labels of the calls to the disk.
const (
	opSave    = "copy the state"
	opRestore = "put the state back"
)

// modeBits are what chmod sets.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

// Own gives a file or folder its mode and its owner.
func Own(d disk.Disk, path string, mode fs.FileMode, owner disk.Owner) error {
	f, err := d.OpenFile(opRestore, path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	return errors.Join(own(f, mode, owner), f.Close())
}

func own(f disk.File, mode fs.FileMode, owner disk.Owner) error {
	if owner != disk.Own {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return err
		}
	}
	return f.Chmod(mode)
}

// Save writes what is at absolute paths, none of which is in another, to the file archive, and
// makes it durable. It keeps modes, owners and links; sockets, pipes and devices it leaves out,
// which programs make again. A path at which there is nothing is no error.
func Save(ctx context.Context, d disk.Disk, archive string, paths []string) (err error) {
	f, err := d.OpenFile(opSave, archive, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	out := tar.NewWriter(f)
	for _, path := range paths {
		root, err := d.OpenRoot(opSave, filepath.Dir(path))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = saver{ctx, d, out, root}.add(path, filepath.Base(path))
		if err = errors.Join(err, root.Close()); err != nil {
			return err
		}
	}
	if err := errors.Join(out.Close(), f.Sync()); err != nil {
		return err
	}
	return d.SyncDir(opSave, filepath.Dir(archive))
}

// saver adds what is at one path to an archive.
type saver struct {
	ctx  context.Context
	disk disk.Disk
	out  *tar.Writer
	root disk.Root // of the folder that holds the path
}

// add adds what is at path, which is name below the root.
func (s saver) add(path, name string) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	fi, err := s.disk.Lstat(opSave, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	target := ""
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		if target, err = s.disk.Readlink(opSave, path); err != nil {
			return err
		}
	case !fi.IsDir() && !fi.Mode().IsRegular():
		return nil
	}
	h, err := tar.FileInfoHeader(fi, target)
	if err != nil {
		return err
	}
	h.Name = strings.TrimPrefix(filepath.ToSlash(path), "/")
	if fi.IsDir() {
		h.Name += "/"
	}
	if owner := disk.OwnerOf(fi); owner != disk.Own {
		h.Uid, h.Gid = owner.UID, owner.GID
	}
	h.Uname, h.Gname, h.Format = "", "", tar.FormatPAX
	if err := s.out.WriteHeader(h); err != nil {
		return err
	}
	switch {
	case fi.Mode().IsRegular():
		return s.content(name)
	case fi.IsDir():
		return s.children(path, name)
	}
	return nil
}

func (s saver) content(name string) error {
	f, err := s.root.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(s.out, disk.Reader(s.ctx, f))
	return errors.Join(err, f.Close())
}

func (s saver) children(path, name string) error {
	entries, err := s.disk.ReadDir(opSave, path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := s.add(filepath.Join(path, e.Name()), filepath.Join(name, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// Restore replaces what is at the paths by what the archive has of them, and makes that durable.
// It may be interrupted and begun again. It keeps no times.
func Restore(ctx context.Context, d disk.Disk, archive string, paths []string) (err error) {
	f, err := d.OpenFile(opRestore, archive, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	for _, path := range paths {
		if err := remove(d, path); err != nil {
			return err
		}
	}
	var folders []*tar.Header
	for in := tar.NewReader(disk.Reader(ctx, f)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if h.Typeflag == tar.TypeDir {
			folders = append(folders, h)
		}
		if err := extract(d, in, h, paths); err != nil {
			return err
		}
	}
	// Last, since a folder may not be written to by its own mode.
	for _, h := range slices.Backward(folders) {
		path := pathOf(h)
		if err := Own(d, path, h.FileInfo().Mode()&modeBits, disk.Owner{UID: h.Uid, GID: h.Gid}); err != nil {
			return err
		}
		if err := d.SyncDir(opRestore, path); err != nil {
			return err
		}
	}
	for _, path := range paths {
		if err := d.SyncDir(opRestore, filepath.Dir(path)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func pathOf(h *tar.Header) string {
	return filepath.Clean(string(filepath.Separator) + filepath.FromSlash(h.Name))
}

// remove removes what is at a path.
func remove(d disk.Disk, path string) error {
	fi, err := d.Lstat(opRestore, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return d.Remove(opRestore, path)
	}
	entries, err := d.ReadDir(opRestore, path)
	for _, e := range entries {
		err = errors.Join(err, d.RemoveAll(opRestore, filepath.Join(path, e.Name())))
	}
	_ = d.Remove(opRestore, path) // the empty folder stays if it is a file system of its own
	return err
}

// extract puts back one entry. No file leaves the folder that holds its path.
func extract(d disk.Disk, in io.Reader, h *tar.Header, paths []string) (err error) {
	path := pathOf(h)
	i := slices.IndexFunc(paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+string(filepath.Separator)) })
	if i < 0 {
		return fmt.Errorf("the archive has %s, which is in none of %s", path, strings.Join(paths, ", "))
	}
	if h.Typeflag == tar.TypeSymlink {
		return d.Symlink(opRestore, h.Linkname, path)
	}
	base := filepath.Dir(paths[i])
	root, err := d.OpenRoot(opRestore, base)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	name, err := filepath.Rel(base, path)
	if err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return root.MkdirAll(name, 0o700)
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := io.Copy(f, in); err != nil {
		return err
	}
	if err := own(f, h.FileInfo().Mode()&modeBits, disk.Owner{UID: h.Uid, GID: h.Gid}); err != nil {
		return err
	}
	return f.Sync()
}
