//go:build linux

package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/agentcache"
	"github.com/muster-fleet/muster/server/agents/checkin"
	"github.com/muster-fleet/muster/server/agents/checkin/parktest"
	"github.com/muster-fleet/muster/server/agents/enrollment"
	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/agents/policy"
	"github.com/muster-fleet/muster/server/api/agents"
	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/store/storehealth"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/simagent"
)

// BenchmarkCheckin measures the handler and the authentication of a check-in that reports
// no change and gets no action, without TLS and HTTP.
func BenchmarkCheckin(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	dir := b.TempDir()
	s, err := sqlite.Open(b.Context(), filepath.Join(dir, "muster.db"), sqlite.Options{})
	must0(b, err)
	defer s.Close()
	events := &event.Stream{Store: s.Events(), Log: log}
	policies := &policy.Service{Store: s, Events: events}
	must0(b, policies.EnsureDefault(b.Context()))
	var health storehealth.Monitor
	cache := agentcache.New(s.OnAgentChange, health.Away)
	feed, err := action.NewFeed(b.Context(), s.Actions(), func(...string) {}, &health, log)
	must0(b, err)
	enroll := &enrollment.Service{Store: s, Events: events}
	lastSeen := &checkin.LastSeen{Agents: s.Agents(), Parker: parktest.AtOnce{}, Cache: cache, Health: &health, Log: log}
	ctx, stop := context.WithCancel(b.Context())
	defer stop()
	go lastSeen.Run(ctx)
	limits, err := limit.Derive(limit.ThisMachine(), limit.Config{})
	must0(b, err)
	routes := &agents.Handlers{
		API: httpapi.API{Log: log}, Limits: limit.NewAdmission(limits), Agents: s.Agents(), Cache: cache, Health: &health, Enrollment: enroll, Actions: &action.Service{Store: s, Health: &health, Feed: feed, Events: events, Log: log},
		Checkin: &checkin.Service{Cache: cache, Health: &health, Agents: s.Agents(), Actions: s.Actions(), Results: s.Results(), Pending: feed, Parker: parktest.AtOnce{}, LastSeen: lastSeen, Events: events, Log: log},
	}
	h := routes.Handler()
	_, token, err := enroll.CreateKey(b.Context(), "bench", fleet.DefaultPolicyID, 0, "bench")
	must0(b, err)
	type host struct {
		path, key string
		body      []byte
	}
	const n = 1000
	hosts := make([]host, n)
	for i := range hosts {
		name := fmt.Sprintf("host-%d", i)
		meta := simagent.Metadata(name, "1.0.0")
		req, _ := json.Marshal(agentapi.EnrollRequest{Type: "PERMANENT", Metadata: agentapi.EnrollMetadata{Local: meta}})
		r := httptest.NewRequest(http.MethodPost, agentapi.PathEnroll, bytes.NewReader(req))
		r.Header.Set("Authorization", "ApiKey "+token.Encode())
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var got agentapi.EnrollResponse
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || got.Item.ID == "" {
			b.Fatalf("%d %s", w.Code, w.Body)
		}
		body, _ := json.Marshal(agentapi.CheckinRequest{Status: "online", Message: "Running", LocalMeta: meta, Components: json.RawMessage(`[]`)})
		hosts[i] = host{"/api/fleet/agents/" + got.Item.ID + "/checkin", "ApiKey " + got.Item.AccessAPIKey, body}
	}
	var next atomic.Int64
	one := func() {
		a := hosts[next.Add(1)%n]
		r, _ := http.NewRequest(http.MethodPost, a.path, bytes.NewReader(a.body))
		r.Header.Set("Authorization", a.key)
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusOK {
			b.Errorf("%d %s", w.Code, w.Body)
		}
	}
	for range 2 * n {
		one()
	}
	b.Run("handler", func(b *testing.B) {
		b.ReportAllocs()
		b.ReportMetric(float64(len(hosts[0].body)), "bytes")
		for b.Loop() {
			one()
		}
	})
	// An action is delivered and acknowledged, and the agent polls again with the token.
	b.Run("action", func(b *testing.B) {
		ids := make([]string, n)
		for i, a := range hosts {
			ids[i] = strings.Split(a.path, "/")[4]
		}
		feeding, stop := context.WithCancel(b.Context())
		defer stop()
		go feed.Run(feeding)
		b.ReportAllocs()
		done := 0
		for b.Loop() {
			if done%n == 0 {
				b.StopTimer()
				o := action.UpgradeOrder{UpgradeRequest: fleet.UpgradeRequest{Version: "1.1.0", SourceURI: "https://packages.example/", Force: true}, AgentIDs: ids, Actor: "bench"}
				_, err := routes.Actions.Upgrade(b.Context(), o)
				must0(b, err)
				time.Sleep(time.Second)
				b.StartTimer()
				var wg sync.WaitGroup
				for w := range 32 {
					wg.Go(func() {
						for i := w; i < n; i += 32 {
							cycle(b, h, hosts[i].path, hosts[i].key, ids[i], hosts[i].body)
						}
					})
				}
				wg.Wait()
			}
			done++
		}
	})
	b.Run("https", func(b *testing.B) {
		srv := httptest.NewUnstartedServer(h)
		srv.TLS = &tls.Config{NextProtos: []string{"http/1.1"}}
		srv.StartTLS()
		defer srv.Close()
		client := srv.Client()
		client.Transport.(*http.Transport).MaxIdleConnsPerHost = 64
		b.ReportAllocs()
		b.ResetTimer()
		var wg sync.WaitGroup
		per := b.N / 16
		for range 16 {
			wg.Go(func() {
				for range per {
					a := hosts[next.Add(1)%n]
					r, _ := http.NewRequest(http.MethodPost, srv.URL+a.path, bytes.NewReader(a.body))
					r.Header.Set("Authorization", a.key)
					resp, err := client.Do(r)
					if err == nil {
						_, err = io.Copy(io.Discard, resp.Body)
						err = errors.Join(err, resp.Body.Close())
					}
					if err != nil {
						b.Error(err)
					}
				}
			})
		}
		wg.Wait()
	})
}

// cycle receives and acknowledges a pending action.
func cycle(b *testing.B, h http.Handler, path, key, id string, body []byte) {
	post := func(path string, body []byte, into any) {
		r, _ := http.NewRequest(http.MethodPost, path, bytes.NewReader(body))
		r.Header.Set("Authorization", key)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), into); err != nil || w.Code != http.StatusOK {
			b.Errorf("%d %s", w.Code, w.Body)
		}
	}
	var got agentapi.CheckinResponse
	post(path, body, &got)
	if len(got.Actions) == 0 {
		b.Errorf("agent %s is given nothing", id)
		return
	}
	ack, _ := json.Marshal(agentapi.AckRequest{Events: []agentapi.AckEvent{{Type: agentapi.AckType, Subtype: agentapi.AckSubtype, AgentID: id, ActionID: got.Actions[len(got.Actions)-1].ID, Timestamp: time.Now().UTC()}}})
	post(strings.Replace(path, "/checkin", "/acks", 1), ack, &agentapi.AckResponse{})
	post(path, bytes.Replace(body, []byte(`"status":"online"`), []byte(`"status":"online","ack_token":"`+got.AckToken+`"`), 1), &got)
}

func must0(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}
