package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"

	"github.com/muster-fleet/muster/server/api/adminapi"
	"github.com/muster-fleet/muster/server/fleet"
	"github.com/muster-fleet/muster/server/rollout/plan"
	"github.com/muster-fleet/muster/testing/kit/toolchain"
)

// source has what reflection does not know of the types of packages. Its keys are names such as
// module/server/fleet.Plan and module/server/fleet.Plan.Strategy.
type source struct {
	module, root string // the path of this module, and its folder
	read         map[string]bool
	// comments of types and fields.
	comments map[string]string
	// values of the constants of a type, in their order.
	values map[string][]string
	// aliases are the names of types in package adminapi that other packages declare.
	aliases map[string]string
}

// newSource returns what package adminapi says, whose folder is dir.
func newSource(dir string) (*source, error) {
	own := reflect.TypeFor[adminapi.Call]().PkgPath()
	module, _ := strings.CutSuffix(own, "/server/api/adminapi")
	s := &source{module, filepath.Join(dir, "..", "..", ".."), map[string]bool{}, map[string]string{}, map[string][]string{}, map[string]string{}}
	if err := s.readPackage(own); err != nil {
		return nil, err
	}
	// The strategies are those that are registered, whether or not a constant names them.
	kind, err := s.key(reflect.TypeFor[fleet.StrategyKind]())
	s.values[kind] = plan.Kinds()
	return s, err
}

// key returns the name of a type. It reads the type's package, if that is of this module.
func (s *source) key(t reflect.Type) (string, error) {
	err := s.readPackage(t.PkgPath())
	return t.PkgPath() + "." + t.Name(), err
}

// readPackage reads a package's files, once.
func (s *source) readPackage(pkg string) error {
	below, ours := strings.CutPrefix(pkg, s.module+"/")
	if !ours || s.read[pkg] {
		return nil
	}
	s.read[pkg] = true
	names, err := filepath.Glob(filepath.Join(s.root, filepath.FromSlash(below), "*.go"))
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
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
					key := pkg + "." + sp.Name.Name
					if of, ok := sp.Type.(*ast.SelectorExpr); ok && sp.Assign.IsValid() {
						key = imported(file, of)
						s.aliases[key] = sp.Name.Name
					}
					if s.aliases[key] == "" || sp.Assign.IsValid() { // the alias has the description
						s.comments[key] = typeText(sp.Name.Name, doc)
					}
					s.readFields(key, sp.Type)
				case *ast.ValueSpec:
					if err := s.readConstant(pkg, sp); err != nil {
						return fmt.Errorf("%s: %w", name, err)
					}
				}
			}
		}
	}
	return nil
}

// imported returns the full name of a name in another package.
func imported(file *ast.File, of *ast.SelectorExpr) string {
	for _, i := range file.Imports {
		if at, err := strconv.Unquote(i.Path.Value); err == nil && path.Base(at) == of.X.(*ast.Ident).Name {
			return at + "." + of.Sel.Name
		}
	}
	return ""
}

func (s *source) readFields(at string, t ast.Expr) {
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

func (s *source) readConstant(pkg string, sp *ast.ValueSpec) error {
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
		key := pkg + "." + of.Name
		if text != "" { // which stands for an absent value
			s.values[key] = append(s.values[key], text)
		}
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
