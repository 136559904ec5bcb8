package agents_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"github.com/muster-fleet/muster/server/httpapi"
	"github.com/muster-fleet/muster/server/httpapi/agents"
)

var callOnPage = regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]+)` \\|")

// TestCompatibilityPageIsTrue compares the calls of the agents' API on the page with the
// routes.
func TestCompatibilityPageIsTrue(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "COMPATIBILITY.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## The agents' API")
	if !found {
		t.Fatal("the page has no section about the agents' API")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var described, routes []string
	for _, call := range callOnPage.FindAllStringSubmatch(section, -1) {
		described = append(described, call[1])
	}
	h := &agents.Handlers{API: httpapi.API{Log: slog.New(slog.DiscardHandler)}}
	for _, r := range h.Handler().(*gin.Engine).Routes() {
		routes = append(routes, r.Method+" "+r.Path)
	}
	slices.Sort(described)
	slices.Sort(routes)
	if !slices.Equal(described, routes) {
		t.Errorf("the page has the calls\n%s\nthe routes are\n%s", strings.Join(described, "\n"), strings.Join(routes, "\n"))
	}
}
