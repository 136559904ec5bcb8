package checkin_test

import (
	"testing"

	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
)

func TestBlocking(t *testing.T) {
	parktest.Run(t, func(*testing.T) checkin.Parker { return &checkin.Blocking{} })
}
