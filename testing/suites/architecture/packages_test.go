package architecture

import (
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

// minPackageComment is in characters. A shorter comment only repeats the name.
const minPackageComment = 40

func TestEveryPackageHasAComment(t *testing.T) {
	for _, finding := range checkComments(openTree(t).sources()) {
		t.Error(finding)
	}
}

func checkComments(sources []source) []string {
	var out []string
	comments := map[string][]source{}
	for _, s := range sources {
		comments[s.dir] = comments[s.dir][:len(comments[s.dir]):len(comments[s.dir])]
		// The comment of a generated file is not the package comment.
		if s.syntax.Doc != nil && !ast.IsGenerated(s.syntax) {
			comments[s.dir] = append(comments[s.dir], s)
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(comments)) {
		switch found := comments[dir]; {
		case dir == ".":
			// The magefile, whose comment mage prints as the heading of the targets.
		case len(found) == 0:
			out = append(out, fmt.Sprintf("%s: no package comment: say above the package clause of one file what it is for and who talks to whom", dir))
		case len(found) > 1:
			var names []string
			for _, s := range found {
				names = append(names, s.name)
			}
			out = append(out, fmt.Sprintf("%s: package comments in %s: godoc would join them. Keep one", dir, strings.Join(names, " and ")))
		default:
			if finding := checkComment(found[0]); finding != "" {
				out = append(out, finding)
			}
		}
	}
	return out
}

func checkComment(s source) string {
	text := strings.TrimSpace(s.syntax.Doc.Text())
	beginning := "Package " + strings.TrimSuffix(s.syntax.Name.Name, "_test") + " "
	if s.syntax.Name.Name == "main" {
		beginning = "Command "
	}
	switch {
	case !strings.HasPrefix(text, beginning):
		return fmt.Sprintf("%s: the package comment must begin with %q, as godoc shows it", s.name, beginning)
	case !strings.ContainsAny(text[len(text)-1:], ".:)`"):
		return fmt.Sprintf("%s: the package comment ends in the middle of a sentence", s.name)
	case len(text) < minPackageComment:
		return fmt.Sprintf("%s: the package comment is %q: say what the package is for and who uses it", s.name, text)
	}
	return ""
}

func TestEveryPackageIsUsed(t *testing.T) {
	sources := openTree(t).sources()
	used := map[string]bool{}
	for _, s := range sources {
		for _, imported := range s.imports {
			if own, ok := strings.CutPrefix(imported, ours); ok && own != s.dir {
				used[own] = true
			}
		}
	}
	for _, s := range sources {
		if s.test || used[s.dir] || s.syntax.Name.Name == "main" || onlyTests(sources, s.dir) {
			continue
		}
		used[s.dir] = true // report it once
		t.Errorf("%s: no other package imports it: use it or remove it", s.dir)
	}
}

// onlyTests reports whether a package has only tests and a package comment.
func onlyTests(sources []source, dir string) bool {
	for _, s := range sources {
		if s.dir == dir && !s.test && len(s.syntax.Decls) > 0 {
			return false
		}
	}
	return true
}

// With CI=true no test may be skipped silently, so only package require skips.
func TestOnlyPackageRequireSkips(t *testing.T) {
	for _, s := range openTree(t).sources() {
		if s.dir == "testing/kit/require" {
			continue
		}
		ast.Inspect(s.syntax, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if ok && slices.Contains([]string{"Skip", "Skipf", "SkipNow"}, sel.Sel.Name) && isTestVariable(sel.X) {
				t.Errorf("%s: %s.%s skips even with CI=true, where every test must run: call testing/kit/require with what the test needs", s.name, sel.X, sel.Sel.Name)
			}
			return true
		})
	}
}

// isTestVariable goes by the usual names, since rapid has a Skip with another meaning.
func isTestVariable(x ast.Expr) bool {
	name, ok := x.(*ast.Ident)
	return ok && slices.Contains([]string{"t", "b", "tb", "f"}, name.Name)
}

func TestCommentCheck(t *testing.T) {
	const good = "// Package queue stores the actions that the agent has received.\n"
	for _, test := range []struct {
		what  string
		files map[string]string
		want  string
	}{
		{"one good comment", map[string]string{"a.go": good + "package queue", "b.go": "package queue"}, ""},
		{"none", map[string]string{"a.go": "package queue"}, "no package comment"},
		{"two", map[string]string{"a.go": good + "package queue", "b.go": good + "package queue"}, "a.go and x/b.go"},
		{"another beginning", map[string]string{"a.go": "// This package queue stores the actions that the agent has received.\npackage queue"}, "must begin with"},
		{"a program", map[string]string{"a.go": "// Command x prints everything there is to be printed here.\npackage main"}, ""},
		{"too short", map[string]string{"a.go": "// Package queue is a queue.\npackage queue"}, "say what the package is for"},
	} {
		got := strings.Join(checkComments(parse(t, "x", test.files)), "\n")
		if (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%s: found %q, want %q", test.what, got, test.want)
		}
	}
}
