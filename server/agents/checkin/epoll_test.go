package checkin_test

import (
	"log/slog"
	"testing"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
)

func TestEpollParker(t *testing.T) {
	parktest.Run(t, func(*testing.T) checkin.Parker { return checkin.NewEpollParker(slog.New(slog.DiscardHandler)) })
}
