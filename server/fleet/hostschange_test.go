package fleet_test

import (
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
)

func TestWhichChangeOfHostsMovesAgents(t *testing.T) {
	for name, c := range map[string]struct {
		from, to []string
		moves    bool
	}{
		"same":                 {[]string{"https://a"}, []string{"https://a"}, false},
		"another":              {[]string{"https://a"}, []string{"https://b"}, true},
		"one more at the end":  {[]string{"https://a"}, []string{"https://a", "https://b"}, false},
		"one more in front":    {[]string{"https://a"}, []string{"https://b", "https://a"}, false},
		"another order":        {[]string{"https://a", "https://b"}, []string{"https://b", "https://a"}, false},
		"one less":             {[]string{"https://a", "https://b"}, []string{"https://b"}, true},
		"one replaced":         {[]string{"https://a", "https://b"}, []string{"https://a", "https://c"}, true},
		"none any more":        {[]string{"https://a"}, nil, false},
		"none before":          {nil, []string{"https://a"}, true},
		"none":                 {nil, nil, false},
		"a slash at the end":   {[]string{"https://a/"}, []string{"https://a"}, false},
		"another port":         {[]string{"https://a:1"}, []string{"https://a:2"}, true},
		"the same with a twin": {[]string{"https://a"}, []string{"https://a", "https://a"}, false},
	} {
		if got := (fleet.HostsChange{From: c.from, To: c.to}).Moves(); got != c.moves {
			t.Errorf("%s: moves agents: %t", name, got)
		}
	}
}
