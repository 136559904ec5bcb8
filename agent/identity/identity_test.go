package identity

import (
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/host/layout"
)

func valid() Identity {
	return Identity{AgentID: "a", APIKey: "k", ServerURL: "https://fleet.example.com:8220"}
}

func TestIdentityFileIsReadableByTheOwnerOnly(t *testing.T) {
	top := t.TempDir()
	if _, err := Load(disk.OS{}, top); !errors.Is(err, ErrNotEnrolled) {
		t.Errorf("before enrolment: %v", err)
	}
	if err := Save(disk.OS{}, top, valid()); err != nil {
		t.Fatal(err)
	}
	got, err := Load(disk.OS{}, top)
	if err != nil || !reflect.DeepEqual(*got, valid()) {
		t.Errorf("%+v, %v", got, err)
	}
	if fi, err := os.Stat(layout.Path(top, layout.IdentityFile)); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if err := Remove(disk.OS{}, top); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(top); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestLoadRefusesInvalidIdentities(t *testing.T) {
	for field, spoil := range map[string]func(*Identity){
		"agent_id":   func(i *Identity) { i.AgentID = "" },
		"api_key":    func(i *Identity) { i.APIKey = "" },
		"server_url": func(i *Identity) { i.ServerURL = "fleet.example.com" },
	} {
		id := valid()
		spoil(&id)
		if err := Save(disk.OS{}, t.TempDir(), id); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
	top := t.TempDir()
	if err := os.WriteFile(layout.Path(top, layout.IdentityFile), []byte("\x00\x00"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(disk.OS{}, top); !errors.Is(err, disk.ErrDamaged) || !strings.Contains(err.Error(), "enrol this host again") {
		t.Errorf("damaged: %v", err)
	}
}
