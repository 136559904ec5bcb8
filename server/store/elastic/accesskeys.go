package elastic

import (
	"context"

	"github.com/muster-fleet/muster/server/fleet"
)

// keySource says whose an access key is. The agent must say so, too: whoever dies
// between the two writes leaves a key that opens nothing.
type keySource struct {
	AgentID string `json:"agent_id"`
}

// claim makes a key an agent's: Conflict if it is another's. Keys are random, so
// one that a dead process claimed is in nobody's way.
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

// owner of a key, empty for none.
func (g agents) owner(ctx context.Context, keyID string) (string, guard, error) {
	f, err := g.s.c.get(ctx, "read access key", key{indexAccessKeys, keyID})
	if err != nil || !f.there {
		return "", guard{}, err
	}
	var s keySource
	err = decodeSource("access key", keyID, f.source, &s)
	return s.AgentID, f.guard, err
}

// release gives a key back, if it is the agent's.
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
	return err // a conflict: somebody did
}

func (g agents) ByAccessKey(ctx context.Context, keyID string) (fleet.Agent, error) {
	none := fleet.Errorf(fleet.NotFound, "no agent has the access key %s", keyID)
	if keyID == "" {
		return fleet.Agent{}, none
	}
	// Whose a key is hardly ever changes, and the agent itself has the last word.
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
