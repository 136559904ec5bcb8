package disk

import (
	"bytes"
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

	"github.com/muster-fleet/muster/packaging/layout"
)

// WriteFile replaces path by data as one step: readers see the old bytes or the
// new ones, also after a power cut. The temporary file lies beside path, since a
// rename does not cross file systems.
func WriteFile(d Disk, op, path string, data []byte, perm fs.FileMode) error {
	tmp := path + layout.NewSuffix
	// A left-over of an interrupted write is worth nothing. It is removed, not
	// truncated: its mode may let others read what is written now.
	if err := d.Remove(op, tmp); err != nil {
		return err
	}
	f, err := d.OpenFile(op, tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = d.Rename(op, tmp, path)
	}
	if err != nil {
		return errors.Join(wrapOnce(op, err), d.Remove(op, tmp))
	}
	return d.SyncDir(op, filepath.Dir(path))
}

// Point makes the symbolic link at link point to target as one step. target is
// taken relative to the folder of link, so that an installation can be moved.
//
// On Linux and macOS rename(2) replaces one link by another without a moment in
// between, and Sync of the folder makes it last. On Windows MoveFileEx replaces a
// link to a file likewise. A symbolic link there wants the right to make one,
// which a service has that runs as LocalSystem, an administrator has, and anybody
// has in developer mode; without it the error is that of the system, and nothing
// has changed. A junction would want no right, but leads to folders only, and its
// path is absolute. The name of a program that runs cannot be taken by another
// file, that of a link to it can: the system holds the program and not the link.
// None of this is tested on Windows.
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

// ErrDamaged says that neither a record nor its previous copy can be trusted.
// Callers treat it as "there is no record": never as a reason not to start.
var ErrDamaged = errors.New("record is damaged")

// WriteRecord stores v as JSON under one header line that names the kind, the
// format's version and the SHA-256 of what follows:
//
//	muster-marker 1 sha256:5f2a…
//	{ … }
//
// The record that was there before is kept beside it as path+".prev".
func WriteRecord(d Disk, op, path, kind string, version int, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	body = append(body, '\n')
	sum := sha256.Sum256(body)
	data := fmt.Appendf(nil, "muster-%s %d sha256:%s\n", kind, version, hex.EncodeToString(sum[:]))
	data = append(data, body...)
	if err := keepPrevious(d, op, path, kind, version); err != nil {
		return err
	}
	return WriteFile(d, op, path, data, 0o600)
}

// keepPrevious brings path+".prev" up to date before path is replaced.
func keepPrevious(d Disk, op, path, kind string, version int) error {
	old, err := d.ReadFile(op, path)
	if errors.Is(err, fs.ErrNotExist) {
		// A copy without a record is what a power cut left of RemoveRecord. It
		// must not stand in for the new record, should that be damaged.
		return d.Remove(op, path+layout.PreviousSuffix)
	}
	if err == nil {
		_, err = parseRecord(old, kind, version)
	}
	if err != nil {
		// Only a sound record may become the previous copy: a damaged one
		// would push out the last good state.
		return nil
	}
	return WriteFile(d, op, path+layout.PreviousSuffix, old, 0o600)
}

// ReadRecord reads what WriteRecord wrote into v. It returns fs.ErrNotExist when
// there is no record, and ErrDamaged when there is one but neither it nor its
// previous copy is whole and of a format version up to version.
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

// FindRecord is [ReadRecord] for a record that need not be there: nil when it is
// not.
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

// RemoveRecord removes a record and its previous copy. The copy goes first: a
// crash in between must not bring an older state back.
func RemoveRecord(d Disk, op, path string) error {
	if err := d.Remove(op, path+layout.PreviousSuffix); err != nil {
		return err
	}
	if err := d.Remove(op, path); err != nil {
		return err
	}
	return d.SyncDir(op, filepath.Dir(path))
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

// CopyTree copies the folders and regular files under from to to, which may
// exist, and makes them durable. Sockets, links and locks are passed over: they
// belong to the process that made them. So is a file that goes away while the
// copy runs, as the temporary files of a living process do. A file that is in to
// already is replaced as one step. A from that is not there copies nothing.
func CopyTree(d Disk, op, from, to string) error {
	copied, err := copyFolder(d, op, from, to)
	if err != nil || !copied {
		return err
	}
	return d.SyncDir(op, filepath.Dir(to))
}

// copyFolder leaves only the name of to itself to be made durable.
func copyFolder(d Disk, op, from, to string) (copied bool, err error) {
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
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		switch {
		case e.IsDir():
			_, err = copyFolder(d, op, src, dst)
		case e.Type().IsRegular():
			err = copyFile(d, op, src, dst)
		}
		if err != nil {
			return false, err
		}
	}
	return true, d.SyncDir(op, to)
}

func copyFile(d Disk, op, from, to string) error {
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
	// An older copy stays until the new one is whole: it may be the state of a
	// version that is about to run.
	tmp := to + layout.NewSuffix
	if err := d.Remove(op, tmp); err != nil {
		return err
	}
	if err := writeCopy(d, op, tmp, in, fi.Mode().Perm()); err != nil {
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
