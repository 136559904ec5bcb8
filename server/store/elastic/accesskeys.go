package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
)

// keySource is the document that maps an access key to an agent. The agent's document must
// have the key as well, so a process that dies between the two writes leaves a key that
// gives no access.
type keySource struct {
	AgentID string `json:"agent_id"`
}

// claim assigns an access key to an agent. It fails with Conflict if the key belongs to
// another agent. Keys are random, so a key that was claimed by a process that died blocks
// nobody.
func (g agents) claim(ctx context.Context, keyID, agentID string) error {
	if keyID == "" {
		return nil
	}
	const op = "claim access key"
	out, err := g.s.c.write1(ctx, op, write{verb: create, key: key{indexAccessKeys, keyID}, body: keySource{agentID}})
	if err != nil || !out.conflict {
		return err
	}
	owner, _, err := g.owner(ctx, keyID)
	if err == nil && owner != agentID {
		err = fleet.Errorf(fleet.Conflict, "another agent has the access key of agent %s", agentID)
	}
	return err
}

// owner returns the agent that a key belongs to, or "".
func (g agents) owner(ctx context.Context, keyID string) (string, guard, error) {
	f, err := g.s.c.get(ctx, "read access key", key{indexAccessKeys, keyID})
	if err != nil || !f.exists {
		return "", guard{}, err
	}
	var s keySource
	err = decodeSource("access key", keyID, f.source, &s)
	return s.AgentID, f.guard, err
}

// release removes a key if it belongs to the agent.
func (g agents) release(ctx context.Context, keyID, agentID string) error {
	if keyID == "" {
		return nil
	}
	g.s.keys.drop(keyID)
	owner, at, err := g.owner(ctx, keyID)
	if err != nil || owner != agentID {
		return err
	}
	_, err = g.s.c.write1(ctx, "release access key", write{verb: remove, key: key{indexAccessKeys, keyID}, guard: at})
	return err // a conflict is ignored: somebody else has released the key
}

func (g agents) ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error) {
	none := fleet.Errorf(fleet.NotFound, "no agent has the access key %s", keyID)
	if keyID == "" {
		return fleet.Agent{}, none
	}
	// The owner of a key hardly ever changes. An outdated entry does no harm, because the
	// agent's document is checked.
	if id, ok := g.s.keys.get(keyID); ok {
		a, err := g.Get(ctx, id)
		if err == nil && a.AccessKeyID == keyID {
			return a, nil
		}
		if err != nil && fleet.KindOf(err) != fleet.NotFound {
			return fleet.Agent{}, err
		}
		g.s.keys.drop(keyID)
	}
	id, _, err := g.owner(ctx, keyID)
	if err != nil {
		return fleet.Agent{}, err
	}
	if id == "" {
		return fleet.Agent{}, none
	}
	a, err := g.Get(ctx, id)
	switch {
	case err != nil && fleet.KindOf(err) == fleet.NotFound || err == nil && a.AccessKeyID != keyID:
		return fleet.Agent{}, none
	case err != nil:
		return fleet.Agent{}, err
	}
	g.s.keys.put(keyID, id)
	return a, nil
}
