package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// cloneLimit bounds the wait until two hosts with one identity are found, which takes a minute and a
// half on an idle machine.
const cloneLimit = 4 * time.Minute

// An image is taken of an enrolled host, and started beside it. The server names both, orders nothing,
// and shows one row that does not change with each check-in. Once the copy has enrolled again there
// are two agents.
func TestCloneOfAnEnrolledHostIsNoticed(t *testing.T) {
	w := newWorld(t, harness.HostOptions{}, "web-01")
	ctx, h := t.Context(), w.Hosts[0]
	w.Publish("1.1.0", w.Programs.Agent)
	check(t, h.Stop())
	clone, err := w.Clone(ctx, h, "web-01-clone", harness.HostOptions{})
	check(t, err)
	w.Hosts = append(w.Hosts, clone)
	check(t, h.Start())
	check(t, clone.Start())

	agent := func() adminapi.Agent {
		t.Helper()
		agents, err := w.Server.Agents(ctx)
		check(t, err)
		if len(agents) != 1 {
			t.Fatalf("there are %d agents", len(agents))
		}
		return agents[0]
	}
	var a adminapi.Agent
	for end := time.Now().Add(cloneLimit); a.Shared == nil; time.Sleep(time.Second) {
		if a = agent(); time.Now().After(end) {
			t.Fatalf("after %s the two are taken for one", cloneLimit)
		}
	}
	first := a.Shared.Hosts[0].Hostname // which of them checked in first after the image was taken
	for range 10 {
		a := agent()
		if harness.Hostname(a) != first {
			t.Errorf("the row shows %s, and before %s", harness.Hostname(a), first)
		}
		if a.Shared == nil || len(a.Shared.Hosts) != 2 || !strings.Contains(a.Shared.Text, h.Name+" and ") && !strings.HasSuffix(a.Shared.Text, h.Name+".") || !strings.Contains(a.Shared.Text, clone.Name) {
			t.Fatalf("the agent is shared by %+v", a.Shared)
		}
		time.Sleep(500 * time.Millisecond)
	}
	if out, err := w.Server.CLI(ctx, "agents", "upgrade", h.ID, "--version", "1.1.0"); err == nil || !strings.Contains(err.Error()+out, "muster-agent enroll") {
		t.Errorf("an order is answered %v\n%s", err, out)
	}
	for _, args := range [][]string{{"agents", "get", h.ID}, {"agents", "why", h.ID}, {"attention"}} {
		harness.Eventually(t, "both are named", func() error {
			out, err := w.Server.CLI(ctx, args...)
			if err == nil && strings.Contains(out, h.Name) && (strings.Contains(out, clone.Name) || args[0] == "attention" && strings.Contains(out, "Several hosts check in")) {
				return nil
			}
			return fmt.Errorf("muster %s: %w\n%s", strings.Join(args, " "), err, out)
		})
	}
	check(t, clone.Stop())
	check(t, clone.Enrol(ctx, w.Server, w.Publisher, harness.HostOptions{}))
	check(t, clone.Start())
	harness.Eventually(t, "the copy is an agent of its own", func() error {
		agents, err := w.Server.Agents(ctx)
		for _, a := range agents {
			if a.Id != h.ID && harness.Hostname(a) == clone.Name && a.Status == fleet.StatusOnline && a.Shared == nil {
				return nil
			}
		}
		return errors.Join(err, fmt.Errorf("the server knows %+v", agents))
	})
}
