package cli_test

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// An operator asks before the first start, while the server runs, and when it does not start any more.
func TestDoctorFindsWhatKeepsAServerFromStarting(t *testing.T) {
	o := newOperator(t)
	dir := t.TempDir()
	data, file := filepath.Join(dir, "data"), filepath.Join(dir, "server.yml")
	write := func(agents, admin, more string) {
		t.Helper()
		text := fmt.Sprintf("data: %s\nagents: {listen: %q}\nadmin: {listen: %q}\n%s", data, agents, admin, more)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	says := func(code int, words ...string) {
		t.Helper()
		r := o.try("doctor", "--config", file)
		out, got := r.out+r.err, r.code
		for _, w := range words {
			if !strings.Contains(out, w) {
				t.Errorf("it does not print %q", w)
			}
		}
		if got != code || t.Failed() {
			t.Fatalf("exit status %d, want %d, and\n%s", got, code, out)
		}
	}

	write("127.0.0.1:0", "127.0.0.1:0", "")
	says(0, "the first start makes "+data, "no server answers")

	info, stop := o.serveWith("--data", data)
	agents, admin := strings.TrimPrefix(info.AgentURL, "https://"), strings.TrimPrefix(info.AdminURL, "https://")
	_, agentsPort, _ := net.SplitHostPort(agents)
	_, adminPort, _ := net.SplitHostPort(admin)
	write("127.0.0.1:"+agentsPort, "127.0.0.1:"+adminPort, "")
	says(0, "127.0.0.1:"+agentsPort+" is the server's", "it runs and is ready", "the certificate of Muster CA is valid until", "the server has its keys")
	stop()

	// Another program has the port, the configuration has a key that there is not, and a key is lost.
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	go func() { // it speaks no TLS
		for c, err := other.Accept(); err == nil; c, err = other.Accept() {
			c.Close()
		}
	}()
	write(other.Addr().String(), "127.0.0.1:0", "")
	if err := os.Remove(filepath.Join(data, "trust", "online.key")); err != nil {
		t.Fatal(err)
	}
	says(1, other.Addr().String()+" is taken by", "choose another port in the configuration", "(agents.listen)", "missing: "+filepath.Join(data, "trust", "online.key"), "copy the folder trust from another server")
	write("127.0.0.1:0", "127.0.0.1:0", "colour: red\n")
	says(1, "there is no key colour", "muster server --example-config", "muster server --check --config "+file)
}

// Elasticsearch blocks the indices of a node whose disk is full; the server can be started, and writes
// nothing.
func TestDoctorBesideElasticsearch(t *testing.T) {
	o := newOperator(t)
	p := esnode.Shared(t)
	config := onElasticsearch(t, p)
	data := filepath.Join(t.TempDir(), "data")
	finds := func(level, words string) {
		t.Helper()
		var found []struct{ Check, Level, Found, Mend string }
		r := o.try("doctor", "--config", config, "--data", data, "-o", "json")
		if err := json.Unmarshal([]byte(r.out), &found); err != nil {
			t.Fatalf("%v: %s%s", err, r.out, r.err)
		}
		for _, f := range found {
			if f.Check != "Elasticsearch" {
				continue
			}
			if f.Level != level || !strings.Contains(f.Found+f.Mend, words) {
				t.Errorf("found %+v, want %s with %q", f, level, words)
			}
			return
		}
		t.Fatalf("there is no finding of Elasticsearch in %+v", found)
	}
	settings := func(text string) {
		t.Helper()
		if status, answer, err := p.Do(t.Context(), http.MethodPut, "/"+p.Prefix+"*/_settings", []byte(text)); err != nil || status != http.StatusOK {
			t.Fatalf("%d %s, %v", status, answer, err)
		}
	}

	finds("ok", "it answers")
	if _, answer, err := p.Do(t.Context(), http.MethodGet, "/_cat/indices/"+p.Prefix+"*", nil); err != nil || len(answer) > 0 {
		t.Errorf("the doctor has made indices: %s, %v", answer, err)
	}
	_, stop := o.serveWith("--config", config, "--data", data)
	stop()
	finds("ok", "it answers")
	settings(`{"index.blocks.read_only_allow_delete":true}`)
	finds("problem", "Elasticsearch takes no writes")
	settings(`{"index.blocks.read_only_allow_delete":null}`)
	finds("ok", "it answers")
}
