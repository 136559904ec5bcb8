package store_test

import (
	"context"
	"errors"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/muster-fleet/muster/server/store"
	"github.com/muster-fleet/muster/server/store/sqlite/sqlitetest"
)

// Every method of every interface that a store gives out is intercepted, as a call of its own kind
// and name; a method of the store itself that is not must be named here.
func TestEveryCallIsIntercepted(t *testing.T) {
	t.Parallel()
	stopped := errors.New("stopped")
	var calls []string
	s := store.Intercept(havingData{sqlitetest.Open(t, filepath.Join(t.TempDir(), "muster.db"))}, func(_ context.Context, c store.Call, _ func() error) error {
		calls = append(calls, c.Kind.Name+"."+c.Method)
		return stopped
	})
	whole := map[string]bool{
		"Exclusively": true, "Contents": true, "Unreadable": true, "Schema": true, "Ping": true, "OnAgentChange": true, "Close": true,
	}
	found := 0
	for m := range reflect.TypeFor[store.Store]().Methods() {
		method := reflect.ValueOf(s).MethodByName(m.Name)
		switch {
		case whole[m.Name]:
		case m.Name == "Documents":
			for _, kind := range store.Kinds() {
				if kind.Collected() {
					found += intercepted(t, &calls, stopped, kind.Name, reflect.TypeFor[store.Documents](), reflect.ValueOf(s.Documents(kind)))
				}
			}
		case m.Type.NumIn() == 0 && m.Type.NumOut() == 1 && m.Type.Out(0).Kind() == reflect.Interface:
			found += intercepted(t, &calls, stopped, "", m.Type.Out(0), method.Call(nil)[0])
		default:
			t.Errorf("%s is not intercepted", m.Name)
		}
	}
	if found < 200 {
		t.Errorf("only %d methods were tried", found)
	}
}

// intercepted calls every method of the interface on v, and returns how many there are.
func intercepted(t *testing.T, calls *[]string, stopped error, kind string, of reflect.Type, v reflect.Value) int {
	t.Helper()
	for m := range of.Methods() {
		*calls = nil
		method := v.MethodByName(m.Name)
		var args []reflect.Value
		for in := range m.Type.Ins() {
			args = append(args, reflect.Zero(in))
		}
		args[0] = reflect.ValueOf(t.Context())
		if m.Type.IsVariadic() {
			args = args[:len(args)-1]
		}
		out := method.Call(args)
		err, _ := out[len(out)-1].Interface().(error)
		if len(*calls) != 1 || !errors.Is(err, stopped) {
			t.Errorf("%s.%s makes the calls %v, and returns %v", of, m.Name, *calls, err)
			continue
		}
		if got := (*calls)[0]; kind != "" && got != kind+"."+m.Name || got[len(got)-len(m.Name)-1:] != "."+m.Name {
			t.Errorf("%s.%s of %s is intercepted as %s", of, m.Name, kind, got)
		}
	}
	return of.NumMethod()
}

// havingData is a store that keeps the bytes of packages.
type havingData struct{ store.Store }

func (havingData) PackageData() store.PackageData { return noData{} }

type noData struct{ store.PackageData }

func TestWritesAreWhatIsNotKnownToRead(t *testing.T) {
	t.Parallel()
	for method, want := range map[string]bool{"Create": true, "Update": true, "Touch": true, "Trim": true, "Get": false, "List": false, "Each": false, "tomorrow's": true} {
		if got := (store.Call{Kind: store.KindAgents, Method: method}).Writes(); got != want {
			t.Errorf("%s writes: %t, want %t", method, got, want)
		}
	}
}
