package httpapi

import (
	"bytes"
	"errors"
	"io"
	"net/http"
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
	if b, ok := c.Request.Body.(inMemory); ok && int64(b.Len()) <= limit {
		return b.Next(b.Len()), nil
	}
	return ReadAll(http.MaxBytesReader(c.Writer, c.Request.Body, limit))
}

// inMemory is a body that package limit has read already.
type inMemory interface {
	Len() int
	Next(n int) []byte
}

// ReadAll is io.ReadAll with errors that name the body.
func ReadAll(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return nil, BodyError(err)
	}
	return b, nil
}

// BodyError returns the error of reading a body, with the body's name.
func BodyError(err error) error {
	var (
		refusal  *fleet.Error
		tooLarge *http.MaxBytesError
	)
	switch {
	case errors.As(err, &refusal):
		return refusal // of limit.Reader or of a limit.Message
	case errors.As(err, &tooLarge):
		return fleet.FieldError("body", "has more than %d bytes", tooLarge.Limit)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fleet.FieldError("body", "is incomplete: it ends early")
	}
	return fleet.FieldError("body", "%w", err)
}

const (
	// bodyPatience is how long a body may take besides what its length takes: the round trips
	// of a slow link, with lost packets.
	bodyPatience = 5 * time.Second
	// bodyPace is the slowest link, in bytes a second: 4 MiB in four minutes.
	bodyPace = 18_000
)

// PaceBody bounds how slowly the body of a request may arrive, where it keeps others waiting
// or its sender is not known. One that stops is given up after seconds.
func PaceBody(c *gin.Context) {
	c.Request.Body = &paced{ReadCloser: c.Request.Body, control: http.NewResponseController(c.Writer), begun: time.Now()}
}

type paced struct {
	io.ReadCloser
	control *http.ResponseController
	begun   time.Time
	read    int64
}

func (p *paced) Read(b []byte) (int, error) {
	_ = p.control.SetReadDeadline(p.begun.Add(bodyPatience + time.Duration(p.read)*time.Second/bodyPace))
	n, err := p.ReadCloser.Read(b)
	p.read += int64(n)
	return n, err
}

// UnmarshalJSON reads a single JSON value into v. It uses the coming version of
// encoding/json, which takes a third of the time.
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
	case errors.As(err, &wrong) && wrong.Field != "":
		return fleet.FieldError("body."+fieldPath(wrong.Field), "%s", typeError(wrong))
	case errors.As(err, &wrong):
		return fleet.FieldError("body", "is a JSON %s, want an object", wrong.Value)
	case errors.As(err, &badTime):
		// The error names no field, so name the value.
		return fleet.FieldError("body", "has the time %s, want one such as 2026-01-31T12:00:00Z", badTime.Value)
	}
	return fleet.FieldError("body", "%w", err)
}

// checkSyntax returns an error if b is not a single JSON value.
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
		return fleet.FieldError("body", "is incomplete: it ends early")
	}
	// dec.More would treat a closing bracket as the end.
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return fleet.FieldError("body", "has data after its JSON value")
	}
	return nil
}

// fieldPath converts a path such as agents.0.id to agents[0].id.
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
