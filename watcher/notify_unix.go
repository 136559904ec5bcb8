//go:build unix

package main

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// notifyTimeout is long: systemd accepts the message at once.
const notifyTimeout = time.Second

// notifyReady notifies systemd that a unit of Type=notify has started, with a text for
// `systemctl status`. It does nothing without a socket. It unsets the variable, so that no
// agent and no check started from here notifies systemd for the watcher.
func notifyReady(status string) error {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil
	}
	if err := os.Unsetenv("NOTIFY_SOCKET"); err != nil {
		return err
	}
	conn, err := net.DialTimeout("unixgram", path, notifyTimeout) // a name that begins with @ is an abstract one
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte("READY=1\nSTATUS=" + status + "\n"))
	return err
}

// readerGone reports whether a write failed because nobody reads the pipe any more.
func readerGone(err error) bool { return errors.Is(err, syscall.EPIPE) }
