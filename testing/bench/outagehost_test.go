//go:build linux

package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/server/agentapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// The versions of an upgrade.
const (
	oldVersion = "1.0.0"
	newVersion = "1.1.0"
)

// ending is how an agent's upgrade ends.
type ending string

const (
	committed  ending = "committed"
	watched    ending = "still watched"
	rolledBack ending = "rolled back"
	failed     ending = "failed"
)

func (e ending) badly() bool { return e == rolledBack || e == failed }

func endingOf(i int) ending {
	switch {
	case i%50 == 7:
		return failed
	case i%50 == 13:
		return rolledBack
	case i%10 == 9:
		return watched
	}
	return committed
}

// outageHost is an agent and its watcher, which say what real ones do.
type outageHost struct {
	id                   string
	number               int
	end                  ending
	agentKey, watcherKey fleet.Credential
	client               *http.Client

	actionID, token string
	plan            []words
	parked          *poll
}

func newOutageHost(i int, client *http.Client) *outageHost {
	return &outageHost{
		client: client, id: fleet.NewID(), number: i, end: endingOf(i), agentKey: fleet.NewCredential(), watcherKey: fleet.NewCredential(),
	}
}

// words are one thing that is said: one of its fields but the name is set.
type words struct {
	name    string
	ack     *agentapi.AckEvent
	checkin *agentapi.CheckinRequest
	beacon  *agentapi.Beacon
}

const (
	saidAck     = "acknowledgement"
	saidCheckin = "check-in"
	saidFigures = "check-in with figures of a download"
	saidBeacon  = "beacon"
)

// metadata is a host's with five interfaces: some 1 KB.
func (h *outageHost) metadata(version string) json.RawMessage {
	n := h.number
	i := host.Info{
		ID: strings.ReplaceAll(h.id, "-", ""), Hostname: fmt.Sprintf("web-%05d.rack-%02d.example.internal", n, n%64), Architecture: "x86_64",
		OS: host.OS{Family: "debian", Full: "Debian GNU/Linux trixie(13)", Kernel: "6.12.0-amd64", Name: "Debian GNU/Linux", Platform: "debian", Type: "linux", Version: "13 (trixie)"},
	}
	for k := range 5 {
		i.IPs = append(i.IPs, fmt.Sprintf("10.%d.%d.%d/24", k, n/250, n%250), fmt.Sprintf("2001:db8:%x:%x::%x/64", k, n/250, n%250), fmt.Sprintf("fe80::42:acff:fe%02x:%04x/64", k, n))
		i.MACs = append(i.MACs, fmt.Sprintf("02:42:ac:%02x:%02x:%02x", k, n/250, n%250))
	}
	return i.Metadata(host.Agent{ID: h.id, Version: version, Build: version + " (build: 5f2a9c1be0d94f7c at 2026-03-03T10:00:00Z)", LogLevel: "info"})
}

func (h *outageHost) components(state string) json.RawMessage {
	list := make([]agentapi.Component, 0, 3)
	for _, id := range []string{"log-default", "metrics-default", "endpoint-default"} {
		list = append(list, agentapi.Component{ID: id, Type: strings.TrimSuffix(id, "-default"), Status: state, Message: "process 1234 says that it is " + strings.ToLower(state)})
	}
	b, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings
	}
	return b
}

func (h *outageHost) details(state agentapi.UpgradeState) *agentapi.UpgradeDetails {
	return &agentapi.UpgradeDetails{TargetVersion: newVersion, ActionID: h.actionID, State: state}
}

// report is a check-in; components are in a state.
func (h *outageHost) report(version, status, components string, d *agentapi.UpgradeDetails) agentapi.CheckinRequest {
	return agentapi.CheckinRequest{
		Status: status, Message: "Running", AckToken: h.token, LocalMeta: h.metadata(version), Components: h.components(components), PollTimeout: "5m0s",
		UpgradeDetails: d, Upgrade: &agentapi.CheckinUpgrade{},
	}
}

