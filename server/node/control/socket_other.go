//go:build !unix

package control

import (
	"context"
	"errors"
	"net"
)

func listen(string) (net.Listener, error) { return nil, errors.ErrUnsupported }

func dial(context.Context, string) (net.Conn, error) { return nil, ErrNoServer }
