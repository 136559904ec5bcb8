package architecture

import (
	"go/ast"
	"strings"
	"testing"
)

// conflictLoops are the loops outside package store that go on after a write conflict.
var conflictLoops = map[string]string{
	"server/rollout/action/execute.go":                "an order answers for each agent why it was refused, and judges an agent again that has changed",
	"server/rollout/action/guards.go":                 "it cancels many upgrades, and a conflict says that one is over",
	"server/agents/artifact/repository/repository.go": "it reads several documents, of which one names the others",
}

// Loops around a write conflict differ in their bounds and in what they repeat, unless there is one.
func TestStoreHasTheOnlyLoopAroundWriteConflicts(t *testing.T) {
	used := map[string]bool{}
	for _, s := range openTree(t).sources() {
		if s.test || !strings.HasPrefix(s.dir, "server/") || s.dir == "server/store" || strings.HasPrefix(s.dir, "server/store/") {
			continue
		}
		if !loopsAroundConflict(s.syntax) {
			continue
		}
		if used[s.name] = true; conflictLoops[s.name] == "" {
			t.Errorf("%s has a loop that asks for fleet.Conflict: change one document with store.Change or store.Put, and many agents with store.ChangeAgents, or say in conflictLoops what the loop does that these cannot", s.name)
		}
	}
	for name := range conflictLoops {
		if !used[name] {
			t.Errorf("conflictLoops has %s, which has no such loop: remove the row", name)
		}
	}
}

// loopsAroundConflict reports whether a loop that counts, other than one over the elements of a
// list, names the kind of conflicts.
func loopsAroundConflict(f *ast.File) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		loop, ok := n.(*ast.ForStmt)
		if !ok {
			return !found
		}
		ast.Inspect(loop.Body, func(n ast.Node) bool {
			compared, ok := n.(*ast.BinaryExpr)
			if ok {
				x, ok := compared.Y.(*ast.SelectorExpr)
				found = found || ok && x.Sel.Name == "Conflict"
			}
			return !found
		})
		return !found
	})
	return found
}

func TestLoopsAroundConflictsAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"for try := 1; ; try++ { if fleet.KindOf(err) != fleet.Conflict || try == tries { return err } }": true,
		"for { switch { case fleet.KindOf(err) == fleet.Conflict && try < 4: again() } }":                 true,
		"for _, v := range all { if fleet.KindOf(err) == fleet.Conflict { continue } }":                   false,
		"for { return fleet.Errorf(fleet.Conflict, `it is in use`) }":                                     false,
	} {
		if got := loopsAroundConflict(parse(t, "server/x", map[string]string{"x.go": "package x\nfunc f() { " + text + " }"})[0].syntax); got != want {
			t.Errorf("%s: found is %v", text, got)
		}
	}
}
