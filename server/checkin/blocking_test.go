package checkin_test

import (
	"testing"

	"github.com/muster-fleet/muster/server/checkin"
	"github.com/muster-fleet/muster/server/checkin/parktest"
)

func TestBlocking(t *testing.T) {
	parktest.Run(t, func(*testing.T) checkin.Parker { return &checkin.Blocking{} })
}
