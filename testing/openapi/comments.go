package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/testing/toolchain"
)

// source has what reflection does not know of the types of a package.
type source struct {
	// comments of types and fields, by names such as Plan and Plan.Strategy.
	comments map[string]string
	// values of the constants of a type, in their order.
	values map[string][]string
}

// readSource reads a package's files.
func readSource(dir string) (source, error) {
	s := source{map[string]string{}, map[string][]string{}}
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return s, err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return s, err
		}
		for _, decl := range file.Decls {
			group, ok := decl.(*ast.GenDecl)
			if !ok {
				continue
			}
			for _, sp := range group.Specs {
				switch sp := sp.(type) {
				case *ast.TypeSpec:
					doc := sp.Doc.Text()
					if doc == "" {
						doc = group.Doc.Text()
					}
					s.comments[sp.Name.Name] = typeText(sp.Name.Name, doc)
					s.readFields(sp.Name.Name, sp.Type)
				case *ast.ValueSpec:
					if err := s.readConstant(sp); err != nil {
						return s, fmt.Errorf("%s: %w", name, err)
					}
				}
			}
		}
	}
	return s, nil
}

func (s source) readFields(at string, t ast.Expr) {
	switch t := t.(type) {
	case *ast.ArrayType:
		s.readFields(at, t.Elt)
	case *ast.StarExpr:
		s.readFields(at, t.X)
	case *ast.StructType:
		for _, f := range t.Fields.List {
			for _, name := range f.Names {
				s.comments[at+"."+name.Name] = oneLine(f.Doc.Text())
				s.readFields(at+"."+name.Name, f.Type)
			}
		}
	}
}

func (s source) readConstant(sp *ast.ValueSpec) error {
	of, ok := sp.Type.(*ast.Ident)
	if !ok {
		return nil
	}
	for _, v := range sp.Values {
		lit, ok := v.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			continue
		}
		text, err := strconv.Unquote(lit.Value)
		if err != nil {
			return err
		}
		s.values[of.Name] = append(s.values[of.Name], text)
	}
	return nil
}

// eventTypes returns the types of events, in the order of server/fleet/event.go.
func eventTypes() (types []string, err error) {
	root, err := toolchain.Root()
	if err != nil {
		return nil, err
	}
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, "server/fleet/event.go"), nil, 0)
	if err != nil {
		return nil, err
	}
	for n := range ast.Preorder(file) {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			text, err := strconv.Unquote(lit.Value)
			if err != nil {
				return nil, err
			}
			types = append(types, text)
		}
	}
	return types, nil
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// typeText returns the comment of a type as a description: without the name that Go's comments
// begin with, and without is or are.
func typeText(name, doc string) string {
	text, ok := strings.CutPrefix(oneLine(doc), name+" ")
	if !ok {
		return text
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "is "), "are ")
	return strings.ToUpper(text[:1]) + text[1:]
}
