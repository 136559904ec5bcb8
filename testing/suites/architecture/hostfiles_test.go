package architecture

import (
	"go/ast"
	"go/token"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// hostFiles lists every file of a host: whose it is, who reads it, and what its loss costs.
const hostFiles = "agent/FILES.md"

// inComponent are the packages that name files in a component's folder, each by a constant whose name
// says that it is one.
var inComponent = []string{"agent/component", "agent/primitive", "agent/runtime", "agent/runtime/docker", "agent/runtime/process", "agent/runtime/systemd"}

var (
	fileConstant = regexp.MustCompile(`(?:File|Dir|Folder|Archive|Link|FileName)$`)
	// listed is a name in the first column of a row.
	listed = regexp.MustCompile("`([^`]+)`")
)

func TestEveryFileOfAHostIsListed(t *testing.T) {
	tr := openTree(t)
	page := listedNames(string(tr.read(hostFiles)))
	declared := declaredFiles(tr.sources())
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		if !slices.ContainsFunc(page, func(row string) bool { return row == name || strings.HasSuffix(row, "/"+name) }) {
			t.Errorf("%s declares %s, which %s does not list: say there who writes it, who reads it, and what its loss costs", declared[name], name, hostFiles)
		}
	}
	for _, row := range page {
		if _, ok := declared[row]; strings.HasPrefix(row, "data/") && !ok {
			t.Errorf("%s lists %s, which package layout does not declare", hostFiles, row)
		}
	}
	if len(declared) < 40 {
		t.Errorf("only %d names are found: %v", len(declared), slices.Sorted(maps.Keys(declared)))
	}
}

// listedNames returns the names in the first columns of the tables.
func listedNames(text string) (names []string) {
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			for _, name := range listed.FindAllStringSubmatch(cells[1], -1) {
				names = append(names, name[1])
			}
		}
	}
	return names
}

// declaredFiles returns the names of a host's files by the file that declares them.
func declaredFiles(sources []source) map[string]string {
	out := map[string]string{}
	for _, s := range sources {
		layout := s.syntax.Name.Name == "layout"
		if s.test || !layout && !slices.Contains(inComponent, s.dir) {
			continue
		}
		for name, value := range constants(s.syntax) {
			switch {
			case !fileConstant.MatchString(name), strings.HasPrefix(value, "/"), name == "DataDir", name == "StateLink":
			default:
				out[value] = s.name
			}
		}
	}
	return out
}

// constants returns the constants of a file that are texts, or begin with one.
func constants(f *ast.File) map[string]string {
	out := map[string]string{}
	for _, d := range f.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok || g.Tok != token.CONST {
			continue
		}
		for _, spec := range g.Specs {
			v := spec.(*ast.ValueSpec)
			for i, e := range v.Values {
				if sum, ok := e.(*ast.BinaryExpr); ok {
					e = sum.X
				}
				if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err == nil && !strings.Contains(text, " ") {
						out[v.Names[i].Name] = text
					}
				}
			}
		}
	}
	return out
}

func TestFilesOfAHostAreRecognized(t *testing.T) {
	sources := parse(t, "agent/component", map[string]string{"x.go": `package component
const (
	stateFile = "state"
	opLink    = "link of a unit"
	linkDir   = "/etc/systemd/system"
	op        = "component"
)`})
	sources = append(sources, parse(t, "packaging/host/layout", map[string]string{"x.go": `package layout
const (
	AgentLink  = "muster-agent" + exe
	DataDir    = "data"
	MarkerFile = "data/upgrade-marker"
	NewSuffix  = ".new"
)`})...)
	if got := slices.Sorted(maps.Keys(declaredFiles(sources))); !slices.Equal(got, []string{"data/upgrade-marker", "muster-agent", "state"}) {
		t.Errorf("the names are %q", got)
	}
	if got := listedNames("text `a` | no\n| `state`, `x/y` | by `z` |\n"); !slices.Equal(got, []string{"state", "x/y"}) {
		t.Errorf("the rows are %q", got)
	}
}
