package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/webhook"
	"github.com/muster-fleet/muster/server/store/event"
	"github.com/muster-fleet/muster/server/store/sqlite"
)

func newService(t *testing.T) *webhook.Service {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "muster.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	log := slog.New(slog.DiscardHandler)
	var loopback webhook.Allowed
	if err := loopback.Add("127.0.0.0/8"); err != nil {
		t.Fatal(err)
	}
	return &webhook.Service{Store: s, Events: &event.Stream{Store: s.Events(), Log: log}, Log: log, Transport: webhook.NewTransport(loopback)}
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
		{func(w *fleet.Webhook) { w.Secret = "whsec_sixteen-letters!" }, "[request body.secret]: begins with whsec_"},
		{func(w *fleet.Webhook) { w.Secret = "whsec_c2hvcnQ=" }, "[request body.secret]: is a key of 5 bytes"},
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
	for _, err := range []error{err, s.Test(t.Context(), "none"), s.Redeliver(t.Context(), "none", "kim")} {
		if fleet.KindOf(err) != fleet.NotFound {
			t.Errorf("error is %v", err)
		}
	}
}

// verifies is a receiver's check, written independently by the text of the Standard
// Webhooks specification.
func verifies(secret string, h http.Header, body []byte) bool {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return false
	}
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%s.%s", h.Get("webhook-id"), h.Get("webhook-timestamp"), body)
	return h.Get("webhook-signature") == "v1,"+base64.StdEncoding.EncodeToString(m.Sum(nil))
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
	mux.HandleFunc("/secret", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hidden", http.StatusForbidden) })
	mux.HandleFunc("/banner", func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.WriteString(conn, "SSH-2.0-hidden\r\n")
		conn.Close()
	})
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
		if r.method != http.MethodPost || r.header.Get("Content-Type") != "application/json" || r.header.Get("Muster-Event") != "ping" || r.header.Get("webhook-id") == "" {
			t.Errorf("%s with %v", r.method, r.header)
		}
		if !verifies(w.Secret, r.header, r.body) {
			t.Errorf("the signature in %v of %s does not fit", r.header, r.body)
		}
		if verifies(w.Secret, r.header, append(r.body, ' ')) || verifies("whsec_"+strings.Repeat("A", 44), r.header, r.body) {
			t.Error("the signature fits what it should not")
		}
	})
	t.Run("redirects are not followed", func(t *testing.T) {
		err := s.Test(t.Context(), hook("/moved").ID)
		if err == nil || !strings.Contains(err.Error(), "redirects are not followed") || len(got) != 0 {
			t.Errorf("error is %v, %d requests", err, len(got))
		}
	})
	t.Run("nothing of an answer is shown but its status and its time", func(t *testing.T) {
		for path, want := range map[string]string{"/secret": `the receiver answered 403 Forbidden after \d+m?s$`, "/banner": "the receiver's answer is not HTTP$"} {
			err := s.Test(t.Context(), hook(path).ID)
			if err == nil || !regexp.MustCompile(want).MatchString(err.Error()) || strings.Contains(err.Error(), "hidden") {
				t.Errorf("%s: error is %v, want one like %s", path, err, want)
			}
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

// Of the specification's libraries, the test vector of their reference implementation.
func TestSignatureIsThatOfStandardWebhooks(t *testing.T) {
	h := http.Header{}
	webhook.SetHeaders(h, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "test", "msg_p5jXN8AQM9LWM0D4loKWxJek", []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0))
	if h.Get("webhook-id") != "msg_p5jXN8AQM9LWM0D4loKWxJek" || h.Get("webhook-timestamp") != "1614265330" || h.Get("webhook-signature") != "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=" {
		t.Errorf("headers are %v", h)
	}
}

// A secret without the prefix, which an operator has chosen, is the key itself.
func TestChosenSecretSigns(t *testing.T) {
	body, at := []byte(`{"a":1}`), time.Unix(1_800_000_000, 0)
	for _, c := range []struct{ secret, key string }{
		{"sixteen-letters!", "c2l4dGVlbi1sZXR0ZXJzIQ=="},
		{"whsec_" + strings.Repeat("ab27", 13), strings.Repeat("ab27", 13)},
	} {
		h := http.Header{}
		webhook.SetHeaders(h, c.secret, "test", "w:1", body, at)
		if !verifies(c.key, h, body) {
			t.Errorf("%s: the headers %v are not signed with the key %s", c.secret, h, c.key)
		}
	}
}
