package gitops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/rollout/spec"
	"github.com/muster-fleet/muster/testing/kit/harness"
)

// tofu is a folder with a configuration of OpenTofu and its state.
type tofu struct {
	t            *testing.T
	dir, program string
	version      string // of the agents
	maxParallel  int
	env          []string
}

func newTofu(t *testing.T) *tofu {
	t.Helper()
	server := world(t).Server
	w := &tofu{t: t, dir: t.TempDir(), program: openTofu.get(t), version: "1.0.0", maxParallel: 5}
	config, err := os.ReadFile(filepath.Join("testdata", "main.tf"))
	check(t, err)
	check(t, os.WriteFile(filepath.Join(w.dir, "main.tf"), config, 0o600))
	// With this, OpenTofu needs neither a registry nor `tofu init`.
	overrides := fmt.Sprintf("provider_installation {\n  dev_overrides {\n    \"registry.opentofu.org/mastercard/restapi\" = %q\n  }\n  direct {}\n}\n", filepath.Dir(restAPI.get(t)))
	settings := filepath.Join(w.dir, "tofu.rc")
	check(t, os.WriteFile(settings, []byte(overrides), 0o600))
	w.env = append(os.Environ(), "TF_CLI_CONFIG_FILE="+settings, "TF_IN_AUTOMATION=1", "TF_INPUT=0", "CHECKPOINT_DISABLE=1",
		// The provider has no setting for an authority.
		"SSL_CERT_FILE="+caFile(server), "NO_PROXY=127.0.0.1",
		"TF_VAR_server="+server.Info.AdminURL, "TF_VAR_admin_key="+server.Info.AdminKey)
	return w
}

// run runs a command, which must end with a code, and returns its output.
func (w *tofu) run(code int, args ...string) string {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), harness.WaitLimit)
	defer cancel()
	c := exec.CommandContext(ctx, w.program, append(args, "-no-color")...)
	c.Dir, c.Env = w.dir, append(w.env, "TF_VAR_agent_version="+w.version, "TF_VAR_max_parallel="+strconv.Itoa(w.maxParallel))
	out, err := c.CombinedOutput()
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		check(w.t, err)
	}
	if got != code {
		w.t.Fatalf("tofu %s ended with %d, want %d:\n%s", strings.Join(args, " "), got, code, out)
	}
	return string(out)
}

// Exit codes of `tofu plan -detailed-exitcode`.
const (
	noChange = 0
	changes  = 2
)

func (w *tofu) plan(want int) { w.t.Helper(); w.run(want, "plan", "-detailed-exitcode") }

// apply applies the configuration, which must do exactly what the summary says. The server must
// answer with the spec as it was declared: this version of the provider does not notice another one,
// later versions would plan a change each time.
func (w *tofu) apply(added, changed, destroyed int) {
	w.t.Helper()
	out := w.run(0, "apply", "-auto-approve")
	if want := fmt.Sprintf("%d added, %d changed, %d destroyed.", added, changed, destroyed); !strings.Contains(out, want) {
		w.t.Fatalf("the apply did not end with %q:\n%s", want, out)
	}
	declared, answered := w.state()
	if !reflect.DeepEqual(declared["spec"], answered["spec"]) {
		w.t.Errorf("the server answered with the spec\n%v, and declared was\n%v", answered["spec"], declared["spec"])
	}
}

// state returns what the state has of the object: as declared, and as the server answered.
func (w *tofu) state() (declared, answered map[string]any) {
	w.t.Helper()
	var state struct {
		Values struct {
			Root struct {
				Resources []struct {
					Values struct {
						Data     string `json:"data"`
						Response string `json:"api_response"`
					}
				}
			} `json:"root_module"`
		}
	}
	out := w.run(0, "show", "-json")
	check(w.t, json.Unmarshal([]byte(out), &state))
	if len(state.Values.Root.Resources) != 1 {
		w.t.Fatalf("the state has %d objects, want one:\n%s", len(state.Values.Root.Resources), out)
	}
	object := state.Values.Root.Resources[0].Values
	check(w.t, json.Unmarshal([]byte(object.Data), &declared))
	check(w.t, json.Unmarshal([]byte(object.Response), &answered))
	return declared, answered
}

