package repo

import (
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// Rule: every package has a comment in the form that go doc expects.
func TestPackagesHaveComments(t *testing.T) {
	_, sources := goFiles(t)
	documented := map[string]bool{}
	names := map[string]string{}
	for _, f := range sources {
		name := strings.TrimSuffix(f.ast.Name.Name, "_test")
		names[f.pkg] = name
		if f.ast.Doc == nil {
			continue
		}
		text := f.ast.Doc.Text()
		if strings.HasPrefix(text, "Package "+name+" ") || (name == "main" && strings.HasPrefix(text, "Command ")) {
			documented[f.pkg] = true
		}
	}
	for pkg, name := range names {
		if !documented[pkg] {
			want := "Package " + name + " …"
			if name == "main" {
				want = "Command …"
			}
			t.Errorf("package %s has no package comment (%q): say in one sentence what it is for", pkg, want)
		}
	}
}

// Rule: every public identifier is documented: types, functions, methods, constants, variables and
// interface methods. A comment on a group of constants is enough for all constants of the group.
// Fields of a struct need no comment.
func TestPublicIdentifiersAreDocumented(t *testing.T) {
	fset, sources := goFiles(t)
	for _, f := range sources {
		if f.test || !public(t, f.pkg) {
			continue
		}
		d := docChecker{t: t, fset: fset}
		for _, decl := range f.ast.Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				d.function(decl)
			case *ast.GenDecl:
				d.group(decl)
			}
		}
	}
}

type docChecker struct {
	t    *testing.T
	fset *token.FileSet
}

func (d docChecker) missing(pos token.Pos, what string) {
	d.t.Helper()
	d.t.Errorf("%s: %s is public and has no comment: say what it promises, with units and errors", d.fset.Position(pos),
		what)
}

func (d docChecker) function(decl *ast.FuncDecl) {
	if !decl.Name.IsExported() || decl.Doc != nil {
		return
	}
	name := decl.Name.Name
	if decl.Recv != nil {
		receiver := receiverName(decl.Recv.List[0].Type)
		if !ast.IsExported(receiver) {
			return
		}
		name = receiver + "." + name
		if isStandardMethod(decl.Name.Name) {
			return
		}
	}
	d.missing(decl.Pos(), name)
}

// isStandardMethod reports whether the standard library defines the meaning of a method.
func isStandardMethod(name string) bool {
	switch name {
	case "Error", "Unwrap", "Is", "As", "String", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText",
		"LogValue":
		return true
	}
	return false
}

func receiverName(expr ast.Expr) string {
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func (d docChecker) group(decl *ast.GenDecl) {
	for _, spec := range decl.Specs {
		switch spec := spec.(type) {
		case *ast.TypeSpec:
			if !spec.Name.IsExported() {
				continue
			}
			if decl.Doc == nil && spec.Doc == nil {
				d.missing(spec.Pos(), "type "+spec.Name.Name)
			}
			d.methods(spec)
		case *ast.ValueSpec:
			if decl.Doc != nil || spec.Doc != nil || spec.Comment != nil {
				continue
			}
			for _, name := range spec.Names {
				if name.IsExported() {
					d.missing(name.Pos(), name.Name)
				}
			}
		}
	}
}

func (d docChecker) methods(spec *ast.TypeSpec) {
	typ, ok := spec.Type.(*ast.InterfaceType)
	if !ok || len(typ.Methods.List) == 1 { // if a type has only one method, the comment of the type is enough
		return
	}
	for _, m := range typ.Methods.List {
		if len(m.Names) > 0 && m.Names[0].IsExported() && m.Doc == nil {
			d.missing(m.Pos(), spec.Name.Name+"."+m.Names[0].Name)
		}
	}
}
