package attack_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store"
)

// queriedAgents are some thousands, with the tags that the queries are about.
const queriedAgents = 3_000

// Four programs send queries that are as expensive as they get, again and again. Those beyond
// the bounds are refused, with the place; the others take nothing from agents and probes.
func TestExpensiveQueriesAreNoOutage(t *testing.T) {
	s := apptest.Start(t)
	a := s.Enroll("web-01", "9.3.0")
	var tags []string
	for i := range 20 {
		tags = append(tags, fmt.Sprintf("%s-%d", strings.Repeat("ab1", 60), i))
	}
	for i := range queriedAgents {
		if err := s.Store.Agents().Create(t.Context(), fleet.Agent{ID: fmt.Sprintf("a%04d", i), Active: true, Tags: tags, EnrolledAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(ctx context.Context, patterns int) (apptest.Answer, error) {
		kuery := "tags: (" + strings.Repeat("*a*1*b or ", patterns-1) + "*a*1*b)"
		return s.Do(ctx, apptest.Request{
			Method: http.MethodGet, URL: s.AdminURL + "/api/fleet/agents?perPage=1&kuery=" + url.QueryEscape(kuery), Header: apptest.Headers("Authorization", "ApiKey "+s.AdminKey),
		})
	}
	refused, err := ask(t.Context(), 700)
	if text := string(refused.Body); err != nil || refused.Status != http.StatusBadRequest || !strings.Contains(text, "more than 1000 comparisons") || !strings.Contains(text, "^") {
		t.Errorf("a query of 700 patterns is answered %d %s, %v", refused.Status, text, err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var programs sync.WaitGroup
	for range 4 {
		programs.Go(func() {
			for ctx.Err() == nil {
				got, err := ask(ctx, 200)
				if err == nil && got.Status != http.StatusOK && got.Status != http.StatusTooManyRequests {
					t.Errorf("a query is answered %d %s", got.Status, got.Body)
				}
			}
		})
	}
	defer programs.Wait()
	defer cancel()
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		begun := time.Now()
		ready, err := s.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: s.AdminURL + "/readyz"})
		if err != nil || ready.Status != http.StatusOK {
			t.Fatalf("the probe is answered %d %s, %v", ready.Status, ready.Body, err)
		}
		if got := s.Agents(http.MethodPost, a.Path("acks"), a.Key, `{"events":[]}`); got.Status != http.StatusOK {
			t.Fatalf("an agent is answered %d %s", got.Status, got.Body)
		}
		if took := time.Since(begun); took > store.QueryTimeout/3 {
			t.Errorf("an agent and a probe waited %s", took)
		}
	}
}
