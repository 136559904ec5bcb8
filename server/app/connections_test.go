package app_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// The preview of a rollout in lockstep refuses, or leaves out, a host within seconds after its
// connection was closed, and none that is between two polls.
func TestLockstepFollowsTheConnectionsOfHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var options app.Options
		s := apptest.Start(t, exactly(2*time.Minute), func(o *app.Options) { options = *o })
		if err := s.Store.Packages().Create(t.Context(), fleet.Package{
			File: "muster-component-web-2.0.0-linux-amd64.tar.gz", Version: "2.0.0", Component: "web", Runtime: "systemd", OS: "linux", Arch: "amd64", SHA512: strings.Repeat("0a", 64), Size: 1234,
		}); err != nil {
			t.Fatal(err)
		}
		policy, err := s.Store.Policies().Get(t.Context(), fleet.DefaultPolicyID)
		if err != nil {
			t.Fatal(err)
		}
		policy.Components = []agentapi.PolicyComponent{{Name: "web", Runtime: "systemd"}}
		if _, err := s.Store.Policies().Update(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		var polling sync.WaitGroup
		// poll lets a host poll until the function that it returns is called.
		poll := func(host string) (stop func()) {
			a := s.Enroll(host, "1.0.0")
			c := apptest.Component("web", "1.0.0")
			c.Lockstep = true
			a.Components, a.Staged = []agentapi.Component{c}, []string{"web 2.0.0"}
			ctx, cancel := context.WithCancel(t.Context())
			own := *s
			own.Client = s.NewClient(options)
			polling.Go(func() {
				defer own.Client.CloseIdleConnections()
				for ctx.Err() == nil {
					_, _ = a.Checkin(ctx, &own, nil)
					time.Sleep(1500 * time.Millisecond) // an agent's longest pause
				}
			})
			return cancel
		}
		preview := func(away fleet.AwayMode) adminapi.RolloutPreview {
			t.Helper()
			return apptest.Decode[struct{ Item adminapi.RolloutPreview }](t, s.Admin(http.MethodPost, "/api/v1/rollout_preview", map[string]any{"plan": map[string]any{
				"name": "together", "component": "web", "version": "2.0.0", "select": map[string]any{"all": true}, "strategy": map[string]any{"kind": "lockstep", "away": away},
			}})).Item
		}
		refusals := func(pre adminapi.RolloutPreview) string {
			var texts []string
			if pre.Refusals != nil {
				for _, r := range pre.Refusals {
					texts = append(texts, r.Text)
				}
			}
			return strings.Join(texts, "\n")
		}
		stays, goes := poll("web-1"), poll("web-2")
		defer polling.Wait()
		defer stays()
		defer goes()
		time.Sleep(fleet.ConnectedWithin + time.Second)
		for range 90 { // over the end of a poll
			if got := preview(fleet.AwayRefuse); refusals(got) != "" || got.Offline != 0 {
				t.Fatalf("while both poll, %d are away, and it is refused: %s", got.Offline, refusals(got))
			}
			time.Sleep(time.Second)
		}
		goes()
		closed := time.Now()
		for refusals(preview(fleet.AwayRefuse)) == "" {
			if time.Since(closed) > time.Minute {
				t.Fatal("a minute after the connection was closed it is not refused")
			}
			time.Sleep(time.Second)
		}
		// A parked agent was seen up to RetouchInterval before, so only the end of its poll counts.
		if took := time.Since(closed); took < fleet.ReconnectWithin-time.Second || took > fleet.ReconnectWithin+3*time.Second {
			t.Errorf("it is refused %s after the connection was closed", took)
		}
		if got := refusals(preview(fleet.AwayRefuse)); got != "1 of 2 targets are not ready to go in lockstep: web-2 (the agent is not connected)" {
			t.Errorf("it is refused: %s", got)
		}
		if got := preview(fleet.AwayExclude); refusals(got) != "" || got.Offline != 1 || !strings.Contains(strings.Join(got.Warnings, "\n"), "1 of 2 targets are not connected") {
			t.Errorf("to exclude it: %d are away, refused: %s, warnings %q", got.Offline, refusals(got), got.Warnings)
		}
	})
}
