package architecture

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/muster-fleet/muster/testing/kit/require"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

const module = "github.com/muster-fleet/muster"

// tree is the repository as it would be committed.
type tree struct {
	t     testing.TB
	root  string
	files []string // slash paths from root, sorted
}

func openTree(t testing.TB) tree {
	t.Helper()
	root, err := toolchain.Root()
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), require.Program(t, "git"), "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v: the tests read the files that git lists, so this must be a clone", err)
	}
	tr := tree{t: t, root: root}
	for _, name := range strings.Split(strings.TrimRight(string(out), "\x00"), "\x00") {
		// A file deleted but not yet committed is still listed.
		if fi, err := os.Lstat(filepath.Join(root, name)); err == nil && !fi.IsDir() {
			tr.files = append(tr.files, name)
		}
	}
	slices.Sort(tr.files)
	tr.files = slices.Compact(tr.files)
	tr.watchFolders()
	if len(tr.files) < 100 {
		t.Fatalf("git lists %d files in %s, which cannot be the whole repository", len(tr.files), root)
	}
	return tr
}

// watchFolders reads every folder. `go test` caches a result until something changes that
// the test itself has opened, so otherwise it would not notice a new file.
func (tr tree) watchFolders() {
	tr.t.Helper()
	seen := map[string]bool{}
	for _, name := range tr.files {
		for dir := path.Dir(name); !seen[dir]; dir = path.Dir(dir) {
			seen[dir] = true
			if _, err := os.ReadDir(tr.path(dir)); err != nil && !os.IsNotExist(err) {
				tr.t.Fatal(err)
			}
		}
	}
}

func (tr tree) path(name string) string { return filepath.Join(tr.root, filepath.FromSlash(name)) }

// read returns the content of a file, or nil if it was removed since it was listed.
func (tr tree) read(name string) []byte {
	tr.t.Helper()
	b, err := os.ReadFile(tr.path(name))
	if err != nil && !os.IsNotExist(err) {
		tr.t.Fatal(err)
	}
	return b
}

// with returns the files whose names have one of the suffixes.
func (tr tree) with(suffixes ...string) []string {
	var out []string
	for _, name := range tr.files {
		if slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(name, s) }) {
			out = append(out, name)
		}
	}
	return out
}

// source is a Go file for any system and build tag.
type source struct {
	name    string // slash path from the root
	dir     string // its folder, "." for the root
	test    bool
	syntax  *ast.File
	imports []string // import paths; those of this repository begin with ours instead of the module
}

// ours is the prefix of an import of this repository.
const ours = "//"

// sources parses all Go files except those in testdata.
func (tr tree) sources() []source {
	tr.t.Helper()
	var out []source
	for _, name := range tr.with(".go") {
		if inTestdata(name) {
			continue
		}
		text := tr.read(name)
		if text == nil {
			continue
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			tr.t.Errorf("%v: every Go file must parse", err)
			continue
		}
		s := source{name: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"), syntax: syntax}
		for _, spec := range syntax.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				tr.t.Fatalf("%s: %v", name, err)
			}
			if own, ok := strings.CutPrefix(imported, module+"/"); ok {
				imported = ours + own
			}
			s.imports = append(s.imports, imported)
		}
		out = append(out, s)
	}
	return out
}

func inTestdata(name string) bool { return slices.Contains(strings.Split(name, "/"), "testdata") }

// isBinary reports whether git considers a file binary: it has a zero byte near its start.
func isBinary(b []byte) bool { return bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 }

// parse returns sources for the tests of the checks.
func parse(t testing.TB, dir string, files map[string]string) []source {
	t.Helper()
	var out []source
	for name, text := range files {
		name = path.Join(dir, name)
		syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, source{name: name, dir: dir, test: strings.HasSuffix(name, "_test.go"), syntax: syntax})
	}
	slices.SortFunc(out, func(a, b source) int { return strings.Compare(a.name, b.name) })
	return out
}
