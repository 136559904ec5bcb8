//go:build linux

package generator

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// Whatever net/http writes is parsed completely, also when it arrives in pieces or is
// followed by another answer.
func TestParseAnswerReadsWhatNetHTTPWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 0, 5000).Draw(t, "body")
		want := &http.Response{
			ProtoMajor: 1, ProtoMinor: 1, StatusCode: rapid.SampledFrom([]int{200, 400, 401, 429, 500, 503}).Draw(t, "status"),
			Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)),
			ContentLength: int64(len(body)), Close: rapid.Bool().Draw(t, "close"),
		}
		if rapid.Bool().Draw(t, "chunked") {
			want.ContentLength, want.TransferEncoding = -1, []string{"chunked"}
		}
		retry := rapid.IntRange(-1, 100).Draw(t, "retry")
		if retry >= 0 {
			want.Header.Set("Retry-After", fmt.Sprint(retry))
		}
		var wire bytes.Buffer
		if err := want.Write(&wire); err != nil {
			t.Fatal(err)
		}
		whole := wire.Len()
		wire.WriteString("HTTP/1.1 200 OK\r\nContent-Le")
		if cut := rapid.IntRange(0, whole-1).Draw(t, "cut"); true {
			if _, n, err := parseAnswer(wire.Bytes()[:cut]); n != 0 || err != nil {
				t.Fatalf("of %d bytes, the first %d are an answer of %d, %v", whole, cut, n, err)
			}
		}
		got, n, err := parseAnswer(wire.Bytes())
		if err != nil || n != whole {
			t.Fatalf("an answer of %d bytes was read as %d, %v", whole, n, err)
		}
		after := time.Duration(-1)
		if retry >= 0 {
			after = time.Duration(retry) * time.Second
		}
		if got.status != want.StatusCode || !bytes.Equal(got.body, body) || got.close != want.Close || got.retryAfter != after {
			t.Fatalf("read %d, close %v, retry after %s, %d bytes; want %d, %v, %s, %d", got.status, got.close, got.retryAfter, len(got.body), want.StatusCode, want.Close, after, len(body))
		}
	})
}

func TestParseAnswerRefusesMalformedAnswers(t *testing.T) {
	for text, want := range map[string]string{
		"SMTP ready, or so it seems\r\n\r\n":                               "want HTTP/1.1",
		"HTTP/1.1 abc\r\n\r\n":                                             "status",
		"HTTP/1.1 101 Switching\r\n\r\n":                                   "status",
		"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n":                    "length",
		"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n":           "length",
		"HTTP/1.1 200 OK\r\n\r\n":                                          "neither",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n":      "size",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\n": "size",
		strings.Repeat("x", maxHead+1):                                     "head",
	} {
		if a, n, err := parseAnswer([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q was read as %+v, %d, %v; want an error with %q", clip([]byte(text)), a, n, err, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		// parseAnswer must not panic.
		_, _, _ = parseAnswer([]byte("HTTP/1.1 200 OK\r\n" + rapid.String().Draw(t, "rest")))
	})
}

func TestRequestsEqualThoseOfARealAgent(t *testing.T) {
	p := newCheckinTemplate("1.0.0")
	body := p.appendCheckin(nil, "host-000007", "some-id", "41")
	wire := append(appendRequest(nil, requestHead{"127.0.0.1:8220", "1.0.0", "a2V5", "some-id", callCheckin, 3}, len(body)), body...)
	req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(wire)))
	if err != nil {
		t.Fatal(err)
	}
	if req.URL.Path != strings.Replace(agentapi.PathCheckin, "{id}", "some-id", 1) || req.Header.Get("Authorization") != "ApiKey a2V5" ||
		req.Header.Get(agentapi.HeaderAPIVersion) != agentapi.APIVersion || req.Header.Get(agentapi.HeaderRequestID) != "some-id-3" || req.UserAgent() != "Elastic Agent v1.0.0" {
		t.Errorf("the request is %+v", req)
	}
	var decoded agentapi.CheckinRequest
	dec := json.NewDecoder(req.Body)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&decoded); err != nil || decoded.AckToken != "41" || decoded.Status != "online" || !strings.Contains(string(decoded.LocalMeta), `"hostname":"host-000007"`) {
		t.Errorf("the body is %+v, %v", decoded, err)
	}
	if len(body) < 900 || len(body) > 1200 {
		t.Errorf("a check-in has %d bytes, want about a kilobyte", len(body))
	}
	// A real agent's encoder writes the same.
	if again, err := json.Marshal(decoded); err != nil || string(again) != string(body) {
		t.Errorf("the body is %s, a real agent sends %s, %v", body, again, err)
	}
	if want := metadata("1.0.0", "host-000007", "some-id"); string(decoded.LocalMeta) != string(want) {
		t.Errorf("the metadata is %s, want %s", decoded.LocalMeta, want)
	}
	var enrolled struct {
		Elastic struct{ Agent struct{ ID, Version string } }
		Host    struct{ Hostname string }
	}
	if err := json.Unmarshal(p.metadata("host-000007"), &enrolled); err != nil || enrolled.Elastic.Agent.ID != "" || enrolled.Elastic.Agent.Version != "1.0.0" || enrolled.Host.Hostname != "host-000007" {
		t.Errorf("the metadata of the enrolment is %+v, %v", enrolled, err)
	}
	// The first check-in has no ack token.
	var first agentapi.CheckinRequest
	if err := json.Unmarshal(p.appendCheckin(nil, "host-000007", "some-id", ""), &first); err != nil || first.AckToken != "" {
		t.Errorf("the first check-in is %+v, %v", first, err)
	}

	var acks agentapi.AckRequest
	if err := json.Unmarshal(appendAcks(nil, "some-id", "2026-01-02T03:04:05Z", []string{"a", "b"}), &acks); err != nil || len(acks.Events) != 2 ||
		acks.Events[1].ActionID != "b" || acks.Events[1].AgentID != "some-id" || acks.Events[0].Timestamp.IsZero() {
		t.Errorf("the acknowledgements are %+v, %v", acks, err)
	}
}

