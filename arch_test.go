package tutti_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/tutti-server/tutti"

// layers lists the packages of each layer, lowest first, without "internal/". A package may import packages of
// lower layers only. "x/*" stands for every child of x and the packages below it; a name without a star takes
// precedence. In layer 0 a package may also import those listed before it. For example, core/config may import
// core/status. backends/bind and the packages beside it are shared by several backends: none imports another.
var layers = [][]string{
	{
		"steps/image/kernels", "steps/image/raster", "steps/image/warp", "steps/image/contour", "steps/image/opencv", "steps/image/jpeg", "steps/image/tiff", "steps/image/resize", "steps/image/decode",
		"tokenizer/charclass", "tokenizer/onig", "tokenizer", "proto/modelconfig", "proto/inference", "files", "faults", "pending", "pool", "environ", "tempfolder", "memory", "core/status", "diskfull", "diskfull/*", "jsontext", "recovery", "onnxfile", "core/tensor", "subprocess", "core/condition", "core/tensor/compute", "core/tensor/cuda", "core/tensor/cuda/kernels", "telemetry", "logs", "handover", "tracing", "tensordiff", "shm", "server/certs", "server/sock", "server/sites", "server/http1", "server/rpc", "table", "load", "plot",
		"backends/caffe2/netdef", "backends/caffe2/onnxgraph", "backends/caffe2/convert",
	},
	{"core/config", "core/infer", "core/job", "inspect", "simdev", "gpu", "scheduler/deadline"},
	{"wire", "identity", "server/loads", "precision"},
	{"backends", "cache", "tracing/*"},
	{"steps", "scheduler", "scheduler/device", "pipeline", "pipeline/plan", "backends/bind", "backends/dylib", "backends/crash", "runtimes", "cloud", "temporald", "pipeline/engine"},
	{"scheduler/batch", "dataset"},
	{"scheduler/queue", "scheduler/guarded"},
	{"backends/*", "steps/*", "scheduler/*", "cache/*", "runtimes/*", "pipeline/exec"},
	{"repository", "repository/*"},
	{"server/*", "pipeline/durable", "pipeline/async"},
	{"client", "options", "lint", "starter", "importer"},
	{"benchmark", "exposure", "replay"},
	{"monitor", "simulate"},
	{"."},
	{"lab"},
	{"tune", "quantize"},
	{"cli"},
	{"cli/*"},
	{"cmd"},
	{"cmd/*"},
}

// denial forbids an import that the layers alone would allow.
type denial struct{ from, to, reason string }

var denials = []denial{
	{"repository", "backends/*", "it is handed a registry of backends"},
	{"repository", "steps/*", "it is handed a registry of steps"},
	{"repository/*", "backends/*", "it is handed a registry of backends"},
	{"repository/*", "steps/*", "it is handed a registry of steps"},
	{"steps/*", "tokenizer/onig", "only the tokenizer engine matches patterns"},
	{"steps/*", "tokenizer/charclass", "classes are those of the tokenizer engine"},
	{"pipeline/durable", "backends", "it submits requests"},
	{"pipeline/durable", "steps", "it submits requests"},
	{"pipeline/durable", "scheduler", "it submits requests"},
	{"pipeline/async", "backends", "it submits requests"},
	{"pipeline/async", "steps", "it submits requests"},
	{"pipeline/async", "scheduler", "it submits requests"},
	{".", "backends/*", "only cmd lists backends"},
	{".", "steps/*", "only cmd lists steps"},
	{".", "client", "only commands send requests to other servers"},
	{".", "lint", "only commands lint"},
	{"cli", "backends/*", "only cmd lists backends"},
	{"cli", "steps/*", "only cmd lists steps"},
	{"cli", "server/*", "it opens servers by the root package"},
	{"cmd/*", "backends/*", "only cmd lists backends"},
	{"cmd/*", "steps/*", "only cmd lists steps"},
	{"cmd/*", "cli", "it runs commands by cmd"},
	{"client", "backends/*", "only cmd lists backends"},
	{"client", "steps/*", "only cmd lists steps"},
}

