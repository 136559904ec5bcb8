package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/muster-fleet/muster/server/cli"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// command is a documented command.
type command struct {
	where string // file:line
	words []string
}

func (c command) String() string { return strings.Join(c.words, " ") }

// quoted matches code inside a sentence.
var quoted = regexp.MustCompile("`([^`\n]+)`")

// commandsIn returns the commands in a text: those in backquotes, and in Markdown the lines
// of code blocks.
func commandsIn(name, text string) []command {
	var out []command
	inBlock := false
	number := 0
	for line := range strings.Lines(text) {
		number++
		where := fmt.Sprintf("%s:%d", name, number)
		if strings.HasSuffix(name, ".md") {
			if strings.HasPrefix(strings.TrimSpace(line), "```") {
				inBlock = !inBlock
				continue
			}
			// Indented lines of a block are output or a diagram.
			if inBlock && strings.TrimLeft(line, " \t") == line {
				out = append(out, command{where, words(line)})
			}
			if inBlock {
				continue
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			out = append(out, command{where, words(m[1])})
		}
	}
	return ofPrograms(out)
}

// commandsInGo returns the commands in the strings of a Go file and in its package comment.
func commandsInGo(name string, text []byte) ([]command, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var out []command
	add := func(at token.Pos, s string) {
		for _, m := range quoted.FindAllStringSubmatch(s, -1) {
			out = append(out, command{fmt.Sprintf("%s:%d", name, set.Position(at).Line), words(m[1])})
		}
	}
	add(file.Package, file.Doc.Text())
	ast.Inspect(file, func(n ast.Node) bool {
		x, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		s, ok := stringOf(x)
		if ok {
			add(x.Pos(), s)
		}
		return !ok // the operands of a concatenation are not looked at separately
	})
	return ofPrograms(out), nil
}

// stringOf returns the value of a concatenation of strings, in which parts that are not
// constant are "%s".
func stringOf(x ast.Expr) (string, bool) {
	switch x := x.(type) {
	case *ast.BasicLit:
		s, err := strconv.Unquote(x.Value)
		return s, err == nil && x.Kind == token.STRING
	case *ast.BinaryExpr:
		a, okA := stringOf(x.X)
		b, okB := stringOf(x.Y)
		if x.Op != token.ADD || !okA && !okB {
			return "", false
		}
		if !okA {
			a = "%s"
		}
		if !okB {
			b = "%s"
		}
		return a + b, true
	}
	return "", false
}

func ofPrograms(commands []command) []command {
	return slices.DeleteFunc(commands, func(c command) bool { return !slices.Contains(programs, first(c.words)) })
}

// programs are the programs whose commands are checked; "mage" is `go tool mage`.
var programs = []string{"muster", "muster-agent", "muster-watcher", "mage"}

// words splits a line roughly as a shell does, without what precedes the program and what
// follows the command.
func words(line string) []string {
	w := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "$ "))
	if len(w) >= 3 && w[0] == "go" && w[1] == "tool" && w[2] == "mage" {
		w = w[2:]
	}
	if first(w) == "sudo" {
		w = w[1:]
	}
	if len(w) > 0 {
		w[0] = path.Base(w[0])
	}
	for i, word := range w {
		if strings.HasPrefix(word, "#") || slices.Contains([]string{"|", ">", "&&", "||", "->", "→", "…"}, word) {
			return w[:i]
		}
	}
	return w
}

func first(w []string) string {
	if len(w) == 0 {
		return ""
	}
	return w[0]
}

// documented returns the commands in documents and in the texts of the programs and the
// web UI.
func documented(tr tree) []command {
	tr.t.Helper()
	var out []command
	for _, name := range tr.with(".md", ".go", ".ts", ".tsx", ".yml", ".yaml") {
		switch {
		case inTestdata(name), strings.HasSuffix(name, "_test.go"), strings.Contains(name, "__generated__"):
		case strings.HasPrefix(name, "ui/docs/reference/muster"): // the programs' own help texts
		case strings.HasSuffix(name, ".go"):
			found, err := commandsInGo(name, tr.read(name))
			if err != nil {
				tr.t.Error(err)
			}
			out = append(out, found...)
		default:
			out = append(out, commandsIn(name, string(tr.read(name)))...)
		}
	}
	return out
}

func TestDocumentedCommandsExist(t *testing.T) {
	tr := openTree(t)
	checks := map[string]func([]string) error{
		"mage":           mageTargets(t, tr),
		"muster":         func(w []string) error { return checkCobra(cli.New("test"), w) },
		"muster-agent":   helpOf(t, tr, "agent"),
		"muster-watcher": helpOf(t, tr, "watcher"),
	}
	found := map[string]int{}
	for _, c := range documented(tr) {
		found[c.words[0]]++
		if err := checks[c.words[0]](c.words[1:]); err != nil {
			t.Errorf("%s documents %q: %v. Correct the document or the command", c.where, c, err)
		}
	}
	for _, program := range []string{"mage", "muster", "muster-agent"} {
		if found[program] == 0 {
			t.Errorf("no documented command of %s was found: this test no longer finds the documents", program)
		}
	}
}

