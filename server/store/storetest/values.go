package storetest

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	"github.com/muster-fleet/muster/server/store"
)

// fillDepth bounds what fill fills, since some documents contain others of their type.
const fillDepth = 8

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
)

// fill sets everything in a value that JSON has. Its content depends on n, and texts and times are
// in the order of n.
func fill(v reflect.Value, name string, n, depth int) {
	switch t := v.Type(); {
	case depth == fillDepth || !v.CanSet():
		return
	case t == timeType:
		v.Set(reflect.ValueOf(at(time.Duration(n) * time.Minute)))
		return
	case t == rawType:
		v.SetBytes(fmt.Appendf(nil, `{"new":[1.0,"<"],"n":%d}`, n))
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(fmt.Sprintf("%s/<%03d>", name, n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(int64(n + 1))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n + 1)) //nolint:gosec // n is small
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(n) + 0.5)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(fmt.Sprint(name, n)))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), name, n, depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0), name, n, depth+1)
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, name, n, depth+1)
		fill(value, name, n, depth+1)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() && f.Tag.Get("json") != "-" {
				fill(v.Field(i), f.Name, n, depth+1)
			}
		}
	}
}

// scribble changes the memory that a copy of the value would share, in place.
func scribble(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			scribble(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			fill(v.Index(i), "scribbled", 99, fillDepth-2)
			scribble(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			other := reflect.New(v.Type().Elem()).Elem()
			fill(other, "scribbled", 99, fillDepth-2)
			v.SetMapIndex(key, other)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && v.Type() != timeType {
				scribble(v.Field(i))
			}
		}
	}
}

// collected is a kind that is Collected. Its values are pointers.
type collected struct{ *store.Info }

// make returns a value that is created later for a higher n.
func (k collected) make(n int) any {
	v := k.New()
	fill(reflect.ValueOf(v).Elem(), "", n, 0)
	return v
}

func (k collected) id(v any) string { id, _ := k.Head(v); return id }

// copyOf returns a copy that shares memory with v.
func (k collected) copyOf(v any) any {
	c := k.New()
	reflect.ValueOf(c).Elem().Set(reflect.ValueOf(v).Elem())
	return c
}

// change changes the value of one field, and not the id.
func (k collected) change(v any, n int) {
	id, now := k.id(v), asText(v)
	s := reflect.ValueOf(v).Elem()
	for i := s.NumField() - 1; i >= 0; i-- {
		f := s.Type().Field(i)
		if !f.IsExported() || f.Tag.Get("json") == "-" {
			continue
		}
		old := reflect.New(f.Type).Elem()
		old.Set(s.Field(i))
		if fill(s.Field(i), f.Name, n, 1); k.id(v) == id && asText(v) != now {
			return
		}
		s.Field(i).Set(old)
	}
	panic(k.Name + " has nothing but its id")
}
