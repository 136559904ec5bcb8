package checkin_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/action"
	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/keyfile"
	"github.com/muster-fleet/muster/server/wire/agentapi"
)

// sealer opens the encryption key in dir, and makes the installation's first one.
func (w *world) sealer(dir string) keyfile.Sealer {
	w.t.Helper()
	s, err := keyfile.OpenSealer(w.t.Context(), keyfile.File{Disk: disk.OS{}, Dir: dir, Name: keyfile.EncryptionKey, Settings: w.store.Settings()}, slog.New(slog.DiscardHandler))
	w.must(err)
	return s
}

const migration = `{"target_uri":"https://other:8220","enrollment_token":"t"}`

func (w *world) migrate() fleet.Action {
	w.t.Helper()
	run := func(version string) {
		_, err := store.UpdateAgent(w.t.Context(), w.store.Agents(), agentID, func(a *fleet.Agent) bool { a.Version = version; return true })
		w.must(err)
	}
	run("9.3.0") // older ones cannot migrate
	a, err := w.actions.Create(w.t.Context(), action.Order{Type: agentapi.ActionMigrate, Data: json.RawMessage(migration), AgentIDs: []string{agentID}})
	w.must(err)
	run("1.0.0")
	return a
}

func TestAgentGetsTheSecretsOfItsAction(t *testing.T) {
	w := newWorld(t)
	w.actions.Sealer = w.sealer(t.TempDir())
	w.service.Sealer = w.actions.Sealer
	sealed := w.migrate()
	w.fed(1)
	if a := w.checkin(agentapi.CheckinRequest{}).delivers(sealed.ID).Actions[0]; string(a.Data) != migration {
		t.Errorf("the action is delivered with %s", a.Data)
	}
}

// The agent would not get the action later, since its next ack token is above its number.
// The operator sees that it has failed, and why.
func TestActionFailsOnAServerThatCannotDecryptItsSecrets(t *testing.T) {
	w := newWorld(t)
	var log bytes.Buffer
	w.service.Log = slog.New(slog.NewTextHandler(&log, nil))
	w.actions.Sealer = w.sealer(t.TempDir())
	w.service.Sealer = w.sealer(t.TempDir()) // without a copy of the key
	secret, other := w.migrate(), w.upgrade()
	w.fed(2)
	seen := len(w.events(0))
	first := w.checkin(agentapi.CheckinRequest{}).delivers(other.ID)
	w.checkin(agentapi.CheckinRequest{}).delivers(other.ID) // its answer was lost
	w.checkin(agentapi.CheckinRequest{AckToken: first.AckToken}).parked().leave()

	r, err := w.store.Results().Get(t.Context(), secret.ID, agentID)
	w.must(err)
	if !strings.Contains(r.Error, "lacks the key that encrypted the secrets of this action") || r.Hostname != "web" {
		t.Errorf("the result is %+v", r)
	}
	var announced int
	for _, e := range w.events(seen) {
		if e.Type == fleet.EventActionResult && e.Subject == secret.ID {
			announced++
		}
	}
	if announced != 1 {
		t.Errorf("%d events announce the result", announced)
	}
	if n := strings.Count(log.String(), secret.ID); n != 1 || !strings.Contains(log.String(), "lacks the key") {
		t.Errorf("the log names the action %d times:\n%s", n, log.String())
	}
}
