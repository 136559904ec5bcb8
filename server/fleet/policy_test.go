package fleet_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestPolicyOfOlderServerOpensUnchanged(t *testing.T) {
	const stored = `{"id":"web","name":"Web","namespace":"default","monitoring_enabled":["logs"],"revision":1,"inactivity_timeout":3600000000000,"is_protected":true,"updated_at":"2026-01-02T03:04:05Z","updated_by":"ann"}`
	var p fleet.Policy
	if err := json.Unmarshal([]byte(stored), &p); err != nil || p.InactivityTimeout != time.Hour || !p.Protected {
		t.Fatalf("policy is %+v, %v", p, err)
	}
	if p.UnenrollTimeout != nil || p.DataOutputID != "" || p.RequiredVersions != nil {
		t.Errorf("fields that the document lacks are %+v", p)
	}
	again, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	var back fleet.Policy
	if err := json.Unmarshal(again, &back); err != nil || back.InactivityTimeout != p.InactivityTimeout || back.PolicyRev != 1 {
		t.Errorf("written again, the policy is %+v, %v", back, err)
	}
}

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
