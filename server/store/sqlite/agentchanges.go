package sqlite

import "sync"

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

// agentChanges is who wants to know which agents were changed.
type agentChanges struct {
	mu        sync.Mutex
	functions []func(agentIDs []string)
}

// OnAgentChange is of store.Store.
func (s *Store) OnAgentChange(f func(agentIDs []string)) bool {
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

func (c *agentChanges) report(ids []string) {
	if len(ids) == 0 {
		return
	}
	c.mu.Lock()
	functions := c.functions
	c.mu.Unlock()
	for _, f := range functions {
		f(ids)
	}
}

// changedAgents returns the agents that the transaction has changed so far, and
// forgets them.
func (w *writer) changedAgents() ([]string, error) {
	if !w.recording {
		return nil, nil
	}
	t := &tx{w}
	var ids []string
	err := t.each(`SELECT DISTINCT id FROM changed_agents`, nil, func(scan scan) error {
		var id string
		err := scan(&id)
		ids = append(ids, id)
		return err
	})
	if err == nil && len(ids) > 0 {
		_, err = t.exec(`DELETE FROM changed_agents`)
	}
	return ids, err
}
