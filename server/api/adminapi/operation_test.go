package adminapi

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// own are the operations that concern nobody but the caller, and need no permission.
var own = []string{"getSession", "logOut"}

func TestEveryOperationNamesItsPermission(t *testing.T) {
	t.Parallel()
	permission := regexp.MustCompile(`^[a-z_]+\.[a-z]+$`)
	for _, c := range Calls() {
		switch none := c.Admission == Stranger || slices.Contains(own, c.ID); {
		case none && c.Permission != "":
			t.Errorf("%s needs the permission %s, which its callers cannot have", c.ID, c.Permission)
		case !none && !permission.MatchString(c.Permission):
			t.Errorf("%s has the permission %q, want one such as agents.read", c.ID, c.Permission)
		}
	}
}

// A preview that is in the audit trail hides the changes.
func TestWhatOnlyReadsIsNotAudited(t *testing.T) {
	t.Parallel()
	for _, c := range Calls() {
		if !c.Reads() && strings.HasSuffix(c.Permission, ".read") && !c.Unaudited {
			t.Errorf("%s needs the permission %s and is audited", c.ID, c.Permission)
		}
	}
}

func TestOperationsAreDistinct(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range Calls() {
		for _, name := range []string{c.ID, c.Method + " " + c.Path} {
			if seen[name] {
				t.Errorf("two operations are %s", name)
			}
			seen[name] = true
		}
	}
}

func TestURLHasTheValuesOfThePath(t *testing.T) {
	t.Parallel()
	if got, want := RetryTarget.URL("r/1", "a b"), "/api/v1/rollouts/r%2F1/targets/a%20b/retry"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := ListAgents.URL(); got != ListAgents.Path {
		t.Errorf("got %s", got)
	}
	for _, call := range []func(){func() { GetAgent.URL() }, func() { ListAgents.URL("x") }} {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("a wrong number of values was accepted")
				}
			}()
			call()
		}()
	}
}

func TestVerbNamesTheCall(t *testing.T) {
	t.Parallel()
	for call, want := range map[*Call]string{
		RotateAdminKey.Call: "admin_keys.rotate", CreateAdminKey.Call: "admin_keys.create", SetExposure.Call: "exposure.set", DeleteView.Call: "views.delete",
	} {
		if got := call.Verb(); got != want {
			t.Errorf("%s is %s, want %s", call.ID, got, want)
		}
	}
}
