package main

import (
	"errors"

	"golang.org/x/sys/windows"
)

// notifyReady does nothing on Windows.
func notifyReady(string) error { return nil }

// readerGone reports whether a write failed because nobody reads the pipe any more.
func readerGone(err error) bool {
	return errors.Is(err, windows.ERROR_BROKEN_PIPE) || errors.Is(err, windows.ERROR_NO_DATA)
}
