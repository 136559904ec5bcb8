package action

import (
	"context"
	"encoding/json"
	"slices"
	"unicode/utf8"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// maxTags bounds the tags that one request names, as in Kibana.
const maxTags = 10

// maxTagLength bounds a tag, in characters, because lists show tags.
const maxTagLength = 256

func checkTags(field string, tags []string) error {
	if len(tags) > maxTags {
		return fleet.FieldError(field, "array size is [%d], but cannot be greater than [%d]", len(tags), maxTags)
	}
	for _, t := range tags {
		if utf8.RuneCountInString(t) > maxTagLength {
			return fleet.FieldError(field, "has a tag of %d characters, at most %d are accepted", utf8.RuneCountInString(t), maxTagLength)
		}
	}
	return nil
}

// TagsOrder adds tags to agents and removes others.
type TagsOrder struct {
	Add, Remove []string
	AgentIDs    []string `json:"-"`
	Selected    bool     // as in UpgradeOrder
	// Actor is the name of the admin key.
	Actor string
}

// Tag changes the tags of the agents, and records it as an UPDATE_TAGS action, which is
// complete at once: it is not delivered to agents. Agents that do not exist, and those of
// managed policies, become error results.
func (s *Service) Tag(ctx context.Context, o TagsOrder) (fleet.Action, error) {
	if err := checkTags("body.tagsToAdd", o.Add); err != nil {
		return fleet.Action{}, err
	}
	if err := checkTags("body.tagsToRemove", o.Remove); err != nil {
		return fleet.Action{}, err
	}
	if err := checkAgents(o.AgentIDs, o.Selected); err != nil {
		return fleet.Action{}, err
	}
	key, earlier, err := s.ordered(ctx, false, "tag", &o, nil, o.Actor, o.AgentIDs)
	if err != nil || earlier != nil {
		return deref(earlier), err
	}
	a := newAction(agentapi.ActionUpdateTags, o.Actor, s.Now.UTC()) // it expires so that retention may remove it
	do, err := o.step(ctx, s, &a, o.AgentIDs)
	if err != nil {
		return fleet.Action{}, err
	}
	return s.order(ctx, a, o.AgentIDs, do, key, "tag", &o)
}

func (o *TagsOrder) step(ctx context.Context, s *Service, _ *fleet.Action, _ []string) (step, error) {
	check, err := s.unlessManaged(ctx, func(*fleet.Agent) error { return nil }, "Cannot modify tags on a hosted agent: %s has policy %s, which is managed (is_managed)")
	return step{
		check: check,
		begin: func(a *fleet.Agent) {
			kept := slices.DeleteFunc(slices.Clone(a.Tags), func(t string) bool { return slices.Contains(o.Remove, t) })
			a.Tags = unique(append(kept, o.Add...))
		},
		locked: true,
		done:   "its tags were changed",
	}, err
}

// unique returns the texts without repetitions, in their order.
func unique(texts []string) []string {
	out := []string{}
	for _, t := range texts {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out
}

// maxUserMetadata bounds the user's metadata of an agent, in bytes: it is part of every
// list of agents.
const maxUserMetadata = 64 << 10

// Describe replaces the tags of an agent if tags is not nil, and merges metadata into the
// user's metadata, object by object.
func (s *Service) Describe(ctx context.Context, agentID string, tags *[]string, metadata map[string]any, actor string) (fleet.Agent, error) {
	if tags != nil {
		if err := checkTags("body.tags", *tags); err != nil {
			return fleet.Agent{}, err
		}
	}
	if _, err := s.Store.Agents().Get(ctx, agentID); err != nil {
		if fleet.KindOf(err) == fleet.NotFound {
			err = fleet.Errorf(fleet.NotFound, "Agent %s not found", agentID)
		}
		return fleet.Agent{}, err
	}
	err := audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{
		Actor: actor, Verb: "agent.describe", Subject: agentID, Text: "changed tags or metadata of agent " + agentID,
	})
	if err != nil {
		return fleet.Agent{}, err
	}
	var refused error
	a, err := store.UpdateAgent(ctx, s.Store.Agents(), agentID, func(a *fleet.Agent) bool {
		if tags != nil {
			a.Tags = unique(*tags)
		}
		if len(metadata) > 0 {
			merged := map[string]any{}
			_ = json.Unmarshal(a.UserMetadata, &merged) // checked when it was stored
			text, err := json.Marshal(merge(merged, metadata))
			if err == nil && len(text) > maxUserMetadata {
				err = fleet.FieldError("body.user_provided_metadata", "would have %d bytes, at most %d are kept", len(text), maxUserMetadata)
			}
			if err == nil && fleet.Deeper(text, fleet.MaxDepth) {
				err = fleet.FieldError("body.user_provided_metadata", "is nested more than %d deep", fleet.MaxDepth)
			}
			if refused = err; err != nil {
				return false
			}
			a.UserMetadata = text
		}
		return tags != nil || len(metadata) > 0
	})
	if refused != nil {
		return fleet.Agent{}, refused
	}
	return a, err
}

// merge sets the values of from in into, as Elasticsearch does in a partial update.
func merge(into, from map[string]any) map[string]any {
	if into == nil {
		into = map[string]any{}
	}
	for k, v := range from {
		object, is := v.(map[string]any)
		old, was := into[k].(map[string]any)
		if is && was {
			v = merge(old, object)
		}
		into[k] = v
	}
	return into
}
