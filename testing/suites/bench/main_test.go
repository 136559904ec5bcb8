package bench

import (
	"os"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.With(m).Run()) }
