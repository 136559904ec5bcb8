package esnode

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/testing/kit/require"
)

func TestMain(m *testing.M) {
	if os.Getenv(parentVariable) != "" {
		startAndWait()
	}
	os.Exit(With(m).Run())
}

// parentVariable makes this program start a node, print its pid, and wait.
const parentVariable = "MUSTER_TEST_STARTS_A_NODE"

// startAndWait does not wait until the node answers, which does not matter here.
func startAndWait() {
	var c *Cluster
	t, err := findTools(context.Background())
	if err == nil {
		c, err = newCluster(Options{}, t)
	}
	if err == nil {
		err = c.Node(0).launch()
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(c.Node(0).PID())
	select {}
}

// index is an index with a strict mapping, and with a replica if there is another node.
const index = `{
	"settings": {"number_of_shards": 1, "auto_expand_replicas": "0-1"},
	"mappings": {"dynamic": "strict", "properties": {"name": {"type": "keyword"}, "at": {"type": "date"}}}
}`

// ask is Do for tests: it fails the test if the status is not the expected one.
func ask(t *testing.T, a Access, method, path, body string, want int) map[string]any {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var data any
	if body != "" {
		data = []byte(body)
	}
	status, answer, err := a.Do(ctx, method, path, data)
	if err != nil {
		t.Fatal(err)
	}
	if status != want {
		t.Fatalf("%s %s: status %d, want %d: %s", method, path, status, want, answer)
	}
	var out map[string]any
	if err := json.Unmarshal(answer, &out); err != nil {
		t.Fatalf("%s %s: %v in %s", method, path, err, answer)
	}
	return out
}

func TestSharedNodeIsAnElasticsearch(t *testing.T) {
	p := Shared(t)
	hosts := p.Prefix + "hosts"
	ask(t, p.Access, "PUT", "/"+hosts, index, 200)
	ask(t, p.Access, "PUT", "/"+hosts+"/_create/a", `{"name": "a", "at": "2026-01-02T03:04:05Z"}`, 201)
	ask(t, p.Access, "PUT", "/"+hosts+"/_create/a", `{"name": "a"}`, 409)
	if e := ask(t, p.Access, "PUT", "/"+hosts+"/_create/b", `{"title": "b"}`, 400); !strings.Contains(fmt.Sprint(e), "strict_dynamic_mapping_exception") {
		t.Errorf("a field that the mapping does not have: %v", e)
	}
	got := ask(t, p.Access, "GET", "/"+hosts+"/_doc/a", "", 200)
	conflict := fmt.Sprintf("/%s/_doc/a?if_seq_no=%v&if_primary_term=%v", hosts, got["_seq_no"], got["_primary_term"])
	ask(t, p.Access, "PUT", conflict, `{"name": "a2"}`, 200)
	ask(t, p.Access, "PUT", conflict, `{"name": "a3"}`, 409)
	ask(t, p.Access, "POST", "/"+hosts+"/_bulk?refresh=true", `{"index": {"_id": "c"}}`+"\n"+`{"name": "c"}`+"\n", 200)
	found := ask(t, p.Access, "POST", "/"+hosts+"/_search", `{"query": {"term": {"name": "c"}}, "track_total_hits": true}`, 200)
	if total := found["hits"].(map[string]any)["total"].(map[string]any)["value"]; total != 1.0 {
		t.Errorf("a search finds %v documents named c, want 1", total)
	}
}

func TestSharedGivesEachTestItsOwnIndicesAndRemovesThem(t *testing.T) {
	var first Place
	t.Run("a test", func(t *testing.T) {
		first = Shared(t)
		if second := Shared(t); second.Prefix == first.Prefix {
			t.Errorf("both places are called %s", first.Prefix)
		}
		ask(t, first.Access, "PUT", "/_index_template/"+first.Prefix+"t", `{"index_patterns": ["`+first.Prefix+`*"]}`, 200)
		ask(t, first.Access, "PUT", "/_component_template/"+first.Prefix+"c", `{"template": {}}`, 200)
		ask(t, first.Access, "PUT", "/"+first.Prefix+"open", "", 200)
		ask(t, first.Access, "PUT", "/"+first.Prefix+"hidden", `{"settings": {"index.hidden": true}}`, 200)
	})
	left := ask(t, first.Access, "GET", "/_resolve/index/"+first.Prefix+"*?expand_wildcards=all", "", 200)
	if n := len(left["indices"].([]any)); n != 0 {
		t.Errorf("after the test there are still %v", left)
	}
	for _, kind := range []string{"/_index_template/" + first.Prefix + "t", "/_component_template/" + first.Prefix + "c"} {
		ask(t, first.Access, "GET", kind, "", 404)
	}
}

func TestNodeKeepsItsDataThroughKillAndStop(t *testing.T) {
	c := Start(t, Options{})
	n := c.Node(0)
	ask(t, c.Access(), "PUT", "/hosts", index, 200)
	for i, end := range []func() error{n.Kill, n.Stop} {
		before := n.PID()
		ask(t, c.Access(), "PUT", fmt.Sprintf("/hosts/_create/%d", i), `{"name": "x"}`, 201)
		if err := end(); err != nil {
			t.Fatal(err)
		}
		if n.PID() != 0 {
			t.Errorf("a node that was ended has the process %d", n.PID())
		}
		if _, _, err := c.Access().Do(t.Context(), "GET", "/_cluster/health", nil); err == nil {
			t.Error("a node that was ended answers")
		}
		if err := n.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n.PID() == before {
			t.Errorf("the node started again is still process %d", before)
		}
		if err := c.Wait(t.Context(), "the index is there again", func(h Health) bool { return h.Status == "green" }); err != nil {
			t.Fatal(err)
		}
		ask(t, c.Access(), "GET", fmt.Sprintf("/hosts/_doc/%d", i), "", 200)
	}
	if err := n.Start(t.Context()); err == nil {
		t.Error("a node that runs was started")
	}
}

func TestThreeNodesSurviveTheDeathOfOne(t *testing.T) {
	require.Time(t, "starts three nodes")
	c := Start(t, Options{Nodes: 3})
	is := func(status string, nodes int) {
		t.Helper()
		if err := c.Wait(t.Context(), fmt.Sprintf("it is %s with %d nodes", status, nodes), func(h Health) bool { return h.Status == status && h.Nodes == nodes }); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, c.Access(), "PUT", "/hosts", index, 200)
	is("green", 3)
	var bulk strings.Builder
	const documents = 500
	for i := range documents {
		fmt.Fprintf(&bulk, "{\"index\": {\"_id\": \"%d\"}}\n{\"name\": \"host-%d\"}\n", i, i)
	}
	ask(t, c.Access(), "POST", "/hosts/_bulk", bulk.String(), 200)

	// The worst case is the node with the primary shard.
	shards := ask(t, c.Access(), "GET", "/_cluster/state/routing_table,nodes/hosts", "", 200)
	victim := primaryOf(t, c, shards)
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	// The lost copy is replaced only after a minute.
	is("yellow", 2)
	// Any of the URLs may answer.
	ask(t, c.Access(), "POST", "/hosts/_refresh", "", 200)
	found := ask(t, c.Access(), "GET", "/hosts/_count", "", 200)
	if found["count"] != float64(documents) {
		t.Errorf("after the loss of a node %v documents are found, want %d", found["count"], documents)
	}
	ask(t, c.Access(), "PUT", "/hosts/_create/later", `{"name": "later"}`, 201)

	// Stop the others, and start all three from their data. The killed one lacks what was
	// written without it.
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	is("green", 3)
	ask(t, c.Access(), "GET", "/hosts/_doc/later", "", 200)
}

// primaryOf returns the node with the primary shard of the index hosts.
func primaryOf(t *testing.T, c *Cluster, state map[string]any) *Node {
	t.Helper()
	data, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Nodes map[string]struct {
			Name string `json:"name"`
		} `json:"nodes"`
		Routing struct {
			Indices struct {
				Hosts struct {
					Shards map[string][]struct {
						Primary bool   `json:"primary"`
						Node    string `json:"node"`
					} `json:"shards"`
				} `json:"hosts"`
			} `json:"indices"`
		} `json:"routing_table"`
	}
	if err := json.Unmarshal(data, &s); err != nil {
		t.Fatal(err)
	}
	for _, shard := range s.Routing.Indices.Hosts.Shards["0"] {
		for _, n := range c.Nodes() {
			if shard.Primary && n.Name == s.Nodes[shard.Node].Name {
				return n
			}
		}
	}
	t.Fatalf("no node has the primary shard: %s", data)
	return nil
}

