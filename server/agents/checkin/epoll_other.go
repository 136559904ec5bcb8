//go:build !linux

package checkin

import (
	"context"
	"log/slog"
	"net"
)

// EpollParker is Blocking: other systems have no epoll, and serve small fleets.
type EpollParker struct{ Blocking }

var _ Parker = (*EpollParker)(nil)

// NewEpollParker returns an EpollParker.
func NewEpollParker(*slog.Logger) *EpollParker { return &EpollParker{} }

// Listener returns inner.
func (p *EpollParker) Listener(inner net.Listener) net.Listener { return inner }

// ConnContext returns ctx.
func (p *EpollParker) ConnContext(ctx context.Context, _ net.Conn) context.Context { return ctx }
