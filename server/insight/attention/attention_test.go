package attention_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/attention"
)

var now = time.Date(2026, time.March, 3, 10, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

func rollout(id string, state fleet.RolloutState) fleet.Rollout {
	return fleet.Rollout{ID: id, State: state, Plan: fleet.Plan{Name: "web " + id}}
}

func TestListNamesWhatWaitsForAPerson(t *testing.T) {
	until := now.Add(time.Hour)
	waiting := rollout("r1", fleet.RolloutRunning)
	waiting.Waiting = []fleet.Wait{{Code: fleet.WhySoak, Since: ago(time.Hour)}, {Code: fleet.WhyApproval, Since: ago(2 * time.Hour), Until: &until}}
	stopped := func(kind fleet.StopKind, text string) fleet.Rollout {
		r := rollout("r2", fleet.RolloutPaused)
		r.Stop = &fleet.Stop{Kind: kind, Text: text, At: ago(time.Minute)}
		return r
	}
	for _, c := range []struct {
		name  string
		facts attention.Facts
		want  string // kind, severity, count and text; empty: nothing
		next  string
	}{
		{name: "nothing"},
		{name: "a rollout that runs", facts: attention.Facts{Rollouts: []fleet.Rollout{rollout("r", fleet.RolloutRunning)}}},
		{name: "an approval", facts: attention.Facts{Rollouts: []fleet.Rollout{waiting}}, want: "approval warning 0 The canaries of web r1 have finished, and the rollout waits for approval.", next: "approve"},
		{name: "too many failures", facts: attention.Facts{Rollouts: []fleet.Rollout{stopped(fleet.StopThreshold, "3 of 9 agents failed")}}, want: "paused critical 0 web r2 is paused: 3 of 9 agents failed.", next: "reason"},
		{name: "an exposure budget", facts: attention.Facts{Rollouts: []fleet.Rollout{stopped(fleet.StopExposure, "12 % have it")}}, want: "paused warning 0 web r2 is paused: 12 % have it.", next: "reason"},
		{name: "an operator's pause", facts: attention.Facts{Rollouts: []fleet.Rollout{stopped(fleet.StopOperator, "ann paused it.")}}, want: "paused info 0 web r2 is paused: ann paused it.", next: "Resume"},
		{name: "a rollback under way", facts: attention.Facts{Rollouts: []fleet.Rollout{stopped(fleet.StopRollback, "it is rolled back")}}},
		{
			name: "a critical incident", facts: attention.Facts{Incidents: []fleet.Incident{{ID: "i", State: fleet.IncidentOpen, Severity: "critical", Title: "web-01 could not go back", RecoveryPlan: "p", OpenedAt: now}}},
			want: "incident critical 0 web-01 could not go back.", next: "recovery plan",
		},
		{
			name:  "incidents that somebody works on",
			facts: attention.Facts{Incidents: []fleet.Incident{{ID: "i", State: fleet.IncidentAcked, Title: "x"}, {ID: "j", State: fleet.IncidentResolved, Title: "x"}}},
		},
		{
			name: "the incident of a paused rollout, which is listed itself",
			facts: attention.Facts{
				Rollouts:  []fleet.Rollout{stopped(fleet.StopThreshold, "3 of 9 agents failed")},
				Incidents: []fleet.Incident{{ID: "i", Category: fleet.IncidentRolloutStopped, RolloutID: "r2", State: fleet.IncidentOpen, Severity: "critical", Title: "x", OpenedAt: now}},
			},
			want: "paused critical 0 web r2 is paused: 3 of 9 agents failed.", next: "reason",
		},
		{
			name:  "the incident of a rollout that has failed",
			facts: attention.Facts{Incidents: []fleet.Incident{{ID: "i", Category: fleet.IncidentRolloutStopped, RolloutID: "r2", State: fleet.IncidentOpen, Severity: "critical", Title: "web failed", OpenedAt: now}}},
			want:  "incident critical 0 web failed.", next: "Acknowledge",
		},
		{name: "one failure", facts: attention.Facts{FailuresUnseen: 1}, want: "failures warning 1 1 host has failed its upgrade or was rolled back since you last looked.", next: "causes"},
		{name: "many failures", facts: attention.Facts{FailuresUnseen: 12345}, want: "failures warning 12345 12,345 hosts have failed their upgrades or were rolled back since you last looked.", next: "causes"},
		{name: "silent hosts", facts: attention.Facts{Silent: 2}, want: "upgrade warning 2 2 hosts have been silent since the upgrade replaced the version.", next: "watchers"},
		{name: "an upgrade that does not move", facts: attention.Facts{Stalled: 1}, want: "upgrade warning 1 1 host is online, and its upgrade has made no progress for 15 minutes.", next: "muster agents why"},
		{name: "a host that cannot write", facts: attention.Facts{Unwritable: 1}, want: "upgrade warning 1 1 host cannot write to its disk and begins no upgrade.", next: `last_checkin_message: "cannot write to its disk"`},
		{name: "hosts that cannot write", facts: attention.Facts{Unwritable: 1200}, want: "upgrade warning 1200 1,200 hosts cannot write to their disks and begin no upgrade.", next: "Free space"},
		{
			name: "a suspended fleet", facts: attention.Facts{Suspended: []attention.SuspendedFleet{{Name: "edge", By: fleet.Decision{By: "ann", At: now}}}},
			want: "suspended warning 0 The fleet edge is suspended: ann took over some of its agents.", next: "Resume the fleet",
		},
		{name: "a server that cannot sign", facts: attention.Facts{TrustProblem: "the key is missing"}, want: "trust critical 0 This server cannot sign the metadata of packages: the key is missing.", next: "keys"},
		{name: "an unreadable document", facts: attention.Facts{Unreadable: []string{"agent a1"}}, want: "server warning 1 1 document in the store cannot be read, and lists leave out what is in them: agent a1.", next: "log"},
		{name: "a remark", facts: attention.Facts{Remarks: []string{"servers of several versions run"}}, want: "server warning 0 servers of several versions run.", next: "servers"},
		{
			name: "dead letters", facts: attention.Facts{
				DeadLetters: []fleet.DeadLetter{{WebhookID: "w", At: now}, {WebhookID: "w", At: ago(time.Hour)}}, Webhooks: map[string]string{"w": "chat"},
			},
			want: "dead_letters warning 2 2 notifications could not be delivered to the webhook chat.", next: "deliver",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := attention.List(c.facts, now)
			if c.want == "" {
				if len(got) > 0 {
					t.Errorf("%+v", got)
				}
				return
			}
			if len(got) != 1 {
				t.Fatalf("there are %d items: %+v", len(got), got)
			}
			i := got[0]
			if text := fmt.Sprint(i.Kind, " ", i.Severity, " ", i.Count, " ", i.Text); text != c.want || !strings.Contains(i.Next, c.next) {
				t.Errorf("%s\n%s\nwant %s\n%s", text, i.Next, c.want, c.next)
			}
		})
	}
}

