package architecture

import (
	"fmt"
	"go/ast"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// word is what a declared name must not have among its words.
type word struct {
	not string // a lower-case word, or several with | between them
	say string
	in  string // the folder and those below it; empty: everywhere
}

// secondMeanings are private words, and those that mean something else in a folder.
var secondMeanings = []word{
	{"yard|usher|courtesy", "parked connection, dispatcher", ""},
	{"ledger|roster|gist|stance|acquaintance", "last-seen buffer, agent cache, state digest", ""},
	{"seat|seats|sighting|hindrance", "target, snapshot, block reason", ""},
	{"owed|owes|obey|presence", "pending, execute, availability", ""},
	{"survey|workshop|mood|herd|horde", "scan, staging directory, status, simulated fleet", ""},
	{"unit|units", "component: a unit is systemd's", "agent/component"},
	{"order|orders", "request: an order is for hosts", "server/node/selfupgrade"},
	{"order|orders", "sequence: an order is for hosts", "server/store/elastic"},
	{"hold|holds|held|holder", "take, own, owner: an offer for an absent host is held", "server/store/lease"},
	{"held", "withheld: an offer for an absent host is held", "agent/component"},
	{"manifest", "contents: a manifest is a package's", "server/node/backup"},
	{"phase", "status: a phase is that of an upgrade", "server/rollout/sequence"},
	{"stage", "phase: a stage loads a version ahead", "watcher/watch"},
}

// A name with a second meaning costs every reader a look-up.
func TestNamesHaveOneMeaning(t *testing.T) {
	for _, s := range openTree(t).sources() {
		for _, finding := range checkWords(s) {
			t.Error(finding)
		}
	}
}

func checkWords(s source) (out []string) {
	check := func(ids ...*ast.Ident) {
		for _, id := range ids {
			parts := wordsOf(id.Name)
			for _, w := range secondMeanings {
				if w.in != "" && s.dir != w.in && !strings.HasPrefix(s.dir, w.in+"/") {
					continue
				}
				for not := range strings.SplitSeq(w.not, "|") {
					if slices.Contains(parts, not) {
						out = append(out, fmt.Sprintf("%s declares %s: %q is not the word here, say %s", s.name, id.Name, not, w.say))
					}
				}
			}
		}
	}
	for _, d := range s.syntax.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if !s.test || !strings.HasPrefix(d.Name.Name, "Test") { // its name is a sentence
				check(d.Name)
			}
		case *ast.GenDecl:
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.TypeSpec:
					check(n.Name)
				case *ast.ValueSpec:
					check(n.Names...)
				case *ast.Field:
					check(n.Names...)
				case *ast.FuncLit:
					return false
				}
				return true
			})
		}
	}
	return out
}

var nameWord = regexp.MustCompile(`[A-Z]?[a-z]+|[A-Z]+`)

func wordsOf(name string) []string {
	parts := nameWord.FindAllString(name, -1)
	for i := range parts {
		parts[i] = strings.ToLower(parts[i])
	}
	return parts
}

func TestSecondMeaningsAreFound(t *testing.T) {
	for text, want := range map[string]int{
		"type unit struct{}":                              1,
		"func (m *manager) Units() {}":                    1,
		"type state struct{ heldSince int; opened bool }": 1,
		"var unitary, unity = 1, 2":                       0,
		"func f() { unit := 1; _ = unit }":                0,
		"const seats = 4":                                 1,
	} {
		if got := checkWords(parse(t, "agent/component", map[string]string{"x.go": "package component\n" + text})[0]); len(got) != want {
			t.Errorf("%s: %q", text, got)
		}
	}
}
