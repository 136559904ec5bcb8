package cli_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

type started struct {
	AgentURL      string `json:"agent_url"`
	AdminURL      string `json:"admin_url"`
	CAPin         string `json:"ca_pin"`
	AdminKeyFile  string `json:"admin_key_file"`
	TokenFile     string `json:"enrollment_token_file"`
	EnrollCommand string `json:"enroll_command"`
}

// serve runs `muster server` on data until the function returned is called.
func (o operator) serve(data string) (started, func() int) {
	o.t.Helper()
	return o.serveWith("--data", data)
}

func (o operator) serveWith(args ...string) (started, func() int) {
	o.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	o.t.Cleanup(stop)
	out, errOut, ended := o.start(ctx, "", append([]string{"server"}, append(args, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "-o", "json")...)...)
	var info started
	apptest.Eventually(o.t, "the server", func() string {
		if !strings.HasSuffix(out.String(), "\n") {
			return "so far: " + errOut.String()
		}
		if err := json.Unmarshal([]byte(out.String()), &info); err != nil {
			return err.Error()
		}
		return ""
	})
	return info, func() int { stop(); return <-ended }
}

// startServer runs `muster server` until stop is called. out and errOut are what it prints
// until it is ready.
func (o operator) startServer(args ...string) (out, errOut string, stop func()) {
	o.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	o.t.Cleanup(cancel)
	printed, log, ended := o.start(ctx, "", append([]string{"server", "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, args...)...)
	apptest.Eventually(o.t, "the server", func() string {
		if !strings.HasSuffix(printed.String(), "\n") { // it prints all at once
			return "so far: " + log.String()
		}
		return ""
	})
	return printed.String(), log.String(), func() { cancel(); <-ended }
}

func TestFirstStartPrintsKeysOnce(t *testing.T) {
	o := newOperator(t)
	data := filepath.Join(t.TempDir(), "new", "data")
	o.fails(1, []string{"admin-key", "--data", data}, "there is no server data in "+data)

	first, stop := o.serve(data)
	if !strings.Contains(first.EnrollCommand, first.CAPin) || !strings.Contains(first.EnrollCommand, `MUSTER_ENROLLMENT_TOKEN="$(cat `+first.TokenFile+`)" muster-agent install `) {
		t.Errorf("the first start says %+v", first)
	}
	if info, err := os.Stat(data); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the data folder is %v, %v", info, err)
	}
	if got := o.try("login", "--url", first.AdminURL, "--ca-pin", first.CAPin, "--api-key-file", first.AdminKeyFile); got.code != 0 {
		t.Fatalf("login: %s", got.err)
	}
	o.run("status")

	// While the server runs.
	spare := asJSON[map[string]string](o, "admin-key", "--data", data, "--name", "spare")
	t.Setenv("MUSTER_API_KEY", o.secretIn(spare["api_key_file"]))
	o.run("status")
	o.fails(1, []string{"admin-key", "--data", data, "--name", "spare"}, `has the name "spare"`)
	o.fails(1, []string{"admin-key", "--data", data, "--name", " "}, "muster: name: is missing")
	port := strings.TrimPrefix(first.AdminURL, "https://")
	o.fails(1, []string{"server", "--data", t.TempDir(), "--agents-listen", port, "--admin-listen", "127.0.0.1:0"}, "address already in use", "--agents-listen")
	if code := stop(); code != 0 {
		t.Errorf("Ctrl-C gives exit code %d", code)
	}
	o.fails(1, []string{"status"}, "nothing listens")

	second, stop := o.serve(data)
	defer stop()
	if second.AdminKeyFile != "" || second.CAPin != first.CAPin {
		t.Errorf("the second start says %+v", second)
	}
}

func TestServerWithAnotherCADoesNotStart(t *testing.T) {
	o := newOperator(t)
	data := filepath.Join(t.TempDir(), "data")
	o.fails(1, []string{"ca-pin", "--data", data}, "there is no server data in "+data)
	first, stop := o.serve(data)
	if got := o.run("ca-pin", "--data", data); got != first.CAPin+"\n" {
		t.Errorf("ca-pin prints %q, the server said %s", got, first.CAPin)
	}
	stop()
	if err := os.RemoveAll(filepath.Join(data, "tls")); err != nil {
		t.Fatal(err)
	}
	start := []string{"server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
	o.fails(1, start, first.CAPin, "copy the folders tls and trust", "muster ca-pin --help")
	if _, err := os.Stat(filepath.Join(data, "tls")); !os.IsNotExist(err) {
		t.Errorf("the refused start created a folder: %v", err)
	}
	if got := o.run("ca-pin", "--data", data, "--forget"); !strings.Contains(got, "Forgot "+first.CAPin) {
		t.Errorf("ca-pin --forget prints %q", got)
	}
	if got := o.run("ca-pin", "--data", data); !strings.Contains(got, "No server has started") {
		t.Errorf("then ca-pin prints %q", got)
	}
	second, stop := o.serve(data)
	defer stop()
	if second.CAPin == first.CAPin || second.AdminKeyFile != "" {
		t.Errorf("the second CA is %+v", second)
	}
}

// An operator takes the CA's key away from a server that has run with it.
func TestServerServesWithACertificateThatWasIssuedElsewhere(t *testing.T) {
	o := newOperator(t)
	data, away := filepath.Join(t.TempDir(), "data"), t.TempDir()
	first, stop := o.serve(data)
	stop()
	shown := func(words ...string) {
		t.Helper()
		got := o.run("ca", "show", "--data", data)
		for _, w := range words {
			if !strings.Contains(got, w) {
				t.Errorf("ca show does not say %q: %s", w, got)
			}
		}
	}
	shown(first.CAPin, "in "+filepath.Join(data, "tls"))
	if err := os.CopyFS(away, os.DirFS(filepath.Join(data, "tls"))); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(away, "for-the-server.pem")
	issue := []string{"ca", "issue", "--ca", away, "--name", "127.0.0.1", "--name", "localhost", "--out", file}
	o.fails(1, append(issue, "--days", "400"), "the life of a certificate is")
	o.run(append(issue, "--days", "10")...)
	o.fails(1, issue, "--out", "exists")
	if fi, err := os.Stat(file); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi, err)
	}
	if got := o.run("ca", "install", file, "--data", data); !strings.Contains(got, "The CA's key is still here") {
		t.Errorf("ca install says %s", got)
	}
	if err := os.Remove(filepath.Join(data, "tls", "ca.key")); err != nil {
		t.Fatal(err)
	}
	second, stop := o.serve(data)
	defer stop()
	if got := o.try("login", "--url", second.AdminURL, "--ca-pin", first.CAPin, "--api-key-file", first.AdminKeyFile); got.code != 0 || second.CAPin != first.CAPin {
		t.Fatalf("login: %s; the pin is %s", got.err, second.CAPin)
	}
	o.run("status")
	shown("kept elsewhere", "issue and install another one")
	// The server uses another one at once, and lists it when it ends soon.
	soon := filepath.Join(away, "soon.pem")
	late, err := authority.Issue(disk.OS{}, away, []string{"127.0.0.1"}, 3*24*time.Hour, time.Now().Add(-60*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(soon, late, 0o600); err != nil {
		t.Fatal(err)
	}
	o.run("ca", "install", soon, "--data", data)
	apptest.Eventually(t, "the warning", func() string {
		if got := o.run("attention"); !strings.Contains(got, "certificate of this server expires within a day") {
			return got
		}
		return ""
	})
	o.fails(1, []string{"ca", "issue", "--ca", filepath.Join(data, "tls"), "--name", "thief.example", "--out", file + ".2"}, "its key is missing")
	o.fails(1, []string{"ca", "create", away}, "name another folder")
	if got := o.run("ca", "create", filepath.Join(away, "another")); strings.Contains(got, first.CAPin) {
		t.Errorf("a second CA has the pin of the first: %s", got)
	}
	o.fails(1, []string{"ca", "install", filepath.Join(away, "another", "ca.crt"), "--data", data}, "a server's certificate and its key")
}

func TestEmptyStoreBesideACAIsRefused(t *testing.T) {
	o := newOperator(t)
	data := filepath.Join(t.TempDir(), "data")
	first, stop := o.serve(data)
	stop()
	start := []string{"server", "--data", data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}
	says := []string{data + " has the CA of an installation", "muster restore FILE --data " + data, "--new-store"}
	db := filepath.Join(data, "muster.db")
	for _, name := range []string{db, db + "-wal", db + "-shm"} {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	o.fails(1, start, says...)
	if _, err := os.Stat(db); !os.IsNotExist(err) {
		t.Errorf("the refused start created a store: %v", err)
	}
	if err := os.WriteFile(db, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.fails(1, start, says...)

	// A store with tables and nothing in it, as a command on the wrong folder makes one.
	o.run("store", "restored", "--data", data)
	o.fails(1, start, says...)

	second, stop := o.serveWith("--data", data, "--new-store")
	if second.AdminKeyFile == "" || second.CAPin != first.CAPin {
		t.Errorf("the new installation says %+v", second)
	}
	stop()
	_, stop = o.serve(data)
	stop()
}

func TestEmptyElasticsearchBesideACAIsRefused(t *testing.T) {
	o := newOperator(t)
	p := esnode.Shared(t)
	config := onElasticsearch(t, p)
	data := filepath.Join(t.TempDir(), "data")
	_, stop := o.serveWith("--config", config, "--data", data)
	stop()
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other.yml")
	if err := os.WriteFile(other, []byte(strings.Replace(string(text), "prefix: "+p.Prefix, "prefix: "+p.Prefix+"other-", 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"server", "--config", other, "--data", data}, "has the CA of an installation", "--new-store")
}

func TestInvalidServerConfigurationIsRefused(t *testing.T) {
	o := newOperator(t)
	if got := o.run("server", "--example-config"); got != app.Example {
		t.Errorf("the example is\n%s", got)
	}
	bad := filepath.Join(t.TempDir(), "server.yml")
	if err := os.WriteFile(bad, []byte("agents:\n  listn: ':8220'\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, check := range [][]string{{}, {"--check"}} {
		o.fails(1, append([]string{"server", "--config", bad}, check...), bad, "line 2", "listn", "--example-config")
	}
	good := filepath.Join(t.TempDir(), "server.yml")
	if err := os.WriteFile(good, []byte(app.Example), 0o600); err != nil {
		t.Fatal(err)
	}
	o.contains(o.run("server", "--check", "--config", good), "accepts the configuration "+good)
	o.fails(1, []string{"server", "--check", "--agents-listen", "8220"}, "agents.listen")
	o.fails(1, []string{"server", "--config", bad + ".none"}, "no such file")
	o.fails(1, []string{"server", "--data", t.TempDir(), "--agents-listen", "8220"}, "agents.listen")
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o.fails(1, []string{"server", "--data", filepath.Join(file, "data")}, "data folder", "--data")
}
