//go:build unix

package main

import (
	"net"
	"os"
	"strings"
)

// notifyReady tells systemd that the watcher's unit has started. It does nothing
// for a watcher that is not a unit.
func notifyReady() error {
	address := os.Getenv("NOTIFY_SOCKET")
	if address == "" {
		return nil
	}
	// Not for the agent that a rollback may start from here.
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return err
	}
	if name, abstract := strings.CutPrefix(address, "@"); abstract {
		address = "\x00" + name
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: address, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.Write([]byte("READY=1"))
	return err
}
