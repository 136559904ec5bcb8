package app_test

import (
	"maps"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// A client cannot see from an answer whether its poll was parked: all have the same
// headers, with each protocol, and leave the connection usable.
func TestParkedPollHasTheHeadersOfOtherAnswers(t *testing.T) {
	s := apptest.Start(t, func(o *app.Options) {
		o.Config.Check.Poll, o.Config.Check.PollJitter = time.Second, 0
	})
	a := s.Enroll("web-01", "1.0.0")
	headers := func(call, id string, body any) []string {
		t.Helper()
		got, err := s.Do(t.Context(), apptest.Request{
			Method: http.MethodPost, URL: s.AgentURL + a.Path(call), Body: body,
			Header: http.Header{"Authorization": {"ApiKey " + a.Key}, agentapi.HeaderRequestID: {id}},
		})
		if err != nil || got.Status != http.StatusOK {
			t.Fatalf("%s: status %d, %v: %s", call, got.Status, err, got.Body)
		}
		if echo := got.Header.Get(agentapi.HeaderRequestID); echo != id {
			t.Errorf("%s: the request's id came back as %q", call, echo)
		}
		if ct := got.Header.Get("Content-Type"); call == "checkin" && ct != "application/json" {
			t.Errorf("a check-in's answer is %q", ct)
		}
		return slices.Sorted(maps.Keys(got.Header))
	}
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2"} {
		transport := s.Client.Transport.(*http.Transport).Clone()
		transport.Protocols = &http.Protocols{}
		transport.Protocols.SetHTTP1(protocol == "HTTP/1.1")
		transport.Protocols.SetHTTP2(protocol == "HTTP/2")
		s.Client.CloseIdleConnections()
		s.Client = &http.Client{Transport: transport}
		want := headers("acks", "an-ack", agentapi.AckRequest{})
		for _, id := range []string{"one", "two"} {
			if got := headers("checkin", id, agentapi.CheckinRequest{Status: "online"}); !slices.Equal(got, want) {
				t.Errorf("%s: a parked poll is answered with the headers %v, other requests with %v", protocol, got, want)
			}
		}
	}
}
