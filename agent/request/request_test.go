package request

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/muster-fleet/muster/agent/download"
	"github.com/muster-fleet/muster/agent/runtime"
	"github.com/muster-fleet/muster/agent/steps"
	"github.com/muster-fleet/muster/packaging/host/disk"
	"github.com/muster-fleet/muster/packaging/pkg/trust"
	"github.com/muster-fleet/muster/packaging/pkg/trust/tuf"
	"github.com/muster-fleet/muster/server/wire/agentapi"
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
	const yes, no, step = "yes", "no", "by the step"
	away := fmt.Errorf("look for container web: the Docker engine is away, %w: %w", runtime.ErrTransient, fs.ErrNotExist)
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"a network error while the publishers' metadata are fetched": {fmt.Errorf("trust: %w", Later(errors.New("connection refused"))), yes},
		"metadata that the server signs again":                       {&tuf.ExpiredError{Role: tuf.RoleTimestamp}, yes},
		"metadata that people sign":                                  {&tuf.ExpiredError{Role: tuf.RoleTargets}, step},
		"a full disk":                                                {&fs.PathError{Err: syscall.ENOSPC}, yes},
		"a full quota":                                               {&fs.PathError{Err: syscall.EDQUOT}, yes},
		"a disk with too little room":                                {fmt.Errorf("%w in /opt", disk.ErrNoSpace), yes},
		"a read-only disk":                                           {&disk.Error{Err: &fs.PathError{Err: syscall.EROFS}}, no},
		"a file that the package lacks":                              {&disk.Error{Err: fs.ErrNotExist}, no},
		"an engine whose socket is gone":                             {away, yes},
		"cancelled by an operator":                                   {fmt.Errorf("%w: %w: %w", steps.Cancelled("cancelled"), syscall.EIO, away), no},
		"settings that are not valid":                                {fmt.Errorf("%w: %w", ErrSettings, syscall.EIO), no},
		"a step that takes too long":                                 {steps.ErrTimeout, step},
	} {
		want := map[string][2]bool{yes: {true, true}, no: {false, false}, step: {false, true}}[c.want]
		if got := [2]bool{Transient(c.err, false), Transient(c.err, true)}; got != want {
			t.Errorf("%s is transient: %v, want %s", name, got, c.want)
		}
	}
}

// notReady is what a new version has shown.
type notReady struct{ error }

func (notReady) ReasonCode() string { return agentapi.ReasonNotReady }

func TestFailureIsReportedWithACode(t *testing.T) {
	for want, list := range map[string][]Failure{
		agentapi.ReasonNoSpace:   {{Err: disk.ErrNoSpace}, {Err: &disk.Error{Err: syscall.EDQUOT}}},
		agentapi.ReasonUntrusted: {{Err: trust.ErrUntrusted}, {Err: trust.ErrNoPublisher}, {Err: download.ErrContent}},
		agentapi.ReasonSettings:  {{Err: ErrSettings}},
		agentapi.ReasonNotReady:  {{Err: notReady{syscall.ENOSPC}}},
		agentapi.FailedRollback:  {{Err: notReady{disk.ErrNoSpace}, Broken: true}},
		"":                       {{Err: steps.Cancelled("cancelled")}},
	} {
		for _, f := range list {
			f.Err, f.State = fmt.Errorf("web: %w", f.Err), agentapi.UpgradeReplacing
			d := f.Details(Request{ActionID: "a", Version: "2.0.0"})
			if d.Metadata.ReasonCode != want || d.Metadata.ErrorMsg != f.Error() || d.Metadata.FailedState != f.State || d.ActionID != "a" || d.TargetVersion != "2.0.0" || d.State != agentapi.UpgradeFailed {
				t.Errorf("%v is reported as %+v, want the code %q", f.Err, d, want)
			}
		}
	}
}
