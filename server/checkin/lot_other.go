//go:build !linux

package checkin

import (
	"log/slog"
	"net"
	"net/http"

	"github.com/muster-fleet/muster/server/limit"
	"github.com/muster-fleet/muster/server/store"
)

// Lot parks as Blocking does: other systems have no epoll, and serve small fleets.
type Lot struct {
	Blocking
	// Courtesy is of no use here: the goroutines that wait are woken together.
	Courtesy *limit.Courtesy
	// Neighbours are of no use either.
	Neighbours store.Neighbours
	// Heap neither.
	Heap *limit.Heap
}

var _ Parker = (*Lot)(nil)

// NewLot makes a Lot.
func NewLot(*slog.Logger) *Lot { return &Lot{} }

// Listener returns inner.
func (l *Lot) Listener(inner net.Listener) net.Listener { return inner }

// Serve does nothing: the http.Server answers all.
func (l *Lot) Serve(http.Handler) {}
