package policy

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/audit"
	"github.com/muster-fleet/muster/server/store/event"
)

// Removals is the removal limit, which package action has.
type Removals interface {
	// CheckMoved returns how many agents each policy of the moves has, or an error if the limit
	// does not permit the moves.
	CheckMoved(ctx context.Context, moves []fleet.HostsChange, overrideLimit bool) (map[string]int, error)
}

// AllowHosts returns an error if other hosts of Fleet Server would send more agents to other
// servers than the removal limit permits, and records those that are sent.
func (s *Service) AllowHosts(ctx context.Context, before, after []fleet.FleetServerHost, overrideLimit bool, actor string) error {
	all, _, err := s.Store.Policies().List(ctx, 0, 0)
	if err != nil {
		return err
	}
	var changes []fleet.HostsChange
	for i := range all {
		id := all[i].FleetServerHostID
		c, err := hostsChange(&all[i], &all[i], s.Objects.HostOf(before, id), s.Objects.HostOf(after, id))
		if err != nil {
			return err
		}
		changes = append(changes, c)
	}
	return s.allowMoves(ctx, changes, overrideLimit, actor)
}

// allowChange is AllowHosts for a change of a policy.
func (s *Service) allowChange(ctx context.Context, old, p *fleet.Policy, overrideLimit bool, actor string) error {
	if s.Removals == nil || p.FleetServerHostID == old.FleetServerHostID && bytes.Equal(p.Overrides, old.Overrides) {
		return nil // nothing else of a policy becomes fleet.hosts
	}
	hosts, err := s.Objects.Hosts().List(ctx)
	if err != nil {
		return err
	}
	c, err := hostsChange(old, p, s.Objects.HostOf(hosts, old.FleetServerHostID), s.Objects.HostOf(hosts, p.FleetServerHostID))
	if err != nil {
		return err
	}
	return s.allowMoves(ctx, []fleet.HostsChange{c}, overrideLimit, actor)
}

// allowMoves writes an entry for each policy whose agents leave their server. It is written before
// the change, as all entries are: one that then fails counts towards the limit all the same.
func (s *Service) allowMoves(ctx context.Context, changes []fleet.HostsChange, overrideLimit bool, actor string) error {
	var moves []fleet.HostsChange
	for _, c := range changes {
		if c.Moves() {
			moves = append(moves, c)
		}
	}
	if len(moves) == 0 || s.Removals == nil {
		return nil
	}
	agents, err := s.Removals.CheckMoved(ctx, moves, overrideLimit)
	if err != nil {
		return err
	}
	for _, m := range moves {
		n := agents[m.PolicyID]
		if n == 0 {
			continue
		}
		text := "sent " + m.Text(n)
		data := map[string]any{"agents": n, "from": m.From, "to": m.To}
		if overrideLimit {
			text += ", in spite of the removal limit"
			data["override"] = []string{"removal_limit"}
		}
		err := audit.Record(ctx, s.Store.Audit(), s.Now.UTC(), fleet.AuditEntry{Actor: actor, Verb: fleet.VerbHostsMoved, Subject: m.PolicyID, Text: text, Data: event.Data(data)})
		if err != nil {
			return err
		}
	}
	return nil
}

// hostsChange compares the servers that agents follow before and after a change of a policy, of
// its host object, or of both.
func hostsChange(old, p *fleet.Policy, before, after fleet.FleetServerHost) (c fleet.HostsChange, err error) {
	c.PolicyID, c.PolicyName = p.ID, p.Name
	if c.From, err = followed(old, before); err == nil {
		c.To, err = followed(p, after)
	}
	return c, err
}

// followed returns the hosts of a policy as agents get it with a host object. Where overrides give
// them another form than a list of texts, agents of another maker may read it all the same: then
// it is one host, with the text as its name.
func followed(p *fleet.Policy, host fleet.FleetServerHost) ([]string, error) {
	body, err := renderer{Policy: *p, Host: host}.render()
	if err != nil {
		return nil, err
	}
	hosts, err := Rendered{Body: body}.Hosts()
	if err == nil {
		return hosts, nil
	}
	var whole struct {
		Fleet json.RawMessage `json:"fleet"`
	}
	if err := json.Unmarshal(body, &whole); err != nil {
		return nil, err
	}
	return []string{"fleet: " + string(whole.Fleet)}, nil
}
