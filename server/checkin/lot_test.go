package checkin_test

import (
	"log/slog"
	"net/http"
	"testing"

	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/checkin/parktest"
)

func TestLot(t *testing.T) {
	parktest.Run(t, func(*testing.T) checkin.Parker { return checkin.NewLot(slog.New(slog.DiscardHandler)) })
}

// netHTTP is a lot whose connections all go back to net/http.
type netHTTP struct{ *checkin.Lot }

func (netHTTP) Serve(http.Handler) {}

func TestLotWithoutLane(t *testing.T) {
	parktest.Run(t, func(*testing.T) checkin.Parker { return netHTTP{checkin.NewLot(slog.New(slog.DiscardHandler))} })
}
