package disk

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/packaging/host/layout"
)

// WriteFile replaces the content of path atomically: readers see the old bytes or the
// new ones, also after a power cut. The temporary file is in the folder of path, since
// a rename cannot cross file systems.
func WriteFile(d Disk, op, path string, data []byte, perm fs.FileMode) error {
	in := dir{d, op, filepath.Dir(path)}
	return replace(in, op, filepath.Base(path), data, perm, func(File) error { return nil })
}

// Owner is whose a file is. A value of -1 means the account of the process.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// Own is the owner of the files that a process makes.
var Own = Owner{-1, -1}

// place is the folder in which replace replaces a file.
type place interface {
	Remove(name string) error
	Create(name string, perm fs.FileMode) (File, error)
	Rename(from, to string) error
	Sync() error
}

// dir is a place that is named by its path.
type dir struct {
	disk     Disk
	op, path string
}

func (d dir) at(name string) string    { return filepath.Join(d.path, name) }
func (d dir) Remove(name string) error { return d.disk.Remove(d.op, d.at(name)) }
func (d dir) Create(name string, perm fs.FileMode) (File, error) {
	return d.disk.OpenFile(d.op, d.at(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
}
func (d dir) Rename(from, to string) error { return d.disk.Rename(d.op, d.at(from), d.at(to)) }
func (d dir) Sync() error                  { return d.disk.SyncDir(d.op, d.path) }

func replace(in place, op, name string, data []byte, perm fs.FileMode, prepare func(File) error) error {
	tmp := name + layout.NewSuffix
	// A temporary file left by a crash is removed and not truncated, since its
	// mode may let others read the new content.
	if err := in.Remove(tmp); err != nil {
		return err
	}
	f, err := in.Create(tmp, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = prepare(f)
	}
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = in.Rename(tmp, name)
	}
	if err != nil {
		return errors.Join(wrapOnce(op, err), in.Remove(tmp))
	}
	return in.Sync()
}

// Point atomically makes the symbolic link at link point to target, which is relative
// to the folder of link so that an installation can be moved.
//
// On Linux and macOS rename(2) replaces the link atomically. On Windows MoveFileEx
// does so for a link to a file, even while the link's target runs. Creating a symbolic
// link there requires a privilege, which LocalSystem and administrators have, and
// every user in developer mode; without it Point returns the system's error and
// changes nothing. Point was not run on Windows.
func Point(d Disk, op, target, link string) error {
	tmp := link + layout.NewSuffix
	if err := d.Remove(op, tmp); err != nil {
		return err
	}
	if err := d.Symlink(op, target, tmp); err != nil {
		return err
	}
	if err := d.Rename(op, tmp, link); err != nil {
		return errors.Join(err, d.Remove(op, tmp))
	}
	return d.SyncDir(op, filepath.Dir(link))
}

// ErrDamaged is returned if neither a record nor its previous copy is valid. Callers
// treat it like a missing record: it must never keep an agent from starting.
var ErrDamaged = errors.New("record is damaged")

// WriteRecord stores v as JSON under one header line that names the kind, the
// format's version and the SHA-256 of what follows:
//
//	muster-marker 1 sha256:5f2a…
//	{ … }
//
// It keeps the previous record as path+".prev".
func WriteRecord(d Disk, op, path, kind string, version int, v any) error {
	data, err := encodeRecord(op, kind, version, v, 0)
	if err != nil {
		return err
	}
	if err := keepPrevious(d, op, path, kind, version); err != nil {
		return err
	}
	return WriteFile(d, op, path, data, 0o600)
}

// encodeRecord returns a record of at least room bytes: spaces follow the JSON.
func encodeRecord(op, kind string, version int, v any, room int) ([]byte, error) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", op, err)
	}
	head := func() []byte {
		sum := sha256.Sum256(body)
		return fmt.Appendf(nil, "muster-%s %d sha256:%s\n", kind, version, hex.EncodeToString(sum[:]))
	}
	if pad := room - len(head()) - len(body) - 1; pad > 0 { // the header's length is the same for every body
		body = append(body, bytes.Repeat([]byte{' '}, pad)...)
	}
	body = append(body, '\n')
	return append(head(), body...), nil
}

// ReserveRecord stores a record that takes room bytes, without a previous copy, so that
// [OverwriteRecord] can replace it when the disk is full.
func ReserveRecord(d Disk, op, path, kind string, version int, v any, room int) error {
	data, err := encodeRecord(op, kind, version, v, room)
	if err != nil {
		return err
	}
	if err := d.Remove(op, path+layout.PreviousSuffix); err != nil {
		return err
	}
	return WriteFile(d, op, path, data, 0o600)
}

