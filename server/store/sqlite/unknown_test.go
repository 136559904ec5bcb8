package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
)

// A newer server has added fields to documents, which this one reads, changes and writes.
func TestFieldsOfANewerServerSurvive(t *testing.T) {
	s, ctx := mustOpen(t, filepath.Join(t.TempDir(), "muster.db")), t.Context()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(s.Agents().Create(ctx, fleet.Agent{ID: "a", AccessKeyID: "k", Active: true, EnrolledAt: recordStart, Version: "1.0.0"}))
	must(s.Policies().Create(ctx, fleet.Policy{ID: "p", Name: "p"}))
	must(s.Rollouts().Create(ctx, fleet.Rollout{ID: "r", State: fleet.RolloutRunning}))
	must(s.Targets().Create(ctx, []fleet.Target{{RolloutID: "r", AgentID: "a", State: fleet.TargetPending}}))
	tables := []string{"agents", "documents", "rollouts", "targets"}
	for _, table := range tables {
		must(s.write(ctx, "write as a newer server", func(t *tx) error {
			_, err := t.exec(`UPDATE ` + table + ` SET rev = rev + 1, doc = json_set(doc, '$.of_a_newer_server', json('{"n":1}'))`)
			return err
		}))
	}

	a, err := s.Agents().Get(ctx, "a")
	must(err)
	a.Version = "1.1.0"
	_, err = s.Agents().Update(ctx, a)
	must(err)
	p, err := s.Policies().Get(ctx, "p")
	must(err)
	p.Name = "q"
	_, err = s.Policies().Update(ctx, p)
	must(err)
	r, err := s.Rollouts().Get(ctx, "r")
	must(err)
	r.State = fleet.RolloutPaused
	_, err = s.Rollouts().Update(ctx, r)
	must(err)
	list, err := s.Targets().ByAgent(ctx, "a", 1)
	must(err)
	list[0].State = fleet.TargetSucceeded
	_, errs, err := s.Targets().UpdateMany(ctx, list)
	must(err)
	must(errs[0])

	for _, table := range tables {
		n := 0
		must(s.get(ctx, `SELECT count(*) FROM `+table+` WHERE rev = 3 AND doc ->> '$.of_a_newer_server.n' = 1`, nil, &n))
		if n != 1 {
			t.Errorf("%d documents of %s have the field", n, table)
		}
	}
	if a, err = s.Agents().Get(ctx, "a"); err != nil || a.Version != "1.1.0" {
		t.Errorf("the agent is %+v, %v", a, err)
	}
	// An access key that changes has a statement of its own.
	a.AccessKeyID = "another"
	_, err = s.Agents().Update(ctx, a)
	must(err)
	n := 0
	must(s.get(ctx, `SELECT count(*) FROM agents WHERE access_key_id = 'another' AND doc ->> '$.of_a_newer_server.n' = 1`, nil, &n))
	if n != 1 {
		t.Error("the agent has lost the field")
	}
	if mustOpen(t, filepath.Join(t.TempDir(), "muster.db")).writer.unknowns.Seen() {
		t.Error("another store reads documents before it replaces them")
	}
}
