// Package backup writes what a server needs on an empty machine to one file, and puts it
// back. The file is a tar archive: the copy of the embedded store, the folders of the data
// folder that cannot be made again, and last a list of the files with the size and the digest of
// each file, so that a backup that was cut off or damaged is recognised before anything is
// replaced.
//
// A backup has the key of the CA and the key that confirms packages: whoever reads it can
// pose as the server.
package backup

import (
	"archive/tar"
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
	"slices"
	"strings"
	"time"
)

const (
	// contentsName is the name of the last entry.
	contentsName = "manifest.json"
	// format is the version of the archive's form.
	format = 1
	// maxContents bounds Contents: some 200 bytes for each of 100,000 files.
	maxContents = 20 << 20
)

// StoreFile is the name of the embedded store in the data folder and in backups.
const StoreFile = "muster.db"

// Packages is the name of the folder with the bytes of packages.
const Packages = "packages"

// folders are the folders of the data folder that a backup has.
var folders = []string{"tls", "trust", "upgrades", Packages}

// Contents describes a backup.
type Contents struct {
	Format    int       `json:"format"`
	Version   string    `json:"version"` // of Muster
	CreatedAt time.Time `json:"created_at"`
	// Store reports whether the backup has the embedded store. With Elasticsearch its
	// snapshots have the documents.
	Store bool `json:"store"`
	// Packages reports whether the backup has the bytes of packages.
	Packages bool   `json:"packages"`
	Files    []File `json:"files"`
}

// File is one file of a backup.
type File struct {
	Name   string `json:"name"` // slash-separated, below the data folder
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
}

// Bytes returns the size of all files.
func (m Contents) Bytes() (n int64) {
	for _, f := range m.Files {
		n += f.Size
	}
	return n
}

// Write writes a backup of the data folder to w. store is the path of a copy of the
// embedded store, empty if there is none. m.Files is ignored. A file that is removed
// meanwhile is left out.
func Write(ctx context.Context, w io.Writer, data, store string, m Contents) (Contents, error) {
	m.Format, m.Store, m.Files = format, store != "", []File{}
	out := tar.NewWriter(w)
	add := func(name, path string) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := writeFile(out, name, path)
		if err == nil {
			m.Files = append(m.Files, f)
		}
		return err
	}
	// The store first: the bytes of a package are written before its record, so the folder
	// has those of every record in the copy.
	if m.Store {
		if err := add(StoreFile, store); err != nil {
			return m, err
		}
	}
	for _, folder := range folders {
		if folder == Packages && !m.Packages {
			continue
		}
		err := filepath.WalkDir(filepath.Join(data, folder), func(path string, d fs.DirEntry, err error) error {
			name, rerr := filepath.Rel(data, path)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err != nil || rerr != nil:
				return errors.Join(err, rerr)
			case !d.Type().IsRegular() || strings.HasPrefix(d.Name(), ".") && folder == Packages: // an unfinished push
				return nil
			}
			if err := add(filepath.ToSlash(name), path); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
		if err != nil {
			return m, err
		}
	}
	text, err := json.Marshal(m)
	if err != nil {
		return m, err
	}
	if err := out.WriteHeader(header(contentsName, int64(len(text)))); err != nil {
		return m, err
	}
	if _, err := out.Write(text); err != nil {
		return m, err
	}
	return m, out.Close()
}

func header(name string, size int64) *tar.Header {
	return &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, Format: tar.FormatPAX}
}

func writeFile(out *tar.Writer, name, path string) (File, error) {
	f, err := os.Open(path)
	if err != nil {
		return File{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return File{}, err
	}
	if err := out.WriteHeader(header(name, info.Size())); err != nil {
		return File{}, err
	}
	hash := sha256.New()
	if _, err := io.CopyN(io.MultiWriter(out, hash), f, info.Size()); err != nil {
		return File{}, fmt.Errorf("%s: %w", path, err)
	}
	return File{Name: name, Size: info.Size(), SHA256: hex.EncodeToString(hash.Sum(nil))}, nil
}

// Read unpacks a backup into dir, an empty folder, and verifies every file. If it fails,
// dir may have some of the files.
func Read(ctx context.Context, r io.Reader, dir string) (m Contents, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	in := tar.NewReader(r)
	var files []File
	for {
		h, err := next(ctx, in)
		if err != nil {
			return m, err
		}
		if h.Name == contentsName {
			break
		}
		if err := checkName(h); err != nil {
			return m, err
		}
		f, err := readFile(in, root, h)
		if err != nil {
			return m, err
		}
		files = append(files, f)
	}
	if m, err = readContents(in); err != nil {
		return m, err
	}
	return m, compare(m.Files, files)
}

// ReadContents returns the description of a backup without reading the files before it, so that
// it does not verify them.
func ReadContents(ctx context.Context, r io.ReadSeeker) (m Contents, err error) {
	in := tar.NewReader(r)
	for {
		h, err := next(ctx, in)
		if err != nil {
			return m, err
		}
		if h.Name == contentsName {
			return readContents(in)
		}
	}
}

// next returns the next entry before the end of a backup.
func next(ctx context.Context, in *tar.Reader) (*tar.Header, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	h, err := in.Next()
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
		return nil, errors.New("it ends before its list of files: it was cut off, or is no backup")
	case err != nil:
		return nil, fmt.Errorf("it is damaged, or is no backup: %w", err)
	}
	return h, nil
}

func readContents(in io.Reader) (m Contents, err error) {
	text, err := io.ReadAll(io.LimitReader(in, maxContents))
	if err != nil {
		return m, fmt.Errorf("its list of files cannot be read: %w", err)
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return m, fmt.Errorf("its list of files cannot be decoded: %w", err)
	}
	if m.Format != format {
		return m, fmt.Errorf("it has the form %d, and this program reads %d: use Muster %s or a later one", m.Format, format, m.Version)
	}
	return m, nil
}

// checkName refuses entries that are not part of a data folder.
func checkName(h *tar.Header) error {
	top, _, nested := strings.Cut(h.Name, "/")
	known := h.Name == StoreFile || nested && slices.Contains(folders, top)
	if h.Typeflag != tar.TypeReg || !known || !filepath.IsLocal(filepath.FromSlash(h.Name)) || strings.Contains(h.Name, `\`) {
		return fmt.Errorf("it has an entry %q, which no backup has", h.Name)
	}
	return nil
}

// readFile unpacks one file and writes it to disk.
func readFile(in io.Reader, root *os.Root, h *tar.Header) (_ File, err error) {
	name := filepath.FromSlash(h.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return File{}, err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return File{}, err
	}
	defer func() {
		if cerr := f.Close(); err == nil {
			err = cerr
		}
	}()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(f, hash), in)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("it ends within %s: it was cut off", h.Name)
	}
	if err != nil {
		return File{}, err
	}
	return File{Name: h.Name, Size: n, SHA256: hex.EncodeToString(hash.Sum(nil))}, f.Sync()
}

func compare(want, have []File) error {
	for i, w := range want {
		if i >= len(have) || have[i].Name != w.Name {
			return fmt.Errorf("%s is missing from it", w.Name)
		}
		if have[i] != w {
			return fmt.Errorf("%s is damaged: it has %d bytes with the digest %s, and its list of files has %d bytes with %s", w.Name, have[i].Size, have[i].SHA256, w.Size, w.SHA256)
		}
	}
	if len(have) > len(want) {
		return fmt.Errorf("its list of files does not name %s", have[len(want)].Name)
	}
	return nil
}
