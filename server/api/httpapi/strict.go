package httpapi

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json/jsontext"
	json "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/fleet/strict"
)

// DecodeStrict is Decode for bodies in which an unknown key is an error: a misspelt key of
// a plan must not disable a limit. Errors name keys and values by their path.
func DecodeStrict(c *gin.Context, limit int64, v any) error {
	b, err := ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
	if err != nil {
		return err
	}
	return DecodeStrictJSON(b, v, strict.Options{})
}

// DecodeStrictJSON reads a single JSON value into v and refuses unknown keys. What o leaves out has
// the words of the APIs.
func DecodeStrictJSON(b []byte, v any, o strict.Options) error {
	value, err := strict.JSON(b, jsontext.AllowInvalidUTF8(true)) // as UnmarshalJSON
	if err != nil {
		return cmp.Or(checkSyntax(b), error(fleet.FieldError("body", "%w", err)))
	}
	if o.Unknown == nil {
		o.Unknown = UnknownKey
	}
	o.Wrong = wrongType
	_, faults := value.Into(v, o)
	return faultsOf(faults)
}

// UnknownKey has the words for an unknown key.
func UnknownKey(_, name string, known []string) (string, bool) {
	return "is not a known key" + strict.Hint(name, slices.Sorted(slices.Values(known)), false), false
}

// faultsOf returns an error about all faults of a body, nil if there is none: the first is the
// error's, and each other has a line.
func faultsOf(faults []strict.Fault) error {
	var first *fleet.Error
	for _, f := range faults {
		at := "body"
		if f.Path != "" {
			at = strings.Replace("body."+f.Path, ".[", "[", 1)
		}
		e := fleet.FieldError(at, "%s", f.Text)
		if first == nil {
			first = e
			continue
		}
		first.Message += "\n" + e.Error()
	}
	if first == nil {
		return nil
	}
	return first
}

// wrongType has the words for a value of a wrong type: those of a duration are its own, and those
// of a time would name a Go layout.
func wrongType(v *strict.Value, _ reflect.Type, err error) string {
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return typeError(wrong)
	case strings.HasPrefix(err.Error(), "is "):
		return err.Error()
	}
	return fmt.Sprintf("is %s, want a time such as 2026-01-31T12:00:00Z", v.JSON())
}

func typeError(wrong *json.UnmarshalTypeError) string {
	if wrong.Err != nil { // of the right type but invalid, such as a string that is not base64
		return wrong.Err.Error()
	}
	return "is a JSON " + wrong.Value + ", want " + strict.Want(wrong.Type)
}
