package app_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/node/authority"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// on makes a server use the store of another one, as if both used one Elasticsearch.
func on(first *apptest.Server) func(*app.Options) {
	return func(o *app.Options) { o.Store = first.Store }
}

// refusedToStart checks that no server starts in dir on the store of first, and returns
// the CA and its location from the error.
func refusedToStart(t *testing.T, first *apptest.Server, dir string, change ...func(*app.Config)) (own, where string) {
	t.Helper()
	c := app.Defaults()
	c.Data, c.Agents.Listen, c.Admin.Listen = dir, "127.0.0.1:0", "127.0.0.1:0"
	for _, f := range change {
		f(&c)
	}
	_, err := app.New(t.Context(), app.Options{Config: c, Store: first.Store, Log: slog.New(slog.DiscardHandler)})
	var refused *authority.MismatchError
	if !errors.As(err, &refused) || refused.Pin != first.CAPin || !strings.Contains(err.Error(), "copy the folders tls and trust") {
		t.Fatalf("the error is %v", err)
	}
	return refused.Own, refused.Where
}

// seed copies the folders that a server needs from another one.
func seed(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"tls", "trust"} {
		if err := os.CopyFS(filepath.Join(to, name), os.DirFS(filepath.Join(from, name))); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAgentsAcceptAServerOnAnotherMachine(t *testing.T) {
	first := apptest.Start(t)
	a := first.Enroll("web-01", "1.0.0")
	dir := t.TempDir()
	refusedToStart(t, first, dir)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("the one that was refused left %v, %v", entries, err)
	}

	seed(t, first.Data, dir)
	second := apptest.StartOn(t, dir, on(first))
	if second.CAPin != first.CAPin || second.AdminKey != "" {
		t.Errorf("the second server is %+v", second.Info)
	}
	// The agent's own client, which pins the first one's CA.
	got, err := first.Do(t.Context(), apptest.Request{
		Method: http.MethodPost, URL: second.AgentURL + a.Path("acks"), Header: apptest.Headers("Authorization", "ApiKey "+a.Key), Body: agentapi.AckRequest{},
	})
	if err != nil || got.Status == http.StatusUnauthorized {
		t.Errorf("the agent gets %d %s, %v", got.Status, got.Body, err)
	}
}

// A second server on another machine has no copy of the encryption key. It refuses orders
// that have secrets, and an agent that polls there does not get them: the operator sees why.
func TestServerWithoutTheEncryptionKeyOrdersAndDeliversNoSecrets(t *testing.T) {
	first := apptest.Start(t)
	a := first.Enroll("web-01", "9.3.0")
	dir := t.TempDir()
	seed(t, first.Data, dir)
	if err := os.Remove(filepath.Join(dir, "trust", keyfile.EncryptionKey)); err != nil {
		t.Fatal(err)
	}
	second := apptest.StartOn(t, dir, on(first), func(o *app.Options) { o.Config.Enrollment.ReadableKeys = false })
	second.AdminKey = first.AdminKey
	if got := apptest.Decode[adminapi.KibanaStatus](t, second.Admin("GET", "/api/status", nil)).Status.Overall; got.Level != "degraded" || !strings.Contains(got.Summary, "copy "+keyfile.EncryptionKey) {
		t.Errorf("the second server is %+v", got)
	}
	migrate := func(s *apptest.Server) apptest.Answer {
		return s.Admin("POST", "/api/fleet/agents/"+a.ID+"/migrate", `{"uri":"https://elsewhere:8220","enrollment_token":"t"}`)
	}
	if got := migrate(second); got.Status != http.StatusServiceUnavailable || !strings.Contains(got.ErrorBody().Message, "a MIGRATE has secrets, and this server has no key") {
		t.Errorf("the second server answered %d %s", got.Status, got.Body)
	}
	id := *apptest.Decode[adminapi.BulkActionResponse](t, migrate(first)).ActionId
	ctx, cancel := context.WithTimeout(t.Context(), apptest.WaitLimit)
	defer cancel()
	if got, err := a.Checkin(ctx, second, nil); err != nil || len(got.Actions) > 0 {
		t.Errorf("the agent gets %+v, %v", got.Actions, err)
	}
	got := apptest.Decode[adminapi.ActionStatusList](t, first.Admin("GET", "/api/fleet/agents/action_status?errorSize=1", nil)).Items[0]
	if got.ActionId != id || got.NbAgentsFailed != 1 || len(got.LatestErrors) != 1 || !strings.Contains(got.LatestErrors[0].Error, "lacks the key that encrypted the secrets") {
		t.Errorf("the action is %+v", got)
	}
}

func TestServerWithAnotherCADoesNotStart(t *testing.T) {
	first := apptest.Start(t)
	dir := t.TempDir()
	own, err := authority.Open(disk.OS{}, filepath.Join(dir, "tls"), nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, where := refusedToStart(t, first, dir); got != own.Pin() || where != filepath.Join(dir, "tls") {
		t.Errorf("it is said to have %q in %s", got, where)
	}

	// An operator's certificate, of which agents pin the last of the chain: here the
	// CA's own is used as one.
	ca := func(data string) func(*app.Config) {
		return func(c *app.Config) {
			c.TLS.Certificate, c.TLS.Key = filepath.Join(data, "tls", "ca.crt"), filepath.Join(data, "tls", "ca.key")
		}
	}
	if got, where := refusedToStart(t, first, t.TempDir(), ca(dir)); got != own.Pin() || where != filepath.Join(dir, "tls", "ca.crt") {
		t.Errorf("with a certificate it is said to have %q in %s", got, where)
	}
	same := apptest.StartOn(t, t.TempDir(), on(first), func(o *app.Options) { ca(first.Data)(&o.Config) })
	if same.CAPin != first.CAPin || same.CAFile != "" {
		t.Errorf("with the same certificate the server is %+v", same.Info)
	}
}

func TestForgetCAPinPermitsAnotherCA(t *testing.T) {
	first := apptest.Start(t)
	if pin, err := app.CAPin(t.Context(), first.Store); err != nil || pin != first.CAPin {
		t.Fatalf("the pin of the installation is %q, %v", pin, err)
	}
	if err := app.ForgetCAPin(t.Context(), first.Store); err != nil {
		t.Fatal(err)
	}
	second := apptest.StartOn(t, t.TempDir(), on(first))
	if pin, err := app.CAPin(t.Context(), first.Store); err != nil || pin != second.CAPin || pin == first.CAPin {
		t.Errorf("the pin of the installation is %q, %v", pin, err)
	}
	first.CAPin = second.CAPin // the installation's now
	refusedToStart(t, first, first.Data)
}

// The files in the data folder after the first start. DESIGN.md lists them.
func TestFilesInTheDataFolder(t *testing.T) {
	s := apptest.Start(t)
	s.Publisher().Publish("1.1.0")
	entries, err := os.ReadDir(s.Data)
	if err != nil {
		t.Fatal(err)
	}
	design, err := os.ReadFile("DESIGN.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		name, _, _ := strings.Cut(e.Name(), "-") // SQLite's -wal and -shm
		names = append(names, name)
		if !strings.Contains(string(design), "| `"+name) {
			t.Errorf("the table in DESIGN.md does not have %s", name)
		}
	}
	for _, want := range []string{"muster.db", "packages", "tls", "trust"} {
		if !slices.Contains(names, want) {
			t.Errorf("there is no %s in %v", want, names)
		}
	}
}
