package architecture

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The import map of the README must agree with the import table.
func TestReadmeImportMapIsTheTable(t *testing.T) {
	drawn := importMap(string(openTree(t).read("README.md")))
	for _, a := range areas {
		want := slices.Sorted(slices.Values(a.to))
		got, ok := drawn[a.from]
		if !ok {
			t.Errorf("README.md: the section \"Import map\" lacks a line \"%s → %s\"", a.from, strings.Join(a.to, ", "))
			continue
		}
		if !slices.Equal(got, want) {
			t.Errorf("README.md: the import map says %s → %q, the table in testing/suites/architecture/rules_test.go says %q", a.from, got, want)
		}
		delete(drawn, a.from)
	}
	for from := range drawn {
		t.Errorf("README.md: the import map has a line for %s, the table in testing/suites/architecture/rules_test.go has none", from)
	}
}

// The page of the server has the rooms, in the order of imports.
func TestServerPageHasTheRooms(t *testing.T) {
	text := string(openTree(t).read("server/DESIGN.md"))
	_, section, _ := strings.Cut(text, "\n## Rooms\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| \\[?`(\\w+)`").FindAllStringSubmatch(section, -1) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, rooms) {
		t.Errorf("server/DESIGN.md: the table of rooms has %q, rules_test.go has %q", got, rooms)
	}
}

// importMap reads the lines "a → b, c" of the section: "(…)" is nothing,
// "everything" is every other area, and what follows a semicolon is a remark.
func importMap(readme string) map[string][]string {
	_, section, _ := strings.Cut(readme, "\n## Import map\n")
	section, _, _ = strings.Cut(section, "\n## ")
	out := map[string][]string{}
	for line := range strings.Lines(section) {
		from, to, ok := strings.Cut(line, "→")
		if !ok {
			continue
		}
		from = strings.TrimSpace(from)
		to, _, _ = strings.Cut(to, ";")
		out[from] = nil
		switch to = strings.TrimSpace(to); {
		case strings.HasPrefix(to, "("):
		case to == "everything":
			for _, a := range areas {
				if a.from != from {
					out[from] = append(out[from], a.from)
				}
			}
		default:
			for part := range strings.SplitSeq(to, ",") {
				out[from] = append(out[from], strings.TrimSpace(part))
			}
		}
		slices.Sort(out[from])
	}
	return out
}

func TestImportMapIsParsed(t *testing.T) {
	got := importMap("# x\n\n## Import map\n\n```\nui → (nothing of ours)\nagent   → packaging, watcher/probe; and no more\n```\n\n## Next\n\na → b\n")
	want := map[string][]string{"ui": nil, "agent": {"packaging", "watcher/probe"}}
	if !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("read %q, want %q", got, want)
	}
}

// link is a target in Markdown's [text](target); code is where files and folders
// of this repository are named; test is where tests are, and declared is where Go has them.
var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	code = regexp.MustCompile("`((?:server|agent|watcher|ui|packaging|testing)/[\\w./-]+)`")
	test = regexp.MustCompile("`(?:\\w+\\.)?((?:Test|Fuzz)[A-Z]\\w+)`")

	declared = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w+)\(`)
)

func TestDocumentsNameWhatExists(t *testing.T) {
	tr := openTree(t)
	tests := map[string]bool{}
	for _, name := range tr.with("_test.go") {
		for _, m := range declared.FindAllSubmatch(tr.read(name), -1) {
			tests[string(m[1])] = true
		}
	}
	for _, name := range tr.with(".md") {
		text := string(tr.read(name))
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target, _, _ := strings.Cut(m[1], "#")
			if target == "" || strings.Contains(target, "://") {
				continue
			}
			if !exists(tr, path.Join(path.Dir(name), target)) {
				t.Errorf("%s links to %s, which does not exist", name, m[1])
			}
		}
		for _, m := range code.FindAllStringSubmatch(text, -1) {
			if !exists(tr, m[1]) && !exists(tr, path.Join(path.Dir(name), m[1])) && !built(m[1]) {
				t.Errorf("%s names %s, which does not exist", name, m[1])
			}
		}
		for _, m := range test.FindAllStringSubmatch(text, -1) {
			if !tests[m[1]] {
				t.Errorf("%s names the test %s, which does not exist", name, m[1])
			}
		}
	}
}

func exists(tr tree, name string) bool {
	_, err := os.Stat(filepath.Join(tr.root, filepath.FromSlash(name)))
	return err == nil
}

// built are folders that exist only after a build or a test.
func built(name string) bool {
	return matches(strings.TrimSuffix(name, "/"), []string{"ui/dist/...", "ui/node_modules/...", "testing/artifacts/..."})
}
