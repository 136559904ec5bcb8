package daemon

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/agent/gateway"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
	"github.com/muster-fleet/muster/watcher/handoff"
	"github.com/muster-fleet/muster/watcher/probe"
)

// The version that agent.yml names is for Fleet Servers. A Muster server shows in its logs
// which version of the agent sent a request.
func TestNamedVersionIsForFleetServersOnly(t *testing.T) {
	for name, want := range map[string]string{"Muster": "1.0.0", "Fleet Server": "8.15.3"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.server.Fleet, m.namedVersion = name == "Fleet Server", "8.15.3"
			m.start()
			m.lastIs("the agent names "+want, func(c fakeserver.Checkin) bool {
				return c.UserAgent == gateway.UserAgent(want) && strings.Contains(string(c.LocalMeta), `"version":"1.0.0"`)
			})
		})
	}
}

// A Muster server previews upgrades with what is free on the host.
func TestFreeSpaceIsReportedToMusterServersOnly(t *testing.T) {
	for name, want := range map[string]bool{"Muster": true, "Fleet Server": false} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t)
			m.server.Fleet = !want
			m.start()
			m.lastIs("the free space is as expected", func(c fakeserver.Checkin) bool {
				return strings.Contains(string(c.LocalMeta), `"muster":{"free_bytes":`) == want
			})
		})
	}
}

// A Fleet Server checks what agents send more strictly than Muster's, does not end an older
// poll, and serves no packages.
func TestAgentOfAFleetServerIsUpgraded(t *testing.T) {
	m := newMachine(t)
	m.server.Fleet = true
	m.publish("1.1.0")
	m.start()
	m.server.Send(agentapi.Action{ID: "policy:p:1:1", Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"id":"p","revision":1,"agent":{},"fleet":{"hosts":[]}}}`)})
	m.server.Send(agentapi.Action{ID: "r1", Type: agentapi.ActionPolicyReassign, Data: json.RawMessage(`{"policy_id":"p"}`)})
	if a := m.ack("r1"); a.Error != "" {
		t.Errorf("reassign: %+v", a)
	}
	m.server.Send(agentapi.Action{ID: "s1", Type: agentapi.ActionSettings, Data: json.RawMessage(`{"log_level":"debug"}`)})
	m.lastIs("the new log level is reported", func(c fakeserver.Checkin) bool {
		return c.PolicyRevisionIdx == 1 && strings.Contains(string(c.LocalMeta), `"log_level":"debug"`) && m.level.Level() == slog.LevelDebug
	})
	m.server.Upgrade("a1", "1.1.0")
	m.lastIs("1.1.0 is watched", func(c fakeserver.Checkin) bool {
		return state(c) == agentapi.UpgradeWatching && strings.Contains(string(c.LocalMeta), `"version":"1.1.0"`)
	})
	if a := m.ack("a1"); a.Error != "" {
		t.Errorf("ack %+v", a)
	}
	m.end(handoff.Committed, nil)
	m.lastIs("nothing is left to say", func(c fakeserver.Checkin) bool { return c.UpgradeDetails == nil })
	// The server knows no action of an upgrade that is requested on the host.
	err := probe.Client{Dial: probe.DialSocket(m.top)}.Upgrade(context.Background(), probe.UpgradeRequest{Version: "9.9.9"})
	if err != nil {
		t.Fatal(err)
	}
	m.server.Upgrade("a2", "8.8.8")
	if a := m.ack("a2"); a.Error == "" {
		t.Errorf("a version that nobody has: %+v", a)
	}
	for _, c := range m.server.Checkins() {
		if c.UserAgent != gateway.UserAgent(gateway.CompatibleVersion) || c.Message == "" {
			t.Errorf("check-in of %q with message %q", c.UserAgent, c.Message)
		}
	}
	for _, r := range m.server.Refused() {
		if !strings.HasPrefix(r, "UnsupportedVersion") { // of the first request of a process
			t.Errorf("the server refused %s", r)
		}
	}
}

// A policy's source is tried, if the server may name it.
func TestPackagesComeFromTheSourceOfThePolicy(t *testing.T) {
	m := newMachine(t)
	m.publish("1.1.0")
	var mu sync.Mutex
	asked := map[string]int{}
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		asked[strings.Split(r.URL.Path, "muster-agent-")[0]]++
		return false
	}
	m.start()
	send := func(id, source string) {
		m.server.Send(agentapi.Action{ID: id, Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"agent":{"download":{"sourceURI":"` + source + `"}}}}`)})
		m.ack(id)
	}
	send("policy:p:1", m.server.URL+"/mirror/")
	send("policy:p:2", "file:///etc")
	m.server.Upgrade("a0", "9.9.9")
	if a := m.ack("a0"); !strings.Contains(a.Error, "(agent.download.sourceURI) is not used: file:///etc: is a folder of the host") {
		t.Errorf("ack %+v", a)
	}
	send("policy:p:3", m.server.URL+"/artifacts/other/")
	m.server.Upgrade("a1", "1.1.0")
	m.ack("a1")
	mu.Lock()
	defer mu.Unlock()
	if asked["/artifacts/other/"] == 0 || asked["/artifacts/"] == 0 || asked["/mirror/"] != 0 {
		t.Errorf("asked %v", asked)
	}
}

