package app_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
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

// exactly makes polls end after poll, without jitter.
func exactly(poll time.Duration) func(*app.Options) {
	return func(o *app.Options) {
		apptest.OnPipes(o)
		o.Config.Check.Poll, o.Config.Check.PollJitter = poll, 0
	}
}

func TestPollIsParkedForFiveMinutes(t *testing.T) {
	for name, h2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := apptest.Start(t, exactly(5*time.Minute))
				protocols := s.Client.Transport.(*http.Transport).Protocols
				protocols.SetHTTP1(!h2)
				protocols.SetHTTP2(h2)
				a := s.Enroll("web-01", "1.0.0")
				start := time.Now()
				got, err := a.Checkin(t.Context(), s, nil)
				if err != nil || len(got.Actions) != 0 {
					t.Fatalf("the poll ended with %+v, %v", got, err)
				}
				if took := time.Since(start); took != 5*time.Minute {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

func TestSilentAgentIsOfflineAndThenInactive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apptest.Start(t, exactly(time.Minute))
		const inactivity = 10 * time.Minute
		p := apptest.Decode[adminapi.PolicyItem](t, s.Admin(http.MethodPost, "/api/fleet/agent_policies",
			map[string]any{"name": "lab", "namespace": "default", "inactivity_timeout": inactivity.Seconds()})).Item
		s.Token = *apptest.Decode[adminapi.EnrollmentKeyCreated](t, s.Admin(http.MethodPost, "/api/fleet/enrollment_api_keys",
			map[string]string{"policy_id": p.Id})).Item.ApiKey
		a := s.Enroll("web-01", "1.0.0")
		if _, err := a.Checkin(t.Context(), s, nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // until LastSeen has written
		// A parked agent counts as seen twice a minute.
		seen := *s.Fleet(a.ID).Last.At
		status := func() adminapi.AgentStatus {
			return apptest.Decode[adminapi.AgentItem](t, s.Admin(http.MethodGet, "/api/fleet/agents/"+a.ID, nil)).Item.Status
		}
		// Not at the moment itself, which fleet's tests have: SQLite sleeps for milliseconds of
		// the bubble's time when the server's loops write in it.
		time.Sleep(time.Until(seen.Add(fleet.OfflineAfter - time.Second)))
		if got := status(); got != fleet.StatusOnline {
			t.Errorf("just before five minutes after it was seen it is %s", got)
		}
		time.Sleep(2 * time.Second)
		if got := status(); got != fleet.StatusOffline {
			t.Errorf("just after them it is %s", got)
		}
		time.Sleep(inactivity - fleet.OfflineAfter)
		if got := status(); got != fleet.StatusInactive {
			t.Errorf("past its policy's timeout it is %s", got)
		}
	})
}

func TestParkedAgentStaysOnline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apptest.Start(t, exactly(time.Hour))
		a := s.Enroll("web-01", "1.0.0")
		ctx, hangUp := context.WithCancel(t.Context())
		var polling sync.WaitGroup
		polling.Go(func() { _, _ = a.Checkin(ctx, s, nil) })
		for range 4 {
			time.Sleep(10 * time.Minute)
			got := apptest.Decode[adminapi.AgentItem](t, s.Admin(http.MethodGet, "/api/fleet/agents/"+a.ID, nil)).Item
			if got.Status != fleet.StatusOnline || time.Since(*got.LastCheckin) > time.Minute {
				t.Errorf("while it is parked it is %s, seen %s ago", got.Status, time.Since(*got.LastCheckin))
			}
		}
		hangUp()
		polling.Wait()
	})
}

// A host that sends its body a byte at a time must not hold a request for ever.
func TestEndlessBodyIsCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apptest.Start(t, exactly(time.Second))
		a := s.Enroll("web-01", "1.0.0")
		start := time.Now()
		got, err := s.Do(t.Context(), apptest.Request{
			Method: http.MethodPost, URL: s.AgentURL + a.Path("acks"),
			Header: apptest.Headers("Authorization", "ApiKey "+a.Key), Body: &trickle{left: 300},
		})
		if err == nil && got.Status == http.StatusOK {
			t.Errorf("an endless body was accepted: %s", got.Body)
		}
		if took := time.Since(start); took > 2*time.Minute {
			t.Errorf("it was given %s", took)
		}
	})
}

// trickle yields one blank every second.
type trickle struct{ left int }

func (r *trickle) Read(p []byte) (int, error) {
	if r.left--; r.left < 0 {
		return 0, io.EOF
	}
	time.Sleep(time.Second)
	p[0] = ' '
	return 1, nil
}

func TestUpgradeOfAFleetInVirtualTime(t *testing.T) {
	const size, rounds = 50, 4
	synctest.Test(t, func(t *testing.T) {
		var options app.Options
		s := apptest.Start(t, exactly(5*time.Minute), func(o *app.Options) { options = *o })
		s.Publisher().Publish("1.1.0")
		var fleetOf []*apptest.Agent
		var ids []string
		for i := range size {
			a := s.Enroll(fmt.Sprintf("web-%02d", i), "1.0.0")
			fleetOf, ids = append(fleetOf, a), append(ids, a.ID)
		}
		ctx, stop := context.WithCancel(t.Context())
		delivered := make(chan time.Time, size)
		var polling sync.WaitGroup
		for _, a := range fleetOf {
			own := *s // each host has a connection of its own
			own.Client = s.NewClient(options)
			polling.Go(func() {
				defer own.Client.CloseIdleConnections()
				for ctx.Err() == nil {
					got, err := a.Checkin(ctx, &own, nil)
					if err != nil {
						continue
					}
					for _, act := range got.Actions {
						delivered <- time.Now()
						a.Version = "1.1.0"
						body := agentapi.AckRequest{Events: []agentapi.AckEvent{{AgentID: a.ID, ActionID: act.ID}}}
						if _, err := own.Do(ctx, apptest.Request{
							Method: http.MethodPost, URL: own.AgentURL + a.Path("acks"),
							Header: apptest.Headers("Authorization", "ApiKey "+a.Key), Body: body,
						}); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
		time.Sleep(rounds*5*time.Minute + time.Minute) // some polls each
		asked := time.Now()
		apptest.Decode[adminapi.ActionCreated](t, s.Admin(http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{"agents": ids, "version": "1.1.0"}))
		time.Sleep(time.Minute)
		if len(delivered) != size {
			t.Errorf("%d of %d agents got the upgrade", len(delivered), size)
		}
		for range len(delivered) {
			if took := (<-delivered).Sub(asked); took > time.Second {
				t.Errorf("one of them after %s", took)
			}
		}
		list := apptest.Decode[adminapi.ActionStatusList](t, s.Admin(http.MethodGet, "/api/fleet/agents/action_status", nil))
		if len(list.Items) != 1 || list.Items[0].Status != adminapi.COMPLETE || list.Items[0].NbAgentsAck != size {
			t.Errorf("the action stands as %+v", list.Items)
		}
		counts := apptest.Decode[adminapi.AgentStatusResponse](t, s.Admin(http.MethodGet, "/api/fleet/agent_status", nil)).Results
		if counts.Online != size || counts.Active != size || counts.Updating != 0 {
			t.Errorf("the fleet is %+v", counts)
		}
		stop()
		polling.Wait()
	})
}
