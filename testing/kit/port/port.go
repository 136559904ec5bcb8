// Package port chooses TCP ports of this machine for programs that tests start: nodes, servers
// and components that keep their port when they are started again.
//
// The kernel gives ephemeral ports, from 32768 on, to every connection that is opened. A
// listener on 127.0.0.1:0 gets one of them too, and loses it to a connection while its program
// is stopped. So these ports are below.
package port

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Host is where the ports are free: loopback.
const Host = "127.0.0.1"

// first and last bound the ports.
const (
	first = 20000
	last  = 31999
)

var (
	mu    sync.Mutex
	taken = map[int]bool{}
)

// Free returns a port that nothing listens on. It returns no port twice in one process. The
// port may be taken by another process before it is used.
func Free() (int, error) {
	mu.Lock()
	defer mu.Unlock()
	const tries = 100 // a machine on which each hundredth port is free has other troubles
	for range tries {
		p := first + rand.IntN(last-first+1)
		if !taken[p] && IsFree(p) {
			taken[p] = true
			return p, nil
		}
	}
	return 0, fmt.Errorf("no free port found between %d and %d in %d tries", first, last, tries)
}

// Address returns [Host] with a port of [Free], as a listener takes it.
func Address() (string, error) {
	p, err := Free()
	return net.JoinHostPort(Host, strconv.Itoa(p)), err
}

// IsFree reports whether nothing listens on a port of [Host].
func IsFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort(Host, strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
