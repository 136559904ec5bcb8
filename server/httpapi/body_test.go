package httpapi_test

import (
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/httpapi"
)

// A server that is short of memory in the middle of a body has to be told from a
// body that is wrong: one may come again as it is.
func TestWhoHandsABodyOnMayRefuseIt(t *testing.T) {
	t.Parallel()
	full := &fleet.Error{Kind: fleet.TooMany, Message: "come again", RetryAfter: time.Second}
	var v map[string]string
	err := httpapi.DecodeJSON(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(full)), &v)
	if fleet.KindOf(err) != fleet.TooMany {
		t.Errorf("it became %v", err)
	}
	err = httpapi.DecodeJSON(io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(errors.New("boom"))), &v)
	if fleet.KindOf(err) != fleet.Invalid {
		t.Errorf("another error became %v", err)
	}
}

func TestClientsAreNotCalledBackTogether(t *testing.T) {
	t.Parallel()
	times := map[string]bool{}
	for range 200 {
		s := httpapi.RetryAfterSeconds(0)
		n, err := strconv.Atoi(s)
		if err != nil || time.Duration(n)*time.Second < httpapi.RetryAfter || time.Duration(n)*time.Second > 2*httpapi.RetryAfter {
			t.Fatalf("one is told %q", s)
		}
		times[s] = true
	}
	if len(times) < 4 {
		t.Errorf("200 clients are told %v", times)
	}
	for after, want := range map[time.Duration]string{time.Millisecond: "1", time.Second: "1", 90 * time.Second: "90"} {
		if got := httpapi.RetryAfterSeconds(after); got != want {
			t.Errorf("%s is %q, want %q", after, got, want)
		}
	}
}
