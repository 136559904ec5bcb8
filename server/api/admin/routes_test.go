package admin_test

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/server/api/admin"
	"github.com/muster-fleet/muster/server/api/httpapi"
)

var ginParameter = regexp.MustCompile(`:(\w+)`)

// routesOf returns the registered routes in the form of openapi.yaml.
func routesOf(t *testing.T) []string {
	t.Helper()
	h := &admin.Handlers{API: httpapi.API{Log: slog.New(slog.DiscardHandler)}, UI: http.NotFoundHandler()}
	var out []string
	for _, r := range h.Routes() {
		out = append(out, r.Method+" "+ginParameter.ReplaceAllString(strings.TrimSuffix(r.Path, "/"), "{$1}"))
	}
	return out
}
