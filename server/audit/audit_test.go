package audit_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/audit"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

func TestEntriesOfACallGetItsReason(t *testing.T) {
	db := audit.Watch(sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db")))
	now := time.Date(2026, 3, 3, 10, 0, 0, 0, time.UTC)
	ctx, change := audit.Begin(t.Context(), "OPS-7")
	if change.Recorded() {
		t.Error("a call that has done nothing has recorded something")
	}
	for i, e := range []fleet.AuditEntry{
		{Actor: "kim", Verb: "key.revoke", Subject: "k", Text: "revoked the key k"},
		{Actor: "kim", Verb: "key.revoke", Subject: "k", Text: "revoked the key k", Why: "its own reason"},
	} {
		if err := audit.Record(ctx, db.Audit(), now.Add(time.Duration(i)*time.Second), e); err != nil {
			t.Fatal(err)
		}
	}
	if !change.Recorded() {
		t.Error("the call has recorded nothing")
	}
	if err := audit.Record(t.Context(), db.Audit(), now, fleet.AuditEntry{Actor: "muster", Subject: "other"}); err != nil {
		t.Fatal("outside a call:", err)
	}
	list, _, err := db.Audit().List(t.Context(), store.AuditQuery{Subject: "k", Limit: 9})
	if err != nil || len(list) != 2 || list[0].Why != "its own reason" || list[1].Why != "OPS-7" || list[1].Text != "kim revoked the key k" || list[1].ID == list[0].ID {
		t.Errorf("the trail has %+v, %v", list, err)
	}
}