func TestWhatExpiresSoonIsListed(t *testing.T) {
	for _, c := range []struct {
		kind     attention.Kind
		left     time.Duration
		severity attention.Severity
		text     string
	}{
		{attention.Trust, 31 * 24 * time.Hour, "", ""},
		{attention.Trust, attention.Soon, attention.Warning, "root version 2 expires in 30 days, on 2 April 2026: nothing is installed."},
		{attention.Trust, 36 * time.Hour, attention.Critical, "root version 2 expires in 1 day, on 4 March 2026: nothing is installed."},
		{attention.Trust, time.Hour, attention.Critical, "root version 2 expires within a day: nothing is installed."},
		{attention.Trust, -time.Hour, attention.Critical, "root version 2 expired on 3 March 2026: nothing is installed."},
		{attention.Server, 20 * 24 * time.Hour, attention.Warning, "root version 2 expires in 20 days, on 23 March 2026: nothing is installed."},
		{attention.Server, 36 * time.Hour, attention.Critical, "root version 2 expires in 1 day, on 4 March 2026: nothing is installed."},
		{attention.Key, 20 * 24 * time.Hour, attention.Info, "root version 2 expires in 20 days, on 23 March 2026: nothing is installed."},
		{attention.Key, 7 * 24 * time.Hour, attention.Warning, "root version 2 expires in 7 days, on 10 March 2026: nothing is installed."},
	} {
		got := attention.List(attention.Facts{Expiries: []attention.Expiry{{Kind: c.kind, What: "root version 2", At: now.Add(c.left), Effect: "nothing is installed"}}}, now)
		if c.text == "" {
			if len(got) > 0 {
				t.Errorf("%s before its end it is listed: %+v", c.left, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Severity != c.severity || got[0].Text != c.text {
			t.Errorf("%s before its end: %+v", c.left, got)
		}
	}
}

func TestMostUrgentIsFirst(t *testing.T) {
	paused := rollout("r2", fleet.RolloutPaused)
	paused.Stop = &fleet.Stop{Kind: fleet.StopCanary, Text: "canaries failed", At: now}
	waits := func(id string, since time.Time) fleet.Rollout {
		r := rollout(id, fleet.RolloutRunning)
		r.Waiting = []fleet.Wait{{Code: fleet.WhyApproval, Since: since}}
		return r
	}
	got := attention.List(attention.Facts{
		Rollouts:  []fleet.Rollout{waits("late", ago(time.Minute)), waits("early", ago(time.Hour)), paused},
		Incidents: []fleet.Incident{{ID: "i", State: fleet.IncidentOpen, Severity: "critical", OpenedAt: now}, {ID: "w", State: fleet.IncidentOpen, Severity: "warning", OpenedAt: now}},
		Remarks:   []string{"a remark"},
		Expiries:  []attention.Expiry{{Kind: attention.Key, Subject: "k", At: now.Add(20 * 24 * time.Hour)}}, Silent: 1,
	}, now)
	var order []string
	for _, i := range got {
		order = append(order, string(i.Severity)+" "+string(i.Kind)+" "+i.Subject)
	}
	want := []string{"critical incident i", "critical paused r2", "warning incident w", "warning approval early", "warning approval late", "warning upgrade ", "warning server ", "info key k"}
	if !slices.Equal(order, want) {
		t.Errorf("the order is\n%q\nwant\n%q", order, want)
	}
}

func TestStalledAndDegradedFleetsWaitForAPerson(t *testing.T) {
	since := now.Add(-time.Hour)
	condition := func(reason string) *attention.Condition {
		return &attention.Condition{Reason: reason, Message: "web-1 failed", Since: since}
	}
	f := attention.Facts{
		Rollouts: []fleet.Rollout{{ID: "r", State: fleet.RolloutPaused, Plan: fleet.Plan{Name: "spring"}, Stop: &fleet.Stop{Kind: fleet.StopThreshold, Text: "3 failed", At: since}}},
		Declared: []attention.DeclaredFleet{
			{Name: "failed", Stalled: condition("AgentsFailed"), Degraded: condition("AgentsFailed")},
			{Name: "refused", Stalled: condition("StepRefused"), Degraded: condition("AgentsFailed")},
			{Name: "by-rollout", Rollout: "r", Stalled: condition("RolloutPaused"), Degraded: condition("AgentsFailed")},
			{Name: "paused", Stalled: condition("Paused")},
			{Name: "degraded", Degraded: condition("AgentsFailed")},
		},
	}
	got := map[string]bool{}
	for _, i := range attention.List(f, now) {
		got[fmt.Sprintf("%s %s %s", i.Severity, i.Kind, i.Subject)] = true
		if i.Kind == attention.Stalled && (i.Text != "The fleet "+i.Subject+" is stalled: web-1 failed." || !i.Since.Equal(since)) {
			t.Errorf("it says %+v", i)
		}
	}
	want := []string{
		"critical paused r", "warning stalled failed", "warning stalled refused", "warning degraded refused", "warning degraded by-rollout", "info stalled paused", "warning degraded degraded",
	}
	for _, w := range want {
		if !got[w] {
			t.Errorf("there is no %q in %v", w, got)
		}
	}
	if len(got) != len(want) {
		t.Errorf("the list has %v", got)
	}
}
