package httpapi_test

import (
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/rollouttest"
)

func TestAZeroThatStandsForAnAbsentValueIsRefused(t *testing.T) {
	t.Parallel()
	for _, n := range rollouttest.PlanNumbers() {
		var req struct {
			Plan fleet.Plan `json:"plan"`
		}
		err := httpapi.DecodeStrictJSON(strings.NewReader(`{"plan":`+n.JSON+`}`), &req)
		says := "[request body.plan." + n.Path + "]: is 0"
		if refused := err != nil && strings.HasPrefix(err.Error(), says); refused != (n.Zero == "refused") || err != nil && !refused {
			t.Errorf("%s is %s: %v", n.JSON, n.Zero, err)
		}
		other := strings.NewReplacer(`"0s"`, `"1s"`, "0", "1").Replace(n.JSON)
		for _, body := range []string{other, strings.NewReplacer(`"0s"`, "null", "[0]", "null", "0", "null").Replace(n.JSON)} {
			if err := httpapi.DecodeStrictJSON(strings.NewReader(`{"plan":`+body+`}`), &req); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
	}
}
