package download

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	schemeFile = "file"
	// maxLinks bounds the links followed to a source. A drop folder has one, such as
	// latest → 1.1.0, on a mount that may be reached by another.
	maxLinks = 4
)

// openFile opens a file of this host as a source. It is resumed like other sources, since
// the folder may be a slow network mount.
func (f *Fetcher) openFile(s *source, from int64) (answer, error) {
	fi, err := f.stat(s)
	if err != nil {
		return answer{}, err
	}
	a := answer{size: fi.Size(), tag: fileTag(fi)}
	path, err := filePath(s)
	if err != nil {
		return a, err
	}
	file, err := f.Disk.OpenFile(opSource, path, os.O_RDONLY, 0)
	if err != nil {
		return a, fileError(err)
	}
	a.body, a.start = file, from
	if _, err := file.Seek(from, io.SeekStart); err != nil {
		file.Close()
		return a, fileError(err)
	}
	return a, nil
}

// fileTag returns a substitute for an ETag.
func fileTag(fi fs.FileInfo) string {
	return fmt.Sprintf(`"%d-%d"`, fi.Size(), fi.ModTime().UnixNano())
}

// stat returns the file's info. It follows links itself, so that only regular files are
// opened: opening a pipe blocks, and opening a device may have side effects.
func (f *Fetcher) stat(s *source) (fs.FileInfo, error) {
	path, err := filePath(s)
	if err != nil {
		return nil, err
	}
	for range maxLinks + 1 {
		fi, err := f.Disk.Lstat(opSource, path)
		switch {
		case err != nil:
			return nil, fileError(err)
		case fi.Mode().IsRegular():
			return fi, nil
		case fi.Mode().Type() != fs.ModeSymlink:
			return nil, refused("is no regular file: name the archive itself")
		}
		target, err := f.Disk.Readlink(opSource, path)
		if err != nil {
			return nil, fileError(err)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(path), target)
		}
		if isNetworkPath(target) {
			return nil, errNetworkPath
		}
		path = target
	}
	return nil, refused("leads through more than %d links: name the archive itself", maxLinks)
}

// FolderOf returns the folder of this host that a source names with the scheme file.
func FolderOf(u *url.URL) (string, error) { return filePath(&source{url: u}) }

// filePath returns the path of a file URL on this system.
func filePath(s *source) (string, error) {
	path := s.url.Path
	switch host := s.url.Host; {
	case path == "":
		return "", refused("names no file: write file:///path")
	case host != "" && host != "localhost":
		return "", refused("names the host %q: write file:///path for a folder of this host", host)
	case isNetworkPath(path) || isNetworkPath(strings.TrimPrefix(path, "/")):
		return "", errNetworkPath
	case len(path) > 2 && path[2] == ':' && runtime.GOOS == "windows":
		path = path[1:] // file:///C:/drop
	}
	if strings.ContainsRune(path, 0) {
		return "", refused("holds a zero byte: write file:///path")
	}
	return filepath.FromSlash(path), nil
}

var errNetworkPath = refused("is a network path: mount it, and name the mounted folder")

// isNetworkPath reports whether Windows would open the path on another host, and send it
// this host's credentials.
func isNetworkPath(path string) bool {
	return strings.HasPrefix(strings.ReplaceAll(path, `\`, "/"), "//")
}

// fileError turns an error of a source on this host into a fault. A disk error there is the
// source's, since another source may have the file.
func fileError(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return refused("%w: put the package there, under that name", ErrNotFound)
	case errors.Is(err, fs.ErrPermission):
		return refused("%w: let the agent's user read it", err)
	}
	return err
}
