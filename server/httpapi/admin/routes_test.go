package admin_test

import (
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/httpapi"
	"github.com/muster-fleet/muster/server/httpapi/admin"
)

var ginParameter = regexp.MustCompile(`:(\w+)`)

// routesOf returns the registered routes in the form of openapi.yaml.
func routesOf(t *testing.T) []string {
	t.Helper()
	h := &admin.Handlers{API: httpapi.API{Log: slog.New(slog.DiscardHandler)}, UI: http.NotFoundHandler()}
	engine, ok := h.Handler().(*gin.Engine)
	if !ok {
		t.Fatalf("the handler is a %T", h.Handler())
	}
	var out []string
	for _, r := range engine.Routes() {
		out = append(out, r.Method+" "+ginParameter.ReplaceAllString(strings.TrimSuffix(r.Path, "/"), "{$1}"))
	}
	return out
}
