//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "loadtest: needs Linux, whose epoll lets thousands of agents wait without a thread")
	os.Exit(1)
}
