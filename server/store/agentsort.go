package store

import (
	"encoding/json"
	"strings"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/kql"
)

// ParseAgentSort returns the sort for a field of agents, with or without
// fleet.KeywordSuffix. ok is false if agents cannot be listed by it.
func ParseAgentSort(field string) (by AgentSort, ok bool) {
	switch name := AgentSort(strings.TrimSuffix(field, fleet.KeywordSuffix)); name {
	case ByEnrolledAt, ByLastCheckin, ByHostname, ByVersion, ByPolicy:
		return name, true
	case "local_metadata.elastic.agent.version":
		return ByVersion, true
	}
	f := fleet.SortField(field)
	if f == nil {
		return "", false
	}
	return AgentSort(f.Name), true
}

// Field returns the field of a sort that has no store column of its own, else nil.
func (by AgentSort) Field() *kql.Field {
	switch by {
	case "", ByEnrolledAt, ByLastCheckin, ByHostname, ByVersion, ByPolicy:
		return nil
	}
	return fleet.SortField(string(by))
}

// Dates reports whether the values of the sort are times; otherwise they are texts.
func (by AgentSort) Dates() bool {
	f := by.Field()
	return by == "" || by == ByEnrolledAt || by == ByLastCheckin || f != nil && f.Type == kql.TypeDate
}

// AgentPosition is the position of an agent in a list. It stays valid when the agent
// changes or is removed.
type AgentPosition struct {
	Value any // by which it is sorted: a string, a time.Time, or nil if it has none
	ID    string
}

// Position returns the position of an agent in lists that are sorted by by.
func (by AgentSort) Position(a *fleet.Agent) AgentPosition {
	p := AgentPosition{ID: a.ID}
	text := func(s string) {
		if s != "" {
			p.Value = s
		}
	}
	switch by {
	case "", ByEnrolledAt:
		p.Value = a.EnrolledAt
	case ByLastCheckin:
		if a.Last.At != nil {
			p.Value = *a.Last.At
		}
	case ByHostname:
		text(a.Hostname())
	case ByVersion:
		text(fleet.VersionKey(a.Version))
	case ByPolicy:
		text(a.PolicyID)
	default:
		if values := a.Values(by.Field()); len(values) > 0 {
			p.Value = values[0]
		}
	}
	return p
}

// MarshalJSON encodes the position as a list of its value and the id.
func (p AgentPosition) MarshalJSON() ([]byte, error) {
	if t, ok := p.Value.(time.Time); ok {
		p.Value = t.UTC().Format(time.RFC3339Nano)
	}
	return json.Marshal([]any{p.Value, p.ID})
}

// ParsePosition decodes what AgentPosition.MarshalJSON encoded. ok is false if it is no
// position in lists that are sorted by by.
func (by AgentSort) ParsePosition(b []byte) (p AgentPosition, ok bool) {
	var parts []any
	if err := json.Unmarshal(b, &parts); err != nil || len(parts) != 2 {
		return p, false
	}
	if p.ID, ok = parts[1].(string); !ok {
		return p, false
	}
	if parts[0] == nil {
		return p, true
	}
	text, ok := parts[0].(string)
	if !ok || !by.Dates() {
		p.Value = text
		return p, ok
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	p.Value = at
	return p, err == nil
}
