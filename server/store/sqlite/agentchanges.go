package sqlite

import (
	"sync"

	"github.com/muster-fleet/muster/server/store"
)

// recordChanges makes the writer's connection note every agent that its transaction
// changes, whichever statement does it. A savepoint that is rolled back takes its
// notes with it. The table is in memory, and has no constraint: the conflict clause of
// the statement that fires a trigger would apply to it.
const recordChanges = `
CREATE TEMP TABLE changed_agents (id TEXT NOT NULL);
CREATE TEMP TRIGGER agent_created AFTER INSERT ON main.agents BEGIN INSERT INTO changed_agents VALUES (new.id); END;
CREATE TEMP TRIGGER agent_updated AFTER UPDATE ON main.agents BEGIN INSERT INTO changed_agents VALUES (new.id); END;
CREATE TEMP TRIGGER agent_deleted AFTER DELETE ON main.agents BEGIN INSERT INTO changed_agents VALUES (old.id); END;
CREATE TEMP TRIGGER agent_status_updated AFTER UPDATE OF status, message ON main.agent_last_seen
WHEN old.status <> new.status OR old.message <> new.message
BEGIN INSERT INTO changed_agents SELECT id FROM agents WHERE rid = new.rid; END;
`

// agentChanges holds the functions registered with OnAgentChange.
type agentChanges struct {
	mu        sync.Mutex
	functions []func([]store.AgentChange)
}

// OnAgentChange implements store.Store.
func (s *Store) OnAgentChange(f func([]store.AgentChange)) bool {
	c := &s.writer.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	c.functions = append(c.functions, f)
	return true
}

func (c *agentChanges) wanted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.functions) > 0
}

func (c *agentChanges) report(changes []store.AgentChange) {
	if len(changes) == 0 {
		return
	}
	c.mu.Lock()
	functions := c.functions
	c.mu.Unlock()
	for _, f := range functions {
		f(changes)
	}
}

// documentWrites is what updateDocument wrote of an agent in this transaction. Other
// statements do not note what they write, so that the count differs from the triggers'.
// Undoing a write clears all notes: one that is left over would make up for one that is
// missing.
type documentWrites struct {
	times int
	state uint64 // 0 after two that differ
}

// wrote notes the state of a document for changedAgents.
func (t *tx) wrote(id string, state uint64) {
	if !t.w.recording {
		return
	}
	was := t.w.written[id]
	if was.times > 0 && was.state != state {
		state = 0
	}
	t.w.written[id] = documentWrites{was.times + 1, state}
}

// changedAgents returns the agents that the transaction has changed so far, and
// forgets them.
func (w *writer) changedAgents() ([]store.AgentChange, error) {
	if !w.recording {
		return nil, nil
	}
	defer clear(w.written)
	t := &tx{w}
	var changes []store.AgentChange
	err := t.each(`SELECT id, count(*) FROM changed_agents GROUP BY id`, nil, func(scan scan) error {
		var c store.AgentChange
		var times int
		err := scan(&c.AgentID, &times)
		if is := w.written[c.AgentID]; is.times == times {
			c.State = is.state
		}
		changes = append(changes, c)
		return err
	})
	if err == nil && len(changes) > 0 {
		_, err = t.exec(`DELETE FROM changed_agents`)
	}
	return changes, err
}
