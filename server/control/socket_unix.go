//go:build unix

package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

const (
	socketName = "control.sock"
	// stagingName is the folder in which the socket is created. Between listening and
	// changing the mode others could connect, so the socket is created in a folder that
	// is closed to others, and then moved.
	stagingName = ".control"
)

func listen(folder string) (net.Listener, error) {
	staging := filepath.Join(folder, stagingName)
	if err := os.RemoveAll(staging); err != nil { // left by a server that was killed
		return nil, err
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(staging) // if this fails, the next server does it
	var l net.Listener
	err := withShortPath(staging, func(short string) (err error) {
		l, err = net.Listen("unix", filepath.Join(short, socketName))
		return err
	})
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // the socket is moved
	made := filepath.Join(staging, socketName)
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, filepath.Join(folder, socketName))); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func remove(folder string) { _ = os.Remove(filepath.Join(folder, socketName)) }

func dial(ctx context.Context, folder string) (conn net.Conn, err error) {
	if _, err := os.Lstat(filepath.Join(folder, socketName)); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoServer
	}
	err = withShortPath(folder, func(short string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(short, socketName))
		return err
	})
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil, ErrNoServer // the server was killed, or has just stopped
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("a server runs on %s, for another user: run the command as that user: %w", folder, err)
	}
	return conn, err
}

// maxSocketPath is the longest path of a socket that every system accepts: Linux allows
// 107 bytes, macOS 103.
const maxSocketPath = 103

// withShortPath calls f with a path of folder that is short enough for a socket: the
// path itself, or a symbolic link to it.
func withShortPath(folder string, f func(short string) error) error {
	folder, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	if len(filepath.Join(folder, socketName)) <= maxSocketPath {
		return f(folder)
	}
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	link := filepath.Join(dir, "d")
	if err := os.Symlink(folder, link); err != nil {
		return err
	}
	return f(link)
}
