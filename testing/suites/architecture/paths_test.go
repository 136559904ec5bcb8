package architecture

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// A path that the command line writes out is stated a second time beside the table of operations,
// and goes wrong unnoticed when that changes.
func TestCommandLineCallsOperationsByTheirTables(t *testing.T) {
	for _, s := range openTree(t).sources() {
		if s.test || s.dir != "server/cli" {
			continue
		}
		for _, path := range apiPaths(s.syntax) {
			t.Errorf("%s has the path %s: call the operation of package adminapi that has it", s.name, path)
		}
	}
}

// apiPaths returns the string literals that begin with a path of the admin API.
func apiPaths(f *ast.File) (found []string) {
	ast.Inspect(f, func(n ast.Node) bool {
		if _, ok := n.(*ast.ImportSpec); ok {
			return false
		}
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && strings.HasPrefix(lit.Value[1:], "/api/") {
			found = append(found, lit.Value)
		}
		return true
	})
	return found
}

func TestPathsOfTheAPIAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"`/api/v1/servers`": 1, `"/api/v1/servers/" + id`: 1, `"see /api/status"`: 0,
	} {
		if got := len(apiPaths(parse(t, "server/x", map[string]string{"x.go": "package x\nvar x = " + text})[0].syntax)); got != want {
			t.Errorf("%s: found %d paths, want %d", text, got, want)
		}
	}
}