// mageTargets returns a check of mage commands. The exported functions of the magefile are
// the targets, and their parameters after the context are the options. The keys of Aliases are
// other names, and mage does not distinguish capitals.
func mageTargets(t *testing.T, tr tree) func([]string) error {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "magefile.go", tr.read("magefile.go"), parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	targets := map[string][]string{}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !f.Name.IsExported() || f.Recv != nil {
			continue
		}
		var options []string
		for _, param := range f.Type.Params.List {
			for _, name := range param.Names {
				options = append(options, "-"+name.Name)
			}
		}
		targets[strings.ToLower(f.Name.Name)] = options
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if alias, ok := n.(*ast.KeyValueExpr); ok {
			name, isText := alias.Key.(*ast.BasicLit)
			target, isName := alias.Value.(*ast.Ident)
			if isText && isName {
				targets[strings.Trim(name.Value, `"`)] = targets[strings.ToLower(target.Name)]
			}
		}
		return true
	})
	return func(w []string) error {
		if first(w) == "TARGET" || len(w) == 0 {
			return nil
		}
		options, ok := targets[strings.ToLower(w[0])]
		if !ok {
			return fmt.Errorf("magefile.go has no target %s", w[0])
		}
		for _, option := range w[1:] {
			if strings.HasPrefix(option, "-") && !slices.Contains(options, option) {
				return fmt.Errorf("the target %s has no option %s", w[0], option)
			}
		}
		return nil
	}
}

// checkCobra checks that a command and its flags exist.
func checkCobra(root *cobra.Command, w []string) error {
	root.InitDefaultCompletionCmd("completion")
	cmd := root
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	value := false // the word is the value of the flag before it
	for _, word := range w {
		if strings.HasPrefix(word, "-") {
			var err error
			if value, err = checkFlag(cmd, word); err != nil {
				return err
			}
			continue
		}
		if value {
			value = false
			continue
		}
		i := slices.IndexFunc(cmd.Commands(), func(c *cobra.Command) bool { return c.Name() == word || c.HasAlias(word) })
		switch {
		case i >= 0:
			cmd = cmd.Commands()[i]
			cmd.InitDefaultHelpFlag()
		case cmd.HasSubCommands() && !isPlaceholder(word):
			return fmt.Errorf("%s has no command %s", cmd.CommandPath(), word)
		default:
			// An argument.
		}
	}
	return nil
}

// isPlaceholder reports whether a word is a placeholder.
func isPlaceholder(word string) bool {
	return strings.ToUpper(word) == word || strings.ContainsAny(word, "<[%…{")
}

// checkFlag reports whether the next word is the value of the flag.
func checkFlag(cmd *cobra.Command, word string) (value bool, err error) {
	name, _, given := strings.Cut(strings.TrimLeft(word, "-"), "=")
	for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
		f := set.Lookup(name)
		if f == nil && len(name) == 1 {
			f = set.ShorthandLookup(name)
		}
		if f != nil {
			return !given && f.NoOptDefVal == "", nil
		}
	}
	return false, fmt.Errorf("%s has no flag %s", cmd.CommandPath(), word)
}

// helpOf returns a check for a program that cannot be imported. It builds the program and
// runs every command with --help.
func helpOf(t *testing.T, tr tree, folder string) func([]string) error {
	t.Helper()
	program := filepath.Join(t.TempDir(), "muster-"+folder)
	if err := toolchain.Run(t.Context(), io.Discard, tr.root, nil, "go", "build", "-tags", toolchain.Tags, "-o", program, "./"+folder); err != nil {
		t.Fatalf("%v: build it by hand to see why", err)
	}
	known := map[string]string{}
	return func(w []string) error {
		var path []string
		for _, word := range w {
			if strings.HasPrefix(word, "-") || isPlaceholder(word) {
				break
			}
			path = append(path, word)
		}
		key := strings.Join(path, " ")
		if _, ok := known[key]; !ok {
			cmd := exec.CommandContext(t.Context(), program, append(path, "--help")...)
			cmd.Env = append(os.Environ(), "NO_COLOR=1")
			out, err := cmd.CombinedOutput()
			if err != nil {
				return fmt.Errorf("its --help failed: %w: %s", err, out)
			}
			known[key] = string(out)
		}
		return checkHelp("muster-"+folder, path, w, known[key])
	}
}