func TestNodeDiesWithItsParentProcess(t *testing.T) {
	require.System(t, "linux")
	needs(t)
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentVariable+"=1", "TMPDIR="+t.TempDir())
	parent.Stderr = os.Stderr
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	said, _ := bufio.NewReader(stdout).ReadString('\n')
	stopped := errors.Join(parent.Process.Kill(), ignoreExit(parent.Wait()))
	pid, err := strconv.Atoi(strings.TrimSpace(said))
	if err := errors.Join(err, stopped); err != nil {
		t.Fatalf("%v; the parent said %q", err, said)
	}
	deadline := time.Now().Add(goneTimeout)
	for state := ""; ; time.Sleep(poll) {
		if state = processState(pid); state == "" || state == "Z" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s after its parent was killed, process %d is in state %s", goneTimeout, pid, state)
		}
	}
}

// ignoreExit ignores the exit status of a process.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}

// processState returns the letter of a process's state, Z for a zombie, or "" if there is
// no process.
func processState(pid int) string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return after[:1]
}

func TestStartErrors(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, test := range []struct {
		what string
		o    Options
		says string
	}{
		{"too many", Options{Nodes: 40}, "at most"},
		{"fewer than none", Options{Nodes: -1}, "at most"},
		{"one port for three", Options{Nodes: 3, Port: 9200}, "single node"},
		{"a port that somebody has", Options{Port: taken.Addr().(*net.TCPAddr).Port}, "not free"},
	} {
		if _, err := New(t.Context(), test.o); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want an error that says %q", test.what, err, test.says)
		}
	}
	t.Run("a setting that Elasticsearch does not know", func(t *testing.T) {
		needs(t)
		t.Setenv("TMPDIR", t.TempDir())
		_, err := New(t.Context(), Options{Settings: map[string]string{"cluster.nome": "x"}})
		if err == nil || !strings.Contains(err.Error(), "cluster.nome") || !strings.Contains(err.Error(), "ended") {
			t.Errorf("%v, want the end of the log", err)
		}
		left, err := os.ReadDir(os.TempDir())
		if err != nil || len(left) > 0 {
			t.Errorf("it left %v, %v", left, err)
		}
	})
}

