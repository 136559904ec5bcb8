package sqlite

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// If a parameter is the whole operand of LIMIT or OFFSET, SQLite plans the query again at
// each execution; see DESIGN.md.
func TestBoundLimitsAreExpressions(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no sources: %v", err)
	}
	bound, checked := regexp.MustCompile(`(LIMIT|OFFSET) \?[0-9]*( \+ 0)?`), 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range bound.FindAllString(string(text), -1) {
			if checked++; !strings.HasSuffix(found, " + 0") {
				t.Errorf("%s: %q, want %q", file, found, found+" + 0")
			}
		}
	}
	if checked == 0 {
		t.Error("no bound limit was found")
	}
}
