package request

import (
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/watcher/handoff"
)

// The host has committed 1.5.0 and 1.0.0, which it keeps, and 1.6.0 has failed there.
func TestAllow(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	on := handoff.Versions{
		OnHost: []handoff.Version{
			{Install: handoff.Install{Identity: manifest.Identity{Version: "1.0.0"}, Home: "data/a"}, ReplacedAt: at},
			{Install: handoff.Install{Identity: manifest.Identity{Version: "1.1.0"}, Home: "data/b"}, StagedAt: at},
		},
		Highest: "1.5.0",
		Failed:  []handoff.FailedVersion{{Identity: manifest.Identity{Version: "1.6.0", Hash: "aa"}, Reason: "it crashed", At: at}},
	}
	web := agentapi.ComponentData{Name: "web"}
	const older = "version 1.4.0 is older than 1.5.0, which was committed on this host, and is not kept here for a rollback: let its publishers allow it with `muster package allow-downgrade 1.4.0"
	for _, c := range []struct {
		name       string
		r          Request
		hash       string
		publishers trust.Expectation
		tooLate    bool // for the version that is kept
		want       string
	}{
		{name: "a new one", r: Request{Version: "1.7.0"}},
		{name: "the highest again", r: Request{Version: "1.5.0"}},
		{name: "below the floor", r: Request{Version: "1.7.0"}, publishers: trust.Expectation{Floor: "1.8.0"}, want: "version 1.7.0 is below 1.8.0, the lowest version its publishers still allow: choose a newer one"},
		{name: "below the floor, by all other means", r: Request{Version: "1.4.0", Force: true, Local: true}, publishers: trust.Expectation{Floor: "1.8.0", Downgrade: true}, want: "is below 1.8.0"},

		{name: "older", r: Request{Version: "1.4.0"}, want: older + "`, or run `muster-agent upgrade 1.4.0 --force` on the host"},
		{name: "older, of a component", r: Request{Version: "1.4.0", Component: web}, want: older + " --component web`"},
		{name: "older, with force", r: Request{Version: "1.4.0", Force: true}, want: older},
		{name: "older, on the host", r: Request{Version: "1.4.0", Local: true}, want: older},
		{name: "older, on the host with force", r: Request{Version: "1.4.0", Local: true, Force: true}},
		{name: "older, and its publishers allow it", r: Request{Version: "1.4.0"}, publishers: trust.Expectation{Downgrade: true}},
		{name: "older, and kept", r: Request{Version: "1.0.0"}},
		{name: "older, and kept for too long", r: Request{Version: "1.0.0"}, tooLate: true, want: "is older than 1.5.0"},
		{name: "older, and staged", r: Request{Version: "1.1.0"}, want: "is older than 1.5.0"},

		{name: "failed", r: Request{Version: "1.6.0"}, want: "version 1.6.0 failed here before, on 2026-01-02: it crashed; request it with force to install it all the same"},
		{name: "failed, on the host", r: Request{Version: "1.6.0", Local: true}, want: agentapi.FailedBefore},
		{name: "failed, with force", r: Request{Version: "1.6.0", Force: true}},
		{name: "another build of what failed", r: Request{Version: "1.6.0"}, hash: "bb"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := c.r.Allow(on, c.hash, c.publishers, func(k handoff.Version) bool { return k.Home == "data/a" && !c.tooLate })
			got := ""
			if err != nil {
				got = err.Error()
			}
			if got == "" != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("the error is %q, want %q", got, c.want)
			}
		})
	}
}
