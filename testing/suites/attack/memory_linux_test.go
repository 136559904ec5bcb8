package attack_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/muster-fleet/muster/server/agents/limit"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/server/wire/agentapi/capin"
)

const (
	// attackers is how many hosts send at once.
	attackers = 100
	// memoryGoal is how much memory the server's process may take meanwhile, beyond what it takes
	// when it is idle.
	memoryGoal = 64 << 20
	// documentGoal bounds what the store has of one agent.
	documentGoal = 1 << 20
	// processVariable makes this program the server of the test that starts it.
	processVariable = "MUSTER_TEST_SERVER"
)

// serverProcess is what the test needs to know of the server's process.
type serverProcess struct {
	app.Info
	Token, AdminKey string
}

// TestServerProcess is the server of TestWorstOfEachFieldTakesLittleMemory, in a process of its own.
// By itself it tests nothing.
func TestServerProcess(t *testing.T) {
	if os.Getenv(processVariable) == "" {
		return
	}
	s := apptest.Start(t)
	if err := json.NewEncoder(os.Stdout).Encode(serverProcess{s.Info, s.Token, s.AdminKey}); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the other test ends
}

// process starts the server's process, and returns its id.
func process(t *testing.T) (s serverProcess, pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestServerProcess$", "-test.v=false")
	cmd.Env = append(os.Environ(), processVariable+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	t.Cleanup(func() {
		in.Close()
		_, _ = io.Copy(io.Discard, lines)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server's process: %v", err)
		}
	})
	if err := json.NewDecoder(lines).Decode(&s); err != nil {
		t.Fatal(err)
	}
	return s, cmd.Process.Pid
}

// memory returns a figure of the process's memory, such as VmHWM, in bytes.
func memory(t *testing.T, pid int, name string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(string(status), "\n"+name+":")
	kb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
	n, err := strconv.ParseInt(kb, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n << 10
}

// route is where a message of the table is sent. Of its path, ID stands for the agent's id.
type route struct {
	path, body string
	key        func(*apptest.Agent) string
}

func routesOfMessages(token string) map[string]route {
	agents := func(a *apptest.Agent) string { return a.Key }
	return map[string]route{
		"enroll":       {agentapi.PathEnroll, `{"type":"PERMANENT","metadata":{}}`, func(*apptest.Agent) string { return token }},
		"checkin":      {agentapi.PathCheckin, `{"status":"online","awaits_answer":true}`, agents},
		"acks":         {"/api/fleet/agents/{id}/acks", `{"events":[]}`, agents},
		"beacon":       {agentapi.PathBeacon, `{"stage":"watching","from":"1.0.0","to":"1.1.0"}`, func(a *apptest.Agent) string { return a.WatcherKey }},
		"audit":        {"/api/fleet/agents/{id}/audit/unenroll", `{"reason":"uninstall","timestamp":"2026-01-31T12:00:00Z"}`, agents},
		"upload-begin": {agentapi.PathUploads, `{"action_id":"x","agent_id":"{id}","src":"agent","file":{"name":"d.zip","mime_type":"application/zip","size":3}}`, agents},
		"upload-end":   {agentapi.PathUploads + "/none", `{"transithash":{"sha256":"x"}}`, agents},
	}
}

// worst returns values for a field, which take much memory for their length, or are much longer
// than what is accepted. Of the first, each is as long as the bounds allow.
func worst(m limit.Message, f limit.Field) (values []string) {
	bytes := int(m.Body) - 1<<10
	if f.Bytes > 0 {
		bytes = min(bytes, f.Bytes)
	}
	fill := func(open, element, end string, most int) string {
		n := max(0, min(most, (bytes-16)/(len(element)+1)))
		return open + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + end
	}
	inner := func(element string) string {
		return fill("[", "["+strings.TrimSuffix(strings.Repeat(element+",", 50), ",")+"]", "]", min(9_000, m.Values/53))
	}
	objects := make([]string, 0, 9_000)
	for i := range min(cap(objects), m.Values/2, bytes/16) {
		objects = append(objects, fmt.Sprintf(`"k%d":{}`, i))
	}
	return []string{
		`"` + strings.Repeat("x", int(m.Body)+1) + `"`,
		`"` + strings.Repeat("<", max(0, bytes-2)) + `"`,
		`"` + strings.Repeat("\u202e", max(0, bytes-2)/3) + `"`,
		inner("[]"), inner("{}"), inner(`{"a":""}`),
		fill("[", `{"id":"a","message":"\u0001","units":[{}]}`, "]", min(9_000, m.Values/6)),
		"{" + strings.Join(objects, ",") + "}",
		strings.Repeat("[", 1_000_000),
		"[" + strings.Repeat("0,", 2_000_000) + "0]",
	}
}

// put returns a message with a value in a field. Lists around the field have as many elements as
// the message may be long.
func put(m limit.Message, base, path, value string) string {
	names := strings.Split(path, ".")
	for i, name := range slices.Backward(names) {
		name, list := strings.CutSuffix(name, "[]")
		if list {
			n := max(1, min(900, int(m.Body)*9/10/(len(value)+1)))
			value = "[" + strings.TrimSuffix(strings.Repeat(value+",", n), ",") + "]"
		}
		if i > 0 {
			value = fmt.Sprintf(`{%q:%s}`, name, value)
			continue
		}
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(base), &all); err != nil {
			panic(err) // routesOfMessages made it
		}
		delete(all, name)
		for _, other := range slices.Sorted(maps.Keys(all)) {
			value += fmt.Sprintf(`,%q:%s`, other, all[other])
		}
		return fmt.Sprintf(`{%q:%s}`, name, value)
	}
	return value
}

