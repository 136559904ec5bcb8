package cli

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestWaitEndsWithTheRollbackWhetherOrNotAReasonFollows(t *testing.T) {
	for name, c := range map[string]struct {
		maker  *adminapi.Maker
		reason string
		after  time.Duration // that --wait waits
	}{
		"of Muster's agent, with a reason":    {nil, "it crashed 3 times", 0},
		"of Muster's agent, without a reason": {nil, "", reasonGrace},
		"of an Elastic Agent":                 {new(adminapi.MakerElastic), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := adminapi.Agent{Id: "a", Maker: c.maker, UpgradeStatus: new(fleet.UpgradeRolledBack), UpgradeDetails: &adminapi.UpgradeDetails{TargetVersion: "1.1.0", State: agentapi.UpgradeRollback}}
				if c.reason != "" {
					g.UpgradeDetails.Metadata = &adminapi.UpgradeMetadata{Reason: &c.reason}
				}
				end, begin := agentEnd("not upgraded"), time.Now()
				for {
					phase, over, good := end.outcome(g, "1.1.0")
					if good {
						t.Fatalf("%s counts as a success", phase)
					}
					if over {
						break
					}
					if time.Since(begin) > time.Hour {
						t.Fatal("it does not end")
					}
					time.Sleep(waitInterval)
				}
				if got := time.Since(begin); got != c.after {
					t.Errorf("it ends after %s, want %s", got, c.after)
				}
			})
		})
	}
}
