package policy

import (
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Hosts refuse checks that leave them, so a policy says so beforehand where it can be seen.
func TestChecksOfAPolicyAskTheHostItself(t *testing.T) {
	for _, c := range []struct {
		http, tcp string
		local     bool
	}{
		{http: "http://127.0.0.1:8080/health", local: true},
		{http: "https://127.9.9.9/", local: true},
		{http: "http://localhost:8080", local: true},
		{http: "http://LocalHost.:8080/", local: true},
		{http: "http://[::1]:8080/", local: true},
		{http: "http://[::ffff:127.0.0.1]/", local: true},
		{http: "http://0.0.0.0:8080/", local: true},
		{tcp: "127.0.0.1:5432", local: true},
		{tcp: "localhost:5432", local: true},
		{tcp: ":5432", local: true},
		{tcp: "[::1]:5432", local: true},
		{http: "http://169.254.169.254/latest/meta-data/"},
		{http: "http://10.1.2.3/"},
		{http: "http://[fe80::1]/"},
		{http: "http://[::ffff:10.1.2.3]/"},
		{http: "http://localhost.example.com/"},
		{http: "http://127.0.0.1.example.com/"},
		{http: "http://web/"},
		{http: "http://2130706433/"},
		{http: "http://0x7f.1/"},
		{tcp: "db:5432"},
		{tcp: "10.1.2.3:22"},
	} {
		checks := []agentapi.ComponentCheck{{Name: "x", HTTP: c.http, TCP: c.tcp}}
		p := &fleet.Policy{Components: []agentapi.PolicyComponent{{Name: "web", Runtime: "systemd", Health: agentapi.ComponentHealth{Checks: checks}}}}
		if err := checkComponents(p); (err == nil) != c.local {
			t.Errorf("%s%s: %v", c.http, c.tcp, err)
		}
		checks[0].Remote = true
		if err := checkComponents(p); err != nil {
			t.Errorf("%s%s with remote: %v", c.http, c.tcp, err)
		}
	}
}
