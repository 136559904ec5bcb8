package store

import (
	"reflect"
	"testing"
)

// Every kind that is Collected has one method in Collections, by which it is reached, except
// rollouts, which have an interface of their own.
func TestEachCollectionIsOfItsOwnKind(t *testing.T) {
	t.Parallel()
	reached := map[*Info]string{KindRollouts.Info: "Rollouts"}
	for m := range reflect.TypeFor[Collections]().Methods() {
		asked := 0
		typed := Typed(func(kind *Info) Documents {
			if other := reached[kind]; other != "" {
				t.Errorf("%s and %s are one kind", m.Name, other)
			}
			asked++
			reached[kind] = m.Name
			return nil
		})
		reflect.ValueOf(typed).MethodByName(m.Name).Call(nil)
		if asked != 1 {
			t.Errorf("%s asks for %d kinds", m.Name, asked)
		}
	}
	names := map[string]bool{}
	for _, k := range Kinds() {
		if k.Collected() && reached[k] == "" {
			t.Errorf("no method of Collections has %s", k.Plural)
		}
		if k.Name == "" || k.Plural == "" || k.Leaves == "" || names[k.Name] {
			t.Errorf("%+v has no name of its own, no plural, or nothing that bounds its number", k)
		}
		if names[k.Name] = true; k.Owner != "" && !names[k.Owner] || k.Owner == "" && k.Leaves == WithOwner {
			t.Errorf("the owner %q of %s is no kind that is copied before it", k.Owner, k.Plural)
		}
		if k.Collected() && (k.Owner != "") != (k.removeOwned != nil) {
			t.Errorf("%s: RemoveOwned does not know which of them the owner %q has", k.Plural, k.Owner)
		}
	}
}
