package app_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"runtime"
	"testing"

	"github.com/muster-fleet/muster/server/app/apptest"
)

// With the server's listener, handlers and http.Server, the parker can take over the
// connection of a poll.
func TestParkedPollHoldsNoGoroutine(t *testing.T) {
	const agents = 40
	s := apptest.Start(t)
	u, err := url.Parse(s.AgentURL)
	if err != nil {
		t.Fatal(err)
	}
	config := s.Client.Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	enrolled := make([]*apptest.Agent, agents)
	for i := range enrolled {
		enrolled[i] = s.Enroll(fmt.Sprint("web-", i), "1.0.0")
	}
	before := runtime.NumGoroutine()
	for _, a := range enrolled {
		c, err := tls.Dial("tcp", u.Host, config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		const body = `{"status":"online"}`
		fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: %s\r\nAuthorization: ApiKey %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
			a.Path("checkin"), u.Host, a.Key, len(body), body)
		s.Parked(a)
	}
	apptest.Eventually(t, "parked polls hold no goroutine", func() string {
		if n := runtime.NumGoroutine() - before; n > agents/2 { // the parker has a few of its own
			return fmt.Sprintf("%d goroutines more than before %d agents were parked", n, agents)
		}
		return ""
	})
}