// ceilings limits packages that must see interfaces only: they may not import layers above the given one.
var ceilings = map[string]int{"server/*": 2, "pipeline/durable": 5, "pipeline/async": 5}

// rooms lists the packages inside a child of a top folder, lowest first; "." is the child itself. A package may
// import packages of earlier rows. Children without an entry have no such rule.
var rooms = map[string][][]string{
	"server/httpapi": {{"jsonwire"}, {"transport", "tensorjson"}, {"inference", "admin", "textapi", "trtis", "tools"}, {"."}},
}

// judgeRooms returns the reason why a package must not import another package of the same child, or "" if it may.
func judgeRooms(child, from, to string) string {
	list := rooms[child]
	row := func(pkg string) int {
		name := strings.TrimPrefix(strings.TrimPrefix(pkg, child), "/")
		if name == "" {
			name = "."
		}
		return slices.IndexFunc(list, func(names []string) bool { return slices.Contains(names, name) })
	}
	switch f, t := row(from), row(to); {
	case list == nil:
		return ""
	case f < 0 || t < 0:
		return "it is in no row of " + child + ": add it to rooms"
	case t >= f:
		return fmt.Sprintf("row %d of %s imports row %d", f, child, t)
	}
	return ""
}

// layerOf finds the row and the entry of layers for a package path without the module, and the entry's position in
// its row.
func layerOf(pkg string) (entry string, layer, pos int) {
	child := ""
	if top, _, ok := strings.Cut(pkg, "/"); ok {
		child = top + "/*"
	}
	for _, want := range []string{pkg, child} {
		for l, row := range layers {
			if i := slices.Index(row, want); i >= 0 && want != "" {
				return want, l, i
			}
		}
	}
	return "", -1, -1
}

// forTests reports whether a package serves tests only: an element of its path ends in "test".
func forTests(pkg string) bool {
	return slices.ContainsFunc(strings.Split(pkg, "/"), func(s string) bool { return strings.HasSuffix(s, "test") })
}

// unit returns the child of a top folder that a package belongs to.
func unit(pkg string) string {
	return strings.Join(strings.SplitN(pkg, "/", 3)[:min(2, strings.Count(pkg, "/")+1)], "/")
}

// judge returns the reason why package from must not import to, or "" if it may.
func judge(from, to string) string {
	if forTests(from) {
		return ""
	}
	if forTests(to) {
		return "serves tests only"
	}
	fe, fl, fp := layerOf(from)
	te, tl, tp := layerOf(to)
	switch {
	case fl < 0:
		return "the importer is in no layer: add it to layers"
	case tl < 0:
		return "it is in no layer: add it to layers"
	case strings.HasSuffix(fe, "/*") && fe == te && unit(from) == unit(to):
		return judgeRooms(unit(from), from, to)
	case tl > fl:
		return fmt.Sprintf("upward: layer %d imports layer %d", fl, tl)
	case tl == fl && (fl > 0 || tp >= fp):
		return fmt.Sprintf("sideways: both are of layer %d", fl)
	}
	if top, ok := ceilings[fe]; ok && tl > top {
		return fmt.Sprintf("%s sees layers 0 to %d only", fe, top)
	}
	for _, d := range denials {
		if d.from == fe && d.to == te {
			return d.reason
		}
	}
	return ""
}

// goPackage holds the fields of go list's JSON that the tests use.
type goPackage struct {
	Dir, ImportPath            string
	GoFiles, CgoFiles, Imports []string
}

// rel returns the package's path below the module or its internal folder; "." is the root.
func rel(importPath string) (string, bool) {
	if importPath == module {
		return ".", true
	}
	below, ours := strings.CutPrefix(importPath, module+"/")
	return strings.TrimPrefix(below, "internal/"), ours
}