func TestStartRetriesIfAPortIsTaken(t *testing.T) {
	c, err := newCluster(Options{}, needs(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	taken, err := net.Listen("tcp", strings.TrimPrefix(c.Node(0).URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if err := c.Start(t.Context()); err == nil || !strings.Contains(c.logs(), portTaken) || !strings.Contains(err.Error(), portTaken) {
		t.Errorf("started on a port that is taken: %v", err)
	}
	if pid := c.Node(0).PID(); pid != 0 {
		t.Errorf("what could not start is still process %d", pid)
	}
}

func TestAccessFromTheEnvironment(t *testing.T) {
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte("pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		what, url, key, ca string
		ok                 bool
		want               Access
		says               string
	}{
		{"none", "", "k", "", false, Access{}, ""},
		{"a plain one", "http://127.0.0.1:9200/", "", "", true, Access{URLs: []string{"http://127.0.0.1:9200"}}, ""},
		{"name and password", "https://elastic:a%40b@es.example.org:9200", "", ca, true, Access{URLs: []string{"https://es.example.org:9200"}, Username: "elastic", Password: "a@b", CA: []byte("pem")}, ""},
		{"an API key", "https://es.example.org", "a2V5", "", true, Access{URLs: []string{"https://es.example.org"}, APIKey: "a2V5"}, ""},
		{"both", "https://elastic:x@es.example.org", "a2V5", "", true, Access{}, "give one"},
		{"no address", "es.example.org:9200", "", "", true, Access{}, "is not an address"},
		{"a bad one, whose password stays secret", "https://elastic:secret@[es", "", "", true, Access{}, "is not an address"},
		{"an authority that is not there", "https://es.example.org", "", ca + "x", true, Access{}, "no such file"},
	} {
		t.Run(test.what, func(t *testing.T) {
			t.Setenv(urlVariable, test.url)
			t.Setenv(keyVariable, test.key)
			t.Setenv(caVariable, test.ca)
			got, ok, err := fromEnvironment()
			if ok != test.ok {
				t.Errorf("named: %v, want %v", ok, test.ok)
			}
			if test.says != "" {
				if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "secret") {
					t.Errorf("error %v, want one that says %q", err, test.says)
				}
				return
			}
			if err != nil || fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("%+v, %v, want %+v", got, err, test.want)
			}
		})
	}
}

// A proxy that requires credentials is the secured cluster.
func TestSharedUsesASecuredElasticsearchOfTheEnvironment(t *testing.T) {
	p := StartProxy(t, Shared(t).Access, ProxyOptions{TLS: true})
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, p.Access().CA, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(caVariable, ca)
	for what, a := range map[string]Access{"an API key": {APIKey: "aWQ6a2V5"}, "name and password": {Username: "elastic", Password: "a@b"}} {
		t.Run(what, func(t *testing.T) {
			p.Demand(a)
			u, err := url.Parse(p.Access().URLs[0])
			if err != nil {
				t.Fatal(err)
			}
			if a.Username != "" {
				u.User = url.UserPassword(a.Username, a.Password)
			}
			t.Setenv(urlVariable, u.String())
			t.Setenv(keyVariable, a.APIKey)
			before := p.Counts()["PUT document"]
			place := Shared(t)
			ask(t, place.Access, "PUT", "/"+place.Prefix+"hosts", index, 200)
			if after := p.Counts()["PUT document"]; after != before+1 {
				t.Errorf("the named Elasticsearch had %d requests for an index, want one more than %d", after, before)
			}
		})
	}
}

// witness is a test that records its end.
type witness struct {
	testing.TB
	ended string
}

func (*witness) Helper() {}

func (w *witness) Skipf(format string, args ...any) {
	w.ended = "skipped: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func (w *witness) Fatalf(format string, args ...any) {
	w.ended = "failed: " + fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestStartIsSkippedWithAnElasticsearchOfTheEnvironment(t *testing.T) {
	t.Setenv(urlVariable, "https://elastic:secret@es.example.org")
	const want = "skipped: "
	for _, ci := range []string{"", "true"} {
		t.Setenv("CI", ci)
		w := &witness{TB: t, ended: "went on"}
		done := make(chan struct{})
		go func() {
			defer close(done)
			Start(w, Options{Nodes: 3})
		}()
		<-done
		if !strings.HasPrefix(w.ended, want) || !strings.Contains(w.ended, urlVariable) || strings.Contains(w.ended, "secret") {
			t.Errorf("with CI=%q the test %q, want it %s with the variable's name", ci, w.ended, want)
		}
	}
}

func TestJavaVersionIsChecked(t *testing.T) {
	for said, ok := range map[string]bool{
		`openjdk version "17.0.15" 2025-04-15`: true,
		`openjdk version "25" 2025-09-16`:      true,
		`java version "1.8.0_402"`:             false,
		`openjdk version "11.0.22" 2024-01-16`: false,
		`command not found`:                    false,
	} {
		if err := checkJava("java", said); (err == nil) != ok {
			t.Errorf("%s: %v, want ok = %v", said, err, ok)
		}
	}
}

func TestRunPrintsTheURLAndEndsWithItsContext(t *testing.T) {
	needs(t)
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	var said strings.Builder
	// The guide is one write, after the node answers.
	out := writer(func(b []byte) (int, error) {
		said.Write(b)
		if strings.Contains(string(b), "Ctrl-C") {
			cancel()
		}
		return len(b), nil
	})
	if err := Run(ctx, 0, out); err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(said.String(), "hosts: [")
	address, _, _ := strings.Cut(rest, "]")
	if !strings.HasPrefix(address, "http://127.0.0.1:") || strings.Count(said.String(), address) != 3 {
		t.Errorf("it said:\n%s", said.String())
	}
	if resp, err := http.Get(address + "/_cluster/health"); err == nil {
		resp.Body.Close()
		t.Error("it still answers")
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }
