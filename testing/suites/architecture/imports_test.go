package architecture

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// graph has the imports of all packages. Packages are folders; those of this repository
// have the prefix ours.
type graph struct {
	code  map[string]map[string]string // package → import → a file that does it
	tests map[string]map[string]string
}

func newGraph(sources []source) graph {
	g := graph{code: map[string]map[string]string{}, tests: map[string]map[string]string{}}
	for _, s := range sources {
		side := g.code
		if s.test {
			side = g.tests
		}
		if side[s.dir] == nil {
			side[s.dir] = map[string]string{}
		}
		for _, imported := range s.imports {
			side[s.dir][imported] = s.name
		}
	}
	return g
}

// reach returns the direct and indirect imports of a package, each with the path of
// imports to it.
func (g graph) reach(dir string) map[string]string {
	way := map[string]string{}
	var visit func(dir, so string)
	visit = func(dir, so string) {
		for imported := range g.code[dir] {
			if _, seen := way[imported]; seen {
				continue
			}
			way[imported] = so + " → " + strings.TrimPrefix(imported, ours)
			if own, ok := strings.CutPrefix(imported, ours); ok {
				visit(own, way[imported])
			}
		}
	}
	visit(dir, dir)
	return way
}

// violations returns the imports that violate a ban.
func (g graph) violations(b ban) []string {
	var out []string
	for _, dir := range slices.Sorted(maps.Keys(g.code)) {
		if !matches(dir, b.from) || matches(dir, b.unless) {
			continue
		}
		found := maps.Clone(g.code[dir])
		if b.deep {
			found = g.reach(dir)
		}
		if b.tests {
			maps.Copy(found, g.tests[dir])
		}
		for _, imported := range slices.Sorted(maps.Keys(found)) {
			if matches(imported, b.to) && !matches(imported, b.only) {
				out = append(out, fmt.Sprintf("%s imports %s (%s)", dir, strings.TrimPrefix(imported, ours), found[imported]))
			}
		}
	}
	return out
}

// outsideTable returns the imports that the table of areas does not allow.
func (g graph) outsideTable() []string {
	var out []string
	for _, a := range areas {
		check := func(side map[string]map[string]string, more ...string) {
			for dir, imports := range side {
				if area(dir) != a.from {
					continue
				}
				more := more
				if isSupport(dir) {
					more = []string{"testing"}
				}
				for imported, file := range imports {
					own, isOurs := strings.CutPrefix(imported, ours)
					if isOurs && !slices.ContainsFunc(slices.Concat(more, a.to, []string{a.from}), func(to string) bool { return matches(own, []string{to + "/..."}) }) {
						out = append(out, fmt.Sprintf("%s imports %s, and %s may import %s: %s. Move what both need to where both may import it", file, own, a.from, listOr(a.to), a.reason))
					}
				}
			}
		}
		check(g.code)
		check(g.tests, "testing")
	}
	slices.Sort(out)
	return out
}

func listOr(to []string) string {
	if len(to) == 0 {
		return "nothing of ours"
	}
	return "only " + strings.Join(to, ", ")
}

func TestImportsGoOneWay(t *testing.T) {
	g := newGraph(openTree(t).sources())
	for _, finding := range g.outsideTable() {
		t.Error(finding)
	}
	for _, b := range slices.Concat(bans, inOrder()) {
		for _, finding := range g.violations(b) {
			t.Errorf("%s: %s", finding, b.reason)
		}
	}
	for dir := range g.code {
		if top := area(dir); top != "" && !slices.ContainsFunc(areas, func(a row) bool { return a.from == top }) {
			t.Errorf("%s is in no area of the import table: add what it may import to testing/suites/architecture/rules_test.go", dir)
		}
	}
}

// A rule about a folder that no longer exists has no effect.
func TestRulesNameExistingPackages(t *testing.T) {
	g := newGraph(openTree(t).sources())
	exists := func(pattern string) bool {
		pattern = strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(pattern, ours), "..."), "/")
		for dir := range g.code {
			if pattern == "" || matches(dir, []string{pattern + "/..."}) {
				return true
			}
		}
		return pattern == support
	}
	for _, b := range slices.Concat(bans, inOrder()) {
		for _, p := range slices.Concat(b.from, b.unless, b.only) {
			if !exists(p) {
				t.Errorf("a rule of rules_test.go names %s, which does not exist (the rule: %s)", p, b.reason)
			}
		}
		for _, p := range b.to {
			if strings.HasPrefix(p, ours) && !exists(p) {
				t.Errorf("a rule of rules_test.go bans %s, which does not exist (the rule: %s)", p, b.reason)
			}
		}
	}
}