// packages lists the module's packages that have files besides tests.
var packages = sync.OnceValues(func() ([]goPackage, error) {
	out, err := exec.Command("go", "list", "-json=Dir,ImportPath,GoFiles,CgoFiles,Imports", "./...").Output()
	if err != nil {
		return nil, err
	}
	var pkgs []goPackage
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		if len(p.GoFiles)+len(p.CgoFiles) > 0 {
			pkgs = append(pkgs, p)
		}
	}
})

func TestImportLayers(t *testing.T) {
	t.Parallel()
	pkgs, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		from, _ := rel(p.ImportPath)
		if _, l, _ := layerOf(from); l < 0 && !forTests(from) {
			t.Errorf("%s is in no layer: add it to layers", from)
		}
		for _, imp := range p.Imports {
			if to, ours := rel(imp); ours {
				if reason := judge(from, to); reason != "" {
					t.Errorf("%s imports %s: %s", from, to, reason)
				}
			}
		}
	}
}

func TestLayerRule(t *testing.T) {
	t.Parallel()
	tests := []struct{ from, to, want string }{
		{"proto/inference", "proto/modelconfig", ""},
		{"proto/modelconfig", "proto/inference", "sideways"},
		{"core/tensor", "core/status", ""},
		{"core/status", "core/tensor", "sideways"},
		{"core/config", "core/infer", "sideways"},
		{"core/tensor", "simdev", "upward"},
		{"core/infer", "backends", "upward"},
		{"backends", "steps", "upward"},
		{"steps", "backends", ""},
		{"backends/onnx", "backends", ""},
		{"backends/onnx", "backends/bind", ""},
		{"backends/onnx", "backends/dylib", ""},
		{"backends/onnx", "backends/native", "sideways"},
		{"backends/onnx", "backends/onnx/internal/api", ""},
		{"backends/caffe2", "backends/caffe2/convert", ""},
		{"backends/caffe2/convert", "backends", "upward"},
		{"steps/image", "steps/tokenize", "sideways"},
		{"steps/image", "steps/image/decode", ""},
		{"steps/image/decode", "steps/image/raster", ""},
		{"steps/image/resize", "steps/image/decode", "sideways"},
		{"steps/image/decode", "steps", "upward"},
		{"steps/tokenize", "tokenizer", ""},
		{"steps/tokenize", "tokenizer/onig", "only the tokenizer engine matches patterns"},
		{"tokenizer", "tokenizer/onig", ""},
		{"tokenizer/onig", "tokenizer", "sideways"},
		{"tokenizer", "core/tensor", "sideways"},
		{"scheduler/dynamic", "scheduler/device", ""},
		{"scheduler/device", "scheduler/dynamic", "upward"},
		{"scheduler", "scheduler/batch", "upward"},
		{"scheduler/batch", "scheduler", ""},
		{"scheduler/batch", "scheduler/queue", "upward"},
		{"scheduler/queue", "scheduler/batch", ""},
		{"scheduler/queue", "scheduler/dynamic", "upward"},
		{"pipeline/exec", "scheduler/batch", ""},
		{"pipeline/exec", "pipeline/plan", ""},
		{"pipeline/exec", "scheduler/dynamic", "sideways"},
		{"pipeline/plan", "pipeline/exec", "upward"},
		{"repository", "scheduler/dynamic", ""},
		{"repository", "pipeline/exec", ""},
		{"repository", "backends", ""},
		{"repository", "backends/onnx", "registry of backends"},
		{"repository/s3", "steps/image", "registry of steps"},
		{"server/httpapi", "core/infer", ""},
		{"server/httpapi", "backends", "layers 0 to 2 only"},
		{"server/httpapi", "repository", "layers 0 to 2 only"},
		{"server/httpapi", "server/grpcapi", "sideways"},
		{"server/httpapi", "server/httpapi/inference", ""},
		{"server/httpapi/inference", "server/httpapi/transport", ""},
		{"server/httpapi/inference", "server/httpapi/admin", "row 2 of server/httpapi imports row 2"},
		{"server/httpapi/transport", "server/httpapi", "row 1 of server/httpapi imports row 3"},
		{"server/httpapi/transport", "repository", "layers 0 to 2 only"},
		{"server/httpapi/other", "server/httpapi", "add it to rooms"},
		{".", "repository", ""},
		{".", "server/httpapi", ""},
		{".", "client", "only commands"},
		{"cli", ".", ""},
		{"cli", "client", ""},
		{"cli", "backends/onnx", "only cmd lists"},
		{"cli", "server/httpapi", "root package"},
		{".", "cli", "upward"},
		{".", "options", ""},
		{"options", ".", "upward"},
		{"client", ".", "upward"},
		{".", "backends/onnx", "only cmd lists"},
		{"cmd", "backends/onnx", ""},
		{"cmd", "cli", ""},
		{"cmd/tutti", "cmd", ""},
		{"cmd/tutti", "backends/onnx", "only cmd lists"},
		{".", "cmd/tutti", "upward"},
		{"helpers", "core/status", "importer is in no layer"},
		{"core/config", "core/other", "it is in no layer"},
		{"steps/steptest", "backends/onnx", ""},
		{"pipeline/pipelinetest/golden", "cmd/tutti", ""},
		{"steps/image", "steps/steptest", "serves tests only"},
	}
	for _, tt := range tests {
		t.Run(tt.from+" imports "+tt.to, func(t *testing.T) {
			t.Parallel()
			got := judge(tt.from, tt.to)
			if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("judge = %q, want %q", got, tt.want)
			}
		})
	}
}

