package socket

import (
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID returns the user that opened the other end of a connection.
func PeerUID(conn *net.UnixConn) (int, error) {
	var cred *unix.Xucred
	err := control(conn, func(fd int) (err error) {
		cred, err = unix.GetsockoptXucred(fd, unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(cred.Uid), nil
}