// Go refuses import cycles of packages. Cycles of groups of packages are as bad: neither
// group can be understood, tested or replaced without the other.
func TestPackageGroupsHaveNoImportCycle(t *testing.T) {
	g := newGraph(openTree(t).sources())
	edges := groupEdges(g)
	for _, from := range slices.Sorted(maps.Keys(edges)) {
		if cycle := cycleThrough(edges, from); cycle != nil {
			t.Errorf("%s: groups of packages import each other in a cycle. Move what both need into a package below both", strings.Join(cycle, " → "))
		}
	}
}

// groupEdges returns the imports between groups of packages. A group is the packages with
// the same first two folders: server/store/sqlite is in server/store. In testing it is three, since
// kit, suites and tools each have packages about different parts.
func groupEdges(g graph) map[string]map[string]bool {
	group := func(dir string) string {
		parts := strings.Split(dir, "/")
		depth := 2
		if parts[0] == "testing" {
			depth = 3
		}
		return path.Join(parts[:min(depth, len(parts))]...)
	}
	edges := map[string]map[string]bool{}
	for dir, imports := range g.code {
		for imported := range imports {
			own, ok := strings.CutPrefix(imported, ours)
			if !ok || group(own) == group(dir) {
				continue
			}
			if edges[group(dir)] == nil {
				edges[group(dir)] = map[string]bool{}
			}
			edges[group(dir)][group(own)] = true
		}
	}
	return edges
}

// cycleThrough returns a path of imports from a group to itself, or nil.
func cycleThrough(edges map[string]map[string]bool, start string) []string {
	seen := map[string]bool{}
	var visit func(at string) []string
	visit = func(at string) []string {
		for _, to := range slices.Sorted(maps.Keys(edges[at])) {
			if to == start {
				return []string{at, to}
			}
			if !seen[to] {
				seen[to] = true
				if way := visit(to); way != nil {
					return append([]string{at}, way...)
				}
			}
		}
		return nil
	}
	return visit(start)
}

// The checks above find violations in a small example.
func TestImportChecks(t *testing.T) {
	g := newGraph([]source{
		{name: "server/store/storetest/x.go", dir: "server/store/storetest", imports: []string{"//testing/kit/harness"}},
		{name: "agent/main.go", dir: "agent", imports: []string{"os", "//agent/queue"}},
		{name: "agent/queue/queue.go", dir: "agent/queue", imports: []string{"net/http", "//server/fleet"}},
		{name: "agent/queue/queue_test.go", dir: "agent/queue", test: true, imports: []string{"//testing/kit/harness", "//server/store"}},
		{name: "server/store/sqlite/x.go", dir: "server/store/sqlite", imports: []string{"//server/agents/beacon"}},
		{name: "server/agents/beacon/x.go", dir: "server/agents/beacon", imports: []string{"//server/store"}},
		{name: "server/store/store.go", dir: "server/store"},
	})
	if got := g.outsideTable(); len(got) != 2 || !strings.HasPrefix(got[0], "agent/queue/queue.go imports server/fleet") || !strings.HasPrefix(got[1], "agent/queue/queue_test.go imports server/store,") {
		t.Errorf("outside the table: %q", got)
	}
	for _, test := range []struct {
		what string
		ban  ban
		want int
	}{
		{"direct", ban{from: []string{"agent/queue"}, to: []string{"net/..."}}, 1},
		{"the parent is not meant by its name", ban{from: []string{"agent/queue"}, to: []string{"net"}}, 0},
		{"deep", ban{from: []string{"agent"}, to: []string{"net/..."}, deep: true}, 1},
		{"not deep", ban{from: []string{"agent"}, to: []string{"net/..."}}, 0},
		{"unless", ban{from: []string{"agent/..."}, unless: []string{"agent/queue"}, to: []string{"net/..."}}, 0},
		{"only", ban{from: []string{"agent/..."}, to: []string{"//..."}, only: []string{"//agent/queue"}}, 1},
		{"tests", ban{from: []string{"agent/queue"}, to: []string{"//testing/..."}, tests: true}, 1},
		{"no tests", ban{from: []string{"agent/queue"}, to: []string{"//testing/..."}}, 0},
		{"another folder with the same beginning", ban{from: []string{"agent/que/..."}, to: []string{"net/..."}}, 0},
	} {
		if got := g.violations(test.ban); len(got) != test.want {
			t.Errorf("%s: %q, want %d", test.what, got, test.want)
		}
	}
	if got := cycleThrough(groupEdges(g), "server/store"); len(got) != 3 {
		t.Errorf("the cycle is %v, want server/store → server/agents/beacon → server/store", got)
	}
}
