package agents_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
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
	var described []string
	for _, call := range callOnPage.FindAllStringSubmatch(section, -1) {
		described = append(described, call[1])
	}
	slices.Sort(described)
	routes := routesOf()
	if !slices.Equal(described, routes) {
		t.Errorf("the page has the calls\n%s\nthe routes are\n%s", strings.Join(described, "\n"), strings.Join(routes, "\n"))
	}
}