// upgrade is all that the host says.
func (h *outageHost) upgrade() []words {
	var plan []words
	check := func(version, status, components string, d *agentapi.UpgradeDetails) {
		r := h.report(version, status, components, d)
		plan = append(plan, words{name: saidCheckin, checkin: &r})
	}
	phase := func(version string, state agentapi.UpgradeState) {
		check(version, "online", "HEALTHY", h.details(state))
	}
	beacon := func(stage agentapi.BeaconStage, waiting string, a agentapi.BeaconAgent, reason *agentapi.BeaconCause) {
		plan = append(plan, words{name: saidBeacon, beacon: &agentapi.Beacon{
			ActionID: h.actionID, From: oldVersion, To: newVersion, Stage: stage, Agent: a, Reason: reason, Waiting: waiting,
		}})
	}

	plan = append(plan, words{name: saidAck, ack: &agentapi.AckEvent{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: h.id, ActionID: h.actionID, Message: "upgrade to " + newVersion + " begins", Timestamp: time.Now().UTC(),
	}})
	phase(oldVersion, agentapi.UpgradeRequested)
	phase(oldVersion, agentapi.UpgradeDownloading)
	for k := range 2 {
		d := h.details(agentapi.UpgradeDownloading)
		d.Metadata = agentapi.UpgradeMetadata{DownloadPercent: float64(30*(k+1)) + 0.5, DownloadRate: agentapi.Rate(1_000_000 + 1000*k + h.number)}
		r := h.report(oldVersion, "online", "HEALTHY", d)
		plan = append(plan, words{name: saidFigures, checkin: &r})
	}
	if h.end == failed {
		d := h.details(agentapi.UpgradeFailed)
		d.Metadata = agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeDownloading, ErrorMsg: "download: packages.example: connection refused"}
		check(oldVersion, "online", "HEALTHY", d)
		return plan
	}
	phase(oldVersion, agentapi.UpgradeExtracting)
	phase(oldVersion, agentapi.UpgradeReplacing)
	beacon(agentapi.BeaconWatching, "the new version to start", agentapi.BeaconAgent{Alive: true, State: "healthy", Version: oldVersion}, nil)
	phase(oldVersion, agentapi.UpgradeRestarting)
	beacon(agentapi.BeaconWatching, "the new version to start", agentapi.BeaconAgent{Alive: false}, nil)
	check(newVersion, "starting", "STARTING", h.details(agentapi.UpgradeWatching))
	beacon(agentapi.BeaconWatching, "the new version to be healthy", agentapi.BeaconAgent{Alive: true, State: "starting", Version: newVersion}, nil)
	phase(newVersion, agentapi.UpgradeWatching)
	if h.end == rolledBack {
		cause := &agentapi.BeaconCause{Code: "crash_loop", Text: "its process ended 3 times in 2 minutes"}
		beacon(agentapi.BeaconRollingBack, "", agentapi.BeaconAgent{Crashes: 3}, cause)
		beacon(agentapi.BeaconRolledBack, "", agentapi.BeaconAgent{Alive: true, State: "healthy", Version: oldVersion, Crashes: 3}, cause)
		d := h.details(agentapi.UpgradeRollback)
		d.Metadata = agentapi.UpgradeMetadata{FailedState: agentapi.UpgradeWatching, ErrorMsg: cause.Text, Reason: cause.Text, ReasonCode: cause.Code}
		check(oldVersion, "online", "HEALTHY", d)
		return plan
	}
	healthy := agentapi.BeaconAgent{Alive: true, State: "healthy", Version: newVersion}
	for _, left := range []string{"9 m", "6 m", "3 m"} {
		beacon(agentapi.BeaconWatching, "the watch to end, in "+left, healthy, nil)
	}
	check(newVersion, "degraded", "DEGRADED", h.details(agentapi.UpgradeWatching))
	phase(newVersion, agentapi.UpgradeWatching)
	if h.end == watched {
		return plan
	}
	beacon(agentapi.BeaconCommitted, "", healthy, nil)
	check(newVersion, "online", "HEALTHY", nil)
	return plan
}

// wantPhases are those that the stream of events tells of, in their order.
func (h *outageHost) wantPhases() []agentapi.UpgradeState {
	if h.end == failed {
		return []agentapi.UpgradeState{agentapi.UpgradeRequested, agentapi.UpgradeDownloading, agentapi.UpgradeFailed}
	}
	want := []agentapi.UpgradeState{
		agentapi.UpgradeRequested, agentapi.UpgradeDownloading, agentapi.UpgradeExtracting, agentapi.UpgradeReplacing, agentapi.UpgradeRestarting, agentapi.UpgradeWatching,
	}
	if h.end == rolledBack {
		want = append(want, agentapi.UpgradeRollback)
	}
	return want
}

// endOf is how an upgrade has ended, as the store has it.
func endOf(a fleet.Agent) string {
	state, stage := "none", "none"
	if a.UpgradeDetails != nil {
		state = string(a.UpgradeDetails.State)
	}
	if a.Watch != nil {
		stage = string(a.Watch.Stage)
	}
	return fmt.Sprintf("version %s, reached %t, upgrade status %q, phase %s, watch %s", a.Version, a.UpgradedAt != nil, a.UpgradeStatus, state, stage)
}

func (h *outageHost) wantEnd() string {
	switch h.end {
	case failed:
		return fmt.Sprintf("version %s, reached false, upgrade status %q, phase UPG_FAILED, watch none", oldVersion, fleet.UpgradeFailed)
	case rolledBack:
		return fmt.Sprintf("version %s, reached false, upgrade status %q, phase UPG_ROLLBACK, watch rolled_back", oldVersion, fleet.UpgradeRolledBack)
	case watched:
		return fmt.Sprintf("version %s, reached true, upgrade status %q, phase UPG_WATCHING, watch watching", newVersion, fleet.UpgradeNone)
	}
	return fmt.Sprintf("version %s, reached true, upgrade status %q, phase none, watch committed", newVersion, fleet.UpgradeNone)
}

// post sends a call, whose answer goes into out unless that is nil.
func (h *outageHost) post(ctx context.Context, path string, key fleet.Credential, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://muster"+strings.ReplaceAll(path, "{id}", h.id), bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "ApiKey "+key.Encode())
	resp, err := h.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		answer, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10)) // what there is of it helps
		return fmt.Errorf("%s: %s: %s", path, resp.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(out)
}
