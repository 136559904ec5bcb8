package app_test

import (
	"context"
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

func TestAgentLearnsOfChangedAddressAfterRestart(t *testing.T) {
	dir := t.TempDir()
	// at makes a server listen on a port of its own, and tell agents another name for it.
	at := func(name string) func(*app.Options) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return func(o *app.Options) {
			o.AgentListener, o.Config.Agents.URL = l, "https://"+net.JoinHostPort(name, port)
			o.Config.Check.Poll, o.Config.Check.PollJitter = time.Second, 0
		}
	}
	first := apptest.StartOn(t, dir, at("localhost"))
	a := first.Enroll("web-01", "1.0.0")
	if got := a.MustCheckin(nil).Actions; len(got) != 0 {
		t.Fatalf("the agent receives %+v", got)
	}
	if err := first.Stop(); err != nil {
		t.Fatal(err)
	}

	second := apptest.StartOn(t, dir, at("127.0.0.1"))
	ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
	defer cancel()
	got, err := a.Checkin(ctx, second, nil)
	if err != nil || len(got.Actions) != 1 || got.Actions[0].Type != agentapi.ActionPolicyChange {
		t.Fatalf("after the restart the agent receives %+v, %v", got.Actions, err)
	}
	var data struct {
		Policy struct {
			Revision int64
			Fleet    struct{ Hosts []string }
			Agent    struct{ Download struct{ SourceURI string } }
		}
	}
	if err := json.Unmarshal(got.Actions[0].Data, &data); err != nil {
		t.Fatal(err)
	}
	if p := data.Policy; p.Revision != 2 || !slices.Equal(p.Fleet.Hosts, []string{second.AgentURL}) || p.Agent.Download.SourceURI != second.AgentURL+agentapi.PathArtifacts {
		t.Errorf("the policy is %s, want one that names %s", got.Actions[0].Data, second.AgentURL)
	}
	if err := second.Stop(); err != nil {
		t.Fatal(err)
	}

	// The port stays the same, so that nothing has changed.
	third := apptest.StartOn(t, dir, func(o *app.Options) { o.Config.Agents.URL = second.AgentURL })
	if p, err := third.Store.Policies().Get(t.Context(), "default"); err != nil || p.PolicyRev != 2 {
		t.Errorf("after a restart that changes nothing the policy has revision %d, %v", p.PolicyRev, err)
	}
}
