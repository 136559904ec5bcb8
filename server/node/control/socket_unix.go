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

	"github.com/muster-fleet/muster/packaging/host/socket"
)

const (
	socketName  = "control.sock"
	stagingName = ".control" // see socket.Listen
)

func listen(folder string) (net.Listener, error) {
	return socket.Listen(filepath.Join(folder, socketName), filepath.Join(folder, stagingName))
}

func dial(ctx context.Context, folder string) (net.Conn, error) {
	path := filepath.Join(folder, socketName)
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil, ErrNoServer
	}
	conn, err := socket.Dial(ctx, path)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, os.ErrNotExist):
		return nil, ErrNoServer // the server was killed, or has just stopped
	case errors.Is(err, os.ErrPermission):
		return nil, fmt.Errorf("a server runs on %s, for another user: run the command as that user: %w", folder, err)
	}
	return conn, err
}
