package sqlite

import (
	"errors"
	"slices"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

func TestEveryStatementThatChangesAnAgentIsReported(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	var reported []string
	s.OnAgentChange(func(changes []store.AgentChange) {
		for _, c := range changes {
			reported = append(reported, c.AgentID)
			if c.State != 0 {
				t.Errorf("a change by another statement than updateDocument is reported with a state: %+v", c)
			}
		}
	})
	for _, id := range []string{"a", "b"} {
		if err := s.Agents().Create(t.Context(), fleet.Agent{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		statement string
		fails     error
		want      []string
	}{
		{statement: `UPDATE agents SET doc = doc`, want: []string{"a", "b"}},
		{statement: `UPDATE agents SET doc = doc`, fails: errors.New("refused")},
		{statement: `UPDATE agent_last_seen SET status = 'online' WHERE rid = 2`, want: []string{"b"}},
		{statement: `UPDATE agent_last_seen SET status = 'online'`, want: []string{"a"}},
		{statement: `UPDATE agent_last_seen SET last_checkin = 7, action_seq_no = 7`},
		{statement: `DELETE FROM agents`, want: []string{"a", "b"}},
	} {
		reported = nil
		err := s.write(t.Context(), "test", func(t *tx) error {
			_, err := t.exec(c.statement)
			return errors.Join(err, c.fails)
		})
		slices.Sort(reported)
		if (err != nil) != (c.fails != nil) || !slices.Equal(reported, c.want) {
			t.Errorf("%s: %v; reported %v, want %v", c.statement, err, reported, c.want)
		}
	}
}

func TestRolledBackWriteLeavesNoState(t *testing.T) {
	t.Parallel()
	s := fresh(t)
	if err := s.Agents().Create(t.Context(), fleet.Agent{ID: "a", Active: true, Version: "1.0.0", LastHealthyVersion: "1.0.0"}); err != nil {
		t.Fatal(err)
	}
	a, err := s.Agents().Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	row, err := newAgentRow(&a)
	if err != nil {
		t.Fatal(err)
	}
	w := newWriter(s.writer.db, 0)
	t.Cleanup(w.dropConn)
	s.writer.dropConn() // safe: its loop has nothing to write
	var reported []store.AgentChange
	w.changes.functions = []func([]store.AgentChange){func(changes []store.AgentChange) { reported = append(reported, changes...) }}
	rolledBack := errors.New("rolled back")
	group := []*write{
		{ctx: t.Context(), do: func(x *tx) error {
			_, err := updateAgent(x, row)
			return errors.Join(err, rolledBack)
		}},
		{ctx: t.Context(), do: func(x *tx) error {
			_, err := updateAgent(x, row)
			if err == nil {
				_, err = x.exec(`UPDATE agent_last_seen SET status = 'degraded'`)
			}
			return err
		}},
	}
	if err := w.commit(group); err != nil || !errors.Is(group[0].err, rolledBack) || group[1].err != nil {
		t.Fatal(err, group[0].err, group[1].err)
	}
	if want := []store.AgentChange{{AgentID: "a"}}; !slices.Equal(reported, want) {
		t.Errorf("reported %+v, want %+v", reported, want)
	}
}
