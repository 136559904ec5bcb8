package doctor

import (
	"errors"
	"io/fs"
	"net"
	"syscall"
)

// Port reports whether a program could listen at an address. If another one does, holder is a
// description of it, empty if it is not known.
func Port(address string) (free bool, holder string, f Finding) {
	l, err := net.Listen("tcp", address)
	if err == nil {
		err = l.Close()
	}
	switch {
	case err == nil:
		return true, "", Good("%s is free", address)
	case errors.Is(err, syscall.EADDRINUSE):
		holder = holderOf(address)
		who := "another program"
		if holder != "" {
			who = holder
		}
		return false, holder, Bad("stop it, or choose another port in the configuration; sudo ss -ltnp shows who listens", "%s is taken by %s", address, who)
	case errors.Is(err, fs.ErrPermission):
		return false, "", Bad("choose a port above 1023", "this user may not listen at %s", address)
	}
	return false, "", Bad("choose an address of this machine: ip address", "%v", err)
}