// OverwriteRecord writes a record into the space of the one that [ReserveRecord] has stored. File
// systems that overwrite in place need no free space for that; those that copy on write, such as btrfs,
// may. A crash in between leaves a damaged record. It returns false, and changes nothing, if there is
// no record of exactly room bytes or v does not fit.
func OverwriteRecord(d Disk, op, path, kind string, version int, v any, room int) (bool, error) {
	data, err := encodeRecord(op, kind, version, v, room)
	if err != nil || len(data) != room {
		return false, err
	}
	fi, err := d.Lstat(op, path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil || !fi.Mode().IsRegular() || fi.Size() != int64(room) {
		return false, err
	}
	f, err := d.OpenFile(op, path, os.O_WRONLY, 0)
	if err != nil {
		return false, err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return true, wrapOnce(op, err)
}

// keepPrevious updates path+".prev" before path is replaced.
func keepPrevious(d Disk, op, path, kind string, version int) error {
	old, err := d.ReadFile(op, path)
	if errors.Is(err, fs.ErrNotExist) {
		// A power cut during RemoveRecord may leave a copy without a record. The
		// copy must not replace the new record if that is damaged later.
		return d.Remove(op, path+layout.PreviousSuffix)
	}
	if err == nil {
		_, err = parseRecord(old, kind, version)
	}
	if err != nil {
		// A damaged record must not replace the last valid copy.
		return nil
	}
	return WriteFile(d, op, path+layout.PreviousSuffix, old, 0o600)
}

// ReadRecord decodes a record that [WriteRecord] wrote into v, or its previous copy if
// the record is not valid. It returns fs.ErrNotExist if there is no record, and
// [ErrDamaged] if neither is valid and of a format version up to version.
func ReadRecord(d Disk, op, path, kind string, version int, v any) error {
	data, err := d.ReadFile(op, path)
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var body []byte
	if err == nil {
		body, err = parseRecord(data, kind, version)
	}
	if err != nil {
		prev, perr := d.ReadFile(op, path+layout.PreviousSuffix)
		if perr != nil {
			return fmt.Errorf("%s: %s: %w: %w", op, path, ErrDamaged, err)
		}
		if body, perr = parseRecord(prev, kind, version); perr != nil {
			return fmt.Errorf("%s: %s: %w: %w", op, path, ErrDamaged, err)
		}
	}
	if err := json.Unmarshal(body, v); err != nil {
		return fmt.Errorf("%s: %s: %w: %w", op, path, ErrDamaged, err)
	}
	return nil
}

// FindRecord is [ReadRecord] for an optional record: it returns nil if there is
// none.
func FindRecord[T any](d Disk, op, path, kind string, version int) (*T, error) {
	v := new(T)
	err := ReadRecord(d, op, path, kind, version, v)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return v, nil
}

// RemoveRecord removes a record and its previous copy. It removes the copy first, so
// that a crash in between does not restore the older state.
func RemoveRecord(d Disk, op, path string) error {
	if err := d.Remove(op, path+layout.PreviousSuffix); err != nil {
		return err
	}
	if err := d.Remove(op, path); err != nil {
		return err
	}
	return d.SyncDir(op, filepath.Dir(path))
}

// RemoveCopies removes all files of a record, also those that a power cut has left of one that is
// gone, in the order of [layout.Copies].
func RemoveCopies(d Disk, op, path string) error {
	var errs []error
	for _, name := range layout.Copies(path) {
		errs = append(errs, d.Remove(op, name))
	}
	return errors.Join(errs...)
}

func parseRecord(data []byte, kind string, version int) ([]byte, error) {
	head, body, ok := bytes.Cut(data, []byte("\n"))
	fields := strings.Fields(string(head))
	if !ok || len(fields) != 3 {
		return nil, errors.New("no header line")
	}
	if fields[0] != "muster-"+kind {
		return nil, fmt.Errorf("is a %q record, want muster-%s", fields[0], kind)
	}
	n, err := strconv.Atoi(fields[1])
	if err != nil || n < 1 || n > version {
		return nil, fmt.Errorf("format version %q is not understood (up to %d is)", fields[1], version)
	}
	sum := sha256.Sum256(body)
	if fields[2] != "sha256:"+hex.EncodeToString(sum[:]) {
		return nil, errors.New("checksum does not match")
	}
	return body, nil
}

// CopyTree copies the folders and regular files below from to to, which may exist,
// and makes them durable. It skips sockets and links, which belong to the process
// that made them, and files that disappear during the copy, as the temporary files of
// a running process do. It replaces files that exist in to atomically. If from does
// not exist, CopyTree does nothing. It stops between two reads when ctx ends.
func CopyTree(ctx context.Context, d Disk, op, from, to string) error {
	copied, err := copyFolder(ctx, d, op, from, to)
	if err != nil || !copied {
		return err
	}
	return d.SyncDir(op, filepath.Dir(to))
}

// copyFolder is CopyTree without the sync of the folder that holds to.
func copyFolder(ctx context.Context, d Disk, op, from, to string) (copied bool, err error) {
	entries, err := d.ReadDir(op, from)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if err := d.MkdirAll(op, to, 0o700); err != nil {
		return false, err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return false, context.Cause(ctx)
		}
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.IsDir():
			_, err = copyFolder(ctx, d, op, src, dst)
		case e.Type().IsRegular():
			err = copyFile(ctx, d, op, src, dst)
		}
		if err != nil {
			return false, err
		}
	}
	return true, d.SyncDir(op, to)
}

func copyFile(ctx context.Context, d Disk, op, from, to string) error {
	in, err := d.OpenFile(op, from, os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	fi, err := in.Stat()
	if err != nil {
		return wrapOnce(op, err)
	}
	// An older copy stays until the new one is complete: it may be the state of a
	// version that is about to run.
	tmp := to + layout.NewSuffix
	if err := d.Remove(op, tmp); err != nil {
		return err
	}
	if err := writeCopy(d, op, tmp, Reader(ctx, in), fi.Mode().Perm()); err != nil {
		return errors.Join(err, d.Remove(op, tmp))
	}
	return d.Rename(op, tmp, to)
}

func writeCopy(d Disk, op, to string, in io.Reader, perm fs.FileMode) (err error) {
	out, err := d.OpenFile(op, to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := out.Close(); err == nil {
			err = wrapOnce(op, cerr)
		}
	}()
	if _, err := io.Copy(out, in); err != nil {
		return wrapOnce(op, err)
	}
	return wrapOnce(op, out.Sync())
}

func wrapOnce(op string, err error) error {
	var labelled *Error
	if err == nil || errors.As(err, &labelled) {
		return err
	}
	return &Error{Op: op, Err: err}
}

// Reader returns a reader of r that fails with the cause of ctx when ctx ends.
func Reader(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context //nolint:containedctx // io.Reader has no way to pass one
	r   io.Reader
}

func (c contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
