package configfile

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"text/template/parse"
)

// The language of templates is text/template without what could run without end, make texts
// without bound, or print Go's view of a value. {{template}} could call itself; printf pads
// to a million characters. Every list of nodes begins with a call of step, which counts.

// builtins are the functions of text/template that are left; others are in functions.
var builtins = []string{"and", "eq", "ge", "gt", "index", "le", "len", "lt", "ne", "not", "or"}

// step is the name of the function that counts. Templates cannot call it.
const step = "step"

// functions returns the functions that spend the budget.
func (b *budget) functions() template.FuncMap {
	spent := func(text string) (string, error) { return text, b.spend(len(text)) }
	return template.FuncMap{
		step: func(n int) (string, error) { return "", b.spend(n) },
		// print joins texts, for the names of variables.
		"print": func(texts ...string) (string, error) { return spent(strings.Join(texts, "")) },
		// quote returns a text as JSON writes it, which YAML, TOML and most others read.
		"quote": func(text string) (string, error) {
			var out bytes.Buffer
			enc := json.NewEncoder(&out)
			enc.SetEscapeHTML(false)
			if err := enc.Encode(text); err != nil {
				return "", err
			}
			return spent(strings.TrimSuffix(out.String(), "\n"))
		},
		// split returns the parts of a list in a variable, without spaces and empty parts.
		"split": func(separator, text string) ([]string, error) {
			if separator == "" {
				return nil, errors.New("the separator is empty")
			}
			var parts []string
			for part := range strings.SplitSeq(text, separator) {
				if part = strings.TrimSpace(part); part != "" {
					parts = append(parts, part)
				}
			}
			return parts, b.spend(len(text))
		},
	}
}

// known are the functions that templates can call.
func known() []string {
	names := slices.Collect(maps.Keys((&budget{}).functions()))
	names = slices.DeleteFunc(names, func(name string) bool { return name == step })
	return slices.Sorted(slices.Values(append(names, builtins...)))
}

// parseTemplate parses a template, and refuses what the language lacks.
func parseTemplate(name, text string) (*template.Template, error) {
	if len(text) > MaxTemplate {
		return nil, fmt.Errorf("%s: has more than %d bytes", name, MaxTemplate)
	}
	t, err := template.New(name).Option("missingkey=error").Funcs((&budget{}).functions()).Parse(text)
	if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "template: "))
	}
	if len(t.Templates()) > 1 {
		return nil, fmt.Errorf("%s: {{define}} and {{block}} are not available: write the text where it belongs", name)
	}
	c := checker{name: name, known: known()}
	return t, c.list(t.Root)
}

// checker goes through a template.
type checker struct {
	name  string
	known []string
	line  int // of the action
	parts int // of the list
}

func (c *checker) refuse(format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", c.name, c.line, fmt.Sprintf(format, args...))
}

// list checks a list of nodes, and prepends a step of as many as the list has parts.
func (c *checker) list(l *parse.ListNode) error {
	if l == nil {
		return nil
	}
	outer := c.parts
	c.parts = 1
	for _, n := range l.Nodes {
		if err := c.node(n); err != nil {
			return err
		}
	}
	l.Nodes = slices.Insert(l.Nodes, 0, stepNode(l.Pos, c.parts))
	c.parts = outer
	return nil
}

func (c *checker) node(n parse.Node) error {
	c.parts++
	switch n := n.(type) {
	case *parse.ActionNode:
		c.line = n.Line
		return c.pipe(n.Pipe)
	case *parse.IfNode:
		return c.branch(&n.BranchNode)
	case *parse.RangeNode:
		return c.branch(&n.BranchNode)
	case *parse.WithNode:
		return c.branch(&n.BranchNode)
	case *parse.TemplateNode:
		c.line = n.Line
		return c.refuse("{{template}} is not available: write the text where it belongs")
	case *parse.TextNode, *parse.BreakNode, *parse.ContinueNode, *parse.CommentNode:
		return nil
	}
	return c.refuse("%s is not available", n) // of a later version of Go
}

func (c *checker) branch(b *parse.BranchNode) error {
	c.line = b.Line
	return cmp.Or(c.pipe(b.Pipe), c.list(b.List), c.list(b.ElseList))
}

func (c *checker) pipe(p *parse.PipeNode) error {
	for _, command := range p.Cmds {
		for _, arg := range command.Args {
			if err := c.argument(arg); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *checker) argument(n parse.Node) error {
	c.parts++
	switch n := n.(type) {
	case *parse.IdentifierNode:
		if !slices.Contains(c.known, n.Ident) {
			return c.refuse("function %s is not available, want one of %s", n.Ident, strings.Join(c.known, ", "))
		}
	case *parse.PipeNode:
		return c.pipe(n)
	case *parse.ChainNode:
		return c.argument(n.Node)
	}
	return nil
}

// stepNode returns the node {{step n}}. It has no tree, so that its errors name the line in
// the tree that it is put into.
func stepNode(at parse.Pos, n int) parse.Node {
	number := &parse.NumberNode{NodeType: parse.NodeNumber, Pos: at, IsInt: true, Int64: int64(n), Text: strconv.Itoa(n)}
	command := &parse.CommandNode{NodeType: parse.NodeCommand, Pos: at, Args: []parse.Node{parse.NewIdentifier(step).SetPos(at), number}}
	pipe := &parse.PipeNode{NodeType: parse.NodePipe, Pos: at, Cmds: []*parse.CommandNode{command}}
	return &parse.ActionNode{NodeType: parse.NodeAction, Pos: at, Pipe: pipe}
}
