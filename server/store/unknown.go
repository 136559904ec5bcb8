package store

import (
	"bytes"
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	jsonv2 "github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// A document may have members that this program does not know: a server of a newer minor version
// writes to the same store, or has written to it before its installation went back. What this
// program writes in place of such a document keeps them; see app/DESIGN.md.

// Unknowns records whether a store has such documents. While it has none, a write costs nothing more.
// The zero value is ready.
type Unknowns struct{ seen atomic.Bool }

// Seen reports whether a document with members that this program does not know was read. Every
// document that is replaced was read before.
func (u *Unknowns) Seen() bool { return u.seen.Load() }

var (
	lenient = jsonv1.DefaultOptionsV1()
	strict  = jsonv2.JoinOptions(lenient, jsonv1.ReportErrorsWithLegacySemantics(false), jsonv2.RejectUnknownMembers(true))
)

// Decode reads a stored document into what v points to, as json.Unmarshal does. u is nil for a
// kind that does not keep unknown members.
func Decode(u *Unknowns, doc []byte, v any) error {
	if u == nil {
		return jsonv2.Unmarshal(doc, v, lenient)
	}
	if jsonv2.Unmarshal(doc, v, strict) == nil {
		return nil
	}
	reflect.ValueOf(v).Elem().SetZero()
	err := jsonv2.Unmarshal(doc, v, lenient)
	if err == nil {
		u.seen.Store(true)
	}
	return err
}

// KeepUnknown returns the document that replaces old, a document of type t, by the given one: that,
// with the members of old that t does not have. A type that is encoded as another one says so by a
// method Document. An element of a list that differs from that in old
// does not get them, since it may be another one.
func KeepUnknown(t reflect.Type, old, doc []byte) []byte {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if d, ok := reflect.Zero(t).Interface().(interface{ Document() any }); ok {
		t = reflect.TypeOf(d.Document())
	}
	switch kind := t.Kind(); {
	case decodesItself(t):
		return doc
	case kind == reflect.Struct:
		return keepInObject(old, doc, fieldsOf(t, map[string]reflect.Type{}))
	case kind == reflect.Map:
		var all map[string]json.RawMessage
		if json.Unmarshal(old, &all) != nil {
			return doc
		}
		known := map[string]reflect.Type{} // all, so that what was removed stays so
		for name := range all {
			known[strings.ToLower(name)] = t.Elem()
		}
		return keepInObject(old, doc, known)
	case kind == reflect.Slice:
		return keepInList(t.Elem(), old, doc)
	}
	return doc
}

// keepInObject is KeepUnknown for an object, given the types of the members that are known, by their
// names in lower case.
func keepInObject(old, doc []byte, known map[string]reflect.Type) []byte {
	var were, are map[string]json.RawMessage
	if json.Unmarshal(old, &were) != nil || json.Unmarshal(doc, &are) != nil || were == nil || are == nil {
		return doc
	}
	changed := false
	for name, value := range were {
		kept := value
		if t, ok := known[strings.ToLower(name)]; ok {
			is, there := are[name]
			if !there {
				continue
			}
			if kept = KeepUnknown(t, value, is); bytes.Equal(kept, is) {
				continue
			}
		}
		are[name], changed = kept, true
	}
	return encoded(are, changed, doc)
}

func keepInList(t reflect.Type, old, doc []byte) []byte {
	var were, are []json.RawMessage
	if json.Unmarshal(old, &were) != nil || json.Unmarshal(doc, &are) != nil {
		return doc
	}
	changed := false
	for i, is := range are {
		same := func(was json.RawMessage) bool { return bytes.Equal(withoutUnknown(t, was), is) }
		if k := slices.IndexFunc(were, same); k >= 0 {
			changed = changed || !bytes.Equal(were[k], is)
			are[i], were[k] = were[k], nil
		}
	}
	return encoded(are, changed, doc)
}

// withoutUnknown returns a value as this program writes it, or nil.
func withoutUnknown(t reflect.Type, value []byte) []byte {
	v := reflect.New(t)
	if jsonv2.Unmarshal(value, v.Interface(), lenient) != nil {
		return nil
	}
	b, err := jsonv1.Marshal(v.Interface())
	if err != nil {
		return nil
	}
	return b
}

// encoded returns v encoded if it was changed, otherwise doc.
func encoded(v any, changed bool, doc []byte) []byte {
	if !changed {
		return doc
	}
	b, err := json.Marshal(v)
	if err != nil {
		return doc // v was decoded from JSON, so it can be encoded
	}
	return b
}

// decodesItself reports whether a type's own method decodes it: such a type keeps what it wants.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// fieldsOf adds to known the types of the members that a struct has, by their names in lower case.
// A nearer field hides one of an embedded struct.
func fieldsOf(t reflect.Type, known map[string]reflect.Type) map[string]reflect.Type {
	embedded := map[string]reflect.Type{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			fieldsOf(inner, embedded)
		case f.IsExported() && f.Tag.Get("json") != "-":
			if name == "" {
				name = f.Name
			}
			known[strings.ToLower(name)] = f.Type
		}
	}
	for name, inner := range embedded {
		if _, ok := known[name]; !ok {
			known[name] = inner
		}
	}
	return known
}
