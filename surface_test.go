package tutti_test

import (
	"go/ast"
	"go/parser"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// public are the packages that other modules import. "x/*" stands for every child of x.
var public = []string{".", "cmd", "client", "backends", "steps", "core/*"}

// internalTypes are the types of internal packages that exported signatures may name, with the reason.
var internalTypes = map[string]string{
	"telemetry.Metrics": "custom metrics of a backend; nil is allowed, and only the backend python uses it",
	"tracing.Trace":     "servers set it; a step or backend uses Request.ReportActivity",
	"tracing.Origin":    "servers set it; a caller leaves it zero",
}

// TestPublicSurface checks that a user of the public packages needs no type that only this module can import.
func TestPublicSurface(t *testing.T) {
	t.Parallel()
	pkgs, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	for _, p := range pkgs {
		name, ours := strings.CutPrefix(strings.TrimPrefix(p.ImportPath, module), "/")
		if !ours {
			name = "."
		}
		if forTests(name) || !slices.Contains(public, name) && !slices.Contains(public, path.Dir(name)+"/*") {
			continue
		}
		for _, f := range parse(t, p, parser.SkipObjectResolution) {
			for _, found := range internalNames(f) {
				used[found.typ] = true
				if internalTypes[found.typ] == "" {
					t.Errorf("%s.%s names %s, which other modules cannot import", name, found.in, found.typ)
				}
			}
		}
	}
	for typ := range internalTypes {
		if !used[typ] {
			t.Errorf("no public package names %s: delete it from internalTypes", typ)
		}
	}
}

// reference is a type of an internal package in the exported declaration named in.
type reference struct{ in, typ string }

// internalNames returns the references in the exported declarations of a file.
func internalNames(f *ast.File) (list []reference) {
	imports := map[string]string{}
	for _, imp := range f.Imports {
		at, _ := strconv.Unquote(imp.Path.Value)
		if below, ours := strings.CutPrefix(at, module+"/internal/"); ours {
			name := path.Base(at)
			if imp.Name != nil {
				name = imp.Name.Name
			}
			imports[name] = below
		}
	}
	walk := func(in string, n ast.Node) {
		ast.Inspect(n, func(n ast.Node) bool {
			if field, ok := n.(*ast.Field); ok && len(field.Names) > 0 && !slices.ContainsFunc(field.Names, (*ast.Ident).IsExported) {
				_, function := field.Type.(*ast.FuncType)
				return function // the names of parameters do not matter, see walkFunc
			}
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && imports[x.Name] != "" {
					list = append(list, reference{in, imports[x.Name] + "." + sel.Sel.Name})
				}
			}
			return true
		})
	}
	walkFunc := func(in string, fn *ast.FuncType) {
		for _, fields := range []*ast.FieldList{fn.TypeParams, fn.Params, fn.Results} {
			if fields != nil {
				for _, field := range fields.List {
					walk(in, field.Type)
				}
			}
		}
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Name.IsExported() && (d.Recv == nil || exportedType(d.Recv.List[0].Type)) {
				walkFunc(d.Name.Name, d.Type)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					if !spec.Name.IsExported() {
						continue
					}
					walk(spec.Name.Name, spec.Type)
					ast.Inspect(spec.Type, func(n ast.Node) bool {
						if fn, ok := n.(*ast.FuncType); ok {
							walkFunc(spec.Name.Name, fn)
						}
						return true
					})
				case *ast.ValueSpec:
					if spec.Type != nil && slices.ContainsFunc(spec.Names, (*ast.Ident).IsExported) {
						walk(spec.Names[0].Name, spec.Type)
					}
				}
			}
		}
	}
	return list
}

// exportedType reports whether the type of a receiver is exported.
func exportedType(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.StarExpr:
		return exportedType(x.X)
	case *ast.IndexExpr:
		return exportedType(x.X)
	case *ast.Ident:
		return x.IsExported()
	}
	return false
}
