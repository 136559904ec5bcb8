package admin_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/app/apptest"
)

// wrongValue returns a field of a body, and a value that its type refuses.
func wrongValue(t reflect.Type) (name, value string) {
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		for f.Type.Kind() == reflect.Pointer {
			f.Type = f.Type.Elem()
		}
		switch kind := f.Type.Kind(); {
		case name == "" || name == "-":
		case kind == reflect.Interface, kind == reflect.Slice && f.Type.Elem().Kind() == reflect.Uint8:
		case kind == reflect.Struct, kind == reflect.Map, kind == reflect.Slice:
			return name, `"x"`
		default:
			return name, `{}`
		}
	}
	return "", ""
}

// lenient are the operations that accept unknown keys.
var lenient = map[string]string{
	"/convert":        "Kubernetes sends more than the server reads",
	"/api/v1/session": "it reads the body of a stranger, of which it wants only the key",
}

// All faults of a body are named, in the order of the body.
func TestAllFaultsOfABodyAreNamedInItsOrder(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	a := s.Enroll("web-01", "1.0.0")
	tried := 0
	for _, call := range adminapi.Calls() {
		if call.Reads() || call.BodyType != "" || call.YAML || call.In().Kind() != reflect.Struct || lenient[call.Path] != "" {
			continue
		}
		name, value := wrongValue(call.In())
		if name == "" {
			continue
		}
		tried++
		path := strings.ReplaceAll(parameter.ReplaceAllString(call.Path, a.ID), "{file}", "x")
		wrong, unknown := `"`+name+`":`+value, `"unknown_key":1`
		for _, body := range []string{wrong + "," + unknown, unknown + "," + wrong} {
			first, second := "body."+name+"]: is ", "body.unknown_key]: "
			if strings.HasPrefix(body, unknown) {
				first, second = second, first
			}
			for range 3 {
				got := s.Admin(call.Method, path, "{"+body+"}")
				message := got.ErrorBody().Message
				one, other, _ := strings.Cut(message, "\n")
				if got.Status != http.StatusBadRequest || !strings.HasPrefix(one, "[request "+first) || !strings.HasPrefix(other, "[request "+second) {
					t.Errorf("%s %s with {%s} answers %d %s", call.Method, path, body, got.Status, message)
				}
			}
		}
	}
	if tried < 50 {
		t.Errorf("only %d operations have been tried", tried)
	}
}

func TestNullsOfAPolicyAreNamedWithItsOtherFaults(t *testing.T) {
	t.Parallel()
	s := apptest.Start(t)
	want := "[request body.space_ids]: is null: leave it out\n[request body.namespace]: is a JSON number, want a string\n[request body.description]: is null: leave it out"
	for range 10 {
		got := s.Admin("POST", "/api/fleet/agent_policies", `{"space_ids":null,"namespace":1,"name":"x","description":null,"overrides":null}`)
		if got.Status != http.StatusBadRequest || got.ErrorBody().Message != want {
			t.Fatalf("it answers %d %s", got.Status, got.ErrorBody().Message)
		}
	}
}
