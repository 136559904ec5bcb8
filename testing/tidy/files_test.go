package tidy

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/toolchain"
)

// maxFileBytes is what a committed file may weigh: each clone carries every
// version of it for ever.
const maxFileBytes = 1 << 20

// topLevel is what the repository's first page shows, dotfiles apart.
var topLevel = []string{
	"server", "agent", "watcher", "ui", "packaging", "testing",
	"go.mod", "go.sum", "magefile.go", "README.md", "LICENSE", "CHANGELOG.md",
}

func TestTopLevelHoldsWhatItShould(t *testing.T) {
	tr := openTree(t)
	there := map[string]bool{}
	for _, name := range tr.files {
		top, _, _ := strings.Cut(name, "/")
		there[top] = true
		if !strings.HasPrefix(top, ".") && !slices.Contains(topLevel, top) {
			t.Errorf("%s: the top level holds only %s and dotfiles: put it in one of them, or in .gitignore", name, strings.Join(topLevel, ", "))
		}
	}
	for _, name := range topLevel {
		if !there[name] {
			t.Errorf("%s is missing: the top level is what a newcomer reads first", name)
		}
	}
}

func TestLicense(t *testing.T) {
	text := string(openTree(t).read("LICENSE"))
	for _, words := range []string{"Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS"} {
		if !strings.Contains(text, words) {
			t.Errorf("LICENSE lacks %q: it must be the whole Apache License 2.0", words)
		}
	}
}

func TestChangelogHasItsShape(t *testing.T) {
	for _, finding := range judgeChangelog(string(openTree(t).read("CHANGELOG.md"))) {
		t.Errorf("CHANGELOG.md: %s", finding)
	}
}

var (
	release = regexp.MustCompile(`^## (Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\))$`)
	groups  = []string{"### Safety", "### Features", "### Changes"}
)

func judgeChangelog(text string) []string {
	var out []string
	section, group, bullets := "", "", map[string]int{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		switch {
		case strings.HasPrefix(line, "## "):
			if section == "" && line != "## Unreleased" {
				out = append(out, "the first section must be \"## Unreleased\", where every change is added")
			}
			if section, group = line, ""; !release.MatchString(line) {
				out = append(out, "section "+line+": want \"## Unreleased\" or \"## 1.2.3 (2026-12-31)\"")
			}
		case strings.HasPrefix(line, "### "):
			if group = line; !slices.Contains(groups, line) {
				out = append(out, line+": a version groups by "+strings.Join(groups, ", "))
			}
		case strings.HasPrefix(line, "- "):
			if section == "" || group == "" {
				out = append(out, "the line \""+line+"\" is in no section and group")
			}
			bullets[section]++
		case section != "" && line != "" && !strings.HasPrefix(line, "  "):
			out = append(out, "the line \""+line+"\": a section holds groups of bullet lines")
		}
	}
	if bullets["## Unreleased"] == 0 && strings.Count(text, "\n## ") < 2 {
		out = append(out, "no bullet line in \"## Unreleased\", and no released version")
	}
	return out
}

func TestTheChangelogJudgeFindsWhatItShould(t *testing.T) {
	for text, findings := range map[string]int{
		"# Changelog\n\nWords.\n\n## Unreleased\n\n### Features\n\n- It runs,\n  and well.\n":    0,
		"# Changelog\n\n## Unreleased\n\n## 1.0.0 (2026-12-31)\n\n### Safety\n\n- It is safe.\n": 0,
		"# Changelog\n\n## 1.0.0\n\n### Features\n\n- It runs.\n":                                3,
		"# Changelog\n\n## Unreleased\n\n### Fun\n\n- It runs.\n":                                1,
		"# Changelog\n\n## Unreleased\n\n### Features\n\nIt runs.\n":                             2,
		"# Changelog\n\n## Unreleased\n\n- It runs.\n":                                           1,
		"": 1,
	} {
		if got := judgeChangelog(text); len(got) != findings {
			t.Errorf("%q: %d findings %q, want %d", text, len(got), got, findings)
		}
	}
}

// forbidden are names of files that come from a machine or a run, not from a
// person.
var forbidden = []string{
	"*.orig", "*.rej", "*.bak", "*.old", "*.tmp", "*~", "*.swp", ".DS_Store", "Thumbs.db", "*.log", "*.pid", "*.exe", "*.test", "*.out", "*.prof", "*.a", "*.o", "*.so",
	"*.db", "*.sqlite", "*.sqlite3", "*.db-wal", "*.db-shm", ".env", "*.pem", "*.p12", "id_rsa", "id_ed25519", "node_modules", "test-results", "playwright-report", "__debug_bin*", ".idea", ".vscode",
}

// binaries are the kinds of committed files that may be no text, and where.
var binaries = []string{"ui/public/*.png", "ui/public/*.ico", "ui/public/*.woff2"}

