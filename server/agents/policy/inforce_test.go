package policy_test

import (
	"errors"
	"testing"

	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestVersionInForceIsDecidedOnWhatIsReplaced(t *testing.T) {
	s := newService(t)
	components := []agentapi.PolicyComponent{{Name: "web", Runtime: "process", Lockstep: true}, {Name: "db", Runtime: "process"}}
	if _, err := s.Create(t.Context(), fleet.Policy{ID: "p", Name: "P", Namespace: "default", Components: components}, "ann"); err != nil {
		t.Fatal(err)
	}
	changing := &agentapi.ComponentInForce{Version: "1.0.0", Changing: true}
	var seen []*agentapi.ComponentInForce
	err := s.SetInForce(t.Context(), "p", "web", "rollout", func(c agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) {
		if seen = append(seen, c.InForce); len(seen) == 1 { // another server comes first
			return &agentapi.ComponentInForce{Version: "9.9.9"}, s.SetInForce(t.Context(), "p", "web", "other", func(agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) { return changing, nil })
		}
		return &agentapi.ComponentInForce{Version: c.InForce.Version}, nil
	})
	p, getErr := s.Get(t.Context(), "p")
	if err != nil || getErr != nil || len(seen) != 2 || seen[0] != nil || *seen[1] != *changing {
		t.Fatalf("decided on %+v, %v, %v", seen, err, getErr)
	}
	if f := p.Component("web").InForce; f == nil || *f != (agentapi.ComponentInForce{Version: "1.0.0"}) || p.PolicyRev != 3 {
		t.Errorf("in force is %+v in revision %d", f, p.PolicyRev)
	}

	same := func(c agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) { return c.InForce, nil }
	refuses := errors.New("not now")
	for what, err := range map[string]error{
		"the same again":                  s.SetInForce(t.Context(), "p", "web", "rollout", same),
		"a component without lockstep":    s.SetInForce(t.Context(), "p", "db", "rollout", func(agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) { return changing, nil }),
		"a policy that is gone":           s.SetInForce(t.Context(), "gone", "web", "rollout", same),
		"what is refused, with the cause": only(s.SetInForce(t.Context(), "p", "web", "rollout", func(agentapi.PolicyComponent) (*agentapi.ComponentInForce, error) { return nil, refuses }), refuses),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if p, err := s.Get(t.Context(), "p"); err != nil || p.PolicyRev != 3 {
		t.Errorf("the policy has revision %d, %v", p.PolicyRev, err)
	}
	if _, err := s.Update(t.Context(), "p", policy.Change{Edit: func(p *fleet.Policy) ([]string, error) { p.Description = "x"; return []string{"description"}, nil }}, "ann"); err != nil {
		t.Fatal(err)
	}
	if p, err = s.Get(t.Context(), "p"); err != nil || p.Component("web").InForce == nil {
		t.Errorf("after another change in force is %+v, %v", p.Component("web").InForce, err)
	}
}

// only returns nil if an error is the expected one.
func only(err, want error) error {
	if errors.Is(err, want) {
		return nil
	}
	return errors.Join(errors.New("another error"), err)
}