func gzipped(t *testing.T, text string) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := io.WriteString(z, text); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A hundred hosts of an attacker send, in each field of each message, what takes the most memory,
// at once. The server's process takes little more than when it is idle, and an agent's document
// stays small. The fields are those of the table of messages: a new row is tested without an edit.
func TestWorstOfEachFieldTakesLittleMemory(t *testing.T) {
	s, pid := process(t)
	u, err := url.Parse(s.AgentURL)
	if err != nil {
		t.Fatal(err)
	}
	config, err := capin.TLSConfig(s.CAPin, u.Hostname())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, MaxIdleConnsPerHost: attackers, DisableCompression: true}}
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	send := func(method, target, key, encoding string, body []byte) (int, []byte) {
		req, err := http.NewRequestWithContext(ctx, method, target, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "ApiKey "+key)
		if encoding != "" {
			req.Header.Set("Content-Encoding", encoding)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, []byte(err.Error())
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			return 0, []byte(err.Error())
		}
		return resp.StatusCode, answer
	}
	hosts := make([]*apptest.Agent, attackers)
	for i := range hosts {
		var answer agentapi.EnrollResponse
		status, text := send(http.MethodPost, s.AgentURL+agentapi.PathEnroll, s.Token, "", fmt.Appendf(nil, `{"type":"PERMANENT","metadata":{"local":%s}}`, apptest.Metadata(fmt.Sprint("host-", i), "1.0.0")))
		if err := json.Unmarshal(text, &answer); status != http.StatusOK || err != nil {
			t.Fatalf("enrolment: %d %s, %v", status, text, err)
		}
		hosts[i] = &apptest.Agent{ID: answer.Item.ID, Key: answer.Item.AccessAPIKey, WatcherKey: answer.Item.WatcherAPIKey}
	}
	routes, statuses := routesOfMessages(s.Token), map[int]int{}
	// all sends bodies from all hosts at once, and returns how much memory the server takes then.
	all := func(r route, encoding string, bodies [][]byte) int64 {
		if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil { // resets VmHWM
			t.Fatal(err)
		}
		var (
			senders sync.WaitGroup
			mu      sync.Mutex
		)
		for i, a := range hosts {
			senders.Go(func() {
				id := strings.NewReplacer("{id}", a.ID)
				body := bodies[i%len(bodies)]
				if encoding == "" {
					body = []byte(id.Replace(string(body)))
				}
				status, answer := send(http.MethodPost, s.AgentURL+id.Replace(r.path), r.key(a), encoding, body)
				mu.Lock()
				defer mu.Unlock()
				if statuses[status]++; status == 0 || status >= http.StatusInternalServerError {
					t.Errorf("%s is answered %d %.300s", r.path, status, answer)
				}
			})
		}
		senders.Wait()
		return memory(t, pid, "VmHWM")
	}
	all(routes["checkin"], "", [][]byte{[]byte(routes["checkin"].body)})
	idle, highest := memory(t, pid, "VmHWM"), int64(0)
	measure := func(name string, peak int64) {
		highest = max(highest, peak-idle)
		if peak-idle > memoryGoal {
			t.Errorf("%s takes %d MiB beyond the %d MiB of an idle server, at most %d are allowed", name, (peak-idle)>>20, idle>>20, memoryGoal>>20)
		}
	}
	for _, m := range limit.Messages {
		r, ok := routes[m.Name]
		if !ok {
			t.Errorf("routesOfMessages has no route of the message %s", m.Name)
			continue
		}
		for _, f := range m.Fields() {
			var bodies [][]byte
			for _, value := range worst(m, f) {
				bodies = append(bodies, gzipped(t, put(m, r.body, f.Path, value)))
			}
			measure(m.Name+" "+f.Path, all(r, "gzip", bodies))
		}
		// As it is, and whole: the last byte of the body is its last.
		long := r.body[:len(r.body)-1] + `,"x":"` + strings.Repeat("x", int(m.Body)-len(r.body)-100) + `"}`
		measure(m.Name+", not compressed", all(r, "", [][]byte{[]byte(long)}))
	}
	t.Logf("idle %d MiB, at most %d MiB more; answers %v", idle>>20, highest>>20, statuses)
	if statuses[http.StatusOK] == 0 || statuses[http.StatusBadRequest] == 0 {
		t.Errorf("the answers are %v: some must be accepted, and some refused", statuses)
	}
	for _, a := range hosts {
		var item struct{ Item json.RawMessage }
		status, text := send(http.MethodGet, s.AdminURL+"/api/fleet/agents/"+a.ID, s.AdminKey, "", nil)
		if err := json.Unmarshal(text, &item); status != http.StatusOK || err != nil || len(item.Item) > documentGoal {
			t.Fatalf("the document of an agent has %d bytes, at most %d are allowed; %d %.300s, %v", len(item.Item), documentGoal, status, text, err)
		}
	}
}
