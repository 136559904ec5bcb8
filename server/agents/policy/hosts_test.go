package policy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/agents/infra"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// limit is a removal limit that refuses all moves or none, and remembers them.
type limit struct {
	refuses bool
	moved   []string
}

func (l *limit) CheckMoved(_ context.Context, moves []fleet.HostsChange, overrideLimit bool) (map[string]int, error) {
	agents := map[string]int{}
	for _, m := range moves {
		l.moved = append(l.moved, fmt.Sprintf("%s: %s to %s", m.PolicyID, strings.Join(m.From, ","), strings.Join(m.To, ",")))
		agents[m.PolicyID] = 3
	}
	slices.Sort(l.moved)
	if l.refuses && !overrideLimit {
		return nil, errors.New("too many")
	}
	return agents, nil
}

// Whatever changes the servers of a policy is refused if that moves too many of its agents, before
// anything is written. "own" names its host, "plain" follows the default one.
func TestMovesOfAgentsNeedTheRemovalLimit(t *testing.T) {
	type world struct {
		policies *policy.Service
		objects  *infra.Service
		override bool
	}
	host := func(w world, id, fields string) error {
		var given infra.Fields
		if err := json.Unmarshal([]byte(fields), &given); err != nil {
			return err
		}
		if _, err := w.objects.Hosts().Get(t.Context(), id); err != nil {
			_, err = w.objects.EditHosts(w.override).Create(t.Context(), given, "ann")
			return err
		}
		_, err := w.objects.EditHosts(w.override).Update(t.Context(), id, given, "ann")
		return err
	}
	change := func(w world, id string, edit func(p *fleet.Policy)) error {
		_, err := w.policies.Update(t.Context(), id, policy.Change{OverrideLimit: w.override, Edit: func(p *fleet.Policy) ([]string, error) { edit(p); return []string{"x"}, nil }}, "ann")
		return err
	}
	for name, c := range map[string]struct {
		do   func(w world) error
		want []string
	}{
		"the policy names another host": {
			func(w world) error { return change(w, "own", func(p *fleet.Policy) { p.FleetServerHostID = "b" }) },
			[]string{"own: https://a:8220 to https://b:8220"},
		},
		"the policy names none": {
			func(w world) error { return change(w, "own", func(p *fleet.Policy) { p.FleetServerHostID = "" }) },
			[]string{"own: https://a:8220 to https://here:8220"},
		},
		"an override adds one": {
			func(w world) error {
				return change(w, "own", func(p *fleet.Policy) { p.Overrides = json.RawMessage(`{"fleet":{"hosts":["https://c:8220"]}}`) })
			},
			nil,
		},
		"an override replaces the list by a text": {
			func(w world) error {
				return change(w, "own", func(p *fleet.Policy) { p.Overrides = json.RawMessage(`{"fleet":{"hosts":"https://c:8220"}}`) })
			},
			[]string{`own: https://a:8220 to fleet: {"hosts":"https://c:8220"}`},
		},
		"another description": {
			func(w world) error { return change(w, "own", func(p *fleet.Policy) { p.Description = "x" }) },
			nil,
		},
		"another address": {
			func(w world) error { return host(w, "a", `{"host_urls":["https://c:8220"]}`) },
			[]string{"own: https://a:8220 to https://c:8220"},
		},
		"one more address": {
			func(w world) error { return host(w, "a", `{"host_urls":["https://a:8220","https://c:8220"]}`) },
			nil,
		},
		"another name": {
			func(w world) error { return host(w, "a", `{"name":"A"}`) },
			nil,
		},
		"another default": {
			func(w world) error { return host(w, "b", `{"is_default":true}`) },
			[]string{"plain: https://here:8220 to https://b:8220"},
		},
		"a new default": {
			func(w world) error {
				return host(w, "c", `{"id":"c","name":"c","host_urls":["https://c:8220"],"is_default":true}`)
			},
			[]string{"plain: https://here:8220 to https://c:8220"},
		},
		"another address of the built-in host": {
			func(w world) error { return host(w, infra.DefaultHostID, `{"host_urls":["https://c:8220"]}`) },
			[]string{"plain: https://here:8220 to https://c:8220"},
		},
		"a new host": {
			func(w world) error { return host(w, "c", `{"id":"c","name":"c","host_urls":["https://c:8220"]}`) },
			nil,
		},
		"deletion": {
			func(w world) error { return w.objects.EditHosts(w.override).Delete(t.Context(), "a", "ann") },
			[]string{"own: https://a:8220 to https://here:8220"},
		},
		"deletion of an unused host": {
			func(w world) error { return w.objects.EditHosts(w.override).Delete(t.Context(), "b", "ann") },
			nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newService(t)
			s.Objects.Server = infra.Server{AgentsURL: "https://here:8220"}
			w := world{policies: s, objects: &infra.Service{Objects: s.Objects, Policies: s}}
			for _, id := range []string{"a", "b"} {
				if err := host(w, id, fmt.Sprintf(`{"id":%q,"name":%q,"host_urls":["https://%s:8220"]}`, id, id, id)); err != nil {
					t.Fatal(err)
				}
			}
			for id, hostID := range map[string]string{"own": "a", "plain": ""} {
				if _, err := s.Create(t.Context(), fleet.Policy{ID: id, Name: id, Namespace: "default", FleetServerHostID: hostID}, "ann"); err != nil {
					t.Fatal(err)
				}
			}
			l := &limit{refuses: true}
			s.Removals = l
			entries := func(verb string) int {
				_, n, err := s.Store.Audit().List(t.Context(), store.AuditQuery{Verb: verb})
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			before := entries("")
			err := c.do(w)
			l.moved = slices.Compact(l.moved) // a conflict is tried again
			if !slices.Equal(l.moved, c.want) || (err != nil) != (len(c.want) > 0) {
				t.Errorf("moves %q, want %q: %v", l.moved, c.want, err)
			}
			if len(c.want) == 0 {
				return
			}
			if n := entries(""); n != before {
				t.Errorf("a refusal has written %d entries", n-before)
			}
			w.override = true
			if err := c.do(w); err != nil {
				t.Errorf("with the override: %v", err)
			}
			if n := entries(fleet.VerbHostsMoved); n != len(c.want) {
				t.Errorf("%d entries about moved agents, want %d", n, len(c.want))
			}
		})
	}
}