// An answer that is compared with the last one must have the same result as decoding it.
func TestReaderReusesAnAnswerOnlyWithTheAgentsOwnID(t *testing.T) {
	body := func(agent, action, token string) []byte {
		b, err := json.Marshal(agentapi.CheckinResponse{AckToken: token, Action: "checkin", Actions: []agentapi.Action{{ID: action, AgentID: agent, Type: agentapi.ActionUpgrade}}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var r reader
	for i, c := range []struct {
		agent, in, action, token string
		wrong                    bool
	}{
		{agent: "agent-1", in: "agent-1", action: "upgrade", token: "7"},
		{agent: "agent-2", in: "agent-2", action: "upgrade", token: "7"},
		{agent: "agent-3", in: "agent-2", action: "upgrade", token: "7", wrong: true},
		{agent: "agent-3", in: "agent-3", action: "another", token: "7"},
		{agent: "agent-1", in: "agent-1", action: "another", token: "8"},
		{agent: "agent-22", in: "agent-22", action: "another", token: "8"},
	} {
		got, err := r.checkin(body(c.in, c.action, c.token), c.agent)
		if c.wrong {
			if err == nil {
				t.Errorf("case %d: agent %s took an action of %s", i, c.agent, c.in)
			}
			continue
		}
		if err != nil || got.token != c.token || len(got.actions) != 1 || got.actions[0].ID != c.action {
			t.Errorf("case %d: read as %+v, %v", i, got, err)
		}
	}
	if _, err := r.checkin([]byte(`{"action":"acks"}`), "agent-1"); err == nil {
		t.Error("the answer to another call was accepted")
	}
}

func TestLocalAddrIsUniqueForEveryAgent(t *testing.T) {
	seen := map[[4]byte]int{}
	for n := range 140_000 { // two of the second byte
		a := [4]byte(localAddr(n, true).(*net.TCPAddr).IP.To4())
		if other, has := seen[a]; has {
			t.Fatalf("agents %d and %d both have %v", n, other, a)
		}
		if seen[a] = n; a[0] != 127 || a[1] == 0 {
			t.Fatalf("agent %d has %v", n, a)
		}
	}
	if localAddr(1, false) != nil {
		t.Error("to another machine an agent goes from a loopback address")
	}
}

// Merged distributions equal one distribution of everything.
func TestLatencyMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var parts [3]Latency
		var whole, sum Latency
		for i, ms := range rapid.SliceOfN(rapid.IntRange(0, 100_000), 1, 60).Draw(t, "ms") {
			d := time.Duration(ms) * time.Millisecond
			parts[i%3].Add(d)
			whole.Add(d)
		}
		for i := range parts {
			parts[i].export()
			sum.Merge(&Latency{Snapshot: parts[i].Snapshot}) // as another process gets it
		}
		for _, p := range []float64{0, 50, 99, 100} {
			if sum.Percentile(p) != whole.Percentile(p) || sum.Count() != whole.Count() {
				t.Fatalf("p%v of the parts is %s of %d, of the whole %s of %d", p, sum.Percentile(p), sum.Count(), whole.Percentile(p), whole.Count())
			}
		}
	})
	var one Latency
	one.Add(1234 * time.Millisecond)
	if got := one.Percentile(50); got < 1220*time.Millisecond || got > 1250*time.Millisecond {
		t.Errorf("1.234 s is remembered as %s", got)
	}
	one.Add(-time.Second)
	one.Add(48 * time.Hour)
	if one.Count() != 3 || one.Percentile(100) < 59*time.Minute {
		t.Errorf("what is out of range got lost: %d, longest %s", one.Count(), one.Percentile(100))
	}
}
