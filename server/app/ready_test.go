package app_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/app"
	"github.com/muster-fleet/muster/server/app/apptest"
	"github.com/muster-fleet/muster/server/store/storehealth/storehealthtest"
)

// A probe has no key. It keeps requests away from a server that cannot answer them.
func TestServerIsReadyWhileItsStoreAnswers(t *testing.T) {
	var db *storehealthtest.Store
	s := apptest.Start(t, func(o *app.Options) {
		db = storehealthtest.New(o.Store)
		o.Store = db
	})
	probe := func() apptest.Answer {
		t.Helper()
		got, err := s.Do(t.Context(), apptest.Request{Method: http.MethodGet, URL: s.AdminURL + "/readyz"})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := probe(); got.Status != http.StatusOK || string(got.Body) != "ok\n" {
		t.Errorf("the answer is %d %s", got.Status, got.Body)
	}
	db.Set(storehealthtest.Hanging)
	apptest.Eventually(t, "a store that hangs to show", func() string {
		if got := probe(); got.Status != http.StatusServiceUnavailable || !strings.Contains(string(got.Body), "the store has been away since") || got.Header.Get("Retry-After") == "" {
			return string(got.Body)
		}
		return ""
	})
	db.Set(storehealthtest.Available)
	apptest.Eventually(t, "the server to be ready again", func() string {
		if got := probe(); got.Status != http.StatusOK {
			return string(got.Body)
		}
		return ""
	})
}
