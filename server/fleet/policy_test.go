package fleet_test

import (
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestPolicyKeepsItsLatestRevisions(t *testing.T) {
	var p fleet.Policy
	start := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	for i := range 25 {
		before := p
		p.NextRevision("ann", start.Add(time.Duration(i)*time.Minute))
		other := before
		other.NextRevision("ben", start)
		if last := p.Revisions[len(p.Revisions)-1]; last.Revision != int64(i+1) || last.Revision != p.PolicyRev || last.By != "ann" || !last.At.Equal(p.UpdatedAt) || p.UpdatedBy != "ann" {
			t.Fatalf("after change %d the policy is %+v", i, p)
		}
	}
	if n := len(p.Revisions); n != 10 || p.Revisions[0].Revision != 16 {
		t.Errorf("%d revisions are kept, from %d on", n, p.Revisions[0].Revision)
	}
}
