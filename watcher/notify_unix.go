//go:build unix

package main

import (
	"net"
	"os"
	"time"
)

// notifyTimeout: systemd takes the message at once, or is gone.
const notifyTimeout = time.Second

// notifyReady tells systemd that the start of a unit of Type=notify is over, with
// the text `systemctl status` shows. Without a socket nobody waits. The variable
// is taken away, so that no agent and no check started from here speaks for the
// watcher.
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
