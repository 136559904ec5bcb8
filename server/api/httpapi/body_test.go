package httpapi_test

import (
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/muster-fleet/muster/server/api/httpapi"
	"github.com/muster-fleet/muster/server/fleet"
)

// A server that runs out of memory while it reads a body must not answer that the body is
// invalid: the client may send it again.
func TestReadAllReturnsTooManyOfTheReader(t *testing.T) {
	t.Parallel()
	full := &fleet.Error{Kind: fleet.TooMany, Message: "come again", RetryAfter: time.Second}
	_, err := httpapi.ReadAll(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(full)))
	if fleet.KindOf(err) != fleet.TooMany {
		t.Errorf("the error is %v, want %v", err, full)
	}
	_, err = httpapi.ReadAll(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(errors.New("boom"))))
	if fleet.KindOf(err) != fleet.Invalid {
		t.Errorf("another error is %v, want an invalid body", err)
	}
}

func TestUnmarshalJSONNamesFieldAndCause(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		``:                                "[request body]: is empty, want a JSON object",
		" \n":                             "[request body]: is empty, want a JSON object",
		`{"events":[{"name":`:             "[request body]: is incomplete: it ends early",
		`{"events":]}`:                    "[request body]: is not JSON: invalid character ']' looking for beginning of value at byte 11",
		`{} {}`:                           "[request body]: has data after its JSON value",
		`{}]`:                             "[request body]: has data after its JSON value",
		`[]`:                              "[request body]: is a JSON array, want an object",
		`{"events":"x"}`:                  "[request body.events]: is a JSON string, want a list",
		`{"events":[{},{"name":7}]}`:      "[request body.events[1].name]: is a JSON number, want a string",
		`{"events":[{"count":300}]}`:      "[request body.events[0].count]: is a JSON number 300, want a whole number",
		`{"events":[{"count":1.5}]}`:      "[request body.events[0].count]: is a JSON number 1.5, want a whole number",
		`{"events":[{"key":"*"}]}`:        "[request body.events[0].key]: illegal base64 data at input byte 0",
		`{"events":[{"at":"yesterday"}]}`: "[request body]: has the time yesterday, want one such as 2026-01-31T12:00:00Z",
	} {
		var v struct {
			Events []struct {
				Name  string    `json:"name"`
				Count uint8     `json:"count"`
				Key   []byte    `json:"key"`
				At    time.Time `json:"at"`
			} `json:"events"`
		}
		if err := httpapi.UnmarshalJSON([]byte(body), &v); err == nil || err.Error() != want {
			t.Errorf("%s\n got %v\nwant %s", body, err, want)
		}
	}
}

// Agents of other vendors rely on what encoding/json accepts.
func TestUnmarshalJSONAcceptsWhatEncodingJSONAccepts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{
		`{"NAME":"x"}`,
		`{"name":"x","name":"y"}`,
		"{\"name\":\"no \xff space\"}",
		`{"name":null,"tags":null}`,
		`{"name":"x","tags":[],"unknown":{"a":[1]}}`,
		" {\"name\" : \"\\ud800\"}\r\n",
	} {
		type named struct {
			Name string   `json:"name"`
			Tags []string `json:"tags"`
		}
		var got, want named
		if err := errors.Join(httpapi.UnmarshalJSON([]byte(body), &got), json.Unmarshal([]byte(body), &want)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, want %+v: %v", body, got, want, err)
		}
	}
}

func TestRetryAfterIsJittered(t *testing.T) {
	t.Parallel()
	times := map[string]bool{}
	for range 200 {
		s := httpapi.RetryAfterSeconds(0)
		n, err := strconv.Atoi(s)
		if err != nil || time.Duration(n)*time.Second < httpapi.RetryAfter || time.Duration(n)*time.Second > 2*httpapi.RetryAfter {
			t.Fatalf("Retry-After is %q", s)
		}
		times[s] = true
	}
	if len(times) < 4 {
		t.Errorf("200 values are %v", times)
	}
	for after, want := range map[time.Duration]string{time.Millisecond: "1", time.Second: "1", 90 * time.Second: "90"} {
		if got := httpapi.RetryAfterSeconds(after); got != want {
			t.Errorf("%s is %q, want %q", after, got, want)
		}
	}
}
