package setup

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/agent/host"
	"github.com/muster-fleet/muster/agent/identity"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
	"github.com/muster-fleet/muster/packaging/pkg/manifest"
	"github.com/muster-fleet/muster/testing/kit/fakeserver"
)

// A host that was enrolled on machine m1 starts on another one.
func TestAgentOnAnotherMachineDoesWhatItsSettingsSay(t *testing.T) {
	for _, c := range []struct {
		name, settings, machine string
		tries                   int // to enrol
		agent, recorded         string
	}{
		{"the same machine", "host: {on_new_machine_id: enroll, enrollment_token_file: 'TOKEN'}", "m1", 0, "agent-1", "m1"},
		{"a machine without an id", "host: {on_new_machine_id: enroll, enrollment_token_file: 'TOKEN'}", "", 0, "agent-1", "m1"},
		{"report", "", "m2", 0, "agent-1", "m1"},
		{"accept", "host: {on_new_machine_id: accept}", "m2", 0, "agent-1", "m2"},
		{"enrol", "host: {on_new_machine_id: enroll, enrollment_token_file: 'TOKEN'}", "m2", 1, "agent-2", "m2"},
		{"enrol, and the first answer is lost", "host: {on_new_machine_id: enroll, enrollment_token_file: 'TOKEN'}", "m2", 2, "agent-3", "m2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, p := fakeserver.New(t), newPublisher(t)
			top, token := t.TempDir(), filepath.Join(t.TempDir(), "token")
			e := Enrollment{URL: s.URL, Token: fakeserver.Token, CAPin: s.CAPin, TrustRoot: p.root}
			if c.tries == 2 {
				loseAnswers(s, 1, 2) // the first is that of the original
			}
			if _, err := Enroll(t.Context(), disk.OS{}, top, e, manifest.Identity{Version: "1.0.0"}, host.Info{ID: "m1"}); err != nil {
				t.Fatal(err)
			}
			for file, text := range map[string]string{token: fakeserver.Token + "\n", layout.Path(top, layout.ConfigFile): strings.ReplaceAll(c.settings, "TOKEN", token)} {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			m := Machine{Disk: disk.OS{}, Top: top, Running: manifest.Identity{Version: "1.0.0"}, Host: host.Info{ID: c.machine}, Log: slog.New(slog.DiscardHandler)}
			if err := m.Follow(t.Context()); err != nil {
				t.Fatal(err)
			}
			id, err := identity.Load(disk.OS{}, top)
			if err != nil || id.AgentID != c.agent || id.MachineID != c.recorded || id.CAFingerprint != s.CAPin {
				t.Errorf("the identity is %+v, %v", id, err)
			}
			if _, err := os.Stat(layout.Path(top, layout.EnrollmentFile)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the enrolment is left: %v", err)
			}
			sent := s.State().Enrolled()
			if len(sent) != 1+c.tries {
				t.Fatalf("the server was asked %d times", len(sent))
			}
			if c.tries == 2 && (sent[1].EnrollmentID != sent[2].EnrollmentID || sent[0].EnrollmentID == sent[1].EnrollmentID) {
				t.Errorf("the ids of the enrolments are %s, %s and %s", sent[0].EnrollmentID, sent[1].EnrollmentID, sent[2].EnrollmentID)
			}
		})
	}
}

func TestIdentityWithoutAMachineTakesTheFirst(t *testing.T) {
	top := t.TempDir()
	id := identity.Identity{AgentID: "a", APIKey: "k", ServerURL: "https://fleet.example.com:8220"}
	if err := identity.Save(disk.OS{}, top, id); err != nil {
		t.Fatal(err)
	}
	if err := (Machine{Disk: disk.OS{}, Top: top, Host: host.Info{ID: "m1"}, Log: slog.New(slog.DiscardHandler)}).Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, err := identity.Load(disk.OS{}, top)
	if err != nil || got.MachineID != "m1" || got.EnrolledElsewhere("m1") || !got.EnrolledElsewhere("m2") || got.EnrolledElsewhere("") {
		t.Errorf("the identity is %+v, %v", got, err)
	}
}
