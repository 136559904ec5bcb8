package sqlite

import (
	"sync"

	"github.com/muster-fleet/muster/server/store"
)

// recordChanges makes the writer's connection record every agent that a transaction
// changes, whichever statement changes it. Rolling back a savepoint removes its records. The
// table is in memory. It has no constraint, because the conflict clause of the statement
// that fires a trigger would apply to it.
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

// documentWrites describes the documents that updateDocument wrote for one agent in the
// current transaction. Any other statement that changes the agent makes the triggers' count
// differ from count. Rolling back a write clears the map: a write that is counted but
// undone would compensate for one that is not counted.
type documentWrites struct {
	count int
	state uint64 // 0 if two documents had different states
}

// noteState records the state of a written document for changedAgents.
func (t *tx) noteState(id string, state uint64) {
	if !t.w.recording {
		return
	}
	earlier := t.w.written[id]
	if earlier.count > 0 && earlier.state != state {
		state = 0
	}
	t.w.written[id] = documentWrites{earlier.count + 1, state}
}

// changedAgents returns the agents that the transaction has changed, and clears the
// records.
func (w *writer) changedAgents() ([]store.AgentChange, error) {
	if !w.recording {
		return nil, nil
	}
	defer clear(w.written)
	t := &tx{w}
	var changes []store.AgentChange
	err := t.each(`SELECT id, count(*) FROM changed_agents GROUP BY id`, nil, func(scan scan) error {
		var c store.AgentChange
		var count int
		err := scan(&c.AgentID, &count)
		if written := w.written[c.AgentID]; written.count == count {
			c.State = written.state
		}
		changes = append(changes, c)
		return err
	})
	if err == nil && len(changes) > 0 {
		_, err = t.exec(`DELETE FROM changed_agents`)
	}
	return changes, err
}
