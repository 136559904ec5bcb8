package httpapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"reflect"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/fleet"
)

// Decode reads a JSON body of at most limit bytes into v. Errors name the field.
func Decode(c *gin.Context, limit int64, v any) error {
	return DecodeJSON(http.MaxBytesReader(c.Writer, c.Request.Body, limit), v)
}

// ReadBody reads a body of at most limit bytes. One that is in memory is not copied.
func ReadBody(c *gin.Context, limit int64) ([]byte, error) {
	if r, ok := c.Request.Body.(interface{ Whole() ([]byte, bool) }); ok {
		b, whole := r.Whole()
		switch {
		case whole && int64(len(b)) > limit:
			return nil, fleet.FieldError("body", "has more than %d bytes", limit)
		case whole:
			return b, nil
		}
	}
	return readAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(r)
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, fleet.FieldError("body", "has more than %d bytes", tooLarge.Limit)
	case err != nil:
		return nil, fleet.FieldError("body", "is not whole: it ends early")
	}
	return b, nil
}

// DecodeJSON reads one JSON value and nothing behind it.
func DecodeJSON(r io.Reader, v any) error {
	dec := json.NewDecoder(r)
	err := dec.Decode(v)
	if err == nil {
		// Not dec.More, which takes a closing bracket for the end.
		_, err = dec.Token()
		var syntax *json.SyntaxError
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil || errors.As(err, &syntax):
			return fleet.FieldError("body", "has something behind its JSON value")
		}
	}
	var (
		refusal  *fleet.Error
		tooLarge *http.MaxBytesError
		syntax   *json.SyntaxError
		wrong    *json.UnmarshalTypeError
		badTime  *time.ParseError
	)
	switch {
	case errors.As(err, &refusal) && refusal.Kind == fleet.TooMany:
		return refusal // of who hands the bytes on
	case errors.As(err, &tooLarge):
		return fleet.FieldError("body", "has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, io.EOF):
		return fleet.FieldError("body", "is empty, want a JSON object")
	case errors.As(err, &syntax):
		return fleet.FieldError("body", "is not JSON: %w at byte %d", err, syntax.Offset)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fleet.FieldError("body", "is not whole: it ends early")
	case errors.As(err, &wrong) && wrong.Field != "":
		return fleet.FieldError("body."+wrong.Field, "is a JSON %s, want %s", wrong.Value, jsonWord(wrong.Type))
	case errors.As(err, &wrong):
		return fleet.FieldError("body", "is a JSON %s, want an object", wrong.Value)
	case errors.As(err, &badTime):
		// encoding/json does not say where it stands, but the value does.
		return fleet.FieldError("body", "has the time %s, want one such as 2026-01-31T12:00:00Z", badTime.Value)
	}
	return fleet.FieldError("body", "%w", err)
}

// jsonWord is a type as people who write JSON call it.
func jsonWord(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return jsonWord(t.Elem())
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Float32, reflect.Float64:
		return "a number"
	}
	return "a whole number"
}
