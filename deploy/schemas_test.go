package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// conforms checks manifests with kubeconform.
func conforms(t *testing.T, schemas string, manifests []byte) error {
	t.Helper()
	_, err := run(t, manifests, filepath.Join(checkers(t), "bin", "kubeconform"), "-strict", "-summary", "-schema-location", schemas+"/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json")
	return err
}

// writeSchemas writes the schemas of all kinds into a new folder.
func writeSchemas(t *testing.T) string {
	t.Helper()
	dir, schemas := checkers(t), t.TempDir()
	writeNativeSchemas(t, filepath.Join(dir, "schemas"), schemas)
	writeCRDSchemas(t, filepath.Join(dir, "crds"), schemas)
	return schemas
}

// nativeKinds are the kinds of the chart that are Kubernetes' own, as KIND-GROUP-VERSION, and the names of their schemas.
var nativeKinds = map[string]string{
	"deployment-apps-v1": "deployment_v1", "service-v1": "service_v1", "serviceaccount-v1": "serviceaccount_v1", "poddisruptionbudget-policy-v1": "poddisruptionbudget_v1",
	"horizontalpodautoscaler-autoscaling-v2": "horizontalpodautoscaler_v2", "networkpolicy-networking-v1": "networkpolicy_v1",
}

// writeNativeSchemas writes the schemas of nativeKinds into a folder, each with the definitions that it refers to.
func writeNativeSchemas(t *testing.T, from, to string) {
	t.Helper()
	read := func(name string) (m map[string]any) {
		text, err := os.ReadFile(filepath.Join(from, name+".json"))
		if err == nil {
			err = json.Unmarshal(bytes.ReplaceAll(text, []byte("/api/_definitions.json#"), []byte("#")), &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	definitions := read("_definitions")["$defs"]
	for kind, name := range nativeKinds {
		schema := read(kind)
		delete(schema, "$id") // the references are to this file now
		schema["$defs"] = definitions
		writeSchema(t, filepath.Join(to, name+".json"), schema)
	}
}

func writeSchema(t *testing.T, path string, schema map[string]any) {
	t.Helper()
	text, err := json.Marshal(schema)
	if err == nil {
		err = os.WriteFile(path, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// writeCRDSchemas writes the schema of each version of some custom resources into a folder.
func writeCRDSchemas(t *testing.T, crds, to string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(crds, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no definitions in %s: %v", crds, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var crd struct {
			Spec struct {
				Names    struct{ Kind string }
				Versions []struct {
					Name   string
					Schema struct {
						V3 map[string]any `yaml:"openAPIV3Schema"`
					}
				}
			}
		}
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			closed(v.Schema.V3)
			writeSchema(t, filepath.Join(to, strings.ToLower(crd.Spec.Names.Kind)+"_"+v.Name+".json"), v.Schema.V3)
		}
	}
}

// closed refuses the fields that a schema does not have, as the API server does for a strict client.
func closed(schema map[string]any) {
	properties, ok := schema["properties"].(map[string]any)
	if _, more := schema["additionalProperties"]; ok && !more && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false
	}
	for _, p := range properties {
		if inner, ok := p.(map[string]any); ok {
			closed(inner)
		}
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[key].(map[string]any); ok {
			closed(inner)
		}
	}
}

// TestManifests checks the examples of KServe and of the Gateway API against the definitions of their kinds, and that a field with another
// name is found.
func TestManifests(t *testing.T) {
	t.Parallel()
	schemas := writeSchemas(t)
	for file, field := range map[string]string{
		"kserve/servingruntime.yaml": "supportedModelFormats", "kserve/inferenceservice.yaml": "storageUri", "kserve/inferencegraph.yaml": "routerType",
		"gateway/inferencepool.yaml": "endpointPickerRef",
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := conforms(t, schemas, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		wrong := bytes.Replace(text, []byte(field+":"), []byte(field+"X:"), 1)
		if err := conforms(t, schemas, wrong); err == nil || bytes.Equal(wrong, text) {
			t.Errorf("%s: with %sX for %s nothing is found", file, field, field)
		}
	}
}

// TestPickerOptions checks that the endpoint picker of the Gateway API inference extension has the options that the example names.
func TestPickerOptions(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("gateway/inferencepool.yaml")
	if err != nil {
		t.Fatal(err)
	}
	source, err := parser.ParseFile(token.NewFileSet(), filepath.Join(checkers(t), "picker.go"), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	ast.Inspect(source, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			if word, err := strconv.Unquote(l.Value); err == nil {
				words[word] = true
			}
		}
		return true
	})
	named := option.FindAllStringSubmatch(string(text), -1)
	if len(named) != 2 {
		t.Errorf("the example names the options %q, expected 2", named)
	}
	for _, m := range named {
		if !words[m[1]] {
			t.Errorf("the endpoint picker has no option %s", m[0])
		}
	}
}

// TestCompose checks the compose file with the loader of docker compose, and that its services and volumes exist. Wrong ones are found.
func TestCompose(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := composed(t, string(text)); err != nil {
		t.Error(err)
	}
	for _, change := range [][2]string{
		{"depends_on: [temporal, jaeger]", "depends_on: [temporal, jager]"},
		{"stop_grace_period:", "stop_grace:"},
		{`"temporal:/data"`, `"temporary:/data"`},
		{"127.0.0.1:9090:9090", "127.0.0.1:9090:port"},
		{"restart: unless-stopped", "restart: [always]"},
	} {
		wrong := strings.Replace(string(text), change[0], change[1], 1)
		if err := composed(t, wrong); err == nil || wrong == string(text) {
			t.Errorf("with %q for %q nothing is found", change[1], change[0])
		}
	}
}

// composed returns what is wrong with a compose file.
func composed(t *testing.T, text string) error {
	t.Helper()
	file := filepath.Join(t.TempDir(), "compose.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, nil, filepath.Join(checkers(t), "bin", "compose-spec"), "-format", "json", file)
	if err != nil {
		return err
	}
	var model struct {
		Services map[string]struct {
			DependsOn map[string]any `json:"depends_on"`
			Volumes   []struct{ Type, Source string }
		}
		Volumes map[string]any
	}
	if err := json.Unmarshal(out, &model); err != nil {
		return err
	}
	if len(model.Services) == 0 {
		return errors.New("no services")
	}
	for name, s := range model.Services {
		for other := range s.DependsOn {
			if _, ok := model.Services[other]; !ok {
				return fmt.Errorf("service %s depends on %s, which does not exist", name, other)
			}
		}
		for _, v := range s.Volumes {
			if _, ok := model.Volumes[v.Source]; !ok && v.Type == "volume" {
				return fmt.Errorf("service %s has the volume %s, which does not exist", name, v.Source)
			}
		}
	}
	return nil
}
