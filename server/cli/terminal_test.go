package cli_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/terminal"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

func TestOutputDoesNotActOnTheTerminal(t *testing.T) {
	const evil = "x\x1b[2J\x1b]0;gone\a\u009b1m\u202ey"
	o, s := loggedIn(t, quick)
	s.Publisher().Publish("1.1.0")
	a := s.Enroll("web-01", "1.0.0")
	a.MustCheckin(nil)
	now := time.Now().UTC()
	host, err := json.Marshal(map[string]any{"host": map[string]string{"hostname": "web" + evil}, "elastic": map[string]any{"agent": map[string]any{"version": "1.0.0" + evil, "upgradeable": true}}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.UpdateAgent(t.Context(), s.Store.Agents(), a.ID, func(a *fleet.Agent) bool {
		a.LocalMetadata, a.Version, a.Tags = host, "1.0.0"+evil, []string{evil}
		a.UpgradeDetails = &agentapi.UpgradeDetails{TargetVersion: evil, State: agentapi.UpgradeFailed, Metadata: agentapi.UpgradeMetadata{ErrorMsg: evil}}
		a.UpgradeStatus = fleet.UpgradeFailed
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Store.Agents().Report(t.Context(), store.Report{Seen: &fleet.Touch{AgentID: a.ID, At: now, Status: "error", Message: evil}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Store.Incidents().Create(t.Context(), fleet.Incident{ID: "i1", State: fleet.IncidentOpen, Title: evil, Text: evil, Hostname: evil, OpenedAt: now, Count: 1}); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"agents", "list"},
		{"agents", "list", "-o", "json"},
		{"agents", "why", a.ID},
		{"agents", "why", a.ID, "-o", "json"},
		{"agents", "upgrade", a.ID, "--version", "1.1.0", "--dry-run"},
		{"incidents", "list"},
		{"agents", "why", "none" + evil},
	} {
		got := o.try(args...)
		if all := got.out + got.err; terminal.Escape(all) != all || !strings.Contains(all, `\u202e`) {
			t.Errorf("muster %q prints %q", args, all)
		}
	}
	if got := asJSON[adminapi.AgentList](o, "agents", "list"); len(got.Items) != 1 || !strings.Contains(string(asBytes(t, got)), "\u202e") {
		t.Errorf("the JSON is %+v, want the texts as they are", got)
	}
}

// A server may be another than the operator believes.
func TestServerErrorsDoNotActOnTheTerminal(t *testing.T) {
	o := newOperator(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(`{"statusCode":418,"error":"x","message":"gone \u001b[2J\u202e"}`))
	}))
	defer server.Close()
	t.Setenv("MUSTER_API_KEY", "a2V5OnNlY3JldA==")
	ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
	defer cancel()
	_, errOut, ended := o.start(ctx, "", "agents", "list", "--url", server.URL, "--ca-pin", capin.Of(server.Certificate().Raw))
	if code := <-ended; code == 0 || terminal.Escape(errOut.String()) != errOut.String() {
		t.Errorf("exit code %d, %q", code, errOut)
	}
	o.contains(errOut.String(), `gone \u001b[2J\u202e`)
}

func asBytes(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
