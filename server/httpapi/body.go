package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	json "github.com/go-json-experiment/json/v1"

	"github.com/muster-fleet/muster/server/fleet"
)

// Decode reads a JSON body of at most limit bytes into v. Errors name the field.
func Decode(c *gin.Context, limit int64, v any) error {
	b, err := ReadBody(c, limit)
	if err != nil {
		return err
	}
	return UnmarshalJSON(b, v)
}

// ReadBody reads a body of at most limit bytes.
func ReadBody(c *gin.Context, limit int64) ([]byte, error) {
	return readAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
}

func readAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(r)
	var (
		refusal  *fleet.Error
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &refusal) && refusal.Kind == fleet.TooMany:
		return nil, refusal // of who hands the bytes on
	case errors.As(err, &tooLarge):
		return nil, fleet.FieldError("body", "has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fleet.FieldError("body", "is not whole: it ends early")
	case err != nil:
		return nil, fleet.FieldError("body", "%w", err)
	}
	return b, nil
}

// DecodeJSON reads one JSON value and nothing behind it.
func DecodeJSON(r io.Reader, v any) error {
	b, err := readAll(r)
	if err != nil {
		return err
	}
	return UnmarshalJSON(b, v)
}

// UnmarshalJSON is DecodeJSON for what is in memory. It is what the next
// encoding/json does, in a third of the time: it was a tenth of what an
// acknowledgement costs.
func UnmarshalJSON(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	if err == nil {
		return nil
	}
	if err := checkSyntax(b); err != nil {
		return err
	}
	var (
		wrong   *json.UnmarshalTypeError
		badTime *time.ParseError
	)
	switch {
	case errors.As(err, &wrong) && wrong.Field != "" && wrong.Err != nil: // of the right kind, such as a text that is not base64
		return fleet.FieldError("body."+fieldPath(wrong.Field), "%w", wrong.Err)
	case errors.As(err, &wrong) && wrong.Field != "":
		return fleet.FieldError("body."+fieldPath(wrong.Field), "is a JSON %s, want %s", wrong.Value, jsonWord(wrong.Type))
	case errors.As(err, &wrong):
		return fleet.FieldError("body", "is a JSON %s, want an object", wrong.Value)
	case errors.As(err, &badTime):
		// It does not say where it stands, but the value does.
		return fleet.FieldError("body", "has the time %s, want one such as 2026-01-31T12:00:00Z", badTime.Value)
	}
	return fleet.FieldError("body", "%w", err)
}

// checkSyntax says what keeps b from being one JSON value.
func checkSyntax(b []byte) error {
	var (
		whole  json.RawMessage
		syntax *json.SyntaxError
		dec    = json.NewDecoder(bytes.NewReader(b))
	)
	switch err := dec.Decode(&whole); {
	case errors.Is(err, io.EOF):
		return fleet.FieldError("body", "is empty, want a JSON object")
	case errors.As(err, &syntax):
		return fleet.FieldError("body", "is not JSON: %w at byte %d", err, syntax.Offset)
	case err != nil:
		return fleet.FieldError("body", "is not whole: it ends early")
	}
	// Not dec.More, which takes a closing bracket for the end.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fleet.FieldError("body", "has something behind its JSON value")
	}
	return nil
}

// fieldPath is the path of a field as this API writes it: an index in brackets.
func fieldPath(dotted string) string {
	var path strings.Builder
	for i, name := range strings.Split(dotted, ".") {
		_, err := strconv.ParseUint(name, 10, 32)
		switch {
		case err == nil:
			name = "[" + name + "]"
		case i > 0:
			path.WriteByte('.')
		}
		path.WriteString(name)
	}
	return path.String()
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
