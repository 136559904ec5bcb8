//go:build linux

package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// simAgent speaks the protocol like a real agent on a fast link. Short phases of an upgrade
// are reported together, and each report ends the parked check-in. It upgrades nothing.
type simAgent struct {
	id, key string
	version string
	url     string
	client  *http.Client

	// staged is what it has staged; nil: it cannot stage versions.
	staged []string

	token   string
	details *agentapi.UpgradeDetails
	// offered is when an UPGRADE was received, and done when its watch was over, in Unix
	// nanoseconds.
	offered, done atomic.Int64
}

func newSimAgent(id string, cred fleet.Credential, url string, config *tls.Config) *simAgent {
	// Each agent has its own connection, like a host.
	t := &http.Transport{TLSClientConfig: config.Clone(), ForceAttemptHTTP2: true}
	return &simAgent{id: id, key: cred.Encode(), version: "1.0.0", url: url, client: &http.Client{Transport: t}}
}

func (a *simAgent) metadata() json.RawMessage { return simagent.Metadata(a.id, a.version) }

// run checks in until ctx ends.
func (a *simAgent) run(ctx context.Context) {
	for ctx.Err() == nil {
		actions, err := a.checkin(ctx)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second): // the server was killed
			}
			continue
		}
		for _, act := range actions {
			switch act.Type {
			case agentapi.ActionUpgrade:
				a.upgrade(ctx, act)
			case agentapi.ActionStage:
				a.stage(ctx, act)
			case agentapi.ActionPolicyChange:
				a.ack(ctx, act.ID)
			}
		}
	}
}

func (a *simAgent) upgrade(ctx context.Context, act agentapi.Action) {
	var data agentapi.UpgradeData
	if json.Unmarshal(act.Data, &data) != nil {
		return
	}
	a.offered.Store(time.Now().UnixNano())
	a.ack(ctx, act.ID)
	phase := func(s agentapi.UpgradeState) {
		a.details = &agentapi.UpgradeDetails{TargetVersion: data.Version, ActionID: act.ID, State: s}
		parked, cancel := context.WithCancel(ctx)
		defer cancel()
		// As in simagent, the gap begins when the check-in is sent: canceling it closes the
		// connection, and the next one takes longer than the gap.
		_, _ = a.checkin(httptrace.WithClientTrace(parked, &httptrace.ClientTrace{
			WroteRequest: func(httptrace.WroteRequestInfo) { time.AfterFunc(simagent.PhaseGap, cancel) },
		})) // ended by cancel, since no action is expected
	}
	if !slices.Contains(a.staged, data.Version) {
		phase(agentapi.UpgradeDownloading)
	}
	phase(agentapi.UpgradeReplacing)
	a.staged = slices.DeleteFunc(a.staged, func(v string) bool { return v == data.Version })
	a.version = data.Version
	phase(agentapi.UpgradeWatching)
	a.details = nil
	a.done.Store(time.Now().UnixNano())
}

// stage downloads the package, and keeps nothing of it. It tries again as long as the server is
// busy.
func (a *simAgent) stage(ctx context.Context, act agentapi.Action) {
	var data agentapi.UpgradeData
	if json.Unmarshal(act.Data, &data) != nil {
		return
	}
	for !a.download(ctx, manifest.ArchiveName(data.Version, "linux", "amd64", "tar.gz")) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
	a.staged = append(a.staged, data.Version)
	a.ack(ctx, act.ID)
}

func (a *simAgent) download(ctx context.Context, archive string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+agentapi.PathArtifacts+archive, http.NoBody)
	if err != nil {
		return false
	}
	req.Header.Set("Authorization", "ApiKey "+a.key)
	resp, err := a.client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	n, err := io.Copy(io.Discard, resp.Body)
	return err == nil && resp.StatusCode == http.StatusOK && n >= packageBytes
}

func (a *simAgent) checkin(ctx context.Context) ([]agentapi.Action, error) {
	var resp agentapi.CheckinResponse
	err := a.post(ctx, agentapi.PathCheckin, agentapi.CheckinRequest{
		Status: "online", Message: "Running", AckToken: a.token, LocalMeta: a.metadata(), Components: json.RawMessage(`[]`), UpgradeDetails: a.details, StagedVersions: a.staged,
	}, &resp)
	if err == nil && resp.AckToken != "" {
		a.token = resp.AckToken
	}
	return resp.Actions, err
}

func (a *simAgent) ack(ctx context.Context, actionID string) {
	var resp agentapi.AckResponse
	_ = a.post(ctx, agentapi.PathAcks, agentapi.AckRequest{Events: []agentapi.AckEvent{{
		Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: a.id, ActionID: actionID, Message: "taken", Timestamp: time.Now().UTC(),
	}}}, &resp)
}

func (a *simAgent) post(ctx context.Context, path string, body, out any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url+strings.ReplaceAll(path, "{id}", a.id), bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "ApiKey "+a.key)
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// simFleet is a fleet of running agents.
type simFleet struct {
	agents []*simAgent
	stop   context.CancelFunc
	all    sync.WaitGroup
}

func startFleet(ctx context.Context, agents []*simAgent) *simFleet {
	ctx, stop := context.WithCancel(ctx)
	f := &simFleet{agents: agents, stop: stop}
	for _, a := range agents {
		f.all.Go(func() { a.run(ctx) })
	}
	return f
}

func (f *simFleet) close() {
	f.stop()
	f.all.Wait()
	for _, a := range f.agents {
		a.client.CloseIdleConnections()
	}
}

// firstOffer returns when the first agent received an offer at or after from, or the zero
// time.
func (f *simFleet) firstOffer(from time.Time) time.Time {
	var first int64
	for _, a := range f.agents {
		if at := a.offered.Load(); at >= from.UnixNano() && (first == 0 || at < first) {
			first = at
		}
	}
	if first == 0 {
		return time.Time{}
	}
	return time.Unix(0, first)
}

func (f *simFleet) finished() int {
	n := 0
	for _, a := range f.agents {
		if a.done.Load() != 0 {
			n++
		}
	}
	return n
}
