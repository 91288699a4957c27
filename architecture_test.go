package tutti_test

import (
	"go/ast"
	"go/parser"
	"os"
	"regexp"
	"testing"
)

// pageName matches a qualified name in docs/architecture.md: a type or package, and a member of it.
var pageName = regexp.MustCompile(`\b([A-Za-z]+)\.([A-Za-z]+)\b`)

// notCode are endings of file names.
var notCode = map[string]bool{"go": true, "md": true, "pbtxt": true}

// declared returns "package.Name" and "Type.Method" for every declaration of the module.
func declared(t *testing.T) map[string]bool {
	t.Helper()
	pkgs, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, p := range pkgs {
		for _, f := range parse(t, p, parser.SkipObjectResolution) {
			for _, d := range f.Decls {
				addDeclared(names, f.Name.Name, d)
			}
		}
	}
	return names
}

func addDeclared(names map[string]bool, pkg string, d ast.Decl) {
	switch d := d.(type) {
	case *ast.FuncDecl:
		owner := pkg
		if d.Recv != nil {
			owner = receiver(d.Recv.List[0].Type)
		}
		names[owner+"."+d.Name.Name] = true
	case *ast.GenDecl:
		for _, s := range d.Specs {
			ts, ok := s.(*ast.TypeSpec)
			if !ok {
				continue
			}
			names[pkg+"."+ts.Name.Name] = true
			if i, ok := ts.Type.(*ast.InterfaceType); ok {
				for _, m := range i.Methods.List {
					for _, n := range m.Names {
						names[ts.Name.Name+"."+n.Name] = true
					}
				}
			}
		}
	}
}

// receiver returns the name of a receiver's type.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// TestArchitecturePage checks that every function and type that docs/architecture.md names exists.
func TestArchitecturePage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	names := declared(t)
	if names["Repository.NoSuchMethod"] || !names["Repository.Submit"] || !names["infer.Sink"] || !names["Sink.Send"] {
		t.Fatal("the declarations of the module are not read as expected")
	}
	for _, m := range pageName.FindAllStringSubmatch(string(page), -1) {
		if !notCode[m[2]] && !names[m[0]] {
			t.Errorf("docs/architecture.md names %s, which is not declared", m[0])
		}
	}
}
