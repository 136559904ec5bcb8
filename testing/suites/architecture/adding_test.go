package architecture

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	addingFile    = regexp.MustCompile("(?m)^- `([^`]+)`: ")
	addingExample = regexp.MustCompile("(?m)^Example: `([^`]+)` in `([^`]+)`")
)

// server/ADDING.md names, for each thing that is added often, the files to touch. The files that
// have its example must be exactly those.
func TestAddingNamesTheFiles(t *testing.T) {
	tr := openTree(t)
	sections := strings.Split(string(tr.read("server/ADDING.md")), "\n## ")[1:]
	if len(sections) < 5 {
		t.Fatalf("server/ADDING.md has %d parts", len(sections))
	}
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		example := addingExample.FindStringSubmatch(section)
		if example == nil {
			t.Errorf("%s: no line \"Example: `pattern` in `folder`\"", title)
			continue
		}
		var named, found []string
		for _, m := range addingFile.FindAllStringSubmatch(section, -1) {
			named = append(named, m[1])
		}
		pattern := regexp.MustCompile(example[1])
		for _, name := range tr.files {
			if strings.HasPrefix(name, example[2]+"/") && isProduct(name) && pattern.Match(tr.read(name)) {
				found = append(found, name)
			}
		}
		slices.Sort(named)
		if len(named) > 2 {
			t.Errorf("%s touches %d files, want at most 2", title, len(named))
		}
		if !slices.Equal(named, found) {
			t.Errorf("%s: server/ADDING.md names %q, and %q is in %q", title, named, example[1], found)
		}
	}
}

// isProduct reports whether a file is Go, written by hand, of what is shipped.
func isProduct(name string) bool {
	dir, _, _ := strings.Cut(name, "/")
	return dir != "testing" && strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "test/")
}