// hasUsage reports whether a help text has a usage line of a command.
func hasUsage(help, usage string) bool {
	return regexp.MustCompile(`(?m)^\s*` + regexp.QuoteMeta(usage) + `( |$)`).MatchString(help)
}

// checkHelp checks that a help text has the command in its usage line, since for an unknown
// command the parent's help is printed, and that it has the flags.
func checkHelp(program string, path, w []string, help string) error {
	usage := strings.Join(append([]string{program}, path...), " ")
	if shorter := path[:max(0, len(path)-1)]; len(shorter) > 0 && !strings.Contains(help, "Available Commands:") && !hasUsage(help, usage) {
		return checkHelp(program, shorter, w, help) // the last word is an argument
	}
	if len(path) > 0 && !hasUsage(help, usage) {
		return fmt.Errorf("it has no such command: --help shows no usage of %q", usage)
	}
	for _, word := range w {
		if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(word, "-") && !regexp.MustCompile(`(?m)(^|[\s,])`+regexp.QuoteMeta(name)+`([\s=,]|$)`).MatchString(help) {
			// Package flag prints one dash and accepts two.
			if !strings.Contains(help, " "+strings.Replace(name, "--", "-", 1)+" ") && !strings.Contains(help, " "+strings.Replace(name, "--", "-", 1)+"\n") {
				return fmt.Errorf("--help shows no flag %s", name)
			}
		}
	}
	return nil
}

func TestCommandChecks(t *testing.T) {
	text := "# x\n\nRun `muster agents list` and `ls -l`.\n\n```\n$ sudo muster-agent install --top X  # as root\ngo tool mage demo -auto\nmuster -> data/x\n```\n"
	var got []string
	for _, c := range commandsIn("x.md", text) {
		got = append(got, c.where+" "+c.String())
	}
	want := []string{"x.md:3 muster agents list", "x.md:6 muster-agent install --top X", "x.md:7 mage demo -auto", "x.md:8 muster"}
	if !slices.Equal(got, want) {
		t.Errorf("commands found: %q, want %q", got, want)
	}
	const program = "// Package x is `muster status`.\npackage x\n\n// Not `muster agents lst`.\nvar a = `log in\nwith ` + \"`muster login`\" + `, or\n` + b + \"`muster keys\" + c + \" list`\"\n"
	inGo, err := commandsInGo("x.go", []byte(program))
	if err != nil {
		t.Fatal(err)
	}
	got = nil
	for _, c := range inGo {
		got = append(got, c.where+" "+c.String())
	}
	if want := []string{"x.go:2 muster status", "x.go:5 muster login", "x.go:5 muster keys%s list"}; !slices.Equal(got, want) {
		t.Errorf("commands found in Go: %q, want %q", got, want)
	}

	mage := mageTargets(t, openTree(t))
	help := "Usage:\n  muster-agent install [flags]\n\nFlags:\n  -h, --help\n      --top string   folder\n"
	for _, test := range []struct {
		what  string
		check func() error
		ok    bool
	}{
		{"a target", func() error { return mage([]string{"demo", "-auto"}) }, true},
		{"another name of a target", func() error { return mage([]string{"release-test"}) }, true},
		{"a target with capitals", func() error { return mage([]string{"releaseTest"}) }, true},
		{"no target", func() error { return mage([]string{"party"}) }, false},
		{"no option", func() error { return mage([]string{"demo", "-manual"}) }, false},
		{"a command", func() error { return checkCobra(cli.New("test"), []string{"agents", "list", "-o", "json"}) }, true},
		{"no command", func() error { return checkCobra(cli.New("test"), []string{"agents", "dance"}) }, false},
		{"no first command", func() error { return checkCobra(cli.New("test"), []string{"dance"}) }, false},
		{"a flag's value", func() error { return checkCobra(cli.New("test"), []string{"server", "--data", "./fleet"}) }, true},
		{"no command below one that runs by itself", func() error { return checkCobra(cli.New("test"), []string{"server", "--new-store", "dance"}) }, false},
		{"no flag", func() error { return checkCobra(cli.New("test"), []string{"agents", "list", "--dance"}) }, false},
		{"a placeholder", func() error { return checkCobra(cli.New("test"), []string{"agents", "upgrade", "AGENT"}) }, true},
		{"help", func() error {
			return checkHelp("muster-agent", []string{"install"}, []string{"install", "--top", "X"}, help)
		}, true},
		{"help without the flag", func() error { return checkHelp("muster-agent", []string{"install"}, []string{"install", "--to"}, help) }, false},
		{"help of the parent", func() error { return checkHelp("muster-agent", []string{"dance"}, []string{"dance"}, help) }, false},
	} {
		if err := test.check(); (err == nil) != test.ok {
			t.Errorf("%s: %v, want ok = %v", test.what, err, test.ok)
		}
	}
}
