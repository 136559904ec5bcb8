package network

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"
)

func TestProxyOfTheSettings(t *testing.T) {
	s := Settings{Proxy: "http://ann:secret@proxy.example.com:3128", NoProxy: []string{"near.example.com", ".local", "10.0.0.0/8"}}
	for to, want := range map[string]string{
		"https://fleet.example.com:8220/x": s.Proxy,
		"http://mirror.example.com/x":      s.Proxy,
		"https://near.example.com:8220":    "",
		"https://a.local":                  "",
		"https://10.1.2.3":                 "",
		"https://127.0.0.1:8220":           "",
		"https://localhost:8220":           "",
	} {
		u, err := url.Parse(to)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.ProxyFor(&http.Request{URL: u})
		if err != nil || (got == nil) != (want == "") || got != nil && got.String() != want {
			t.Errorf("%s is reached through %v (%v), want %q", to, got, err, want)
		}
	}
}

func TestRequestsGoThroughTheProxy(t *testing.T) {
	asked := ""
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.URL.String() // a whole URL, as only a proxy is asked
		_, _ = io.WriteString(w, "from the proxy")
	}))
	defer proxy.Close()
	transport, err := Settings{Proxy: proxy.URL}.Transport()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := get(t, transport, "http://mirror.example.com/packages"); err != nil || text != "from the proxy" || asked != "http://mirror.example.com/packages" {
		t.Errorf("%q, %v; the proxy was asked for %q", text, err, asked)
	}
}

func TestAuthorityOfTheSettingsIsTrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }))
	defer server.Close()
	server.Config.ErrorLog = nil
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	for _, c := range []struct {
		settings Settings
		trusted  bool
	}{{Settings{}, false}, {Settings{CAPEM: authority}, true}} {
		transport, err := c.settings.Transport()
		if err != nil {
			t.Fatal(err)
		}
		if text, err := get(t, transport, server.URL); (err == nil && text == "hello") != c.trusted {
			t.Errorf("with %d bytes of authorities: %q, %v", len(c.settings.CAPEM), text, err)
		}
	}
	if _, err := (Settings{CAPEM: "none"}).Transport(); err == nil {
		t.Error("authorities that are none are accepted")
	}
}

func get(t *testing.T, transport *http.Transport, u string) (string, error) {
	t.Helper()
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}
