package conformance_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/proto/inference"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

var (
	protocol      = inference.File_inference_grpc_service_proto
	configuration = modelconfig.File_modelconfig_model_config_proto
)

// routes lists the endpoints of the HTTP server. For example, "GET /v2/health/live".
func routes(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/server/httpapi/routes.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	methods := map[string]string{"get": "GET", "post": "POST", "getPost": "GET POST", "getDelete": "GET DELETE"}
	var list []string
	ast.Inspect(file, func(n ast.Node) bool {
		literal, ok := n.(*ast.CompositeLit)
		if !ok || len(literal.Elts) < 2 {
			return true
		}
		method, ok := literal.Elts[0].(*ast.Ident)
		if !ok {
			return true
		}
		path, ok := literal.Elts[1].(*ast.BasicLit)
		if !ok || path.Kind != token.STRING {
			return true
		}
		text, err := strconv.Unquote(path.Value)
		if err != nil || methods[method.Name] == "" {
			t.Errorf("a route is not understood: %s %s", method.Name, path.Value)
		}
		list = append(list, methods[method.Name]+" "+text)
		return false
	})
	if len(list) < 20 {
		t.Errorf("%d routes found, expected those of routes.go", len(list))
	}
	return list
}

// rpcs lists the methods of the gRPC server.
func rpcs() []string {
	var list []string
	for _, file := range []protoreflect.FileDescriptor{protocol, grpc_health_v1.File_grpc_health_v1_health_proto} {
		for i := range file.Services().Len() {
			s := file.Services().Get(i)
			for j := range s.Methods().Len() {
				name := string(s.Methods().Get(j).Name())
				if file != protocol {
					name = string(s.FullName()) + "/" + name
				}
				list = append(list, name)
			}
		}
	}
	return append(list, "grpc.reflection")
}

// fields lists the fields of a file's messages, as "Message.field".
func fields(file protoreflect.FileDescriptor) []string {
	var list []string
	var walk func(protoreflect.MessageDescriptors)
	walk = func(messages protoreflect.MessageDescriptors) {
		for i := range messages.Len() {
			m := messages.Get(i)
			if m.IsMapEntry() {
				continue
			}
			name := strings.TrimPrefix(string(m.FullName()), string(file.Package())+".")
			for j := range m.Fields().Len() {
				list = append(list, name+"."+string(m.Fields().Get(j).Name()))
			}
			walk(m.Messages())
		}
	}
	walk(file.Messages())
	return list
}
