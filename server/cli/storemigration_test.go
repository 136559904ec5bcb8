package cli_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/store/migrate"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
	"github.com/muster-fleet/muster/server/wire/agentapi"
	"github.com/muster-fleet/muster/testing/kit/esnode"
)

// onElasticsearch writes a configuration for servers that use a place.
func onElasticsearch(t *testing.T, p esnode.Place) string {
	t.Helper()
	hosts, err := json.Marshal(p.URLs)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("store:\n  elasticsearch:\n    hosts: %s\n    prefix: %s\n", hosts, p.Prefix)
	for key, v := range map[string]string{"username": p.Username, "password": p.Password, "api_key": p.APIKey} {
		if v != "" {
			text += fmt.Sprintf("    %s: %q\n", key, v)
		}
	}
	file := filepath.Join(t.TempDir(), "server.yml")
	if p.CA != nil {
		ca := filepath.Join(filepath.Dir(file), "ca.pem")
		if err := os.WriteFile(ca, p.CA, 0o600); err != nil {
			t.Fatal(err)
		}
		text += fmt.Sprintf("    ca: %q\n", ca)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// migration is what `muster store migrate -o json` prints.
type migration struct {
	State string
	Nouns []struct {
		Noun             string
		Documents        int
		Written, Removed *int
		Compared         *struct{ From, To int }
	}
}

func (m migration) documents(noun string) int {
	for _, n := range m.Nouns {
		if n.Noun == noun {
			return n.Documents
		}
	}
	return -1
}

func TestStoreMigrateMovesToElasticsearch(t *testing.T) {
	o := newOperator(t)
	s := apptest.Start(t)
	if _, err := migrate.ID(t.Context(), s.Store); err != nil { // as openStore does
		t.Fatal(err)
	}
	config := onElasticsearch(t, esnode.Shared(t))
	move := func(more ...string) []string {
		return append([]string{"store", "migrate", "--from", "sqlite", "--to", "elasticsearch", "--config", config, "--data", s.Data}, more...)
	}
	upgrade := func(agents ...*apptest.Agent) string {
		t.Helper()
		ids := []string{}
		for _, a := range agents {
			ids = append(ids, a.ID)
		}
		got := s.Admin(http.MethodPost, "/api/fleet/agents/bulk_upgrade", map[string]any{"agents": ids, "version": "1.1.0", "force": true})
		return apptest.Decode[struct {
			ActionID string `json:"actionId"`
		}](t, got).ActionID
	}
	s.Publisher().Publish("1.1.0")
	busy, quiet := s.Enroll("busy", "1.0.0"), s.Enroll("quiet", "1.0.0")
	first := upgrade(busy)
	if got := busy.MustCheckin(nil); len(got.Actions) != 1 || got.Actions[0].ID != first {
		t.Fatalf("the first action is %+v", got.Actions)
	}
	busy.Ack("no space", first)

	t.Run("copies while the server runs", func(t *testing.T) {
		text := o.run(move("--dry-run")...)
		o.contains(text, "agents               2\n", "actions              1\n", "which is empty")
		got := o.try(move("-o", "json")...)
		var m migration
		if err := json.Unmarshal([]byte(got.out), &m); err != nil {
			t.Fatalf("%v: %s%s", err, got.out, got.err)
		}
		o.failed(got, 3, move(), "a server still uses "+filepath.Join(s.Data, "muster.db"), "run the same command again", "while a server uses it")
		if m.State != "copied" || m.documents("agents") != 2 || m.documents("actions") != 1 || m.documents("results") != 1 {
			t.Errorf("it says %+v", m)
		}
		o.fails(1, []string{"server", "--config", config, "--data", t.TempDir(), "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, "are being filled from", "muster store migrate")
		o.fails(2, move("--restart"), "add --yes")
	})

	second, lost := upgrade(busy, quiet), s.Enroll("lost", "1.0.0")
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	s.Store.Close()
	sqlitetest.DamageAgent(t, filepath.Join(s.Data, "muster.db"), lost.ID, `{"id":"x`)

	t.Run("ends once the server has stopped", func(t *testing.T) {
		text := o.run(move()...)
		o.contains(text, "NOUN", "ELASTICSEARCH", "DIGEST", "Moved and compared", filepath.Join(s.Data, "muster.db")+" is unchanged but marked as moved",
			"the same documents, as far as they can be read", "Not copied: 1 document of the embedded store that cannot be read", "agent "+lost.ID+": ")
		o.fails(1, []string{"server", "--data", s.Data, "--agents-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}, "was moved to Elasticsearch", "muster store unmark")
		o.contains(o.run(move()...), "already")
	})

	t.Run("agents continue where they were", func(t *testing.T) {
		running, stop := o.serveWith("--config", config, "--data", s.Data)
		defer stop()
		if running.AdminKeyFile != "" {
			t.Error("the server creates first keys")
		}
		s.AgentURL, s.AdminURL = running.AgentURL, running.AdminURL
		got := busy.MustCheckin(nil)
		if len(got.Actions) != 1 || got.Actions[0].ID != second {
			t.Errorf("an agent that has had the first action gets %+v, want %s alone", got.Actions, second)
		}
		got = quiet.MustCheckin(nil)
		if len(got.Actions) != 1 || got.Actions[0].ID != second || got.Actions[0].Type != agentapi.ActionUpgrade {
			t.Errorf("an agent that had no action gets %+v, want %s", got.Actions, second)
		}
		third := s.EnrollWithoutPolicy("new", "1.0.0")
		if third.ID == "" || s.Admin(http.MethodGet, "/api/fleet/agents/"+third.ID, nil).Status != http.StatusOK {
			t.Error("no host can enrol")
		}
	})

	t.Run("unmark makes the embedded store usable again", func(t *testing.T) {
		o.contains(o.run("store", "unmark", "--data", s.Data), "can be used again")
		o.fails(1, []string{"store", "unmark", "--data", s.Data}, "is not marked")
		o.fails(1, move(), "has a migration that was finished")
		_, stop := o.serve(s.Data)
		stop()
	})
}

func TestStoreMigrateRefusesInvalidArguments(t *testing.T) {
	o := newOperator(t)
	empty := t.TempDir()
	config := filepath.Join(empty, "server.yml")
	if err := os.WriteFile(config, []byte("store:\n  elasticsearch:\n    hosts: [http://127.0.0.1:1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	move := []string{"store", "migrate", "--from", "sqlite", "--to", "elasticsearch"}
	o.fails(2, []string{"store", "migrate", "--from", "elasticsearch", "--to", "sqlite", "--config", config}, "is supported")
	o.fails(2, []string{"store", "migrate", "--config", config}, "--from sqlite --to elasticsearch")
	o.fails(1, append(move, "--data", empty), "names no Elasticsearch", "store.elasticsearch")
	o.fails(1, append(move, "--data", empty, "--config", config), "there is no embedded store in "+empty)
	o.fails(1, []string{"store", "unmark", "--data", empty}, "there is no embedded store in "+empty)
	_, stop := o.serve(filepath.Join(empty, "data"))
	stop()
	o.fails(1, append(move, "--data", filepath.Join(empty, "data"), "--config", config), "Elasticsearch cannot be reached")
}
