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
				t.Errorf("a statement of a test is reported with a state: %+v", c)
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
