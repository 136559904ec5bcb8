package admin_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/require"
)

// Hosts keep the longest documents that a check-in may have. A list of them is bounded, and still
// says which hosts they are and what they run; the page of one host has everything.
func TestLongDocumentsTakeLittleOfAList(t *testing.T) {
	t.Parallel()
	require.Time(t, "stores long documents")
	s := apptest.Start(t)
	long := strings.Repeat("x", 8<<10)
	plant := func(id string, components int, long string) {
		t.Helper()
		var list []agentapi.Component
		for i := range components {
			c := agentapi.Component{ID: fmt.Sprint("c", i), Type: "log", Status: "DEGRADED", Message: long, Units: json.RawMessage(`[{"id":"u","type":"input","status":"HEALTHY","message":"` + long[:min(len(long), 600)] + `"}]`)}
			c.Name, c.Version = c.ID, "2.0.0"
			list = append(list, c)
		}
		reported, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		a := fleet.Agent{
			ID: id, AccessKeyID: id, Active: true, EnrolledAt: time.Now().UTC(), Version: "1.0.0", Components: reported, Tags: []string{"edge"},
			LocalMetadata: json.RawMessage(`{"host":{"hostname":"` + id + `.example","ip":["10.0.0.1"]},"os":{"platform":"debian"},"elastic":{"agent":{"version":"1.0.0","upgradeable":true}},"junk":"` + long + `"}`),
		}
		if err := s.Store.Agents().Create(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
	const hosts = 40
	for i := range hosts {
		plant(fmt.Sprintf("long-%02d", i), 60, long) // half a megabyte
	}
	plant("usual", 10, long[:100])
	answer := s.Admin(http.MethodGet, "/api/fleet/agents?perPage=100", nil)
	if answer.Status != http.StatusOK || len(answer.Body) > 6<<20 {
		t.Fatalf("the list is answered %d, with %d bytes", answer.Status, len(answer.Body))
	}
	whole := 0
	for _, a := range get[adminapi.AgentList](t, s, "/api/fleet/agents", "perPage", "100").Items {
		host, _ := a.LocalMetadata["host"].(map[string]any)
		if host["hostname"] != a.Id+".example" || a.Agent.Version != "1.0.0" || len(a.Tags) != 1 || len(a.Components) == 0 {
			t.Errorf("of %s the list has %v", a.Id, a.LocalMetadata)
			continue
		}
		c := a.Components[0]
		if c.Name == nil || *c.Name != "c0" || *c.Version != "2.0.0" || c.Status != "DEGRADED" || !strings.HasPrefix(c.Message, "xxx") {
			t.Errorf("of %s the list has the component %+v", a.Id, c)
		}
		if c.Units != nil {
			whole++
		} else if a.Id == "usual" {
			t.Error("a usual document is shortened")
		}
	}
	if whole < 5 || whole > 15 {
		t.Errorf("%d documents are whole", whole)
	}
	one := get[adminapi.AgentItem](t, s, "/api/fleet/agents/long-00").Item
	if len(one.Components) != 60 || one.Components[59].Units == nil || one.Components[59].Message != long || one.LocalMetadata["junk"] != long {
		t.Errorf("the page of a host has %d components", len(one.Components))
	}
}