func TestNoFileIsForeign(t *testing.T) {
	tr := openTree(t)
	for _, name := range tr.files {
		for part := range strings.SplitSeq(name, "/") {
			if pattern := forbiddenBy(part); pattern != "" {
				t.Errorf("%s: files like %s come from a machine or a run: remove it, and add it to .gitignore", name, pattern)
			}
		}
		content := tr.read(name)
		if len(content) > maxFileBytes {
			t.Errorf("%s has %d bytes: every clone carries it for ever; generate it when it is needed", name, len(content))
		}
		isKnown := slices.ContainsFunc(binaries, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
		// The README's picture is the one binary a reader wants at once.
		if isBinary(content) && !isKnown && !readmeShows(tr, name) {
			t.Errorf("%s is a binary: nobody can review it; generate it when it is needed", name)
		}
		if len(bytes.TrimSpace(content)) == 0 && path.Base(name) != ".gitkeep" {
			t.Errorf("%s is empty: remove it", name)
		}
	}
}

func forbiddenBy(part string) string {
	for _, pattern := range forbidden {
		if ok, _ := path.Match(pattern, part); ok {
			return pattern
		}
	}
	return ""
}

func readmeShows(tr tree, name string) bool {
	return strings.HasSuffix(name, ".png") && bytes.Contains(tr.read("README.md"), []byte("]("+name+")"))
}

func TestNoGoFileIsDead(t *testing.T) {
	tr := openTree(t)
	for _, s := range tr.sources() {
		if isDead(s) {
			t.Errorf("%s declares nothing: remove it", s.name)
		}
	}
	for _, name := range tr.with(".go") {
		if !buildsSomewhere(t, tr, name) {
			t.Errorf("%s is built on none of %s with none of our tags: its build constraint is wrong, or it is dead", name, strings.Join(systems, ", "))
		}
	}
}

// isDead says that a file is only comments, and not the package's.
func isDead(s source) bool {
	return s.syntax.Doc == nil && !slices.ContainsFunc(s.syntax.Decls, func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return !ok || g.Tok != token.IMPORT || slices.ContainsFunc(g.Specs, func(spec ast.Spec) bool {
			name := spec.(*ast.ImportSpec).Name
			return name != nil && name.Name == "_"
		})
	})
}

func TestADeadFileIsRecognized(t *testing.T) {
	for text, dead := range map[string]bool{
		"package x\n// var y int\n":             true,
		"package x\nimport ()\n":                true,
		"package x\nvar y int\n":                false,
		"package x\nimport _ \"embed\"\n":       false,
		"// Package x is explained.\npackage x": false,
	} {
		if got := isDead(parse(t, "x", map[string]string{"a.go": text})[0]); got != dead {
			t.Errorf("%q: dead is %v, want %v", text, got, dead)
		}
	}
}

// systems are those that hosts of a fleet run.
var systems = []string{"linux", "windows", "darwin"}

func buildsSomewhere(t *testing.T, tr tree, name string) bool {
	t.Helper()
	for _, system := range systems {
		for _, arch := range []string{"amd64", "arm64"} {
			c := build.Default
			c.GOOS, c.GOARCH, c.CgoEnabled = system, arch, false
			c.BuildTags = []string{toolchain.Tags, "mage"}
			if ok, err := c.MatchFile(path.Dir(tr.path(name)), path.Base(name)); err != nil {
				t.Fatalf("%s: %v", name, err)
			} else if ok {
				return true
			}
		}
	}
	return false
}

// What the web UI's pages are made of has no compiler that says what is unused.
func TestNoFileOfTheUIIsDead(t *testing.T) {
	tr := openTree(t)
	all := map[string]string{}
	for _, name := range tr.with(".ts", ".tsx", ".html", ".mjs", ".json") {
		if strings.HasPrefix(name, "ui/") && name != "ui/package-lock.json" {
			all[name] = string(tr.read(name))
		}
	}
	for _, name := range tr.with(".ts", ".tsx", ".css") {
		base := path.Base(name)
		if !strings.HasPrefix(name, "ui/") || strings.Contains(base, ".config.") || strings.Contains(base, ".test.") || strings.Contains(base, ".spec.") || strings.HasSuffix(base, ".d.ts") {
			continue // the tools find them by their names
		}
		reference := regexp.MustCompile(`["'/]` + regexp.QuoteMeta(strings.TrimSuffix(strings.TrimSuffix(base, ".ts"), ".tsx")) + `(\.tsx?)?["']`)
		named := false
		for other, text := range all {
			named = named || other != name && reference.MatchString(text)
		}
		if !named {
			t.Errorf("%s: no other file of the UI imports it: use it or remove it", name)
		}
	}
}