// The agent moves to the servers of its policy that its authority has issued a certificate
// for, and remembers that. A stolen server cannot move it elsewhere.
// A policy moves a host, and never has it forget where it was enrolled.
func TestServersThatAnAgentTries(t *testing.T) {
	const here, home, other = "https://here:8220", "https://home:8220", "https://other:8220"
	for _, c := range []struct {
		name  string
		hosts []string
		here  string
		lost  bool
		want  []string
	}{
		{"no servers in the policy", nil, here, false, nil},
		{"none, and it is lost", nil, here, true, []string{home}},
		{"none, and that of the enrolment is lost", nil, home, true, nil},
		{"its own", []string{here + "/"}, here, false, nil},
		{"its own, which is lost", []string{here}, here, true, []string{home}},
		{"another one", []string{other}, here, false, []string{other}},
		{"another one, and it is lost", []string{other, here}, here, true, []string{other, home}},
		{"others with that of the enrolment", []string{home, other, other}, here, true, []string{home, other}},
		{"another one, and that of the enrolment is lost", []string{other}, home, true, []string{other}},
	} {
		if got := serversToTry(c.hosts, c.here, home, c.lost); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	moved := identity.Identity{ServerURL: other, EnrolledURL: home}
	if got := moved.Enrolled(); got != home {
		t.Errorf("a host that was moved was enrolled with %s", got)
	}
}

func TestAgentFollowsTheServersOfItsPolicy(t *testing.T) {
	m := newMachine(t)
	stranger := fakeserver.New(t)
	id := identity.Identity{AgentID: "agent-1", APIKey: "key-agent-1", ServerURL: m.server.URL}
	var err error
	if m.sw, err = (gateway.Trust{Fingerprint: m.server.CAPin}).Switch(m.server.URL); err != nil {
		t.Fatal(err)
	}
	m.client = m.sw.Client()
	if err := identity.Save(disk.OS{}, m.top, id); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	hosts := map[string]int{}
	m.server.Before = func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if strings.HasSuffix(r.URL.Path, "/checkin") {
			hosts["https://"+r.Host]++
		}
		return false
	}
	m.start()
	send := func(action, list string) {
		m.server.Send(agentapi.Action{ID: action, Type: agentapi.ActionPolicyChange, Data: json.RawMessage(`{"policy":{"fleet":{"hosts":[` + list + `]}}}`)})
		m.ack(action)
	}
	send("policy:p:1", `"`+stranger.URL+`","http://127.0.0.1:1","https://me:secret@127.0.0.1:1"`)
	moved := strings.Replace(m.server.URL, "127.0.0.1", "localhost", 1)
	send("policy:p:2", `"`+stranger.URL+`","`+moved+`"`)
	m.server.Wait(t, "the agent checks in at the other address", 10*time.Second, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return hosts[moved] > 0
	})
	if got, err := identity.Load(disk.OS{}, m.top); err != nil || got.ServerURL != moved || got.Enrolled() != m.server.URL || got.APIKey != id.APIKey {
		t.Errorf("identity %+v, %v", got, err)
	}
	if len(stranger.Checkins()) > 0 {
		t.Error("the agent has checked in at a server of another authority, which its policy names first")
	}
	h, err := probe.Client{Dial: probe.DialSocket(m.top)}.Health(context.Background())
	if err != nil || h.Fleet.URL != moved {
		t.Errorf("status says %+v, %v", h.Fleet, err)
	}
}
