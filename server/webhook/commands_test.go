package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/event"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/store/sqlite"
	"github.com/muster-fleet/muster/server/webhook"
)

func newService(t *testing.T) *webhook.Service {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	log := slog.New(slog.DiscardHandler)
	return &webhook.Service{Store: s, Events: &event.Stream{Store: s.Events(), Log: log}, Log: log}
}

func TestInvalidWebhookErrorsNameTheField(t *testing.T) {
	s := newService(t)
	good := fleet.Webhook{URL: "https://a.example/x"}
	for _, c := range []struct {
		change func(*fleet.Webhook)
		says   string
	}{
		{func(w *fleet.Webhook) { w.URL = "" }, "[request body.url]: is missing"},
		{func(w *fleet.Webhook) { w.URL = "ftp://a.example" }, "want https://"},
		{func(w *fleet.Webhook) { w.URL = "a.example/x" }, "want https://"},
		{func(w *fleet.Webhook) { w.URL = "https://:80/x" }, "names no host"},
		{func(w *fleet.Webhook) { w.URL = "https://ann:pw@a.example/x" }, "check the signature"},
		{func(w *fleet.Webhook) { w.URL = "https://a.example/#x" }, "fragment"},
		{func(w *fleet.Webhook) { w.URL = "https://a.example/%zz" }, "is not an address"},
		{func(w *fleet.Webhook) { w.URL += strings.Repeat("x", 2000) }, "at most 2000"},
		{func(w *fleet.Webhook) { w.Name = strings.Repeat("x", 101) }, "[request body.name]"},
		{func(w *fleet.Webhook) { w.Secret = "short" }, "[request body.secret]"},
		{func(w *fleet.Webhook) { w.Events = []string{fleet.EventRolloutFailed, "agent.status"} }, "[request body.events[1]]"},
	} {
		w := good
		c.change(&w)
		if _, err := s.Create(t.Context(), w, "ann"); fleet.KindOf(err) != fleet.Invalid || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: error is %v, want one that says %q", w, err, c.says)
		}
	}
	for range webhook.MaxWebhooks {
		if _, err := s.Create(t.Context(), good, "ann"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Create(t.Context(), good, "ann"); fleet.KindOf(err) != fleet.Conflict {
		t.Errorf("one more: %v", err)
	}
}

func TestSecretIsReturnedOnlyOnCreation(t *testing.T) {
	s := newService(t)
	made, err := s.Create(t.Context(), fleet.Webhook{URL: "http://10.0.0.1:8080/hook"}, "ann")
	if err != nil || len(made.Secret) < 40 || made.Name != "10.0.0.1:8080" || made.CreatedBy != "ann" {
		t.Fatalf("webhook is %+v, %v", made, err)
	}
	own, err := s.Create(t.Context(), fleet.Webhook{URL: "http://10.0.0.1/hook", Secret: "sixteen-letters!", Name: "own"}, "ann")
	if err != nil || own.Secret != "sixteen-letters!" || own.Name != "own" {
		t.Fatalf("webhook is %+v, %v", own, err)
	}
	all, err := s.List(t.Context())
	if err != nil || len(all) != 2 || all[0].ID != own.ID || all[0].Secret != "" || all[1].Secret != "" {
		t.Errorf("the list is %+v, %v", all, err)
	}
}

func TestMissingWebhookIsNotFound(t *testing.T) {
	s := newService(t)
	_, err := s.SetDisabled(t.Context(), "none", true, "ann")
	for _, err := range []error{err, s.Test(t.Context(), "none"), s.Redeliver(t.Context(), "none")} {
		if fleet.KindOf(err) != fleet.NotFound {
			t.Errorf("error is %v", err)
		}
	}
}

// verifies is a receiver's check, written independently by the comment of Sign.
func verifies(secret, header string, body []byte) bool {
	t, v1, _ := strings.Cut(header, ",")
	h := hmac.New(sha256.New, []byte(secret))
	fmt.Fprintf(h, "%s.%s", strings.TrimPrefix(t, "t="), body)
	return hmac.Equal([]byte(strings.TrimPrefix(v1, "v1=")), []byte(hex.EncodeToString(h.Sum(nil))))
}

func TestDeliveriesOverTheNetwork(t *testing.T) {
	type request struct {
		header http.Header
		body   []byte
		method string
	}
	got := make(chan request, 10)
	release := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/ok", func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- request{r.Header, body, r.Method}
	})
	mux.Handle("/moved", http.RedirectHandler("/ok", http.StatusTemporaryRedirect))
	mux.HandleFunc("/hangs", func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // so that the end of the connection is seen
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	defer close(release)
	s := newService(t)
	hook := func(path string) fleet.Webhook {
		w, err := s.Create(t.Context(), fleet.Webhook{URL: server.URL + path}, "ann")
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	t.Run("a receiver can check who sends", func(t *testing.T) {
		w := hook("/ok")
		if err := s.Test(t.Context(), w.ID); err != nil {
			t.Fatal(err)
		}
		r := <-got
		header := r.header.Get("Muster-Signature")
		if r.method != http.MethodPost || r.header.Get("Content-Type") != "application/json" || r.header.Get("Muster-Event") != "ping" || r.header.Get("Muster-Delivery") == "" {
			t.Errorf("%s with %v", r.method, r.header)
		}
		if !verifies(w.Secret, header, r.body) || webhook.Verify(w.Secret, header, r.body, time.Now()) != nil {
			t.Errorf("the signature %s of %s does not fit", header, r.body)
		}
		if verifies(w.Secret, header, append(r.body, ' ')) || verifies("another secret here", header, r.body) {
			t.Error("the signature fits what it should not")
		}
	})
	t.Run("redirects are not followed", func(t *testing.T) {
		err := s.Test(t.Context(), hook("/moved").ID)
		if err == nil || !strings.Contains(err.Error(), "redirects are not followed") || len(got) != 0 {
			t.Errorf("error is %v, %d requests", err, len(got))
		}
	})
	t.Run("an address with a token in it shows in no error", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		err := s.Test(ctx, hook("/hangs?token=hidden").ID)
		if err == nil || strings.Contains(err.Error(), "hidden") || !strings.Contains(err.Error(), "no answer within") {
			t.Errorf("error is %v", err)
		}
	})
}

func TestSignaturesAreVerified(t *testing.T) {
	const secret = "sixteen-letters!"
	at := time.Unix(1_800_000_000, 0)
	body := []byte(`{"a":1}`)
	good := webhook.Sign(secret, body, at)
	for _, c := range []struct {
		name, header, says string
		body               string
		now                time.Time
	}{
		{"as it was sent", good, "", string(body), at.Add(time.Minute)},
		{"with parts of a later scheme", "v0=x," + good + ",v2=abc", "", string(body), at},
		{"another body", good, "does not fit", `{"a":2}`, at},
		{"another time", strings.Replace(good, "t=18", "t=19", 1), "does not fit", string(body), at},
		{"played again", good, "old", string(body), at.Add(webhook.Tolerance + time.Second)},
		{"from the future", good, "old", string(body), at.Add(-webhook.Tolerance - time.Second)},
		{"no signature", "t=1800000000", "want t=", string(body), at},
		{"no time", strings.TrimPrefix(good, "t=1800000000,"), "want t=", string(body), at},
		{"no hex", "t=1800000000,v1=zz", "does not fit", string(body), at},
		{"nothing", "", "want t=", string(body), at},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := webhook.Verify(secret, c.header, []byte(c.body), c.now)
			if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("error is %v, want one that says %q", err, c.says)
			}
		})
	}
}
