package runtimetest

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

const (
	greeting = "runtimetest runs version "
	reloaded = "runtimetest reloaded"
)

// Program is the program of a release. It prints its version, prints a line for each
// SIGHUP, and ends at SIGTERM. With broken it prints its version and returns 3 at once.
func Program(version string, broken bool) (status int) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGTERM)
	fmt.Println(greeting + version)
	if broken {
		return 3
	}
	for s := range signals {
		if s == syscall.SIGTERM {
			return 0
		}
		fmt.Println(reloaded)
	}
	return 0
}
