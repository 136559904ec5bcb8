package httpapi

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
)

// DecodeStrict is Decode for bodies in which an unknown key is an error: a misspelt key of
// a plan must not disable a limit. Errors name keys and values by their path.
func DecodeStrict(c *gin.Context, limit int64, v any) error {
	return DecodeStrictJSON(http.MaxBytesReader(c.Writer, c.Request.Body, limit), v)
}

// DecodeStrictJSON reads a single JSON value into v and refuses unknown keys.
func DecodeStrictJSON(r io.Reader, v any) error {
	b, err := ReadAll(r)
	if err != nil {
		return err
	}
	var raw json.RawMessage
	if err := UnmarshalJSON(b, &raw); err != nil {
		return err
	}
	if err := checkKeys("body", raw, reflect.TypeOf(v)); err != nil {
		return err
	}
	return UnmarshalJSON(b, v)
}

// checkKeys returns an error for the first key, in alphabetical order, that t has no field
// for, for the first value that the UnmarshalJSON of its type refuses, since encoding/json
// does not name their path, or for the first zero that its field refuses.
func checkKeys(at string, raw json.RawMessage, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if string(raw) == "null" {
		return nil
	}
	if u, ok := reflect.New(t).Interface().(json.Unmarshaler); ok {
		if err := u.UnmarshalJSON(raw); err != nil {
			return fleet.FieldError(at, "%s", valueError(raw, err))
		}
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		var in map[string]json.RawMessage
		if json.Unmarshal(raw, &in) != nil {
			return nil // UnmarshalJSON reports the wrong type
		}
		fields := fieldsOf(t)
		for _, name := range slices.Sorted(maps.Keys(in)) {
			field, known := fields[name]
			if t.Kind() == reflect.Map {
				field.Type = t.Elem()
			} else if !known {
				return fleet.FieldError(at+"."+name, "is not a known key%s", hint(name, fields))
			}
			if err := checkKeys(at+"."+name, in[name], field.Type); err != nil {
				return err
			}
			if err := fleet.CheckGiven(field, in[name]); err != nil {
				return fleet.FieldError(at+"."+name, "%w", err)
			}
		}
	case reflect.Slice:
		var in []json.RawMessage
		if json.Unmarshal(raw, &in) != nil {
			return nil
		}
		for i, item := range in {
			if err := checkKeys(fmt.Sprintf("%s[%d]", at, i), item, t.Elem()); err != nil {
				return err
			}
		}
	}
	return nil
}

// valueError returns the message for a value that its type refuses: that of a duration as
// it is, and for a time another one, since its own names a Go layout.
func valueError(raw json.RawMessage, err error) string {
	if strings.HasPrefix(err.Error(), "is ") {
		return err.Error()
	}
	return fmt.Sprintf("is %s, want a time such as 2026-01-31T12:00:00Z", raw)
}

// fieldsOf returns a struct's fields by their JSON names.
func fieldsOf(t reflect.Type) map[string]reflect.StructField {
	if t.Kind() != reflect.Struct {
		return nil
	}
	out := map[string]reflect.StructField{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			out[name] = f
		}
	}
	return out
}

// hint suggests a key for an unknown one, or lists all.
func hint(name string, fields map[string]reflect.StructField) string {
	known := slices.Sorted(maps.Keys(fields))
	for _, k := range known {
		if strings.EqualFold(k, name) || strings.EqualFold(strings.ReplaceAll(k, "_", ""), strings.NewReplacer("-", "", "_", "").Replace(name)) {
			return ": did you mean " + k + "?"
		}
	}
	return ", want one of " + strings.Join(known, ", ")
}
