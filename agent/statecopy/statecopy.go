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

	"github.com/muster-fleet/muster/agent/foreign"
	"github.com/muster-fleet/muster/packaging/host/disk"
)

// The labels of the calls to the disk.
const (
	opSave    = "copy the state"
	opRestore = "put the state back"
)

// modeBits are what chmod sets.
const modeBits = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky

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
		folder, name, err := foreign.Parent(d, opSave, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		err = saver{ctx, out}.add(folder, name, path, 0)
		if err = errors.Join(err, folder.Close()); err != nil {
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
	ctx context.Context
	out *tar.Writer
}

// add adds what has a name in a folder, which is at path. What is recorded of a file or folder is that of
// the one that is open: the name may lead to another by now.
func (s saver) add(folder disk.Folder, name, path string, depth int) error {
	if s.ctx.Err() != nil {
		return context.Cause(s.ctx)
	}
	if depth > foreign.MaxDepth {
		return fmt.Errorf("%s %w", path, foreign.ErrTooDeep)
	}
	fi, err := folder.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch {
	case fi.Mode()&fs.ModeSymlink != 0:
		target, err := folder.Readlink(name)
		if err != nil {
			return err
		}
		return s.header(fi, path, target)
	case fi.Mode().IsRegular():
		return s.file(folder, name, path)
	case fi.IsDir():
		return s.folder(folder, name, path, depth)
	}
	return nil
}

func (s saver) header(fi fs.FileInfo, path, target string) error {
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
	return s.out.WriteHeader(h)
}

func (s saver) file(folder disk.Folder, name, path string) error {
	f, err := folder.Open(name)
	if err != nil {
		return err
	}
	fi, err := f.Stat()
	if err == nil {
		err = s.header(fi, path, "")
	}
	if err == nil {
		_, err = io.Copy(s.out, disk.Reader(s.ctx, f))
	}
	return errors.Join(err, f.Close())
}

func (s saver) folder(in disk.Folder, name, path string, depth int) error {
	folder, err := in.OpenFolder(name)
	if err != nil {
		return err
	}
	fi, err := folder.Stat()
	if err == nil {
		err = s.header(fi, path, "")
	}
	var names []string
	if err == nil {
		names, err = folder.Names()
	}
	slices.Sort(names)
	for _, n := range names {
		if err == nil {
			err = s.add(folder, n, filepath.Join(path, n), depth+1)
		}
	}
	return errors.Join(err, folder.Close())
}

// Restore replaces what is at the paths by what the archive has of them, and makes that durable.
// It may be interrupted and begun again. It keeps no times.
//
// A folder belongs to the agent, and is closed to others, until all that is in it is there. Then it gets
// its owner, by the descriptor that has made it.
func Restore(ctx context.Context, d disk.Disk, archive string, paths []string) (err error) {
	f, err := d.OpenFile(opRestore, archive, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := restorer{}
	defer func() { err = errors.Join(err, r.close()) }()
	for _, path := range paths {
		top, err := clearPath(d, path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // neither has the archive anything of it
		}
		if err != nil {
			return err
		}
		r.tops = append(r.tops, top)
	}
	for in := tar.NewReader(disk.Reader(ctx, f)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		if err := r.extract(in, h, paths); err != nil {
			return err
		}
	}
	if err := r.leave(""); err != nil {
		return err
	}
	for _, t := range r.tops {
		if err := t.parent.Sync(); err != nil {
			return err
		}
	}
	return nil
}

func pathOf(h *tar.Header) string {
	return filepath.Clean(string(filepath.Separator) + filepath.FromSlash(h.Name))
}

// top is one of the paths, at which there is nothing.
type top struct {
	path, name string
	parent     disk.Folder
	// kept is an empty folder at the path that cannot be removed; nil: there is none.
	kept disk.Folder
}

// clearPath removes what is at a path.
func clearPath(d disk.Disk, path string) (t *top, err error) {
	t = &top{path: path}
	if t.parent, t.name, err = foreign.Parent(d, opRestore, path); err != nil {
		return nil, err
	}
	if err := t.clear(); err != nil {
		return nil, errors.Join(err, t.close())
	}
	return t, nil
}

func (t *top) clear() error {
	fi, err := t.parent.Lstat(t.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return t.parent.Remove(t.name)
	}
	folder, err := t.parent.OpenFolder(t.name)
	if err != nil {
		return err
	}
	names, err := folder.Names()
	for _, name := range names {
		err = errors.Join(err, folder.RemoveAll(name))
	}
	if err != nil {
		return errors.Join(err, folder.Close())
	}
	if t.parent.Remove(t.name) != nil {
		t.kept = folder // a file system of its own
		return nil
	}
	return folder.Close()
}

func (t *top) close() error {
	err := t.parent.Close()
	if t.kept != nil {
		err = errors.Join(err, t.kept.Close())
	}
	return err
}

// restorer puts back what an archive has, whose folders come before what is in them.
type restorer struct {
	tops []*top
	// within are the folders of the entry before, each in the one before it.
	within []made
}

type made struct {
	path   string
	folder disk.Folder
	is     *tar.Header
}

// extract puts back one entry.
func (r *restorer) extract(in io.Reader, h *tar.Header, paths []string) error {
	path := pathOf(h)
	if !slices.ContainsFunc(paths, func(p string) bool { return path == p || strings.HasPrefix(path, p+string(filepath.Separator)) }) {
		return fmt.Errorf("the archive has %s, which is in none of %s", path, strings.Join(paths, ", "))
	}
	if err := r.leave(path); err != nil {
		return err
	}
	folder, kept := r.parent(path)
	if folder == nil {
		return fmt.Errorf("the archive has %s, and the folder above is neither in it nor on the host", path)
	}
	name := filepath.Base(path)
	switch h.Typeflag {
	case tar.TypeSymlink:
		return folder.Symlink(h.Linkname, name)
	case tar.TypeDir:
		sub := kept
		if sub == nil {
			var err error
			if sub, err = folder.MakeFolder(name); err != nil {
				return err
			}
		}
		r.within = append(r.within, made{path, sub, h})
		return nil
	}
	f, err := folder.Create(name, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err == nil {
		err = own(f, h)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// parent returns the folder for what is at path, and what is there if it is a top that was kept.
func (r *restorer) parent(path string) (folder, kept disk.Folder) {
	for _, t := range r.tops {
		if t.path == path {
			kept, t.kept = t.kept, nil // the caller closes it
			return t.parent, kept
		}
	}
	if n := len(r.within); n > 0 && r.within[n-1].path == filepath.Dir(path) {
		return r.within[n-1].folder, nil
	}
	return nil, nil
}

// leave completes the folders that do not hold path. A folder comes after what is in it, since its own
// mode may forbid writing, and its owner may change it.
func (r *restorer) leave(path string) error {
	for len(r.within) > 0 {
		last := r.within[len(r.within)-1]
		if strings.HasPrefix(path, last.path+string(filepath.Separator)) {
			return nil
		}
		if err := errors.Join(disk.SetOwner(last.folder, modeOf(last.is), ownerOf(last.is)), last.folder.Sync()); err != nil {
			return err
		}
		r.within = r.within[:len(r.within)-1]
		if err := last.folder.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (r *restorer) close() (err error) {
	for _, m := range r.within {
		err = errors.Join(err, m.folder.Close())
	}
	for _, t := range r.tops {
		err = errors.Join(err, t.close())
	}
	return err
}

func modeOf(h *tar.Header) fs.FileMode { return h.FileInfo().Mode() & modeBits }
func ownerOf(h *tar.Header) disk.Owner { return disk.Owner{UID: h.Uid, GID: h.Gid} }

// own gives a file the mode and the owner that the archive has.
func own(f disk.File, h *tar.Header) error {
	if owner := ownerOf(h); owner != disk.Own {
		if err := f.Chown(owner.UID, owner.GID); err != nil {
			return err
		}
	}
	return f.Chmod(modeOf(h))
}
