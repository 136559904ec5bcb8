package request

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
)

func TestParse(t *testing.T) {
	for data, want := range map[string]struct {
		local bool
		says  string
		wrong string
	}{
		`{"version":"1.1.0"}`: {says: "1.1.0"},
		`{"rollback":true}`:   {says: ""},
		`{"version":1}`:       {wrong: "action data: "},

		`{"version":"1.0.0-012345","rollback":true}`:        {local: true, says: "1.0.0-012345"},
		`{"version":"latest"}`:                              {wrong: "action data.version: "},
		`{"version":"1.0.0","component":{}}`:                {wrong: "action data.component.name: "},
		`{"version":"1.0.0","component":{"name":"../web"}}`: {wrong: "action data.component.name: "},
		`{"rollback":true,"component":{"name":"web"}}`:      {wrong: "action data.version: "},

		`{"version":"1.0.0","component":{"name":"web","lockstep":{"until":"stop"}}}`:  {says: "web 1.0.0"},
		`{"version":"1.0.0","component":{"name":"web","lockstep":{"until":"later"}}}`: {wrong: `action data.component.lockstep.until: is "later", want one of`},
	} {
		r, err := Parse("a", want.local, []byte(data))
		switch {
		case want.wrong != "":
			if err == nil || !strings.HasPrefix(err.Error(), want.wrong) {
				t.Errorf("%s is parsed with %v, want %s", data, err, want.wrong)
			}
		case err != nil || r.String() != want.says || r.ID != "a" || (r.ActionID == "") != want.local:
			t.Errorf("%s is parsed as %+v, %v; want %s", data, r, err, want.says)
		}
	}
}

func TestUpgradeOfAComponentWithoutAnIDHasThatOfItsAction(t *testing.T) {
	for data, want := range map[string]string{
		`{"version":"1.0.0","component":{"name":"web"}}`:                  "a",
		`{"version":"1.0.0","component":{"name":"web","upgrade_id":"u"}}`: "u",
	} {
		if r, err := Parse("a", false, []byte(data)); err != nil || r.Component.UpgradeID != want {
			t.Errorf("%s has the id %q, %v; want %q", data, r.Component.UpgradeID, err, want)
		}
	}
}

func TestTransient(t *testing.T) {
	for name, c := range map[string]struct {
		err              error
		transient, known bool
	}{
		"a network error while the publishers' metadata are fetched": {fmt.Errorf("trust: %w", Later(errors.New("connection refused"))), true, true},
		"metadata that the server signs again":                       {&tuf.ExpiredError{Role: tuf.RoleTimestamp}, true, true},
		"metadata that people sign":                                  {&tuf.ExpiredError{Role: tuf.RoleTargets}, false, false},
		"a full disk":                                                {&fs.PathError{Err: syscall.ENOSPC}, true, true},
		"a read-only disk":                                           {&disk.Error{Err: &fs.PathError{Err: syscall.EROFS}}, false, true},
		"a file that the package lacks":                              {&disk.Error{Err: fs.ErrNotExist}, false, true},
		"cancelled by an operator":                                   {fmt.Errorf("%w: %w", steps.Cancelled("cancelled"), syscall.EIO), false, true},
		"what only the step knows":                                   {steps.ErrTimeout, false, false},
	} {
		if transient, known := Transient(c.err); transient != c.transient || known != c.known {
			t.Errorf("%s is transient %v, known %v; want %v, %v", name, transient, known, c.transient, c.known)
		}
	}
}
