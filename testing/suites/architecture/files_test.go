package architecture

import (
	"bytes"
	"go/ast"
	"go/build"
	"go/token"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// maxFileBytes bounds committed files, since each clone has every version of them.
const maxFileBytes = 1 << 20

// topLevel are the entries of the top folder, except dotfiles.
var topLevel = []string{
	"server", "agent", "watcher", "ui", "packaging", "testing",
	"go.mod", "go.sum", "magefile.go", "README.md", "LICENSE", "CHANGELOG.md",
}

func TestTopLevelEntries(t *testing.T) {
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
			t.Errorf("%s is missing: newcomers read the top level first", name)
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

func TestChangelogFormat(t *testing.T) {
	for _, finding := range checkChangelog(string(openTree(t).read("CHANGELOG.md"))) {
		t.Errorf("CHANGELOG.md: %s", finding)
	}
}

var (
	release = regexp.MustCompile(`^## (Unreleased|\d+\.\d+\.\d+ \(\d{4}-\d{2}-\d{2}\))$`)
	groups  = []string{"### Safety", "### Features", "### Changes"}
)

func checkChangelog(text string) []string {
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

func TestChangelogCheck(t *testing.T) {
	for text, findings := range map[string]int{
		"# Changelog\n\nWords.\n\n## Unreleased\n\n### Features\n\n- It runs,\n  and well.\n":    0,
		"# Changelog\n\n## Unreleased\n\n## 1.0.0 (2026-12-31)\n\n### Safety\n\n- It is safe.\n": 0,
		"# Changelog\n\n## 1.0.0\n\n### Features\n\n- It runs.\n":                                3,
		"# Changelog\n\n## Unreleased\n\n### Fun\n\n- It runs.\n":                                1,
		"# Changelog\n\n## Unreleased\n\n### Features\n\nIt runs.\n":                             2,
		"# Changelog\n\n## Unreleased\n\n- It runs.\n":                                           1,
		"": 1,
	} {
		if got := checkChangelog(text); len(got) != findings {
			t.Errorf("%q: %d findings %q, want %d", text, len(got), got, findings)
		}
	}
}

// forbidden are names of files that tools create.
var forbidden = []string{
	"*.orig", "*.rej", "*.bak", "*.old", "*.tmp", "*~", "*.swp", ".DS_Store", "Thumbs.db", "*.log", "*.pid", "*.exe", "*.test", "*.out", "*.prof", "*.a", "*.o", "*.so",
	"*.db", "*.sqlite", "*.sqlite3", "*.db-wal", "*.db-shm", ".env", "*.pem", "*.p12", "id_rsa", "id_ed25519", "node_modules", "test-results", "playwright-report", "__debug_bin*", ".idea", ".vscode",
}

// binaries are the binary files that may be committed, and where.
var binaries = []string{"ui/public/*.png", "ui/public/*.ico", "ui/public/*.woff2"}

func TestNoForeignFiles(t *testing.T) {
	tr := openTree(t)
	for _, name := range tr.files {
		for part := range strings.SplitSeq(name, "/") {
			if pattern := forbiddenBy(part); pattern != "" {
				t.Errorf("%s: files like %s are created by tools: remove it, and add it to .gitignore", name, pattern)
			}
		}
		content := tr.read(name)
		if len(content) > maxFileBytes {
			t.Errorf("%s has %d bytes: every clone keeps it for ever; generate it when it is needed", name, len(content))
		}
		isKnown := slices.ContainsFunc(binaries, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok })
		if isBinary(content) && !isKnown && !isPicture(tr, name) {
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

// isPicture reports whether a document shows the file as a picture.
func isPicture(tr tree, name string) bool {
	return strings.HasSuffix(name, ".png") && slices.ContainsFunc(tr.with(".md"), func(doc string) bool {
		shown, err := filepath.Rel(filepath.Dir(doc), name)
		return err == nil && bytes.Contains(tr.read(doc), []byte(`"`+filepath.ToSlash(shown)+`"`))
	})
}

func TestNoUnreachableGoFiles(t *testing.T) {
	tr := openTree(t)
	for _, s := range tr.sources() {
		if isEmpty(s) {
			t.Errorf("%s declares nothing: remove it", s.name)
		}
	}
	for _, name := range tr.with(".go") {
		if !buildsSomewhere(t, tr, name) {
			t.Errorf("%s is built on none of %s with any of our tags: its build constraint is wrong, or it is unused", name, strings.Join(systems, ", "))
		}
	}
}

// isEmpty reports whether a file declares nothing and has no package comment.
func isEmpty(s source) bool {
	return s.syntax.Doc == nil && !slices.ContainsFunc(s.syntax.Decls, func(d ast.Decl) bool {
		g, ok := d.(*ast.GenDecl)
		return !ok || g.Tok != token.IMPORT || slices.ContainsFunc(g.Specs, func(spec ast.Spec) bool {
			name := spec.(*ast.ImportSpec).Name
			return name != nil && name.Name == "_"
		})
	})
}

func TestEmptyGoFileIsFound(t *testing.T) {
	for text, want := range map[string]bool{
		"package x\n// var y int\n":             true,
		"package x\nimport ()\n":                true,
		"package x\nvar y int\n":                false,
		"package x\nimport _ \"embed\"\n":       false,
		"// Package x is explained.\npackage x": false,
	} {
		if got := isEmpty(parse(t, "x", map[string]string{"a.go": text})[0]); got != want {
			t.Errorf("isEmpty of %q is %v, want %v", text, got, want)
		}
	}
}

// systems are the operating systems of hosts.
var systems = []string{"linux", "windows", "darwin"}

func buildsSomewhere(t *testing.T, tr tree, name string) bool {
	t.Helper()
	for _, system := range systems {
		for _, arch := range []string{"amd64", "arm64"} {
			c := build.Default
			c.GOOS, c.GOARCH, c.CgoEnabled = system, arch, false
			c.BuildTags = []string{toolchain.Tags, toolchain.ReleaseTag, "mage"}
			if ok, err := c.MatchFile(path.Dir(tr.path(name)), path.Base(name)); err != nil {
				t.Fatalf("%s: %v", name, err)
			} else if ok {
				return true
			}
		}
	}
	return false
}

// No compiler finds unused files of the web UI.
func TestNoUnusedUIFiles(t *testing.T) {
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
