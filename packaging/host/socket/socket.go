// Package socket opens Unix sockets that only one user, and root, may use. The socket of a
// program is always in its own folder, however long the folder's path is: a name in a folder
// that others may write to, such as /tmp, could be taken by another user before.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
)

// maxPath is the longest path of a socket that every system accepts: Linux allows 107
// bytes, macOS 103.
const maxPath = 103

// Listen opens a socket at path. staging is a folder beside it, which is created and
// removed: the socket is made there, where others cannot enter, and then moved, because
// between listening and changing the mode others could connect. Connections of users other
// than root and the process's own are closed.
//
// On Windows it is made at path, since the access lists of the folder hold for it from the
// beginning, and nothing says that the name of an open socket can be changed.
func Listen(path, staging string) (net.Listener, error) {
	if runtime.GOOS == "windows" {
		return listenAt(path)
	}
	if err := os.RemoveAll(staging); err != nil { // left by a process that was killed
		return nil, err
	}
	if err := os.Mkdir(staging, 0o700); err != nil {
		return nil, err
	}
	defer os.RemoveAll(staging) // if this fails, the next process does it
	made := filepath.Join(staging, "s")
	l, err := listenAt(made)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(os.Chmod(made, 0o600), os.Rename(made, path)); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	l.path = path
	return l, nil
}

// listenAt opens a socket at path, where there is no file.
func listenAt(path string) (*listener, error) {
	var l *net.UnixListener
	err := withShortPath(path, func(short string) (err error) {
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // the listener has another name for it
	return &listener{UnixListener: l, path: path}, nil
}

// listener removes its socket's file when it is closed.
type listener struct {
	*net.UnixListener
	path string
}

// Accept returns the next connection of a user that may use the socket. The file's mode lets
// in no others, but a mode can be changed, and a descriptor can be passed on.
func (l *listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		if uid, err := PeerUID(conn); err == nil && (uid == unknown || uid == 0 || uid == os.Geteuid()) {
			return conn, nil
		}
		conn.Close()
	}
}

func (l *listener) Close() error {
	err := l.UnixListener.Close()
	if rerr := os.Remove(l.path); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
		err = errors.Join(err, rerr)
	}
	return err
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (conn net.Conn, err error) {
	err = withShortPath(path, func(short string) (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "unix", short)
		return err
	})
	return conn, err
}

// unknown is the user of a connection on systems that do not tell. There the access
// control of the file decides alone.
const unknown = -1

// withShortPath calls f with a name for path that is short enough for a socket: the path
// itself, or one through a symbolic link to its folder. The link is in a new folder with a
// random name.
func withShortPath(path string, f func(short string) error) error {
	if len(path) <= maxPath {
		return f(path)
	}
	if runtime.GOOS == "windows" { // links need rights there
		return fmt.Errorf("%s has %d bytes, but the path of a socket may have %d: choose a folder with a shorter path", path, len(path), maxPath)
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "m")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	link := filepath.Join(dir, "d")
	if err := os.Symlink(filepath.Dir(path), link); err != nil {
		return err
	}
	return f(filepath.Join(link, filepath.Base(path)))
}