// observed waits until the server has carried out the object as it is now.
func observed(t *testing.T, name string) *spec.Fleet {
	t.Helper()
	var f *spec.Fleet
	harness.Eventually(t, name+" is rolled out", func() error {
		f = fleetObject(t, name)
		ready := f.Status.Condition(spec.Ready)
		switch {
		case f.Status.ObservedGeneration != f.Metadata.Generation:
			return fmt.Errorf("the server has observed generation %d of %d", f.Status.ObservedGeneration, f.Metadata.Generation)
		case ready == nil || ready.Status != spec.True:
			return fmt.Errorf("the status is %+v", f.Status)
		}
		return nil
	})
	return f
}

func TestOpenTofuDeclaresAFleet(t *testing.T) {
	w := newTofu(t)
	before := rollouts(t)
	created := func() (ids []string) {
		return slices.DeleteFunc(rollouts(t), func(id string) bool { return slices.Contains(before, id) })
	}

	w.plan(changes)
	w.apply(1, 0, 0)
	first := observed(t, "web")
	if want := spec.Hash(first); first.Status.LastCompletedRolloutHash != want {
		t.Errorf("the host runs the version, but the last completed hash is %q, want %q", first.Status.LastCompletedRolloutHash, want)
	}
	// The server has filled in status and metadata.
	w.plan(noChange)
	w.apply(0, 0, 0)
	if now := fleetObject(t, "web"); now.Metadata.Generation != 1 || now.Metadata.UID != first.Metadata.UID {
		t.Errorf("an apply without a change led to %+v, before it was %+v", now.Metadata, first.Metadata)
	}
	if ids := created(); len(ids) != 0 {
		t.Errorf("rollouts %v were created, though the host runs the version", ids)
	}

	// The limits take effect without a rollout.
	w.maxParallel = 7
	w.plan(changes)
	w.apply(0, 1, 0)
	limited := observed(t, "web")
	if limited.Metadata.Generation != 2 || limited.Spec.Limits.MaxParallel != 7 {
		t.Errorf("the limit was changed, but the object is %+v", limited)
	}
	if limited.Status.RequestedRolloutHash != first.Status.RequestedRolloutHash {
		t.Errorf("the limit was changed, and the requested hash from %s to %s", first.Status.RequestedRolloutHash, limited.Status.RequestedRolloutHash)
	}
	w.plan(noChange)
	if ids := created(); len(ids) != 0 {
		t.Errorf("rollouts %v were created, though only a limit was changed", ids)
	}

	// The version starts exactly one.
	w.version = "1.1.0"
	w.plan(changes)
	w.apply(0, 1, 0)
	upgraded := observed(t, "web")
	if hash := upgraded.Status.LastCompletedRolloutHash; hash != spec.Hash(upgraded) || hash == first.Status.LastCompletedRolloutHash {
		t.Errorf("after the upgrade the last completed hash is %q, want %q", hash, spec.Hash(upgraded))
	}
	if version, err := world(t).Hosts[0].Runs(); err != nil || !strings.HasPrefix(version, "1.1.0") {
		t.Errorf("the host runs %s: %v", version, err)
	}
	if ids := created(); len(ids) != 1 || upgraded.Status.Rollout == nil || ids[0] != upgraded.Status.Rollout.ID {
		t.Errorf("rollouts %v were created, want the one of the status %+v", ids, upgraded.Status.Rollout)
	}
	w.plan(noChange)

	// An object that somebody deletes is created again, for hosts that run the version already.
	resp, err := world(t).Server.Do(t.Context(), http.MethodDelete, "/api/v1/fleets/web?why=by+hand", nil)
	check(t, err)
	check(t, resp.Body.Close())
	w.plan(changes)
	w.apply(1, 0, 0)
	if again := observed(t, "web"); again.Metadata.UID == first.Metadata.UID {
		t.Errorf("the object that was created again has the uid %s of the deleted one", again.Metadata.UID)
	}
	w.plan(noChange)

	if out := w.run(0, "destroy", "-auto-approve"); !strings.Contains(out, "1 destroyed.") {
		t.Errorf("the destroy ended with:\n%s", out)
	}
	if f := fleetObject(t, "web"); f != nil {
		t.Errorf("the object is still there: %+v", f)
	}
	if version, err := world(t).Hosts[0].Runs(); err != nil || !strings.HasPrefix(version, "1.1.0") {
		t.Errorf("the object is gone, and the host runs %s: %v", version, err)
	}
	if ids := created(); len(ids) != 1 {
		t.Errorf("after the object has gone there are the rollouts %v", ids)
	}
}
