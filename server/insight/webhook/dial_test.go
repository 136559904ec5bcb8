package webhook_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/insight/webhook"
)

func allow(t *testing.T, entries ...string) *http.Transport {
	t.Helper()
	var a webhook.Allowed
	for _, entry := range entries {
		if err := a.Add(entry); err != nil {
			t.Fatal(err)
		}
	}
	return webhook.NewTransport(a)
}

// An operator's key must not be enough to send requests to services that trust the
// server's network, or to learn which of them exist.
func TestWebhooksDoNotReachInternalAddresses(t *testing.T) {
	reached := make(chan string, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { reached <- r.Host }))
	defer receiver.Close()
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached <- "the proxy" }))
	defer proxy.Close()
	t.Setenv("HTTP_PROXY", proxy.URL)
	t.Setenv("http_proxy", proxy.URL)
	_, port, err := net.SplitHostPort(receiver.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	try := func(transport *http.Transport, host string) error {
		s := newService(t)
		s.Transport = transport
		w, err := s.Create(t.Context(), fleet.Webhook{URL: "http://" + host}, "ann")
		if err != nil {
			t.Fatal(err)
		}
		return s.Test(t.Context(), w.ID)
	}
	for _, host := range []string{
		"127.0.0.1:" + port, "localhost:" + port, "[::ffff:127.0.0.1]:" + port, "[::1]:" + port, "0.0.0.0:" + port, "127.1.2.3:" + port,
		"10.0.0.1", "172.16.0.1", "192.168.0.1", "100.64.0.1", "169.254.169.254", "100.100.100.200", "168.63.129.16", "224.0.0.1", "255.255.255.255",
		"[fd00:ec2::254]", "[fe80::1]", "[ff02::1]", "[::]:" + port, "[64:ff9b::7f00:1]", "[2002:7f00:1::1]", "[::7f00:1]",
	} {
		err := try(allow(t), host)
		if fleet.KindOf(err) != fleet.Unavailable || !strings.Contains(err.Error(), "webhooks.allow in the server's configuration") {
			t.Errorf("%s: error is %v, want one that names webhooks.allow", host, err)
		}
	}
	if len(reached) > 0 {
		t.Fatalf("%s was reached", <-reached)
	}
	for entry, host := range map[string]string{"127.0.0.0/8": "localhost", "127.0.0.1": "127.0.0.1", "localhost": "LocalHost", "LOCALHOST.": "localhost"} {
		if err := try(allow(t, entry), host+":"+port); err != nil {
			t.Errorf("%s allows %s: %v", entry, host, err)
		} else if got := <-reached; !strings.HasSuffix(got, port) {
			t.Errorf("%s was reached", got)
		}
	}
	if err := try(allow(t, "other.example", "10.0.0.0/8", "127.0.0.2"), "localhost:"+port); err == nil {
		t.Error("localhost was reached by what allows others")
	}
}

// The refusal is final, so the notification becomes a dead letter at once and can be sent
// again after the configuration has changed.
func TestRefusedAddressIsNotRetried(t *testing.T) {
	bubble(t, func(t *testing.T, w *world) {
		w.Transport = allow(t)
		w.create("127.0.0.1:1")
		w.happens(fleet.EventRolloutStarted)
		w.gets("127.0.0.1:1", "")
		if got := w.letters(); len(got) != 1 || got[0].Attempts != 1 || !strings.Contains(got[0].Error, "127.0.0.1 is inside the network") {
			t.Errorf("dead letters: %+v", got)
		}
	})
}

func TestAllowedEntryIsANetworkAnAddressOrAName(t *testing.T) {
	var a webhook.Allowed
	for _, entry := range []string{"", "10.0.0.0/33", "https://chat.example", "chat.example:443", "*.example", "a b"} {
		if err := a.Add(entry); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("is %q, want a network", entry)) {
			t.Errorf("%q: error is %v", entry, err)
		}
	}
	for _, entry := range []string{netip.IPv6Loopback().String(), "fd00::/8", "10.1.2.3/8", "chat.corp.example", "chat"} {
		if err := a.Add(entry); err != nil {
			t.Errorf("%q: %v", entry, err)
		}
	}
}