// parse reads the files of a package except its tests.
func parse(t *testing.T, p goPackage, mode parser.Mode) []*ast.File {
	t.Helper()
	var files []*ast.File
	for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, mode)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// packageDocs counts the files that carry a package comment.
func packageDocs(files []*ast.File) int {
	n := 0
	for _, f := range files {
		if f.Doc != nil && f.Doc.Text() != "" {
			n++
		}
	}
	return n
}

func TestPackageDocs(t *testing.T) {
	t.Parallel()
	pkgs, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		if n := packageDocs(parse(t, p, parser.PackageClauseOnly|parser.ParseComments)); n != 1 {
			t.Errorf("%s: %d package comments, want exactly 1", p.ImportPath, n)
		}
	}
}

// hasInit reports whether a hand-written file has an init function.
func hasInit(f *ast.File) bool {
	return !ast.IsGenerated(f) && slices.ContainsFunc(f.Decls, func(d ast.Decl) bool {
		fn, ok := d.(*ast.FuncDecl)
		return ok && fn.Recv == nil && fn.Name.Name == "init"
	})
}

func TestNoInit(t *testing.T) {
	t.Parallel()
	pkgs, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pkgs {
		if slices.ContainsFunc(parse(t, p, parser.ParseComments|parser.SkipObjectResolution), hasInit) {
			t.Errorf("%s has an init function: build the value where it is used", p.ImportPath)
		}
	}
}

func TestSourceRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name, src string
		docs      int
		init      bool
	}{
		{"plain", "// Package p is documented.\npackage p\nfunc f() {}\n", 1, false},
		{"detached comment", "// Not about the package.\n\npackage p\n", 0, false},
		{"init", "package p\nfunc init() {}\n", 0, true},
		{"method", "package p\ntype T int\nfunc (T) init() {}\n", 0, false},
		{"generated", "// Code generated by x. DO NOT EDIT.\n\npackage p\nfunc init() {}\n", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			f, err := parser.ParseFile(token.NewFileSet(), "p.go", tt.src, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if got := packageDocs([]*ast.File{f}); got != tt.docs {
				t.Errorf("packageDocs = %d, want %d", got, tt.docs)
			}
			if got := hasInit(f); got != tt.init {
				t.Errorf("hasInit = %v, want %v", got, tt.init)
			}
		})
	}
}
