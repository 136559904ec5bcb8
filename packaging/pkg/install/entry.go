package install

import (
	"archive/tar"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/klauspost/compress/zip"
	"github.com/mholt/archiver/v4"
)

const (
	// MaxNameLength bounds the name of one folder entry in bytes. Every supported
	// file system allows as much.
	MaxNameLength = 255
	// MaxPathLength bounds a whole path in bytes. Windows stops at 260 where
	// long paths are off, Linux at 4096; real packages stay far below.
	MaxPathLength = 1024
)

// checkedEntry is an entry that passed checkEntry.
type checkedEntry struct {
	name string // clean, slash-separated, as in the archive but without a leading ./
	dir  bool
	mode fs.FileMode // 0755 or 0644
}

// checkEntry checks an entry's name and type. Every entry passes it before anything
// else sees the entry.
func checkEntry(f archiver.FileInfo) (checkedEntry, error) {
	name, err := cleanName(f.NameInArchive)
	if err != nil {
		return checkedEntry{}, err
	}
	if why := forbiddenKind(f); why != "" {
		return checkedEntry{}, &RefusedError{f.NameInArchive, why}
	}
	mode := fs.FileMode(0o644)
	if f.Mode()&0o111 != 0 {
		mode = 0o755
	}
	return checkedEntry{name: name, dir: f.IsDir(), mode: mode}, nil
}

// cleanName refuses a name that is not in its shortest form and does not repair it:
// such a name would pass a check under one spelling and be written under the other.
// The one exception is the leading ./ that `tar -C folder .` writes.
func cleanName(raw string) (string, error) {
	refuse := func(format string, args ...any) (string, error) {
		return "", &RefusedError{raw, fmt.Sprintf(format, args...)}
	}
	name := strings.TrimSuffix(raw, "/")
	if name == "." {
		return name, nil
	}
	name = strings.TrimPrefix(name, "./")
	switch {
	case raw == "" || name == "":
		return refuse("has no name")
	case strings.HasPrefix(raw, "/"):
		return refuse("is an absolute path")
	case strings.Contains(raw, `\`):
		return refuse("has a backslash in its name")
	case strings.Contains(raw, ":"):
		return refuse("has a colon in its name, which is a drive or a stream on Windows")
	case !utf8.ValidString(raw) || strings.ContainsFunc(raw, unicode.IsControl):
		return refuse("has control characters or broken UTF-8 in its name")
	case len(name) > MaxPathLength:
		return refuse("has a path of more than %d bytes", MaxPathLength)
	}
	for part := range strings.SplitSeq(name, "/") {
		switch {
		case part == "..":
			return refuse("leads out of the package through ..")
		case part == "" || part == ".":
			return refuse("has a path that is not in its shortest form, which is %q", path.Clean(name))
		case len(part) > MaxNameLength:
			return refuse("has a name of more than %d bytes", MaxNameLength)
		}
	}
	return name, nil
}

// symbolicLink is why a symbolic link is not unpacked.
const symbolicLink = "is a symbolic link"

// forbiddenKind returns why an entry of its type must not be unpacked, or "".
func forbiddenKind(f archiver.FileInfo) string {
	switch h := f.Header.(type) {
	case *tar.Header:
		return forbiddenTar(h.Typeflag)
	case zip.FileHeader:
		return forbiddenZip(h)
	}
	return fmt.Sprintf("has a header of an unknown kind (%T)", f.Header)
}

func forbiddenTar(flag byte) string {
	switch flag {
	case tar.TypeReg, tar.TypeDir:
		return ""
	case tar.TypeSymlink:
		return symbolicLink
	case tar.TypeLink:
		return "is a hard link"
	case tar.TypeChar, tar.TypeBlock, tar.TypeFifo:
		return "is a device or a pipe"
	}
	return fmt.Sprintf("is neither a file nor a folder (tar type %q)", flag)
}

func forbiddenZip(h zip.FileHeader) string {
	const encrypted = 1 // bit 0 of the flags
	mode := h.Mode()
	switch {
	case mode&fs.ModeSymlink != 0:
		return symbolicLink
	case !mode.IsDir() && !mode.IsRegular():
		return "is a device or a pipe"
	case h.Flags&encrypted != 0:
		return "is encrypted"
	// The archive library supports more methods, each with a decoder that would
	// have to be trusted; packages need none of them.
	case h.Method != zip.Store && h.Method != zip.Deflate:
		return fmt.Sprintf("is compressed by method %d, want store or deflate", h.Method)
	}
	return ""
}

// isTopLink reports whether the entry is a symbolic link in the archive's top folder.
func isTopLink(f archiver.FileInfo) bool {
	name, err := cleanName(f.NameInArchive)
	return err == nil && strings.Count(name, "/") == 1 && forbiddenKind(f) == symbolicLink
}
